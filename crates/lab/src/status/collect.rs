//! Asks the servers, and keeps the snapshot.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::compose::{self, ResourcesByGroupVersion, ServerReport, compose_snapshot};
use super::{LabInfo, LabSnapshot, Phase, RolloutStatus, StorageVersionSummary};
use crate::client::{AdminClient, AdminRequest};
use crate::supervisor::ProcessTable;

/// How often the servers are asked if nothing happens: the page shows what requests were forwarded.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// How often what a server serves is asked again, though only a restart or a new custom resource changes it.
const DOCUMENT_INTERVAL: Duration = Duration::from_secs(10);
/// The local document of a server.
pub const LOCAL_DISCOVERY_ACCEPT: &str =
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList;profile=nopeer";
/// Who writes what in which form.
pub const STORAGE_VERSIONS_PATH: &str = "/apis/internal.apiserver.k8s.io/v1alpha1/storageversions";

/// Keeps the snapshot.
#[derive(Debug)]
pub struct StatusCollector {
    /// What does not change.
    pub info: LabInfo,
    /// How the servers stand.
    pub process_table: watch::Receiver<Arc<ProcessTable>>,
    /// One client for each of them.
    pub clients: Vec<AdminClient>,
    /// The rollout, if there is one.
    pub rollout: watch::Receiver<Option<RolloutStatus>>,
    /// Where the snapshot goes.
    pub snapshots: watch::Sender<Arc<LabSnapshot>>,
}

impl StatusCollector {
    /// Publishes at once whatever the lab itself knows, and once a second what its servers say.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut reports = vec![ServerReport::default(); self.clients.len()];
        let mut versions = Vec::new();
        let mut documents_at = Instant::now();
        while !stop.is_cancelled() {
            self.publish_snapshot(&reports, &versions);
            let board = self.process_table.borrow_and_update().clone();
            let refresh = documents_at.elapsed() >= DOCUMENT_INTERVAL;
            if refresh {
                documents_at = Instant::now();
            }
            let asked =
                self.clients.iter().zip(&board.servers).zip(&reports).map(|((client, standing), known)| async move {
                    if standing.phase == Phase::Ready {
                        poll_server(client, known, standing.generation, refresh).await
                    } else {
                        known.clone()
                    }
                });
            reports = join_all(asked).await;
            if let Some(ready) = board.servers.iter().position(|standing| standing.phase == Phase::Ready) {
                versions = fetch_storage_versions(&self.clients[ready]).await.unwrap_or(versions);
            }
            self.publish_snapshot(&reports, &versions);
            tokio::select! {
                () = stop.cancelled() => {}
                () = tokio::time::sleep(POLL_INTERVAL) => {}
                _ = self.process_table.changed() => {}
                _ = self.rollout.changed() => {}
            }
        }
    }

    fn publish_snapshot(&self, reports: &[ServerReport], versions: &[StorageVersionSummary]) {
        let board = self.process_table.borrow().clone();
        let rollout = self.rollout.borrow().clone();
        let snapshot = compose_snapshot(&self.info, &board, reports, versions, rollout, Instant::now());
        self.snapshots.send_if_modified(|last| {
            let is_news = **last != snapshot;
            if is_news {
                *last = Arc::new(snapshot);
            }
            is_news
        });
    }
}

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

/// What a server serves itself; `None` if it did not say.
pub async fn fetch_local_resources(client: &AdminClient) -> Option<ResourcesByGroupVersion> {
    let mut resources = ResourcesByGroupVersion::new();
    for path in ["/api", "/apis"] {
        let answer =
            client.request(AdminRequest::get(path).with_header("accept", LOCAL_DISCOVERY_ACCEPT)).await.ok()?;
        compose::collect_resources(&discovery::parse::parse_aggregated(&answer.body).ok()?, &mut resources);
    }
    Some(resources)
}

/// Agreement on encoding versions; `None` if the server did not say.
pub async fn fetch_storage_versions(client: &AdminClient) -> Option<Vec<StorageVersionSummary>> {
    let answer = client.request(AdminRequest::get(STORAGE_VERSIONS_PATH)).await.ok()?;
    answer.status.is_success().then(|| compose::parse_storage_versions(&answer.json()))
}
