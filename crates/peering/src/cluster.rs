//! A server's part in its cluster: everything in this crate, started and wired.

use std::fmt;
use std::sync::Arc;

use api::Target;
use discovery::Groups;
use parking_lot::Mutex;
use tasks::Tasks;
use tokio::sync::{mpsc, watch};

use crate::askers::{AGAIN_MAX, AskConfig, Askers};
use crate::exclusion::SharedNames;
use crate::hop::Hop;
use crate::identity::ServerId;
use crate::members::Chore;
use crate::membership::{Membership, MembershipConfig, Outputs, OwnDocument, Sources, WAITING_MAX};
use crate::metrics::Metrics;
use crate::ports::{Definitions, Documents, Fetch, Leases, Progress, Records};
use crate::presence::{Presence, PresenceConfig, PresencePorts, TwinError, claim};
use crate::prove::{NotProven, Prover};
use crate::readiness::Milestones;
use crate::route::{Proof, Route, Unavailable, Why, route};
use crate::sweep::Sweeper;
use crate::view::View;

/// Everything that peering is told.
#[derive(Clone, Debug)]
pub struct Config {
    /// Who is a member, and how that is judged.
    pub membership: MembershipConfig,
    /// Who we are to others.
    pub presence: PresenceConfig,
    /// How members are asked.
    pub ask: AskConfig,
}

/// Everything that peering needs of the world.
#[derive(Clone)]
pub struct Ports {
    /// The identity leases.
    pub leases: Arc<dyn Leases>,
    /// The endpoint records.
    pub records: Arc<dyn Records>,
    /// The stored documents.
    pub documents: Arc<dyn Documents>,
    /// How far our views have come.
    pub progress: Arc<dyn Progress>,
    /// The definitions in storage; `None` in a gateway, which has none.
    pub definitions: Option<Arc<dyn Definitions>>,
    /// Requests to peers; `None` if peering is disabled, and then nobody is asked.
    pub fetch: Option<Arc<dyn Fetch>>,
}

/// What this server knows of its cluster, and does in it.
pub struct Cluster {
    presence: Arc<PresenceConfig>,
    ports: PresencePorts,
    local: watch::Receiver<Arc<Groups>>,
    own_document: watch::Receiver<OwnDocument>,
    views: watch::Receiver<Arc<View>>,
    prover: Prover,
    definitions: Option<Arc<dyn Definitions>>,
    again: mpsc::Sender<ServerId>,
    doubts: Mutex<Option<mpsc::Receiver<ServerId>>>,
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
        config: Config,
        ports: &Ports,
        local: watch::Receiver<Arc<Groups>>,
        shared: watch::Receiver<Arc<SharedNames>>,
        metrics: &Metrics,
        tasks: &Tasks,
    ) -> Self {
        let milestones = Milestones::new();
        let (tried_sender, tried) = mpsc::channel(WAITING_MAX);
        let (waiting_sender, waiting) = mpsc::channel(WAITING_MAX);
        let first_view = Membership::first_view(&config.membership, &local.borrow().clone());
        let (view, views) = watch::channel(Arc::new(first_view));
        let (own_document_sender, own_document) = watch::channel(OwnDocument::NotListed);
        let (chores_sender, chores) = watch::channel(Arc::<[Chore]>::from([]));
        let sources = Sources {
            leases: ports.leases.follow(),
            lease_failures: ports.leases.failures().unwrap_or_else(|| watch::channel(0).1),
            records: ports.records.follow(),
            documents: ports.documents.follow(),
            local: local.clone(),
            shared,
            tried,
            waiting,
        };
        let outputs = Outputs { view, own_document: own_document_sender, chores: chores_sender };
        let membership =
            Membership::new(config.membership.clone(), sources, outputs, milestones.clone(), metrics.clone());
        tasks.spawn("membership", |stop| membership.run(stop));
        let (prover, prover_task) = Prover::new(ports.progress.clone(), waiting_sender, WAITING_MAX);
        tasks.spawn("absence-prover", |stop| prover_task.run(stop));
        start_sweeper(&config, ports, chores, &milestones, tasks);
        let (again, doubts) = start_askers(&config, ports, views.clone(), tried_sender, &milestones, metrics, tasks);
        let Ports { leases, records, documents, .. } = ports.clone();
        Self {
            presence: Arc::new(config.presence),
            ports: PresencePorts { leases, records, documents },
            local,
            own_document,
            views,
            prover,
            definitions: ports.definitions.clone(),
            again,
            doubts: Mutex::new(doubts),
            milestones,
        }
    }

    /// Makes sure that nobody else is who we are, and removes what a former process of ours left. Comes before [`Cluster::join`].
    pub async fn claim(&self) -> Result<(), TwinError> {
        claim(&self.presence, &*self.ports.leases, &*self.ports.records).await
    }

    /// Joins the cluster. What this server serves must be complete by now.
    pub fn join(&self, tasks: &Tasks) -> Presence {
        Presence::start(
            &self.presence,
            &self.ports,
            self.local.clone(),
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
        let decided = route(target, hop, &view, Proof::NotAsked);
        if decided != Route::ProveAbsence {
            return (decided, view);
        }
        match self.prover.prove().await {
            Ok(()) => {
                let view = self.view();
                let decided = route(target, hop, &view, Proof::CaughtUp);
                if decided == Route::Here(Why::ServedNowhere) && self.is_defined(target) {
                    view.members().iter().for_each(|member| self.doubt(&member.server));
                    return (Route::Unavailable(Unavailable::OnlyDefined), view);
                }
                (decided, view)
            }
            Err(NotProven) => (Route::Unavailable(Unavailable::NotProven), view),
        }
    }

    /// Whether a definition in storage brings what a request is for.
    fn is_defined(&self, target: &Target<'_>) -> bool {
        let (Target::Resource(resource), Some(definitions)) = (target, &self.definitions) else { return false };
        definitions.bring(resource.group_version_resource())
    }

    /// Waits until the view holds all that could be known when this was called.
    pub async fn catch_up(&self) -> Result<(), NotProven> {
        self.prover.prove().await
    }

    /// A member answered as if it did not serve what it lists: it is asked again soon, if it is one that is asked.
    pub fn doubt(&self, server: &ServerId) {
        // A full queue holds requests enough.
        let _ = self.again.try_send(server.clone());
    }

    /// The members that are doubted, for somebody who asks them in a way of their own. Given once, and only without
    /// [`Ports::fetch`].
    pub fn take_doubts(&self) -> Option<mpsc::Receiver<ServerId>> {
        self.doubts.lock().take()
    }

    /// What must have happened before this server is ready.
    pub fn milestones(&self) -> &Milestones {
        &self.milestones
    }
}

fn start_sweeper(
    config: &Config,
    ports: &Ports,
    chores: watch::Receiver<Arc<[Chore]>>,
    milestones: &Milestones,
    tasks: &Tasks,
) {
    let sweeper = Sweeper {
        leases: ports.leases.clone(),
        documents: ports.documents.clone(),
        chores,
        call_timeout: config.presence.pace.call_timeout,
        seed: config.presence.seed,
        started: milestones.lease_sweep.clone(),
    };
    tasks.spawn("lease-sweeper", |stop| sweeper.run(stop));
}

/// Gives the way to have a member asked again; and, if nobody is asked here, what comes that way.
fn start_askers(
    config: &Config,
    ports: &Ports,
    views: watch::Receiver<Arc<View>>,
    tried: mpsc::Sender<ServerId>,
    milestones: &Milestones,
    metrics: &Metrics,
    tasks: &Tasks,
) -> (mpsc::Sender<ServerId>, Option<mpsc::Receiver<ServerId>>) {
    let (again_sender, again) = mpsc::channel(AGAIN_MAX);
    let Some(fetch) = ports.fetch.clone() else {
        milestones.askers.reach();
        return (again_sender, Some(again));
    };
    let askers = Askers {
        config: config.ask,
        fetch,
        documents: ports.documents.clone(),
        views,
        again,
        definitions: ports.definitions.as_ref().map(|definitions| definitions.follow()),
        tried,
        metrics: metrics.clone(),
        tasks: tasks.clone(),
        started: milestones.askers.clone(),
    };
    tasks.spawn("peer-askers", |stop| askers.run(stop));
    (again_sender, None)
}

#[cfg(test)]
mod tests;
