//! A server's part in its cluster: everything in this crate, started and wired.

use std::fmt;
use std::sync::Arc;

use api::Target;
use discovery::GroupDiscoveryList;
use parking_lot::Mutex;
use tasks::Tasks;
use tokio::sync::{mpsc, watch};

use crate::absence_proof::{AbsenceNotProven, AbsenceProver};
use crate::cleanup::CleanupTask;
use crate::discovery_fetch::{DiscoveryFetchConfig, DiscoveryFetchers, STALE_QUEUE_MAX};
use crate::exclusion::DefinedResources;
use crate::hop::Hop;
use crate::identity::ServerId;
use crate::members::CleanupAction;
use crate::membership::{
    CATCH_UP_QUEUE_MAX, MembershipConfig, MembershipOutputs, MembershipSources, MembershipTask, OwnDocument,
};
use crate::metrics::Metrics;
use crate::ports::{DefinitionStorage, DocumentStorage, Fetch, LeaseStorage, RecordStorage, StorageProgress};
use crate::presence::{DuplicateIdentityError, Presence, PresenceConfig, PresencePorts, claim_identity};
use crate::readiness::Milestones;
use crate::route::{AbsenceProof, LocalReason, Route, UnavailableReason, route};
use crate::view::View;

/// Everything that peering is told.
#[derive(Clone, Debug)]
pub struct ClusterConfig {
    /// Who is a member, and how that is judged.
    pub membership: MembershipConfig,
    /// Who we are to others.
    pub presence: PresenceConfig,
    /// How members are asked.
    pub discovery_fetch: DiscoveryFetchConfig,
}

/// Everything that peering needs of the world.
#[derive(Clone)]
pub struct ClusterPorts {
    /// The identity leases.
    pub leases: Arc<dyn LeaseStorage>,
    /// The endpoint records.
    pub records: Arc<dyn RecordStorage>,
    /// The stored documents.
    pub documents: Arc<dyn DocumentStorage>,
    /// How far our views have come.
    pub progress: Arc<dyn StorageProgress>,
    /// The definitions in storage; `None` in a gateway, which has none.
    pub definitions: Option<Arc<dyn DefinitionStorage>>,
    /// Requests to peers; `None` if peering is disabled, and then nobody is asked.
    pub fetch: Option<Arc<dyn Fetch>>,
}

/// What this server knows of its cluster, and does in it.
pub struct Cluster {
    presence: Arc<PresenceConfig>,
    presence_ports: PresencePorts,
    local_groups: watch::Receiver<Arc<GroupDiscoveryList>>,
    own_document: watch::Receiver<OwnDocument>,
    views: watch::Receiver<Arc<View>>,
    prover: AbsenceProver,
    definitions: Option<Arc<dyn DefinitionStorage>>,
    stale_sender: mpsc::Sender<ServerId>,
    stale_receiver: Mutex<Option<mpsc::Receiver<ServerId>>>,
    milestones: Milestones,
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster").field("server", &self.presence.server).finish_non_exhaustive()
    }
}

impl Cluster {
    /// Starts to follow the cluster, without being seen in it.
    ///
    /// `local` is what this server serves itself, all groups in one document; `shared` is what of the definitions in storage it
    /// can serve itself.
    pub fn start(
        config: ClusterConfig,
        ports: &ClusterPorts,
        local_groups: watch::Receiver<Arc<GroupDiscoveryList>>,
        defined: watch::Receiver<Arc<DefinedResources>>,
        metrics: &Metrics,
        tasks: &Tasks,
    ) -> Self {
        let milestones = Milestones::new();
        let (attempted_sender, attempted) = mpsc::channel(CATCH_UP_QUEUE_MAX);
        let (catch_up_sender, catch_up_requests) = mpsc::channel(CATCH_UP_QUEUE_MAX);
        let first_view = MembershipTask::initial_view(&config.membership, &local_groups.borrow().clone());
        let (view, views) = watch::channel(Arc::new(first_view));
        let (own_document_sender, own_document) = watch::channel(OwnDocument::NotListed);
        let (cleanup_sender, cleanup_actions) = watch::channel(Arc::<[CleanupAction]>::from([]));
        let sources = MembershipSources {
            leases: ports.leases.watch(),
            lease_failures: ports.leases.failures().unwrap_or_else(|| watch::channel(0).1),
            records: ports.records.watch(),
            documents: ports.documents.watch(),
            local_groups: local_groups.clone(),
            defined,
            attempted,
            catch_up_requests,
        };
        let outputs = MembershipOutputs { view, own_document: own_document_sender, cleanup_actions: cleanup_sender };
        let membership =
            MembershipTask::new(config.membership.clone(), sources, outputs, milestones.clone(), metrics.clone());
        tasks.spawn("membership", |stop| membership.run(stop));
        let (prover, prover_task) = AbsenceProver::new(ports.progress.clone(), catch_up_sender, CATCH_UP_QUEUE_MAX);
        tasks.spawn("absence-prover", |stop| prover_task.run(stop));
        start_cleanup(&config, ports, cleanup_actions, &milestones, tasks);
        let (stale_sender, stale_receiver) =
            start_discovery_fetch(&config, ports, views.clone(), attempted_sender, &milestones, metrics, tasks);
        let ClusterPorts { leases, records, documents, .. } = ports.clone();
        Self {
            presence: Arc::new(config.presence),
            presence_ports: PresencePorts { leases, records, documents },
            local_groups,
            own_document,
            views,
            prover,
            definitions: ports.definitions.clone(),
            stale_sender,
            stale_receiver: Mutex::new(stale_receiver),
            milestones,
        }
    }

    /// Makes sure that nobody else is who we are, and removes what a former process of ours left. Comes before [`Cluster::join`].
    pub async fn claim_identity(&self) -> Result<(), DuplicateIdentityError> {
        claim_identity(&self.presence, &*self.presence_ports.leases, &*self.presence_ports.records).await
    }

    /// Joins the cluster. What this server serves must be complete by now.
    pub fn join(&self, tasks: &Tasks) -> Presence {
        Presence::start(
            &self.presence,
            &self.presence_ports,
            self.local_groups.clone(),
            self.own_document.clone(),
            &self.milestones,
            tasks,
        )
    }

    /// All that we know of the cluster, now.
    pub fn view(&self) -> Arc<View> {
        self.views.borrow().clone()
    }

    /// The same, as it changes.
    pub fn views(&self) -> watch::Receiver<Arc<View>> {
        self.views.clone()
    }

    /// Where a request goes, with the proof that a 404 needs; and the view that the members of the answer are in.
    pub async fn route(&self, target: &Target<'_>, hop: Hop) -> (Route, Arc<View>) {
        let view = self.view();
        let route_decision = route(target, hop, &view, AbsenceProof::NotRequested);
        if route_decision != Route::ProveAbsence {
            return (route_decision, view);
        }
        match self.prover.catch_up().await {
            Ok(()) => {
                let view = self.view();
                let route_decision = route(target, hop, &view, AbsenceProof::CaughtUp);
                if route_decision == Route::Local(LocalReason::ServedNowhere) && self.is_defined_in_storage(target) {
                    view.members().iter().for_each(|member| self.mark_stale(&member.server));
                    return (Route::Unavailable(UnavailableReason::DefinedButNotServed), view);
                }
                (route_decision, view)
            }
            Err(AbsenceNotProven) => (Route::Unavailable(UnavailableReason::AbsenceNotProven), view),
        }
    }

    /// Whether a definition in storage brings what a request is for.
    fn is_defined_in_storage(&self, target: &Target<'_>) -> bool {
        let (Target::Resource(resource), Some(definitions)) = (target, &self.definitions) else { return false };
        definitions.defines(resource.group_version_resource())
    }

    /// Waits until the view holds all that could be known when this was called.
    pub async fn catch_up(&self) -> Result<(), AbsenceNotProven> {
        self.prover.catch_up().await
    }

    /// A member answered as if it did not serve what it lists: it is asked again soon, if it is one that is asked.
    pub fn mark_stale(&self, server: &ServerId) {
        // A full queue holds requests enough.
        let _ = self.stale_sender.try_send(server.clone());
    }

    /// The members that are doubted, for somebody who asks them in a way of their own. Given once, and only without
    /// [`ClusterPorts::fetch`].
    pub fn take_stale_receiver(&self) -> Option<mpsc::Receiver<ServerId>> {
        self.stale_receiver.lock().take()
    }

    /// What must have happened before this server is ready.
    pub fn milestones(&self) -> &Milestones {
        &self.milestones
    }
}

fn start_cleanup(
    config: &ClusterConfig,
    ports: &ClusterPorts,
    cleanup_actions: watch::Receiver<Arc<[CleanupAction]>>,
    milestones: &Milestones,
    tasks: &Tasks,
) {
    let cleanup_task = CleanupTask {
        leases: ports.leases.clone(),
        documents: ports.documents.clone(),
        cleanup_actions,
        request_timeout: config.presence.timings.request_timeout,
        seed: config.presence.seed,
        started: milestones.lease_cleanup.clone(),
    };
    tasks.spawn("lease-sweeper", |stop| cleanup_task.run(stop));
}

/// Gives the way to have a member asked again; and, if nobody is asked here, what comes that way.
fn start_discovery_fetch(
    config: &ClusterConfig,
    ports: &ClusterPorts,
    views: watch::Receiver<Arc<View>>,
    attempted: mpsc::Sender<ServerId>,
    milestones: &Milestones,
    metrics: &Metrics,
    tasks: &Tasks,
) -> (mpsc::Sender<ServerId>, Option<mpsc::Receiver<ServerId>>) {
    let (stale_sender, stale_members) = mpsc::channel(STALE_QUEUE_MAX);
    let Some(fetch) = ports.fetch.clone() else {
        milestones.discovery_fetch.mark_reached();
        return (stale_sender, Some(stale_members));
    };
    let fetchers = DiscoveryFetchers {
        config: config.discovery_fetch,
        fetch,
        documents: ports.documents.clone(),
        views,
        stale_members,
        definitions: ports.definitions.as_ref().map(|definitions| definitions.watch()),
        attempted,
        metrics: metrics.clone(),
        tasks: tasks.clone(),
        started: milestones.discovery_fetch.clone(),
    };
    tasks.spawn("peer-askers", |stop| fetchers.run(stop));
    (stale_sender, None)
}

#[cfg(test)]
mod tests;
