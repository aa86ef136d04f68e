//! The garbage collector: what nobody owns any more goes.
//!
//! Every resource that discovery lists is followed, metadata only, into a graph of owners. The graph says what to look at; what
//! becomes of an object is decided by live reads of its owners ([`judge`]): an owner is absent only if the server says so of
//! this very object, never because a server is away, a version is stale or discovery lists less than before. Owners that wait
//! for dependents are let go only while every resource is followed: an object out of sight may still be one.

mod absent;
mod graph;
mod judge;
mod monitors;
mod work;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use tasks::Backoff;
use tokio::time::Instant;

use self::absent::Absences;
use self::graph::{Deletion, Graph, Node, Sight, Task};
use self::judge::Dependents;
use self::monitors::{MonitorId, Monitors, Sign};
use self::work::{Outcome, Tools};
use crate::catalog::Catalog;
use crate::client::Client;
use crate::follow::{Notice, OwnerReference, Uid};
use crate::metrics::QueueGauges;
use crate::queue::{Ended, Queue};
use crate::resources::Resources;

/// The finalizer that keeps an object until its dependents no longer name it as owner.
const FINALIZER_ORPHAN: &str = "orphan";
/// The finalizer that keeps an object until its dependents are gone.
const FINALIZER_FOREGROUND: &str = "foregroundDeletion";

/// How many objects are worked on at once: kube-controller-manager's 20, and some more, since a request costs less here.
const WORKERS: usize = 32;
/// Failures are repeated for ever; an outage that ends is noticed within the last of these.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(5));
/// Discovery is read again so soon after a sign that it changed; several signs are one.
const DISCOVERY_DELAY: Duration = Duration::from_secs(1);
/// How often discovery is read while it is known to be incomplete.
const DISCOVERY_RETRY: Duration = Duration::from_secs(3);
/// How often the gauges of a queue that is not empty are renewed.
const GAUGE_INTERVAL: Duration = Duration::from_secs(1);

/// What the collector is told.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) client: Client,
    pub(crate) gauges: QueueGauges,
    pub(crate) clock: fn() -> jiff::Timestamp,
}

/// Collects until it is dropped.
pub(crate) async fn run(config: Config) {
    Collector::new(config).run().await;
}

struct Collector {
    config: Config,
    catalog: Catalog,
    resources: Arc<Resources>,
    monitors: Monitors,
    graph: Graph,
    queue: Queue<Task>,
    /// What waits for discovery to change.
    parked: HashSet<Task>,
    running: FuturesUnordered<BoxFuture<'static, (Task, Outcome)>>,
    absences: Arc<Absences>,
    discovery_due: Option<Instant>,
}

impl Collector {
    fn new(config: Config) -> Self {
        Self {
            catalog: Catalog::new(config.client.clone()),
            resources: Arc::default(),
            monitors: Monitors::new(config.client.clone()),
            graph: Graph::default(),
            queue: Queue::new(BACKOFF),
            parked: HashSet::new(),
            running: FuturesUnordered::new(),
            absences: Arc::default(),
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
            let may_work = self.monitors.have_begun() && self.running.len() < WORKERS;
            let wake = [self.discovery_due, self.queue.next_due().filter(|_| may_work)].into_iter().flatten().min();
            tokio::select! {
                (id, notice) = self.monitors.next() => self.hear(id, notice),
                Some((task, outcome)) = self.running.next() => self.conclude(&task, outcome),
                () = tokio::time::sleep_until(wake.unwrap_or(now)), if wake.is_some() => {
                    if self.discovery_due.is_some_and(|due| due <= Instant::now()) {
                        self.read_discovery().await;
                    }
                }
                _ = gauges.tick(), if had_work || self.queue.len() > 0 => {
                    had_work = self.queue.len() > 0;
                    self.config.gauges.set(self.queue.len(), self.queue.oldest());
                }
            }
        }
    }

    /// Reads discovery, follows what is new, and gives what waited for it another chance.
    async fn read_discovery(&mut self) {
        self.discovery_due = None;
        let resources = match self.catalog.read().await {
            Ok(resources) => resources,
            Err(error) => {
                tracing::warn!(%error, "the garbage collector cannot read discovery");
                self.discovery_due = Some(Instant::now() + DISCOVERY_RETRY);
                return;
            }
        };
        let is_whole = monitors::is_whole(&resources);
        if !is_whole {
            self.discovery_due = Some(Instant::now() + DISCOVERY_RETRY);
        }
        if Arc::ptr_eq(&resources, &self.resources) {
            return;
        }
        self.resources = resources;
        for gone in self.monitors.follow(&self.resources) {
            tracing::info!(resource = %gone.name, "a resource is gone, and with it its objects");
            let objects = self.graph.missing(&gone, &HashSet::new());
            let tasks = objects.iter().flat_map(|uid| self.graph.forget(uid)).collect();
            self.add(tasks);
        }
        let parked = self.parked.drain().collect();
        self.add(parked);
    }

    fn expect_discovery(&mut self) {
        let due = Instant::now() + DISCOVERY_DELAY;
        self.discovery_due = Some(self.discovery_due.map_or(due, |earlier| earlier.min(due)));
    }

    fn hear(&mut self, id: MonitorId, notice: Notice) {
        let Some(resource) = self.monitors.resource(id) else { return };
        let tasks = match notice {
            Notice::Is(seen) => {
                let is_new = self.graph.get(&seen.metadata.uid).is_none();
                match monitors::sign_of(&resource, &seen) {
                    Sign::Definition => self.expect_discovery(),
                    Sign::Server if is_new => self.expect_discovery(),
                    Sign::Server | Sign::None => {}
                }
                self.graph.observe(&resource, &seen.metadata)
            }
            Notice::Gone(seen) => {
                if monitors::sign_of(&resource, &seen) != Sign::None {
                    self.expect_discovery();
                }
                self.graph.forget(&seen.metadata.uid)
            }
            Notice::Listed(uids) => {
                self.monitors.mark_listed(id);
                let missing = self.graph.missing(&resource, &uids);
                missing.iter().flat_map(|uid| self.graph.forget(uid)).collect()
            }
            Notice::Away(error) => {
                if self.monitors.mark_away(id) {
                    tracing::info!(resource = %resource.name, %error, "a resource cannot be followed; trying again");
                }
                self.expect_discovery();
                Vec::new()
            }
        };
        self.add(tasks);
    }

    fn add(&mut self, tasks: Vec<Task>) {
        let now = Instant::now();
        for task in tasks {
            self.parked.remove(&task);
            self.queue.add(&task, now);
        }
    }

    /// Starts as much as may run at once. Nothing begins before every resource was listed or is known to be away.
    fn start_work(&mut self) {
        if !self.monitors.have_begun() {
            return;
        }
        let now = Instant::now();
        while self.running.len() < WORKERS {
            let Some(task) = self.queue.take(now) else { return };
            match self.work_on(&task) {
                Some(work) => {
                    let named = task.clone();
                    self.running.push(Box::pin(async move { (named, work.await) }));
                }
                None => self.queue.end(&task, Ended::Done, now),
            }
        }
    }

    /// What there is to do about a task; `None` if that is nothing.
    fn work_on(&mut self, task: &Task) -> Option<BoxFuture<'static, Outcome>> {
        let tools = Tools {
            client: self.config.client.clone(),
            resources: self.resources.clone(),
            absences: self.absences.clone(),
        };
        match task {
            Task::Report { dependent, owner } => self.report(dependent, owner),
            Task::Orphan(uid) => {
                let node = self.graph.get(uid).filter(|node| node.sight.deletion() == Deletion::Orphaning)?.clone();
                if !self.sees_everything() {
                    return Some(Box::pin(std::future::ready(Outcome::NotSeenYet)));
                }
                let dependents = self.graph.dependents(uid).map(|(uid, node)| (uid.clone(), node.clone())).collect();
                Some(Box::pin(tools.orphan(uid.clone(), node, dependents)))
            }
            Task::Examine(uid) => {
                let node = self.graph.get(uid)?.clone();
                match (&node.sight, node.sight.deletion()) {
                    (Sight::Gone, _) => None,
                    (Sight::Named, _) => Some(Box::pin(tools.look_for(uid.clone(), node))),
                    // It is on its way; what comes of it is seen.
                    (_, Deletion::Going | Deletion::Orphaning) => None,
                    (_, Deletion::Foreground) => self.wait_for_dependents(uid, node, tools),
                    (_, Deletion::No) => {
                        let dependents = self.dependents_of(uid);
                        Some(Box::pin(tools.examine(uid.clone(), node, dependents)))
                    }
                }
            }
        }
    }

    /// An owner in foreground deletion: its dependents first.
    fn wait_for_dependents(&mut self, uid: &Uid, node: Node, tools: Tools) -> Option<BoxFuture<'static, Outcome>> {
        let blocking: Vec<(Uid, Deletion)> =
            self.graph.blocking(uid).map(|(uid, node)| (uid.clone(), node.sight.deletion())).collect();
        if blocking.is_empty() {
            if !self.sees_everything() {
                return Some(Box::pin(std::future::ready(Outcome::NotSeenYet)));
            }
            return Some(Box::pin(tools.finish_foreground(uid.clone(), node)));
        }
        let now = Instant::now();
        for (dependent, _) in blocking.iter().filter(|(_, deletion)| *deletion == Deletion::No) {
            self.queue.add(&Task::Examine(dependent.clone()), now);
        }
        None
    }

    fn dependents_of(&self, uid: &Uid) -> Dependents {
        let mut dependents = Dependents::None;
        for (_, node) in self.graph.dependents(uid) {
            if node.sight.deletion() == Deletion::Foreground {
                return Dependents::SomeWaiting;
            }
            dependents = Dependents::Some;
        }
        dependents
    }

    /// Whether no object can be out of sight: every resource is followed, and discovery confirms them all.
    fn sees_everything(&self) -> bool {
        self.monitors.all_listed() && monitors::is_whole(&self.resources)
    }

    fn report(&self, dependent: &Uid, owner: &OwnerReference) -> Option<BoxFuture<'static, Outcome>> {
        let node = self.graph.get(dependent)?;
        let (path, event) = work::misplaced_event(node, dependent, owner, (self.config.clock)())?;
        let client = self.config.client.clone();
        Some(Box::pin(async move {
            if let Err(error) = client.create(&path, &event).await {
                tracing::debug!(%error, "an event could not be written");
            }
            Outcome::Done
        }))
    }

    fn conclude(&mut self, task: &Task, outcome: Outcome) {
        let now = Instant::now();
        let ended = match outcome {
            Outcome::Done => Ended::Done,
            Outcome::Vanished => {
                if let Task::Examine(uid) | Task::Orphan(uid) = task {
                    let tasks = self.graph.forget(uid);
                    self.add(tasks);
                }
                Ended::Done
            }
            Outcome::Parked => {
                self.parked.insert(task.clone());
                Ended::Done
            }
            Outcome::NotSeenYet => Ended::Failed,
            Outcome::Failed(error) => {
                tracing::debug!(?task, %error, "garbage collection of an object failed; trying again");
                Ended::Failed
            }
        };
        self.queue.end(task, ended, now);
    }
}
