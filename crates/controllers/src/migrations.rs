//! Storage migrations: executes StorageVersionMigration objects, and creates them if servers agree on another version
//! than the stored one.
//!
//! `objects` holds the rules about the API objects, `cluster` the requests of one migration; when to write and what
//! counts as done is decided by [`storageversion::migration`]. An object that another controller set to Running is left
//! to that controller.

mod automatic;
mod cluster;
mod objects;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use api::GroupResource;
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use serde_json::Value;
use storageversion::migration::{MigrationOutcome, MigrationSettings, Survey, TargetForm, WriterHistory, migrate};
use tokio::sync::{Mutex, mpsc};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::client::{ApiClient, ApiError};
use crate::discovered::DiscoveryCache;
use crate::informer::{EventSink, InformerEvent, InformerScope, ObjectDetail, run_informer};
use crate::metrics::MigrationMetrics;
use cluster::{MigrationCluster, StatusWriter};
use objects::MigrationObject;

/// Migrations that run at once. One that is held occupies a place, so this is more than the load allows.
const CONCURRENT_MIGRATIONS: usize = 16;
/// The interval of looks at all objects: finds those whose start or end could not be written.
const RESYNC_INTERVAL: Duration = Duration::from_secs(30);
/// Observations of the writers while a migration is held.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Informer events that may be queued.
const EVENTS_MAX: usize = 256;

/// The stored objects of this cluster, past the API: only they show in which version an object is stored.
pub trait StoredObjects: Send + Sync + fmt::Debug {
    /// Compares all objects of a resource with a target, at one revision.
    fn survey<'a>(
        &'a self,
        resource: GroupResource<&'a str>,
        class: MigratedClass,
        target: &'a TargetForm,
    ) -> BoxFuture<'a, Result<Survey, String>>;

    /// True if the resource has storage of its own.
    fn is_stored(&self, resource: GroupResource<&str>, class: MigratedClass) -> bool;
}

/// The kinds of resource that differ in their storage keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MigratedClass {
    /// A resource of the release.
    BuiltIn,
    /// A resource with a CustomResourceDefinition.
    Custom,
}

/// Settings of the migrations that this server executes.
#[derive(Clone, Debug)]
pub struct MigrationConfig {
    /// The version in which this server serves StorageVersionMigrations.
    pub version: &'static str,
    /// The stored objects.
    pub stored_objects: Arc<dyn StoredObjects>,
    /// How long a server may still write after its identity lease is gone.
    pub linger: Duration,
    /// Whether migrations are created for resources whose stored version is not the agreed one.
    pub is_automatic: bool,
}

/// The configuration of this controller.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    /// Under the service account of Kubernetes' migrator.
    pub(crate) client: ApiClient,
    /// Watches migrations.
    pub(crate) reader: ApiClient,
    /// Creates migrations, which the migrator's role does not allow.
    pub(crate) creator: ApiClient,
    pub(crate) settings: MigrationConfig,
    pub(crate) metrics: MigrationMetrics,
    pub(crate) clock: fn() -> jiff::Timestamp,
}

impl Config {
    fn collection(&self) -> String {
        format!("/apis/storagemigration.k8s.io/{}/storageversionmigrations", self.settings.version)
    }
}

/// Executes migrations until the future is dropped.
pub(crate) async fn run(config: Config) {
    let (sender, mut events) = mpsc::channel(EVENTS_MAX);
    let scope = InformerScope { path: config.collection(), query: "", detail: ObjectDetail::Metadata };
    let informer = run_informer(config.reader.clone(), scope, EventSink { id: (), events: sender });
    let mut informer = std::pin::pin!(informer);
    let discovery = Arc::new(Mutex::new(DiscoveryCache::new(config.client.clone())));
    let mut running: FuturesUnordered<BoxFuture<'static, String>> = FuturesUnordered::new();
    // By uid; cancelled if the object is deleted, or run or ended by another controller.
    let mut started: HashMap<String, CancellationToken> = HashMap::new();
    let history = WriterHistory::default();
    let automatic = automatic::AutomaticMigrations::new(config.clone(), discovery.clone());
    let mut automatic = std::pin::pin!(automatic.run());
    let mut resync = tokio::time::interval_at(Instant::now() + RESYNC_INTERVAL, RESYNC_INTERVAL);
    let mut is_listed = false;
    loop {
        let is_due = tokio::select! {
            () = &mut informer => return,
            () = &mut automatic => return,
            Some(((), event)) = events.recv() => {
                is_listed |= matches!(event, InformerEvent::Listed(_));
                if let InformerEvent::Unavailable(error) = &event {
                    tracing::debug!(%error, "failed to watch storage version migrations, will retry");
                }
                is_listed
            }
            Some(uid) = running.next() => {
                started.remove(&uid);
                true
            }
            _ = resync.tick() => true,
        };
        if !is_due {
            continue;
        }
        // Further events that are queued are covered by the list that follows.
        while events.try_recv().is_ok() {}
        let listed = match list_objects(&config.client, &config.collection()).await {
            Ok(listed) => listed,
            Err(error) => {
                tracing::debug!(%error, "failed to list storage version migrations, will retry");
                continue;
            }
        };
        let objects: Vec<MigrationObject> = listed.iter().filter_map(MigrationObject::from_value).collect();
        for (uid, cancelled) in &started {
            if !objects.iter().any(|object| object.uid == *uid && object.is_ours_to_run()) {
                cancelled.cancel();
            }
        }
        for object in objects::runnable(&objects) {
            if running.len() < CONCURRENT_MIGRATIONS && !started.contains_key(&object.uid) {
                let cancelled = CancellationToken::new();
                started.insert(object.uid.clone(), cancelled.clone());
                let work = run_object(config.clone(), discovery.clone(), object.clone(), history.clone());
                let uid = object.uid.clone();
                running.push(Box::pin(async move {
                    cancelled.run_until_cancelled(work).await;
                    uid
                }));
            }
        }
        config.metrics.retain(|resource| objects.iter().any(|object| !object.is_ended() && object.label() == resource));
    }
}

/// All objects of a small collection.
async fn list_objects(client: &ApiClient, path: &str) -> Result<Vec<Value>, ApiError> {
    let body = client.get(path, "application/json").await?.body;
    let mut list: Value =
        serde_json::from_slice(&body).map_err(|error| ApiError::InvalidResponse(format!("list: {error}")))?;
    Ok(list["items"].as_array_mut().map(std::mem::take).unwrap_or_default())
}

/// Executes one object to its end.
async fn run_object(
    config: Config,
    discovery: Arc<Mutex<DiscoveryCache>>,
    object: MigrationObject,
    history: WriterHistory,
) {
    let (metrics, label) = (config.metrics.clone(), object.label());
    let status = StatusWriter::new(&config, &object);
    let settings = MigrationSettings {
        linger: config.settings.linger,
        poll_interval: POLL_INTERVAL,
        form: TargetForm { media_type: Some("application/json".to_owned()), ..TargetForm::default() },
        history,
    };
    tracing::info!(migration = %object.name, resource = %label, "storage migration started");
    loop {
        let cluster = match MigrationCluster::find(&config, &discovery, &object, &status).await {
            Ok(cluster) => cluster,
            Err(cluster::NotMigratable::Refused(reason)) => {
                metrics.count_result("failed");
                tracing::warn!(migration = %object.name, resource = %label, %reason, "storage migration failed");
                status.write_failed(&format!("migration encountered unhandled error: {reason}")).await;
                return;
            }
            Err(cluster::NotMigratable::Unknown(reason)) => {
                status.write_waiting(&reason).await;
                tokio::time::sleep(POLL_INTERVAL).await;
                continue;
            }
        };
        match migrate(&cluster, &settings).await {
            MigrationOutcome::Proven(progress) => {
                // The definition is the one of the last observation, which the proof depends on.
                if !cluster.cut_stored_versions(&progress).await {
                    status.write_waiting("storedVersions of the definition could not be reduced, proving again").await;
                    tokio::time::sleep(POLL_INTERVAL).await;
                    continue;
                }
                metrics.count_result("succeeded");
                tracing::info!(migration = %object.name, resource = %label, version = %progress.version, objects = progress.objects,
                    rewritten = progress.rewritten, revision = progress.surveyed_at, "storage migration succeeded");
                status.write_succeeded(&progress).await;
            }
            MigrationOutcome::Refused { progress, objects } => {
                metrics.count_result("refused");
                tracing::warn!(migration = %object.name, resource = %label, objects = %objects.join("; "), "storage migration failed");
                status.write_refused(&progress, &objects).await;
            }
        }
        return;
    }
}
