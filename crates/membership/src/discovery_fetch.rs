//! Fetches the documents of members that do not publish them: one task per member, so that a slow member delays no other.
//!
//! Retries continue for ever with a capped backoff. The server that fetched stores the document, and all servers read it there.

mod fetcher;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use api::Address;
use tasks::Tasks;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::fetcher::DiscoveryFetcher;
use crate::discovery_client::DiscoveryFetchLimits;
use crate::identity::{HolderIdentity, ServerId};
use crate::members::{Member, MemberTimeouts, TrackedDocument};
use crate::metrics::Metrics;
use crate::ports::{ChangeNotifications, DocumentStorage, Fetch};
use crate::readiness::Milestone;
use crate::view::View;
use crate::wait::{sleep_until_if_some, wait_for_change};

/// Limit of queued requests to fetch again; more would be duplicates.
pub(crate) const STALE_QUEUE_MAX: usize = 64;

/// How documents are fetched.
#[derive(Clone, Copy, Debug)]
pub struct DiscoveryFetchConfig {
    /// Limits of one fetch.
    pub limits: DiscoveryFetchLimits,
    /// How often a fetched document is revalidated.
    pub revalidate_interval: Duration,
    /// The shortest time between two fetches from a member whose document is marked stale.
    pub stale_refetch_interval: Duration,
    /// How long after a change of definitions documents are fetched once more: a member serves a new definition with a delay.
    pub definition_refetch_delay: Duration,
    /// The wait after the first failure; it doubles with every failure.
    pub backoff_initial: Duration,
    /// The longest wait.
    pub backoff_max: Duration,
    /// `--peer-linger`: how long resources that a member serves no longer are answered with 503.
    pub linger: Duration,
    /// Seed of the jitter.
    pub seed: u64,
}

impl Default for DiscoveryFetchConfig {
    fn default() -> Self {
        Self {
            limits: DiscoveryFetchLimits::default(),
            // Documents of kube-apiservers change with their configuration, and with definitions, whose changes storage shows.
            revalidate_interval: Duration::from_secs(60),
            // Revalidation by ETag is cheap, and a client waits for it.
            stale_refetch_interval: Duration::from_millis(100),
            definition_refetch_delay: Duration::from_secs(2),
            backoff_initial: Duration::from_millis(200),
            backoff_max: Duration::from_secs(5),
            linger: MemberTimeouts::LINGER,
            seed: 0,
        }
    }
}

/// Starts and ends the tasks of members.
pub(crate) struct DiscoveryFetchers {
    pub(crate) config: DiscoveryFetchConfig,
    pub(crate) fetch: Arc<dyn Fetch>,
    pub(crate) documents: Arc<dyn DocumentStorage>,
    pub(crate) views: watch::Receiver<Arc<View>>,
    /// Members whose documents are marked stale.
    pub(crate) stale_members: mpsc::Receiver<ServerId>,
    /// Changes of definitions in storage: members serve something else soon.
    pub(crate) definitions: Box<dyn ChangeNotifications>,
    /// Takes members that were fetched from, with whatever result.
    pub(crate) attempted: mpsc::Sender<ServerId>,
    pub(crate) metrics: Metrics,
    pub(crate) tasks: Tasks,
    pub(crate) started: Milestone,
}

/// What the task of one member works on.
#[derive(Clone, Debug)]
pub(crate) struct FetchAssignment {
    pub(crate) address: Option<Address>,
    pub(crate) holder: HolderIdentity,
    pub(crate) document: Option<TrackedDocument>,
    /// Grows with every request to fetch again.
    pub(crate) stale_marks: u64,
}

impl FetchAssignment {
    fn for_member(member: &Member, stale_marks: u64) -> Option<Self> {
        let holder = member.holder.clone()?;
        Some(Self { address: member.address.clone(), holder, document: member.document.clone(), stale_marks })
    }

    fn is_same(&self, other: &Self) -> bool {
        let version = |assignment: &Self| assignment.document.as_ref().map(|known| known.version);
        self.address == other.address
            && self.holder == other.holder
            && self.stale_marks == other.stale_marks
            && version(self) == version(other)
    }
}

impl DiscoveryFetchers {
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        let mut assignments: HashMap<ServerId, watch::Sender<FetchAssignment>> = HashMap::new();
        let mut refetch_at = None;
        self.started.mark_reached();
        loop {
            self.update_assignments(&mut assignments);
            tokio::select! {
                () = stop.cancelled() => return,
                () = wait_for_change(&mut self.views) => {}
                () = self.definitions.wait_for_change() => {
                    refetch_at = Some(Instant::now() + self.config.definition_refetch_delay);
                    assignments.values().for_each(mark_stale);
                }
                () = sleep_until_if_some(refetch_at) => {
                    refetch_at = None;
                    assignments.values().for_each(mark_stale);
                }
                Some(server) = self.stale_members.recv() => assignments.get(&server).into_iter().for_each(mark_stale),
            }
        }
    }

    /// Starts a task for every member to fetch from. Tasks of other members end when their channels close.
    fn update_assignments(&mut self, assignments: &mut HashMap<ServerId, watch::Sender<FetchAssignment>>) {
        let view = self.views.borrow_and_update().clone();
        let members: HashMap<&ServerId, &Member> = view
            .members()
            .iter()
            .filter(|member| member.needs_discovery_fetch())
            .map(|member| (&member.server, member))
            .collect();
        assignments.retain(|server, _| members.contains_key(server));
        for (server, member) in members {
            let stale_marks = assignments.get(server).map_or(0, |sender| sender.borrow().stale_marks);
            let Some(assignment) = FetchAssignment::for_member(member, stale_marks) else { continue };
            match assignments.get(server) {
                Some(sender) => {
                    sender.send_if_modified(|last| {
                        let is_new = !last.is_same(&assignment);
                        *last = assignment;
                        is_new
                    });
                }
                None => {
                    assignments.insert(server.clone(), self.start_fetcher(server, assignment));
                }
            }
        }
    }

    fn start_fetcher(&self, server: &ServerId, assignment: FetchAssignment) -> watch::Sender<FetchAssignment> {
        let (sender, receiver) = watch::channel(assignment);
        let fetcher = DiscoveryFetcher {
            server: server.clone(),
            config: self.config,
            fetch: self.fetch.clone(),
            documents: self.documents.clone(),
            attempted: self.attempted.clone(),
            metrics: self.metrics.clone(),
            assignment: receiver,
        };
        self.tasks.spawn_once("peer-asker", fetcher.run(self.tasks.stop_token()));
        sender
    }
}

/// Has the document of a member fetched again.
fn mark_stale(assignment: &watch::Sender<FetchAssignment>) {
    assignment.send_modify(|assignment| assignment.stale_marks += 1);
}

#[cfg(test)]
mod tests;
