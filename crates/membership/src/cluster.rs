//! What a process knows of its cluster: the view, its writer, and the proof before a 404.

use std::fmt;
use std::sync::Arc;

use api::Target;
use discovery::GroupDiscoveryList;
use tasks::Tasks;
use tokio::sync::{mpsc, watch};

use crate::absence_proof::{AbsenceNotProven, AbsenceProver};
use crate::discovery_fetch::STALE_QUEUE_MAX;
use crate::exclusion::SharedResources;
use crate::hop::Hop;
use crate::identity::ServerId;
use crate::members::CleanupAction;
use crate::membership_task::{
    CATCH_UP_QUEUE_MAX, MembershipConfig, MembershipOutputs, MembershipSources, MembershipTask, OwnDocument,
};
use crate::metrics::Metrics;
use crate::ports::{DefinitionStorage, FeedProgress, MemberFeeds};
use crate::readiness::Milestones;
use crate::route::{AbsenceProof, LocalReason, Route, UnavailableReason, route};
use crate::view::View;

/// Where a cluster is observed.
pub struct ClusterSources {
    /// Observations of the members.
    pub members: MemberFeeds,
    /// How far the feeds have come.
    pub progress: Arc<dyn FeedProgress>,
    /// The definitions in storage; `None` in a gateway, which has none.
    pub definitions: Option<Arc<dyn DefinitionStorage>>,
}

/// What follows from the observations, for tasks that act on it. A gateway uses the first field alone.
pub struct ClusterOutputs {
    /// Members whose documents should be fetched again.
    pub stale_members: mpsc::Receiver<ServerId>,
    /// Takes members that were fetched from, with whatever result.
    pub(crate) attempted: mpsc::Sender<ServerId>,
    pub(crate) own_document: watch::Receiver<OwnDocument>,
    pub(crate) cleanup_actions: watch::Receiver<Arc<[CleanupAction]>>,
}

/// What this server or gateway knows of its cluster.
pub struct Cluster {
    views: watch::Receiver<Arc<View>>,
    prover: AbsenceProver,
    definitions: Option<Arc<dyn DefinitionStorage>>,
    stale_sender: mpsc::Sender<ServerId>,
    milestones: Milestones,
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster").field("server", self.view().this_server()).finish_non_exhaustive()
    }
}

impl Cluster {
    /// Starts to follow the cluster without joining it.
    ///
    /// `local_groups` is what this process serves itself, all groups in one document; `shared` is what of the definitions in
    /// storage it can serve itself.
    pub fn start(
        config: MembershipConfig,
        sources: ClusterSources,
        local_groups: watch::Receiver<Arc<GroupDiscoveryList>>,
        shared: watch::Receiver<SharedResources>,
        metrics: &Metrics,
        tasks: &Tasks,
    ) -> (Self, ClusterOutputs) {
        let milestones = Milestones::new();
        let (attempted_sender, attempted) = mpsc::channel(CATCH_UP_QUEUE_MAX);
        let (catch_up_sender, catch_up_requests) = mpsc::channel(CATCH_UP_QUEUE_MAX);
        let first_view = MembershipTask::initial_view(&config, &local_groups.borrow().clone());
        let (view, views) = watch::channel(Arc::new(first_view));
        let (own_document_sender, own_document) = watch::channel(OwnDocument::NotListed);
        let (cleanup_sender, cleanup_actions) = watch::channel(Arc::<[CleanupAction]>::from([]));
        let (stale_sender, stale_members) = mpsc::channel(STALE_QUEUE_MAX);
        let ClusterSources { members, progress, definitions } = sources;
        let sources = MembershipSources { members, local_groups, shared, attempted, catch_up_requests };
        let outputs = MembershipOutputs { view, own_document: own_document_sender, cleanup_actions: cleanup_sender };
        let membership = MembershipTask::new(config, sources, outputs, milestones.clone(), metrics.clone());
        tasks.spawn("membership", |stop| membership.run(stop));
        let (prover, prover_task) = AbsenceProver::new(progress, catch_up_sender, CATCH_UP_QUEUE_MAX);
        tasks.spawn("absence-prover", |stop| prover_task.run(stop));
        let outputs = ClusterOutputs { stale_members, attempted: attempted_sender, own_document, cleanup_actions };
        (Self { views, prover, definitions, stale_sender, milestones }, outputs)
    }

    /// The current view.
    pub fn view(&self) -> Arc<View> {
        self.views.borrow().clone()
    }

    /// The view as it changes.
    pub fn views(&self) -> watch::Receiver<Arc<View>> {
        self.views.clone()
    }

    /// Routes a request, with the proof that a 404 needs. Also returns the view that the member indices of the route belong to.
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

    /// True if a definition in storage brings the resource of a request.
    fn is_defined_in_storage(&self, target: &Target<'_>) -> bool {
        let (Target::Resource(resource), Some(definitions)) = (target, &self.definitions) else { return false };
        definitions.defines(resource.group_version_resource())
    }

    /// Waits until the view holds everything that its source held when this was called.
    pub async fn catch_up(&self) -> Result<(), AbsenceNotProven> {
        self.prover.catch_up().await
    }

    /// Has the document of a member fetched again soon: it answered as if it did not serve what it lists. No effect on members
    /// that publish their documents.
    pub fn mark_stale(&self, server: &ServerId) {
        // A full queue has enough requests to fetch again.
        let _ = self.stale_sender.try_send(server.clone());
    }

    /// The milestones before this server is ready.
    pub fn milestones(&self) -> &Milestones {
        &self.milestones
    }
}

#[cfg(test)]
mod tests;
