//! A server that takes part in its cluster through storage: follows it, joins it, cleans up after other servers.

use std::fmt;
use std::sync::Arc;

use discovery::GroupDiscoveryList;
use tasks::Tasks;
use tokio::sync::{mpsc, watch};

use crate::cleanup::CleanupTask;
use crate::cluster::{Cluster, ClusterSources};
use crate::discovery_fetch::{DiscoveryFetchConfig, DiscoveryFetchers};
use crate::exclusion::SharedResources;
use crate::identity::ServerId;
use crate::members::CleanupAction;
use crate::membership_task::{MembershipConfig, OwnDocument};
use crate::metrics::Metrics;
use crate::ports::{DefinitionStorage, DocumentStorage, FeedProgress, Fetch, LeaseStorage, RecordStorage};
use crate::presence::{DuplicateIdentityError, Presence, PresenceConfig, PresencePorts, claim_identity};
use crate::readiness::Milestones;
use crate::storage_feeds::storage_feeds;

/// The configuration of a participant.
#[derive(Clone, Debug)]
pub struct ParticipantConfig {
    /// How the state of each member is derived.
    pub membership: MembershipConfig,
    /// How this server appears to the others.
    pub presence: PresenceConfig,
    /// How documents are fetched.
    pub discovery_fetch: DiscoveryFetchConfig,
}

/// The ports of a participant.
#[derive(Clone)]
pub struct ParticipantPorts {
    /// The identity leases.
    pub leases: Arc<dyn LeaseStorage>,
    /// The endpoint records.
    pub records: Arc<dyn RecordStorage>,
    /// The stored documents.
    pub documents: Arc<dyn DocumentStorage>,
    /// How far the feeds have come.
    pub progress: Arc<dyn FeedProgress>,
    /// The definitions in storage.
    pub definitions: Arc<dyn DefinitionStorage>,
    /// Requests to peers; `None` if peering is disabled, and then no documents are fetched.
    pub fetch: Option<Arc<dyn Fetch>>,
}

/// This server's part in its cluster.
pub struct Participant {
    cluster: Arc<Cluster>,
    presence: Arc<PresenceConfig>,
    ports: PresencePorts,
    local_groups: watch::Receiver<Arc<GroupDiscoveryList>>,
    own_document: watch::Receiver<OwnDocument>,
}

impl fmt::Debug for Participant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Participant").field("server", &self.presence.server).finish_non_exhaustive()
    }
}

impl Participant {
    /// Starts to follow the cluster without joining it; see [`Cluster::start`] for `local_groups` and `shared`.
    pub fn start(
        config: ParticipantConfig,
        ports: &ParticipantPorts,
        local_groups: watch::Receiver<Arc<GroupDiscoveryList>>,
        shared: watch::Receiver<SharedResources>,
        metrics: &Metrics,
        tasks: &Tasks,
    ) -> Self {
        let ParticipantConfig { membership, presence, discovery_fetch } = config;
        let sources = ClusterSources {
            members: storage_feeds(&*ports.leases, &*ports.records, &*ports.documents),
            progress: ports.progress.clone(),
            definitions: Some(ports.definitions.clone()),
        };
        let (cluster, outputs) = Cluster::start(membership, sources, local_groups.clone(), shared, metrics, tasks);
        start_cleanup(&presence, ports, outputs.cleanup_actions, cluster.milestones(), tasks);
        let (stale, attempted) = (outputs.stale_members, outputs.attempted);
        start_discovery_fetch(discovery_fetch, ports, &cluster, stale, attempted, metrics, tasks);
        let ParticipantPorts { leases, records, documents, .. } = ports.clone();
        Self {
            cluster: Arc::new(cluster),
            presence: Arc::new(presence),
            ports: PresencePorts { leases, records, documents },
            local_groups,
            own_document: outputs.own_document,
        }
    }

    /// What this server knows of its cluster.
    pub fn cluster(&self) -> &Arc<Cluster> {
        &self.cluster
    }

    /// Fails if another process runs under this identity, and removes what a former process of this server left behind. Comes
    /// before [`Participant::join`].
    pub async fn claim_identity(&self) -> Result<(), DuplicateIdentityError> {
        claim_identity(&self.presence, &*self.ports.leases, &*self.ports.records).await
    }

    /// Joins the cluster. What this server serves must be complete by now.
    pub fn join(&self, tasks: &Tasks) -> Presence {
        let (local_groups, own_document) = (self.local_groups.clone(), self.own_document.clone());
        Presence::start(&self.presence, &self.ports, local_groups, own_document, self.cluster.milestones(), tasks)
    }
}

fn start_cleanup(
    presence: &PresenceConfig,
    ports: &ParticipantPorts,
    cleanup_actions: watch::Receiver<Arc<[CleanupAction]>>,
    milestones: &Milestones,
    tasks: &Tasks,
) {
    let cleanup_task = CleanupTask {
        leases: ports.leases.clone(),
        documents: ports.documents.clone(),
        cleanup_actions,
        request_timeout: presence.timings.request_timeout,
        seed: presence.seed,
        started: milestones.lease_cleanup.clone(),
    };
    tasks.spawn("lease-sweeper", |stop| cleanup_task.run(stop));
}

/// Fetches the documents of members that do not publish them, if requests to peers are possible.
fn start_discovery_fetch(
    config: DiscoveryFetchConfig,
    ports: &ParticipantPorts,
    cluster: &Cluster,
    stale_members: mpsc::Receiver<ServerId>,
    attempted: mpsc::Sender<ServerId>,
    metrics: &Metrics,
    tasks: &Tasks,
) {
    let started = cluster.milestones().discovery_fetch.clone();
    let Some(fetch) = ports.fetch.clone() else {
        started.mark_reached();
        return;
    };
    let fetchers = DiscoveryFetchers {
        config,
        fetch,
        documents: ports.documents.clone(),
        views: cluster.views(),
        stale_members,
        definitions: ports.definitions.watch(),
        attempted,
        metrics: metrics.clone(),
        tasks: tasks.clone(),
        started,
    };
    tasks.spawn("peer-askers", |stop| fetchers.run(stop));
}
