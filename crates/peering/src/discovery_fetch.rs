//! Asking the members that do not publish: one task each, so that nobody waits for anybody.
//!
//! Retries go on for ever with a capped backoff. Whoever asked stores the answer, and from there all servers learn it.

mod fetcher;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tasks::Tasks;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::fetcher::DiscoveryFetcher;
use crate::discovery_client::DiscoveryFetchLimits;
use crate::endpoint_record::Address;
use crate::identity::{HolderIdentity, ServerId};
use crate::members::{Member, MemberTimeouts, TrackedDocument};
use crate::metrics::Metrics;
use crate::ports::{ChangeNotifications, DocumentStorage, Fetch};
use crate::readiness::Milestone;
use crate::view::View;
use crate::wait::{sleep_until_if_some, wait_for_change};

/// How many requests to ask a member again may wait; more would ask for the same.
pub(crate) const STALE_QUEUE_MAX: usize = 64;

/// How peers are asked.
#[derive(Clone, Copy, Debug)]
pub struct DiscoveryFetchConfig {
    /// How long and how much.
    pub limits: DiscoveryFetchLimits,
    /// How often an answer is confirmed.
    pub revalidate_interval: Duration,
    /// How soon a member may be asked again because somebody wants it.
    pub stale_refetch_interval: Duration,
    /// How long after a change of definitions a member is asked once more: it takes them up in a moment of its own.
    pub definition_refetch_delay: Duration,
    /// The first wait after a failure; it doubles up to the last.
    pub backoff_initial: Duration,
    /// The last.
    pub backoff_max: Duration,
    /// `--peer-linger`: how long what a member does not serve any more is answered for with 503.
    pub linger: Duration,
    /// For jitter.
    pub seed: u64,
}

impl Default for DiscoveryFetchConfig {
    fn default() -> Self {
        Self {
            limits: DiscoveryFetchLimits::default(),
            // Documents of real servers change with their configuration and with definitions, of which storage tells.
            revalidate_interval: Duration::from_secs(60),
            // A question that an ETag answers costs little, and somebody waits.
            stale_refetch_interval: Duration::from_millis(100),
            definition_refetch_delay: Duration::from_secs(2),
            backoff_initial: Duration::from_millis(200),
            backoff_max: Duration::from_secs(5),
            linger: MemberTimeouts::LINGER,
            seed: 0,
        }
    }
}

/// The task that starts and ends the others.
pub(crate) struct DiscoveryFetchers {
    pub(crate) config: DiscoveryFetchConfig,
    pub(crate) fetch: Arc<dyn Fetch>,
    pub(crate) documents: Arc<dyn DocumentStorage>,
    pub(crate) views: watch::Receiver<Arc<View>>,
    /// Servers whose document is doubted.
    pub(crate) stale_members: mpsc::Receiver<ServerId>,
    /// Changes of definitions in storage: every member that is asked serves something else soon.
    pub(crate) definitions: Option<Box<dyn ChangeNotifications>>,
    /// Servers that were asked, with whatever result.
    pub(crate) attempted: mpsc::Sender<ServerId>,
    pub(crate) metrics: Metrics,
    pub(crate) tasks: Tasks,
    pub(crate) started: Milestone,
}

/// Whom a task asks, and what is known.
#[derive(Clone, Debug)]
pub(crate) struct FetchAssignment {
    pub(crate) address: Option<Address>,
    pub(crate) holder: HolderIdentity,
    pub(crate) document: Option<TrackedDocument>,
    /// Grows with every request to ask again.
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
                () = wait_for_definition_change(&mut self.definitions) => {
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

    /// Gives every member that is to be asked its task. Those of others end, because nobody can send to them any more.
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

/// Has a member asked again.
fn mark_stale(assignment: &watch::Sender<FetchAssignment>) {
    assignment.send_modify(|assignment| assignment.stale_marks += 1);
}

/// Waits for a change of definitions; for ever if nobody tells.
async fn wait_for_definition_change(definitions: &mut Option<Box<dyn ChangeNotifications>>) {
    match definitions {
        Some(definitions) => definitions.wait_for_change().await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
