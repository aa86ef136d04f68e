//! `--migrate-automatically`: creates a migration for each resource whose objects are not all stored in the version that
//! the servers agree on.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use api::objects::{Lease, StorageVersion};
use serde_json::{Value, json};
use storageversion::migration::{TargetForm, reported_writers};
use storageversion::names::parse_storage_version_name;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::objects::{MigrationObject, MigrationState};
use super::{Config, MigratedClass, list_objects};
use crate::client::ApiError;
use crate::discovered::DiscoveryCache;

const STORAGE_VERSIONS: &str = "/apis/internal.apiserver.k8s.io/v1alpha1/storageversions";
const IDENTITY_LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases\
                               ?labelSelector=apiserver.kubernetes.io%2Fidentity%3Dkube-apiserver";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// The interval of looks at the agreement of all resources.
const LOOK_INTERVAL: Duration = Duration::from_secs(30);
/// The first look, when the servers of a cluster that starts have reported.
const FIRST_LOOK: Duration = Duration::from_secs(5);

/// Creates migrations while it is enabled.
pub(super) struct AutomaticMigrations {
    config: Config,
    discovery: Arc<Mutex<DiscoveryCache>>,
    /// The marker under which each resource was last surveyed: while it is the same, nothing new needs work.
    surveyed: HashMap<String, String>,
}

impl AutomaticMigrations {
    pub(super) fn new(config: Config, discovery: Arc<Mutex<DiscoveryCache>>) -> Self {
        Self { config, discovery, surveyed: HashMap::new() }
    }

    /// Surveys resources whose agreement changed, and creates the migrations that are missing, until the future is
    /// dropped.
    pub(super) async fn run(mut self) {
        if !self.config.settings.is_automatic {
            return std::future::pending().await;
        }
        let mut looks = tokio::time::interval_at(Instant::now() + FIRST_LOOK, LOOK_INTERVAL);
        loop {
            looks.tick().await;
            if let Err(error) = self.try_create_missing().await {
                tracing::debug!(%error, "failed to look for resources to migrate, will retry");
            }
        }
    }

    async fn try_create_missing(&mut self) -> Result<(), ApiError> {
        let client = self.config.client.clone();
        let invalid = |error: serde_json::Error| ApiError::InvalidResponse(error.to_string());
        let leases = list_objects(&client, IDENTITY_LEASES).await?;
        let leases: Vec<Lease> =
            leases.into_iter().map(serde_json::from_value).collect::<Result<_, _>>().map_err(invalid)?;
        let definitions = list_objects(&client, DEFINITIONS).await?;
        let existing = list_objects(&client, &self.config.collection()).await?;
        let existing: Vec<MigrationObject> = existing.iter().filter_map(MigrationObject::from_value).collect();
        let discovered = self.discovery.lock().await.refresh().await;
        let discovered = discovered.map_err(|error| ApiError::InvalidResponse(error.to_string()))?;
        for object in list_objects(&client, STORAGE_VERSIONS).await? {
            let object: StorageVersion = serde_json::from_value(object).map_err(invalid)?;
            let Some(resource) = parse_storage_version_name(&object.metadata.name) else { continue };
            let evidence = reported_writers(Some(&object), &leases, None, (self.config.clock)());
            let Ok(agreed) = evidence.judge() else { continue };
            let is_migratable = discovered.all().iter().any(|found| {
                found.group_resource() == resource
                    && ["update", "patch", "list"].iter().all(|verb| found.supports(verb))
            });
            let of_resource = || existing.iter().filter(|migration| migration.group_resource() == resource);
            // A failed migration is not repeated by itself: its objects need an operator.
            let is_handled =
                of_resource().any(|migration| !migration.is_ended() || migration.state == MigrationState::Failed);
            let known = self.surveyed.get(&object.metadata.name);
            if !is_migratable || is_handled || known.is_some_and(|marker| *marker == agreed.marker) {
                continue;
            }
            let name = format!("{}.{}", resource.resource, resource.group);
            let is_custom = definitions.iter().any(|definition| definition["metadata"]["name"] == *name);
            let class = if is_custom { MigratedClass::Custom } else { MigratedClass::BuiltIn };
            let target = TargetForm { api_version: agreed.version.clone(), ..TargetForm::default() };
            let stored_objects = &self.config.settings.stored_objects;
            if !stored_objects.is_stored(resource, class) {
                continue;
            }
            let survey = stored_objects.survey(resource, class, &target).await.map_err(ApiError::InvalidResponse)?;
            if survey.outdated > 0 {
                let wanted = migration_object(self.config.settings.version, &name, survey.revision, resource);
                self.config.creator.create(&self.config.collection(), &wanted).await?;
                tracing::info!(resource = %name, objects = survey.outdated, version = %agreed.version, "storage migration created");
            }
            self.surveyed.insert(object.metadata.name.clone(), agreed.marker);
        }
        Ok(())
    }
}

fn migration_object(version: &str, name: &str, revision: u64, resource: api::GroupResource<&str>) -> Value {
    let name = name.trim_end_matches('.');
    let mut wanted = json!({"group": resource.group, "resource": resource.resource});
    if version == "v1alpha1" {
        // Required by that version, and not used: all versions are views of the same objects.
        wanted["version"] = "v1".into();
    }
    json!({
        "apiVersion": format!("storagemigration.k8s.io/{version}"), "kind": "StorageVersionMigration",
        "metadata": {"name": format!("unskew-{name}-{revision}")},
        "spec": {"resource": wanted},
    })
}
