//! The requests of one migration: evidence about the writers, rewrites, and the status of the migration object.

use std::sync::Arc;

use api::GroupVersionResource;
use api::objects::{Lease, StorageVersion};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use parking_lot::Mutex as SyncMutex;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use storageversion::migration::{
    AgreedWriters, DefinitionState, MigrationPort, Progress, RewriteOutcome, StoredRef, Survey, TargetForm,
    WriterEvidence, reported_writers,
};
use storageversion::names::storage_version_name;
use tokio::sync::Mutex;

use super::objects::{
    ConditionChange, MigrationObject, RUNNING_REASON, running_message, set_condition, succeeded_message,
};
use super::{Config, MigratedClass, list_objects};
use crate::client::{ApiClient, ApiError};
use crate::discovered::DiscoveryCache;
use crate::metrics::MigrationMetrics;
use crate::resources::{DiscoveredResource, DiscoveryState};

const STORAGE_VERSIONS: &str = "/apis/internal.apiserver.k8s.io/v1alpha1/storageversions";
const IDENTITY_LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases\
                               ?labelSelector=apiserver.kubernetes.io%2Fidentity%3Dkube-apiserver";
const DEFINITIONS: GroupVersionResource<&str> =
    GroupVersionResource { group: "apiextensions.k8s.io", version: "v1", resource: "customresourcedefinitions" };
const API_SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
/// The field manager of Kubernetes' migrator.
const FIELD_MANAGER: &str = "storage-version-migrator-controller";
/// How often a status is written again after a conflict.
const STATUS_ATTEMPTS: usize = 5;
/// The longest message that a condition may have.
const MESSAGE_BYTES_MAX: usize = 32_768;

/// Why a resource cannot be migrated.
pub(super) enum NotMigratable {
    /// For good.
    Refused(String),
    /// Something could not be read: try again.
    Unknown(String),
}

/// One migration's view of the cluster.
pub(super) struct MigrationCluster<'a> {
    config: &'a Config,
    resource: Arc<DiscoveredResource>,
    class: MigratedClass,
    /// As of the last observation.
    definition: SyncMutex<Option<DefinitionState>>,
    status: &'a StatusWriter,
    metrics: MigrationMetrics,
    label: String,
}

impl<'a> MigrationCluster<'a> {
    /// Looks the resource up. It must support update and patch, and be stored by this cluster's servers.
    pub(super) async fn find(
        config: &'a Config,
        discovery: &Mutex<DiscoveryCache>,
        object: &MigrationObject,
        status: &'a StatusWriter,
    ) -> Result<Self, NotMigratable> {
        let unknown = |error: &dyn std::fmt::Display| NotMigratable::Unknown(error.to_string());
        let label = object.label();
        let discovered = discovery.lock().await.refresh().await.map_err(|error| unknown(&error))?;
        let mut found = discovered.all().iter().filter(|found| found.group_resource() == object.group_resource());
        let Some(resource) = found.next().cloned() else {
            return Err(NotMigratable::Refused("resource does not exist in discovery".to_owned()));
        };
        if resource.discovery_state != DiscoveryState::Confirmed {
            return Err(NotMigratable::Unknown(format!("no server that serves {label} is reachable")));
        }
        if is_aggregated(&config.client, &resource).await.map_err(|error| unknown(&error))? {
            let reason = format!("{label} is served by an extension API server, whose storage this server cannot read");
            return Err(NotMigratable::Refused(reason));
        }
        if ["update", "patch", "list"].iter().any(|verb| !resource.supports(verb)) {
            let reason = format!("resource {label:?} does not support discovery operations: [update patch list]");
            return Err(NotMigratable::Refused(reason));
        }
        let definition = fetch_definition(&config.client, &resource).await.map_err(|error| unknown(&error))?;
        let class = if definition.is_some() { MigratedClass::Custom } else { MigratedClass::BuiltIn };
        if !config.settings.stored_objects.is_stored(object.group_resource(), class) {
            return Err(NotMigratable::Refused(format!("{label} has no storage of its own")));
        }
        let (definition, metrics) = (SyncMutex::new(definition), config.metrics.clone());
        Ok(Self { config, resource, class, definition, status, metrics, label })
    }

    /// Reduces `storedVersions` of a definition to the proven version, if the definition is still the one that the proof
    /// depends on. False if it is not: then the proof is void.
    pub(super) async fn cut_stored_versions(&self, progress: &Progress) -> bool {
        let Some(definition) = self.definition.lock().clone() else { return true };
        let version = progress.version.rsplit('/').next().unwrap_or_default();
        if definition.stored_versions == [version] {
            return true;
        }
        let patch = json!({
            "metadata": {"resourceVersion": definition.resource_version},
            "status": {"storedVersions": [version]},
        });
        let path = format!("{}/status?fieldManager={FIELD_MANAGER}", definition_path(&self.resource));
        match self.config.client.merge_patch(&path, &patch).await {
            Ok(_) => true,
            Err(error) => {
                tracing::info!(resource = %self.label, %error, "stored versions not reduced, proving again");
                false
            }
        }
    }

    async fn fetch_evidence(&self) -> Result<WriterEvidence, ApiError> {
        let client = &self.config.client;
        // The definition first: a change of it after this read changes the marker of the next observation.
        let definition = match self.class {
            MigratedClass::BuiltIn => None,
            MigratedClass::Custom => {
                let definition = fetch_definition(client, &self.resource).await?;
                Some(definition.ok_or_else(|| ApiError::InvalidResponse("the definition is gone".to_owned()))?)
            }
        };
        let leases: Vec<Lease> = parse_items(list_objects(client, IDENTITY_LEASES).await?)?;
        let name = storage_version_name(self.resource.group_resource());
        let path = format!("{STORAGE_VERSIONS}?fieldSelector=metadata.name%3D{name}");
        let storage_versions: Vec<StorageVersion> = match list_objects(client, &path).await {
            Ok(items) => parse_items(items)?,
            Err(error) if error.is_resource_not_served() => Vec::new(),
            Err(error) => return Err(error),
        };
        let now = (self.config.clock)();
        let evidence = reported_writers(storage_versions.first(), &leases, definition.as_ref(), now);
        *self.definition.lock() = definition;
        Ok(evidence)
    }
}

impl MigrationPort for MigrationCluster<'_> {
    fn observe(&self) -> BoxFuture<'_, Result<WriterEvidence, String>> {
        async { self.fetch_evidence().await.map_err(|error| error.to_string()) }.boxed()
    }

    fn survey<'s>(&'s self, target: &'s TargetForm) -> BoxFuture<'s, Result<Survey, String>> {
        self.config.settings.stored_objects.survey(self.resource.group_resource(), self.class, target)
    }

    fn rewrite<'s>(&'s self, object: &'s StoredRef, _: &'s AgreedWriters) -> BoxFuture<'s, RewriteOutcome> {
        async move {
            let path = self.resource.object_path(&object.namespace, &object.name);
            let unchanged = json!({"metadata": {"resourceVersion": object.revision.to_string()}});
            let path = format!("{path}?fieldManager={FIELD_MANAGER}");
            match self.config.client.merge_patch(&path, &unchanged).await {
                Ok(_) => {
                    self.metrics.count_rewrite();
                    RewriteOutcome::Answered
                }
                Err(ApiError::Status(status)) => match status.http_code() {
                    404 | 409 | 410 => RewriteOutcome::Answered,
                    400 | 403 | 405 | 413 | 415 | 422 => RewriteOutcome::Refused(status.message.clone()),
                    _ => RewriteOutcome::Unavailable(status.message.clone()),
                },
                Err(error) => RewriteOutcome::Unavailable(error.to_string()),
            }
        }
        .boxed()
    }

    fn report<'s>(&'s self, progress: &'s Progress) -> BoxFuture<'s, ()> {
        async move {
            self.metrics.show_progress(&self.label, progress.outdated, !progress.waiting_for.is_empty());
            self.status.write_running(progress).await;
        }
        .boxed()
    }
}

fn parse_items<T: DeserializeOwned>(items: Vec<Value>) -> Result<Vec<T>, ApiError> {
    let parsed: Result<Vec<T>, _> = items.into_iter().map(serde_json::from_value).collect();
    parsed.map_err(|error| ApiError::InvalidResponse(error.to_string()))
}

/// True if an extension server serves the version of the resource.
async fn is_aggregated(client: &ApiClient, resource: &DiscoveredResource) -> Result<bool, ApiError> {
    let name = format!("{}.{}", resource.name.version, resource.name.group);
    let path = format!("{API_SERVICES}?fieldSelector=metadata.name%3D{name}");
    let found = match list_objects(client, &path).await {
        Err(error) if error.is_resource_not_served() => Vec::new(),
        listed => listed?,
    };
    Ok(found.iter().any(|service| !service["spec"]["service"].is_null()))
}

fn definition_path(resource: &DiscoveredResource) -> String {
    let GroupVersionResource { group, version, resource: definitions } = DEFINITIONS;
    format!("/apis/{group}/{version}/{definitions}/{}.{}", resource.name.resource, resource.name.group)
}

/// The definition of a custom resource; `None` if the resource is built in.
async fn fetch_definition(
    client: &ApiClient,
    resource: &DiscoveredResource,
) -> Result<Option<DefinitionState>, ApiError> {
    let name = format!("{}.{}", resource.name.resource, resource.name.group);
    let body = match client.get(&definition_path(resource), "application/json").await {
        Ok(response) => response.body,
        Err(error) if error.is_object_not_found(DEFINITIONS, &name) => return Ok(None),
        Err(error) => return Err(error),
    };
    let definition: Value =
        serde_json::from_slice(&body).map_err(|error| ApiError::InvalidResponse(error.to_string()))?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let versions = definition["spec"]["versions"].as_array().into_iter().flatten();
    let storage = versions.into_iter().find(|version| version["storage"] == true);
    let stored = definition["status"]["storedVersions"].as_array().into_iter().flatten();
    Ok(Some(DefinitionState {
        uid: text(&definition["metadata"]["uid"]),
        generation: definition["metadata"]["generation"].as_i64().unwrap_or_default(),
        resource_version: text(&definition["metadata"]["resourceVersion"]),
        storage_version: format!("{}/{}", resource.name.group, storage.map(|it| text(&it["name"])).unwrap_or_default()),
        stored_versions: stored.map(text).collect(),
    }))
}

/// Writes the status of one migration object.
pub(super) struct StatusWriter {
    client: ApiClient,
    collection: String,
    name: String,
    uid: String,
    clock: fn() -> jiff::Timestamp,
    last_message: SyncMutex<String>,
}

impl StatusWriter {
    pub(super) fn new(config: &Config, object: &MigrationObject) -> Self {
        Self {
            client: config.client.clone(),
            collection: config.collection(),
            name: object.name.clone(),
            uid: object.uid.clone(),
            clock: config.clock,
            last_message: SyncMutex::default(),
        }
    }

    async fn write_running(&self, progress: &Progress) {
        self.write_running_message(&running_message(progress), progress.surveyed_at).await;
    }

    pub(super) async fn write_waiting(&self, reason: &str) {
        self.write_running_message(&format!("The migration is running; waiting: {reason}"), 0).await;
    }

    async fn write_running_message(&self, message: &str, revision: u64) {
        if *self.last_message.lock() == message {
            return;
        }
        let running = ConditionChange { condition_type: "Running", status: "True", reason: RUNNING_REASON, message };
        if self.write(&[running], revision).await {
            message.clone_into(&mut self.last_message.lock());
        }
    }

    pub(super) async fn write_succeeded(&self, progress: &Progress) {
        self.write_end(
            "Succeeded",
            "StorageVersionMigrationSucceeded",
            &succeeded_message(progress),
            progress.surveyed_at,
        )
        .await;
    }

    pub(super) async fn write_refused(&self, progress: &Progress, objects: &[String]) {
        let message = format!(
            "{}/{} not yet migrated. migration encountered unhandled error: refused: {}",
            progress.outdated,
            progress.objects,
            objects.join("; ")
        );
        self.write_end("Failed", "StorageVersionMigrationFailed", &message, progress.surveyed_at).await;
    }

    pub(super) async fn write_failed(&self, message: &str) {
        self.write_end("Failed", "StorageVersionMigrationFailed", message, 0).await;
    }

    async fn write_end(&self, condition_type: &str, reason: &str, message: &str, revision: u64) {
        let running = ConditionChange {
            condition_type: "Running",
            status: "False",
            reason: "MigrationCompleted",
            message: "Migration completed",
        };
        self.write(&[running, ConditionChange { condition_type, status: "True", reason, message }], revision).await;
    }

    /// True if the status is written, or the object is gone or in the hands of another controller. After a failure the object is found again by the next look
    /// at all objects.
    async fn write(&self, changes: &[ConditionChange<'_>], revision: u64) -> bool {
        for _ in 0..STATUS_ATTEMPTS {
            match self.try_write(changes, revision).await {
                Ok(()) => return true,
                Err(error) if error.is_conflict() => {}
                Err(error) => {
                    tracing::debug!(migration = %self.name, %error, "failed to write the status of a storage migration");
                    return false;
                }
            }
        }
        false
    }

    async fn try_write(&self, changes: &[ConditionChange<'_>], revision: u64) -> Result<(), ApiError> {
        let path = format!("{}?fieldSelector=metadata.name%3D{}", self.collection, self.name);
        let found = list_objects(&self.client, &path).await?;
        let Some(mut object) = found.into_iter().find(|object| object["metadata"]["uid"] == *self.uid) else {
            return Ok(());
        };
        if MigrationObject::from_value(&object).is_none_or(|object| !object.is_ours_to_run()) {
            return Ok(());
        }
        let collection_version = self.collection.split('/').nth(3).unwrap_or_default();
        object["apiVersion"] = format!("storagemigration.k8s.io/{collection_version}").into();
        object["kind"] = "StorageVersionMigration".into();
        let mut is_changed = false;
        for change in changes {
            let end = (0..=change.message.len().min(MESSAGE_BYTES_MAX))
                .rev()
                .find(|end| change.message.is_char_boundary(*end));
            let message = &change.message[..end.unwrap_or_default()];
            is_changed |= set_condition(&mut object, &ConditionChange { message, ..change.clone() }, (self.clock)());
        }
        // Set once: the revision of the first survey. Kubernetes accepts no change of it.
        if revision > 0 && object["status"]["resourceVersion"].as_str().is_none_or(str::is_empty) {
            object["status"]["resourceVersion"] = revision.to_string().into();
            is_changed = true;
        }
        if is_changed {
            self.client.update(&format!("{}/{}/status", self.collection, self.name), &object).await?;
        }
        Ok(())
    }
}
