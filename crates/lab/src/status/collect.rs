//! Polls the servers and publishes the snapshot.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::compose::{self, ResourcesByGroupVersion, ServerReport, compose_snapshot};
use super::{
    LabInfo, LabSnapshot, MigrationSummary, Phase, RolloutStatus, StorageVersionSummary, StoredVersionsSummary,
};
use crate::client::{AdminClient, AdminRequest};
use crate::supervisor::ProcessTable;

/// Poll interval while nothing changes; the page shows forward counts live.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Interval for fetching a server's resources again; only a restart or a CustomResourceDefinition changes them.
const DOCUMENT_INTERVAL: Duration = Duration::from_secs(10);
/// Media type of a server's own (unmerged) discovery document.
pub const LOCAL_DISCOVERY_ACCEPT: &str =
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList;profile=nopeer";
/// Collection of the StorageVersion objects.
pub const STORAGE_VERSIONS_PATH: &str = "/apis/internal.apiserver.k8s.io/v1alpha1/storageversions";
/// The group of StorageVersionMigrations, with the versions that are served.
const MIGRATION_GROUP_PATH: &str = "/apis/storagemigration.k8s.io";

/// Polls the servers and publishes snapshots.
#[derive(Debug)]
pub struct StatusCollector {
    /// The constant part of the snapshot.
    pub info: LabInfo,
    /// Process state of the servers.
    pub process_table: watch::Receiver<Arc<ProcessTable>>,
    /// One client per server, in the same order.
    pub clients: Vec<AdminClient>,
    /// Status of the rollout, if any.
    pub rollout: watch::Receiver<Option<RolloutStatus>>,
    /// Versions of stored objects, from a reader of the storage.
    pub stored_versions: watch::Receiver<Vec<StoredVersionsSummary>>,
    /// Where snapshots are published.
    pub snapshots: watch::Sender<Arc<LabSnapshot>>,
}

impl StatusCollector {
    /// Publishes a snapshot at once after each change in the lab, and after polling the ready servers each second.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut reports = vec![ServerReport::default(); self.clients.len()];
        let (mut versions, mut migrations) = (Vec::new(), Vec::new());
        let mut documents_at = Instant::now();
        while !stop.is_cancelled() {
            self.publish_snapshot(&reports, &versions, &migrations);
            let process_table = self.process_table.borrow_and_update().clone();
            let refresh = documents_at.elapsed() >= DOCUMENT_INTERVAL;
            if refresh {
                documents_at = Instant::now();
            }
            let asked = self.clients.iter().zip(&process_table.servers).zip(&reports).map(
                |((client, process), known)| async move {
                    if process.phase == Phase::Ready {
                        poll_server(client, known, process.generation, refresh).await
                    } else {
                        known.clone()
                    }
                },
            );
            reports = join_all(asked).await;
            if let Some(ready) = process_table.servers.iter().position(|process| process.phase == Phase::Ready) {
                versions = fetch_storage_versions(&self.clients[ready]).await.unwrap_or(versions);
                migrations = fetch_migrations(&self.clients[ready]).await.unwrap_or(migrations);
            }
            self.publish_snapshot(&reports, &versions, &migrations);
            tokio::select! {
                () = stop.cancelled() => {}
                () = tokio::time::sleep(POLL_INTERVAL) => {}
                _ = self.process_table.changed() => {}
                _ = self.rollout.changed() => {}
                _ = self.stored_versions.changed() => {}
            }
        }
    }

    /// Publishes a snapshot if it differs from the last one.
    fn publish_snapshot(
        &self,
        reports: &[ServerReport],
        versions: &[StorageVersionSummary],
        migrations: &[MigrationSummary],
    ) {
        let process_table = self.process_table.borrow().clone();
        let rollout = self.rollout.borrow().clone();
        let mut snapshot = compose_snapshot(&self.info, &process_table, reports, versions, rollout, Instant::now());
        snapshot.migrations = migrations.to_vec();
        snapshot.stored_versions = self.stored_versions.borrow().clone();
        self.snapshots.send_if_modified(|last| {
            let is_news = **last != snapshot;
            if is_news {
                *last = Arc::new(snapshot);
            }
            is_news
        });
    }
}

/// Fetches peers, forward counts and, if unknown or due, resources; keeps `previous` where a request fails.
async fn poll_server(client: &AdminClient, previous: &ServerReport, generation: u64, refresh: bool) -> ServerReport {
    let mut report = previous.clone();
    if let Ok(answer) = client.request(AdminRequest::get("/debug/peers")).await
        && let Ok(page) = serde_json::from_slice(&answer.body)
        && answer.status.is_success()
    {
        report.peers = Some(page);
    }
    if let Ok(answer) = client.request(AdminRequest::get("/metrics")).await {
        report.forwards = compose::parse_forward_counts(&String::from_utf8_lossy(&answer.body));
    }
    let is_known = previous.generation == generation && previous.resources.is_some();
    if !is_known || refresh {
        report.resources = fetch_local_resources(client).await.or(report.resources);
    }
    report.generation = generation;
    report
}

/// Fetches the server's own discovery documents; `None` if one cannot be read.
pub async fn fetch_local_resources(client: &AdminClient) -> Option<ResourcesByGroupVersion> {
    let mut resources = ResourcesByGroupVersion::new();
    for path in ["/api", "/apis"] {
        let answer =
            client.request(AdminRequest::get(path).with_header("accept", LOCAL_DISCOVERY_ACCEPT)).await.ok()?;
        compose::collect_resources(&discovery::parse::parse_aggregated(&answer.body).ok()?, &mut resources);
    }
    Some(resources)
}

/// Fetches the migrations that have not ended, in the version that the cluster prefers; `None` if a request fails.
pub async fn fetch_migrations(client: &AdminClient) -> Option<Vec<MigrationSummary>> {
    let group = client.request(AdminRequest::get(MIGRATION_GROUP_PATH)).await.ok()?;
    if group.status == http::StatusCode::NOT_FOUND {
        return Some(Vec::new());
    }
    let version = group.json()["preferredVersion"]["groupVersion"].as_str()?.to_owned();
    let path = format!("/apis/{version}/storageversionmigrations");
    let answer = client.request(AdminRequest::get(path)).await.ok()?;
    answer.status.is_success().then(|| compose::parse_migrations(&answer.json()))
}

/// Fetches the encoding versions of all resources; `None` if the request fails.
pub async fn fetch_storage_versions(client: &AdminClient) -> Option<Vec<StorageVersionSummary>> {
    let answer = client.request(AdminRequest::get(STORAGE_VERSIONS_PATH)).await.ok()?;
    answer.status.is_success().then(|| compose::parse_storage_versions(&answer.json()))
}
