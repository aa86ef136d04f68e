//! The garbage collector: deletes objects whose owners are gone.
//!
//! Informers follow the metadata of every discovered resource into a graph of owners. The graph selects the objects to
//! examine; the decision about an object is based on live reads of its owners ([`decide`]): an owner is absent only if
//! the server says so of exactly this object, never because a server is unreachable, a version is stale or discovery
//! lists less than before. An owner that waits for its dependents is released only while every resource is followed,
//! since an unseen object may be a dependent; one that is to be orphaned only after live lists show none.

mod absent_owners;
mod actions;
mod decide;
mod graph;
mod informers;
mod live_dependents;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use tasks::Backoff;
use tokio::time::Instant;

use self::absent_owners::AbsentOwnerCache;
use self::actions::{TaskContext, TaskOutcome};
use self::decide::DependentsState;
use self::graph::{DeletionState, GarbageTask, NodeState, ObjectNode, OwnerGraph};
use self::informers::{DiscoveryHint, InformerId, Informers};
use crate::client::ApiClient;
use crate::discovered::DiscoveryCache;
use crate::informer::{InformerEvent, ObservedOwnerReference, Uid};
use crate::metrics::QueueGauges;
use crate::resources::DiscoveredResources;
use crate::work_queue::{WorkQueue, WorkResult};

/// The finalizer that keeps an object until its dependents no longer refer to it.
const FINALIZER_ORPHAN: &str = "orphan";
/// The finalizer that keeps an object until its dependents are deleted.
const FINALIZER_FOREGROUND: &str = "foregroundDeletion";

/// Tasks processed at once; kube-controller-manager has 20 workers, but local requests are cheaper.
const WORKERS: usize = 32;
/// The backoff of failed tasks, which are retried forever; the end of an outage is noticed within the longest.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(5));
/// The delay of a discovery read after a hint, so that several hints cause one read.
const DISCOVERY_DELAY: Duration = Duration::from_secs(1);
/// How often discovery is read while it is incomplete.
const DISCOVERY_RETRY_INTERVAL: Duration = Duration::from_secs(3);
/// The update interval of the gauges while the queue is not empty.
const GAUGE_INTERVAL: Duration = Duration::from_secs(1);

/// The configuration of the garbage collector.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) client: ApiClient,
    pub(crate) gauges: QueueGauges,
    pub(crate) clock: fn() -> jiff::Timestamp,
}

/// Collects garbage until the future is dropped.
pub(crate) async fn run(config: Config) {
    GarbageCollector::new(config).run().await;
}

struct GarbageCollector {
    config: Config,
    discovery_cache: DiscoveryCache,
    resources: Arc<DiscoveredResources>,
    informers: Informers,
    graph: OwnerGraph,
    queue: WorkQueue<GarbageTask>,
    /// Tasks that wait for discovery to change.
    awaiting_discovery: HashSet<GarbageTask>,
    running: FuturesUnordered<BoxFuture<'static, (GarbageTask, TaskOutcome)>>,
    absent_owners: Arc<AbsentOwnerCache>,
    discovery_due: Option<Instant>,
}

impl GarbageCollector {
    fn new(config: Config) -> Self {
        Self {
            discovery_cache: DiscoveryCache::new(config.client.clone()),
            resources: Arc::default(),
            informers: Informers::new(config.client.clone()),
            graph: OwnerGraph::default(),
            queue: WorkQueue::new(BACKOFF),
            awaiting_discovery: HashSet::new(),
            running: FuturesUnordered::new(),
            absent_owners: Arc::default(),
            discovery_due: Some(Instant::now()),
            config,
        }
    }

    async fn run(mut self) {
        let mut gauges = tokio::time::interval(GAUGE_INTERVAL);
        gauges.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut had_work = true;
        loop {
            self.start_work();
            let now = Instant::now();
            let may_work = self.informers.have_started() && self.running.len() < WORKERS;
            let wake = [self.discovery_due, self.queue.next_due().filter(|_| may_work)].into_iter().flatten().min();
            tokio::select! {
                (id, notice) = self.informers.next_event() => self.handle_event(id, notice),
                Some((task, outcome)) = self.running.next() => self.finish_task(&task, outcome),
                () = tokio::time::sleep_until(wake.unwrap_or(now)), if wake.is_some() => {
                    if self.discovery_due.is_some_and(|due| due <= Instant::now()) {
                        self.read_discovery().await;
                    }
                }
                _ = gauges.tick(), if had_work || self.queue.len() > 0 => {
                    had_work = self.queue.len() > 0;
                    self.config.gauges.set(self.queue.len(), self.queue.oldest_since());
                }
            }
        }
    }

    /// Reads discovery, starts informers for new resources, and retries the tasks that waited for it.
    async fn read_discovery(&mut self) {
        self.discovery_due = None;
        let resources = match self.discovery_cache.refresh().await {
            Ok(resources) => resources,
            Err(error) => {
                tracing::warn!(%error, "failed to read discovery");
                self.discovery_due = Some(Instant::now() + DISCOVERY_RETRY_INTERVAL);
                return;
            }
        };
        let is_whole = informers::is_discovery_complete(&resources);
        if !is_whole {
            self.discovery_due = Some(Instant::now() + DISCOVERY_RETRY_INTERVAL);
        }
        if Arc::ptr_eq(&resources, &self.resources) {
            return;
        }
        self.resources = resources;
        for gone in self.informers.update_resources(&self.resources) {
            tracing::info!(resource = %gone.name, "resource is no longer served, removing its objects from the graph");
            let objects = self.graph.unlisted_objects(&gone, &HashSet::new());
            let tasks = objects.iter().flat_map(|uid| self.graph.remove(uid)).collect();
            self.enqueue(tasks);
        }
        let parked = self.awaiting_discovery.drain().collect();
        self.enqueue(parked);
    }

    fn schedule_discovery(&mut self) {
        let due = Instant::now() + DISCOVERY_DELAY;
        self.discovery_due = Some(self.discovery_due.map_or(due, |earlier| earlier.min(due)));
    }

    fn handle_event(&mut self, id: InformerId, event: InformerEvent) {
        let Some(resource) = self.informers.resource(id) else { return };
        let tasks = match event {
            InformerEvent::Applied(seen) => {
                let is_new = self.graph.get(&seen.metadata.uid).is_none();
                match informers::discovery_hint(&resource, &seen) {
                    DiscoveryHint::DefinitionChanged => self.schedule_discovery(),
                    DiscoveryHint::ServerChanged if is_new => self.schedule_discovery(),
                    DiscoveryHint::ServerChanged | DiscoveryHint::None => {}
                }
                self.graph.observe(&resource, &seen.metadata)
            }
            InformerEvent::Deleted(seen) => {
                if informers::discovery_hint(&resource, &seen) != DiscoveryHint::None {
                    self.schedule_discovery();
                }
                self.graph.remove(&seen.metadata.uid)
            }
            InformerEvent::Listed(uids) => {
                self.informers.mark_synced(id);
                let missing = self.graph.unlisted_objects(&resource, &uids);
                missing.iter().flat_map(|uid| self.graph.remove(uid)).collect()
            }
            InformerEvent::Unavailable(error) => {
                if self.informers.mark_unavailable(id) {
                    tracing::info!(resource = %resource.name, %error, "failed to watch resource, will retry");
                }
                self.schedule_discovery();
                Vec::new()
            }
        };
        self.enqueue(tasks);
    }

    fn enqueue(&mut self, tasks: Vec<GarbageTask>) {
        let now = Instant::now();
        for task in tasks {
            self.awaiting_discovery.remove(&task);
            self.queue.add(&task, now);
        }
    }

    /// Starts tasks up to [`WORKERS`]. Waits until every resource was listed or is known to be unavailable.
    fn start_work(&mut self) {
        if !self.informers.have_started() {
            return;
        }
        let now = Instant::now();
        while self.running.len() < WORKERS {
            let Some(task) = self.queue.pop(now) else { return };
            match self.plan_work(&task) {
                Some(work) => {
                    let named = task.clone();
                    self.running.push(Box::pin(async move { (named, work.await) }));
                }
                None => self.queue.finish(&task, WorkResult::Done, now),
            }
        }
    }

    /// The work for a task; `None` if there is nothing to do.
    fn plan_work(&mut self, task: &GarbageTask) -> Option<BoxFuture<'static, TaskOutcome>> {
        let tools = TaskContext {
            client: self.config.client.clone(),
            resources: self.resources.clone(),
            absent_owners: self.absent_owners.clone(),
        };
        match task {
            GarbageTask::ReportMisplacedOwner { dependent, owner } => self.report_misplaced_owner(dependent, owner),
            GarbageTask::Orphan(uid) => {
                let node =
                    self.graph.get(uid).filter(|node| node.state.deletion() == DeletionState::Orphaning)?.clone();
                if !self.has_complete_view() {
                    return Some(Box::pin(std::future::ready(TaskOutcome::ViewIncomplete)));
                }
                let dependents = self.graph.dependents(uid).map(|(uid, node)| (uid.clone(), node.clone())).collect();
                Some(Box::pin(tools.orphan_dependents(uid.clone(), node, dependents)))
            }
            GarbageTask::Examine(uid) => {
                let node = self.graph.get(uid)?.clone();
                match (&node.state, node.state.deletion()) {
                    (NodeState::Deleted, _) => None,
                    (NodeState::Virtual, _) => Some(Box::pin(tools.examine_virtual_owner(uid.clone(), node))),
                    // The deletion is in progress; its end arrives as an event.
                    (_, DeletionState::Terminating | DeletionState::Orphaning) => None,
                    (_, DeletionState::Foreground) => self.wait_for_dependents(uid, node, tools),
                    (_, DeletionState::NotDeleting) => {
                        let dependents = self.dependents_state(uid);
                        Some(Box::pin(tools.examine_object(uid.clone(), node, dependents)))
                    }
                }
            }
        }
    }

    /// For an owner in foreground deletion: examines its blocking dependents, or releases it if there are none.
    fn wait_for_dependents(
        &mut self,
        uid: &Uid,
        node: ObjectNode,
        context: TaskContext,
    ) -> Option<BoxFuture<'static, TaskOutcome>> {
        let blocking: Vec<(Uid, DeletionState)> =
            self.graph.blocking_dependents(uid).map(|(uid, node)| (uid.clone(), node.state.deletion())).collect();
        if blocking.is_empty() {
            if !self.has_complete_view() {
                return Some(Box::pin(std::future::ready(TaskOutcome::ViewIncomplete)));
            }
            return Some(Box::pin(context.finish_foreground_deletion(uid.clone(), node)));
        }
        let now = Instant::now();
        for (dependent, _) in blocking.iter().filter(|(_, deletion)| *deletion == DeletionState::NotDeleting) {
            self.queue.add(&GarbageTask::Examine(dependent.clone()), now);
        }
        None
    }

    fn dependents_state(&self, uid: &Uid) -> DependentsState {
        let mut dependents = DependentsState::None;
        for (_, node) in self.graph.dependents(uid) {
            if node.state.deletion() == DeletionState::Foreground {
                return DependentsState::SomeWaiting;
            }
            dependents = DependentsState::Some;
        }
        dependents
    }

    /// True if no object can be unseen: every resource is followed, and discovery confirms all of them.
    fn has_complete_view(&self) -> bool {
        self.informers.all_synced() && informers::is_discovery_complete(&self.resources)
    }

    fn report_misplaced_owner(
        &self,
        dependent: &Uid,
        owner: &ObservedOwnerReference,
    ) -> Option<BoxFuture<'static, TaskOutcome>> {
        let node = self.graph.get(dependent)?;
        let (path, event) = actions::invalid_namespace_event(node, dependent, owner, (self.config.clock)())?;
        let client = self.config.client.clone();
        Some(Box::pin(async move {
            if let Err(error) = client.create(&path, &event).await {
                tracing::debug!(%error, "failed to create event");
            }
            TaskOutcome::Done
        }))
    }

    fn finish_task(&mut self, task: &GarbageTask, outcome: TaskOutcome) {
        let now = Instant::now();
        let ended = match outcome {
            TaskOutcome::Done => WorkResult::Done,
            TaskOutcome::ObjectNotFound => {
                if let GarbageTask::Examine(uid) | GarbageTask::Orphan(uid) = task {
                    let tasks = self.graph.remove(uid);
                    self.enqueue(tasks);
                }
                WorkResult::Done
            }
            TaskOutcome::AwaitingDiscovery => {
                self.awaiting_discovery.insert(task.clone());
                WorkResult::Done
            }
            TaskOutcome::ViewIncomplete => WorkResult::Failed,
            TaskOutcome::Failed(error) => {
                tracing::debug!(?task, %error, "garbage collection task failed, will retry");
                WorkResult::Failed
            }
        };
        self.queue.finish(task, ended, now);
    }
}
