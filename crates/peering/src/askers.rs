//! Asking the members that do not publish: one task each, so that nobody waits for anybody.
//!
//! Retries go on for ever with a capped backoff. Whoever asked stores the answer, and from there all servers learn it.

mod asker;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tasks::Tasks;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::asker::Asker;
use crate::ask::AskLimits;
use crate::endpoints::Address;
use crate::identity::{HolderIdentity, ServerId};
use crate::members::{KnownDocument, Member, Patience};
use crate::metrics::Metrics;
use crate::ports::{Changes, Documents, Fetch};
use crate::readiness::Milestone;
use crate::view::View;
use crate::wait::{changed, until};

/// How many requests to ask a member again may wait; more would ask for the same.
pub(crate) const AGAIN_MAX: usize = 64;

/// How peers are asked.
#[derive(Clone, Copy, Debug)]
pub struct AskConfig {
    /// How long and how much.
    pub limits: AskLimits,
    /// How often an answer is confirmed.
    pub revalidate_interval: Duration,
    /// How soon a member may be asked again because somebody wants it.
    pub again_interval: Duration,
    /// How long after a change of definitions a member is asked once more: it takes them up in a moment of its own.
    pub settle_delay: Duration,
    /// The first wait after a failure; it doubles up to the last.
    pub backoff_first: Duration,
    /// The last.
    pub backoff_last: Duration,
    /// `--peer-linger`: how long what a member does not serve any more is answered for with 503.
    pub linger: Duration,
    /// For jitter.
    pub seed: u64,
}

impl Default for AskConfig {
    fn default() -> Self {
        Self {
            limits: AskLimits::default(),
            // Documents of real servers change with their configuration and with definitions, of which storage tells.
            revalidate_interval: Duration::from_secs(60),
            // A question that an ETag answers costs little, and somebody waits.
            again_interval: Duration::from_millis(100),
            settle_delay: Duration::from_secs(2),
            backoff_first: Duration::from_millis(200),
            backoff_last: Duration::from_secs(5),
            linger: Patience::LINGER,
            seed: 0,
        }
    }
}

/// The task that starts and ends the others.
pub(crate) struct Askers {
    pub(crate) config: AskConfig,
    pub(crate) fetch: Arc<dyn Fetch>,
    pub(crate) documents: Arc<dyn Documents>,
    pub(crate) views: watch::Receiver<Arc<View>>,
    /// Servers whose document is doubted.
    pub(crate) again: mpsc::Receiver<ServerId>,
    /// Changes of definitions in storage: every member that is asked serves something else soon.
    pub(crate) definitions: Option<Box<dyn Changes>>,
    /// Servers that were asked, with whatever result.
    pub(crate) tried: mpsc::Sender<ServerId>,
    pub(crate) metrics: Metrics,
    pub(crate) tasks: Tasks,
    pub(crate) started: Milestone,
}

/// Whom a task asks, and what is known.
#[derive(Clone, Debug)]
pub(crate) struct Assignment {
    pub(crate) address: Option<Address>,
    pub(crate) holder: HolderIdentity,
    pub(crate) known: Option<KnownDocument>,
    /// Grows with every request to ask again.
    pub(crate) doubts: u64,
}

impl Assignment {
    fn of(member: &Member, doubts: u64) -> Option<Self> {
        let holder = member.holder.clone()?;
        Some(Self { address: member.address.clone(), holder, known: member.document.clone(), doubts })
    }

    fn is_same(&self, other: &Self) -> bool {
        let version = |assignment: &Self| assignment.known.as_ref().map(|known| known.version);
        self.address == other.address
            && self.holder == other.holder
            && self.doubts == other.doubts
            && version(self) == version(other)
    }
}

impl Askers {
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        let mut asked: HashMap<ServerId, watch::Sender<Assignment>> = HashMap::new();
        let mut settled = None;
        self.started.reach();
        loop {
            self.assign(&mut asked);
            tokio::select! {
                () = stop.cancelled() => return,
                () = changed(&mut self.views) => {}
                () = redefined(&mut self.definitions) => {
                    settled = Some(Instant::now() + self.config.settle_delay);
                    asked.values().for_each(doubt);
                }
                () = until(settled) => {
                    settled = None;
                    asked.values().for_each(doubt);
                }
                Some(server) = self.again.recv() => asked.get(&server).into_iter().for_each(doubt),
            }
        }
    }

    /// Gives every member that is to be asked its task. Those of others end, because nobody can send to them any more.
    fn assign(&mut self, asked: &mut HashMap<ServerId, watch::Sender<Assignment>>) {
        let view = self.views.borrow_and_update().clone();
        let members: HashMap<&ServerId, &Member> = view
            .members()
            .iter()
            .filter(|member| member.is_to_be_asked())
            .map(|member| (&member.server, member))
            .collect();
        asked.retain(|server, _| members.contains_key(server));
        for (server, member) in members {
            let doubts = asked.get(server).map_or(0, |sender| sender.borrow().doubts);
            let Some(assignment) = Assignment::of(member, doubts) else { continue };
            match asked.get(server) {
                Some(sender) => {
                    sender.send_if_modified(|last| {
                        let is_new = !last.is_same(&assignment);
                        *last = assignment;
                        is_new
                    });
                }
                None => {
                    asked.insert(server.clone(), self.start(server, assignment));
                }
            }
        }
    }

    fn start(&self, server: &ServerId, assignment: Assignment) -> watch::Sender<Assignment> {
        let (sender, receiver) = watch::channel(assignment);
        let asker = Asker {
            server: server.clone(),
            config: self.config,
            fetch: self.fetch.clone(),
            documents: self.documents.clone(),
            tried: self.tried.clone(),
            metrics: self.metrics.clone(),
            assignment: receiver,
        };
        self.tasks.spawn_once("peer-asker", asker.run(self.tasks.stopping()));
        sender
    }
}

/// Has a member asked again.
fn doubt(assignment: &watch::Sender<Assignment>) {
    assignment.send_modify(|assignment| assignment.doubts += 1);
}

/// Waits for a change of definitions; for ever if nobody tells.
async fn redefined(definitions: &mut Option<Box<dyn Changes>>) {
    match definitions {
        Some(definitions) => definitions.changed().await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
