//! Asks the servers, and keeps the snapshot.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::compose::{self, Learned, Resources, compose};
use super::{Facts, Phase, Rollout, Snapshot, StorageVersion};
use crate::client::{Ask, Client};
use crate::supervisor::Board;

/// How often the servers are asked if nothing happens: the page shows what requests were forwarded.
const INTERVAL: Duration = Duration::from_secs(1);
/// How often what a server serves is asked again, though only a restart or a new custom resource changes it.
const DOCUMENT_INTERVAL: Duration = Duration::from_secs(10);
/// The local document of a server.
pub const LOCAL: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList;profile=nopeer";
/// Who writes what in which form.
pub const STORAGE_VERSIONS: &str = "/apis/internal.apiserver.k8s.io/v1alpha1/storageversions";

/// Keeps the snapshot.
#[derive(Debug)]
pub struct Collector {
    /// What does not change.
    pub facts: Facts,
    /// How the servers stand.
    pub board: watch::Receiver<Arc<Board>>,
    /// One client for each of them.
    pub clients: Vec<Client>,
    /// The rollout, if there is one.
    pub rollout: watch::Receiver<Option<Rollout>>,
    /// Where the snapshot goes.
    pub snapshots: watch::Sender<Arc<Snapshot>>,
}

impl Collector {
    /// Publishes at once whatever the lab itself knows, and once a second what its servers say.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut learned = vec![Learned::default(); self.clients.len()];
        let mut versions = Vec::new();
        let mut documents_at = Instant::now();
        while !stop.is_cancelled() {
            self.publish(&learned, &versions);
            let board = self.board.borrow_and_update().clone();
            let refresh = documents_at.elapsed() >= DOCUMENT_INTERVAL;
            if refresh {
                documents_at = Instant::now();
            }
            let asked =
                self.clients.iter().zip(&board.servers).zip(&learned).map(|((client, standing), known)| async move {
                    if standing.phase == Phase::Ready {
                        learn(client, known, standing.generation, refresh).await
                    } else {
                        known.clone()
                    }
                });
            learned = join_all(asked).await;
            if let Some(ready) = board.servers.iter().position(|standing| standing.phase == Phase::Ready) {
                versions = storage_versions(&self.clients[ready]).await.unwrap_or(versions);
            }
            self.publish(&learned, &versions);
            tokio::select! {
                () = stop.cancelled() => {}
                () = tokio::time::sleep(INTERVAL) => {}
                _ = self.board.changed() => {}
                _ = self.rollout.changed() => {}
            }
        }
    }

    fn publish(&self, learned: &[Learned], versions: &[StorageVersion]) {
        let board = self.board.borrow().clone();
        let rollout = self.rollout.borrow().clone();
        let snapshot = compose(&self.facts, &board, learned, versions, rollout, Instant::now());
        self.snapshots.send_if_modified(|last| {
            let is_news = **last != snapshot;
            if is_news {
                *last = Arc::new(snapshot);
            }
            is_news
        });
    }
}

async fn learn(client: &Client, known: &Learned, generation: u64, refresh: bool) -> Learned {
    let mut learned = known.clone();
    if let Ok(answer) = client.ask(Ask::get("/debug/peers")).await
        && let Ok(page) = serde_json::from_slice(&answer.body)
        && answer.status.is_success()
    {
        learned.peers = Some(page);
    }
    if let Ok(answer) = client.ask(Ask::get("/metrics")).await {
        learned.forwards = compose::parse_forwards(&String::from_utf8_lossy(&answer.body));
    }
    let is_known = known.generation == generation && known.resources.is_some();
    if !is_known || refresh {
        learned.resources = local_resources(client).await.or(learned.resources);
    }
    learned.generation = generation;
    learned
}

/// What a server serves itself; `None` if it did not say.
pub async fn local_resources(client: &Client) -> Option<Resources> {
    let mut resources = Resources::new();
    for path in ["/api", "/apis"] {
        let answer = client.ask(Ask::get(path).with("accept", LOCAL)).await.ok()?;
        compose::resources_of(&discovery::parse::parse_aggregated(&answer.body).ok()?, &mut resources);
    }
    Some(resources)
}

/// Agreement on encoding versions; `None` if the server did not say.
pub async fn storage_versions(client: &Client) -> Option<Vec<StorageVersion>> {
    let answer = client.ask(Ask::get(STORAGE_VERSIONS)).await.ok()?;
    answer.status.is_success().then(|| compose::parse_storage_versions(&answer.json()))
}
