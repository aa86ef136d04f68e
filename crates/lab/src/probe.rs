//! Watches a control plane as its clients do: asks, writes, watches, reads discovery, and counts what they would notice.
//!
//! It asks through the front door, with a new connection each time, and at every server that is ready. Right and wrong are
//! judged by what the servers themselves said that they serve ([`history`]), never by what was answered before.

pub mod history;
pub mod ledger;
mod reader;
mod stream;
mod way;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tasks::Tasks;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::client::{Ask, Client};
use crate::lab::Inside;
use crate::status::collect::LOCAL;
use crate::status::{Counts, Phase};
use history::{History, Name, Verdict};
use ledger::Ledger;

/// How long the last events may be on their way.
const EVENTS_PATIENCE: Duration = Duration::from_secs(10);
const LOOK_INTERVAL: Duration = Duration::from_millis(20);
/// How long the tasks may take to end: each may be in the middle of a request.
const STOP_GRACE: Duration = Duration::from_secs(10);

/// A probe that runs.
#[derive(Debug)]
pub struct Probe {
    shared: Arc<Shared>,
    tasks: Tasks,
    writing: CancellationToken,
    door: Client,
    subjects: Vec<stream::Subject>,
}

/// What the probe's tasks share; every lock is held for a moment only.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    counts: Mutex<Counts>,
    history: Mutex<History>,
    ledgers: Mutex<Vec<Ledger>>,
    last_good: Mutex<Option<Instant>>,
}

impl Shared {
    pub(crate) fn count(&self, change: impl FnOnce(&mut Counts)) {
        change(&mut self.counts.lock());
    }

    pub(crate) fn history<T>(&self, look: impl FnOnce(&mut History) -> T) -> T {
        look(&mut self.history.lock())
    }

    /// A place to keep account of one watch.
    pub(crate) fn open_ledger(&self) -> usize {
        let mut ledgers = self.ledgers.lock();
        ledgers.push(Ledger::default());
        ledgers.len() - 1
    }

    pub(crate) fn ledger<T>(&self, at: usize, look: impl FnOnce(&mut Ledger) -> T) -> T {
        look(&mut self.ledgers.lock()[at])
    }

    /// Counts an answer.
    pub(crate) fn judge(&self, verdict: Verdict) {
        self.count(|counts| {
            counts.requests += 1;
            match verdict {
                Verdict::Good => {}
                Verdict::Unavailable => counts.unavailable += 1,
                Verdict::WrongNotFound => counts.wrong_not_found += 1,
                Verdict::Failed => counts.failed += 1,
            }
        });
    }

    /// A good answer came through the front door.
    pub(crate) fn good(&self, now: Instant) {
        let mut last = self.last_good.lock();
        let gap = last.map_or(Duration::ZERO, |last| now.saturating_duration_since(last));
        *last = Some(now);
        let millis = u64::try_from(gap.as_millis()).unwrap_or(u64::MAX);
        self.count(|counts| counts.longest_gap_millis = counts.longest_gap_millis.max(millis));
    }
}

impl Probe {
    /// Starts to watch a lab.
    pub async fn start(inside: &Inside) -> Self {
        let shared = Arc::new(Shared::default());
        let tasks = Tasks::new();
        let writing = CancellationToken::new();
        let board = inside.handle.board().borrow().clone();
        for (at, client) in inside.clients.iter().enumerate() {
            // One that does not run serves nothing, which is no difference to the others.
            if board.servers[at].phase == Phase::Ready {
                let served = listed(client).await;
                shared.history(|history| history.ready(at, served, Instant::now()));
            }
        }
        let ways = way::all(inside);
        let mut subjects = Vec::new();
        for subject in stream::subjects(&shared) {
            match stream::start(&ways, &subject, &shared, &tasks, &writing).await {
                Ok(()) => subjects.push(subject),
                Err(reason) => {
                    tracing::warn!(reason, path = subject.path(), "the probe cannot write this");
                    shared.count(|counts| counts.failed += 1);
                }
            }
        }
        let objects: Arc<[stream::Subject]> = subjects.iter().cloned().collect();
        for way in ways {
            tasks.spawn("probe answers", |stop| reader::ask(way.clone(), objects.clone(), shared.clone(), stop));
            tasks.spawn("probe discovery", |stop| reader::discover(way, shared.clone(), stop));
        }
        Self { shared, tasks, writing, door: inside.door.clone(), subjects }
    }

    /// A server is about to be told to stop.
    pub fn stopping(&self, server: usize) {
        self.shared.history(|history| history.stopping(server, Instant::now()));
    }

    /// A server is about to be started.
    pub fn starting(&self, server: usize) {
        self.shared.history(|history| history.starting(server, Instant::now()));
    }

    /// A server is ready.
    pub async fn ready(&self, server: usize, client: &Client) {
        let served = listed(client).await;
        self.shared.history(|history| history.ready(server, served, Instant::now()));
    }

    /// What was noticed so far. Events that are on their way are not lost yet.
    pub fn counts(&self) -> Counts {
        self.shared.counts.lock().clone()
    }

    /// Stops writing, waits for the last events, and says what was noticed in all.
    pub async fn finish(self) -> Counts {
        self.writing.cancel();
        let missing = || {
            let ledgers = self.shared.ledgers.lock();
            ledgers.iter().map(Ledger::missing).sum::<u64>()
        };
        let deadline = Instant::now() + EVENTS_PATIENCE;
        while missing() > 0 && Instant::now() < deadline {
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
        let lost = missing();
        self.shared.count(|counts| counts.lost_events = lost);
        if let Err(error) = self.tasks.stop(STOP_GRACE).await {
            tracing::warn!(%error, "the probe did not end in time");
        }
        for subject in &self.subjects {
            let _ = self.door.ask(subject.delete()).await;
        }
        self.counts()
    }
}

/// What a server lists itself and can be listed.
async fn listed(client: &Client) -> BTreeSet<Name> {
    let mut names = BTreeSet::new();
    for path in ["/api", "/apis"] {
        let Ok(answer) = client.ask(Ask::get(path).with("accept", LOCAL)).await else { continue };
        let Ok(groups) = discovery::parse::parse_aggregated(&answer.body) else { continue };
        names.extend(reader::listable(&groups));
    }
    names
}
