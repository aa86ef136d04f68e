//! Measures a control plane as clients see it: the probe reads, writes, watches, fetches discovery and counts errors.
//!
//! The probe sends requests through the load balancer, with a connection per request, and directly to every ready
//! server. It judges responses by what the servers' own discovery documents list ([`history`]), never by earlier
//! responses.

mod endpoint;
pub mod event_tracker;
pub mod history;
mod reader;
mod watched_object;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tasks::Tasks;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::client::{AdminClient, AdminRequest};
use crate::lab::LabHandle;
use crate::status::collect::LOCAL_DISCOVERY_ACCEPT;
use crate::status::{Phase, ProbeCounts};
use event_tracker::EventTracker;
use history::{ProbeOutcome, ProbedResource, ServingHistory};

/// Limit for the last watch events to arrive.
const EVENTS_TIMEOUT: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Limit for the tasks to end; each may be in the middle of a request.
const STOP_GRACE: Duration = Duration::from_secs(10);

/// A running probe.
#[derive(Debug)]
pub struct Probe {
    state: Arc<ProbeState>,
    tasks: Tasks,
    stop_writing: CancellationToken,
    load_balancer: AdminClient,
    objects: Vec<watched_object::ProbeObject>,
}

/// State shared by the probe's tasks. Locks are never held across an await.
#[derive(Debug, Default)]
pub(crate) struct ProbeState {
    counts: Mutex<ProbeCounts>,
    history: Mutex<ServingHistory>,
    event_trackers: Mutex<Vec<EventTracker>>,
    last_success: Mutex<Option<Instant>>,
}

impl ProbeState {
    pub(crate) fn update_counts(&self, change: impl FnOnce(&mut ProbeCounts)) {
        change(&mut self.counts.lock());
    }

    pub(crate) fn with_history<T>(&self, look: impl FnOnce(&mut ServingHistory) -> T) -> T {
        look(&mut self.history.lock())
    }

    /// Adds a tracker for one watch and returns its index.
    pub(crate) fn add_event_tracker(&self) -> usize {
        let mut ledgers = self.event_trackers.lock();
        ledgers.push(EventTracker::default());
        ledgers.len() - 1
    }

    pub(crate) fn with_event_tracker<T>(&self, at: usize, look: impl FnOnce(&mut EventTracker) -> T) -> T {
        look(&mut self.event_trackers.lock()[at])
    }

    /// Counts one response.
    pub(crate) fn record_outcome(&self, verdict: ProbeOutcome) {
        self.update_counts(|counts| {
            counts.requests += 1;
            match verdict {
                ProbeOutcome::Good => {}
                ProbeOutcome::Unavailable => counts.unavailable += 1,
                ProbeOutcome::WrongNotFound => counts.wrong_not_found += 1,
                ProbeOutcome::Failed => counts.failed += 1,
            }
        });
    }

    /// Records a good response through the load balancer, for the longest gap between two of them.
    pub(crate) fn record_success(&self, now: Instant) {
        let mut last = self.last_success.lock();
        let gap = last.map_or(Duration::ZERO, |last| now.saturating_duration_since(last));
        *last = Some(now);
        let millis = u64::try_from(gap.as_millis()).unwrap_or(u64::MAX);
        self.update_counts(|counts| counts.longest_gap_millis = counts.longest_gap_millis.max(millis));
    }
}

impl Probe {
    /// Records what each ready server serves, creates the probe objects and starts the tasks.
    pub async fn start(lab: &LabHandle) -> Self {
        let shared = Arc::new(ProbeState::default());
        let tasks = Tasks::new();
        let writing = CancellationToken::new();
        let process_table = lab.supervisor.process_table().borrow().clone();
        for (at, client) in lab.clients.iter().enumerate() {
            // Servers that do not run are left out of the comparison.
            if process_table.servers[at].phase == Phase::Ready {
                let served = fetch_listable_resources(client).await;
                shared.with_history(|history| history.server_ready(at, served, Instant::now()));
            }
        }
        let endpoints = endpoint::all_endpoints(lab);
        let mut objects = Vec::new();
        for subject in watched_object::create_probe_objects(&shared) {
            match watched_object::start_writer_and_watches(&endpoints, &subject, &shared, &tasks, &writing).await {
                Ok(()) => objects.push(subject),
                Err(reason) => {
                    tracing::warn!(reason, path = subject.path(), "probe cannot create or watch its object");
                    shared.update_counts(|counts| counts.failed += 1);
                }
            }
        }
        let shared_objects: Arc<[watched_object::ProbeObject]> = objects.iter().cloned().collect();
        for way in endpoints {
            tasks.spawn("probe reads", |stop| {
                reader::read_repeatedly(way.clone(), shared_objects.clone(), shared.clone(), stop)
            });
            tasks.spawn("probe discovery", |stop| reader::check_discovery_repeatedly(way, shared.clone(), stop));
        }
        Self { state: shared, tasks, stop_writing: writing, load_balancer: lab.load_balancer.clone(), objects }
    }

    /// Records that the server is about to be stopped.
    pub fn server_stopping(&self, server: usize) {
        self.state.with_history(|history| history.server_stopping(server, Instant::now()));
    }

    /// Records that the server is about to be started.
    pub fn server_starting(&self, server: usize) {
        self.state.with_history(|history| history.server_starting(server, Instant::now()));
    }

    /// Records that the server is ready, with the resources that it serves.
    pub async fn server_ready(&self, server: usize, client: &AdminClient) {
        let served = fetch_listable_resources(client).await;
        self.state.with_history(|history| history.server_ready(server, served, Instant::now()));
    }

    /// Returns the counts so far; `lost_events` is counted only by `finish`.
    pub fn counts(&self) -> ProbeCounts {
        self.state.counts.lock().clone()
    }

    /// Stops writing, waits for the last events, deletes the probe objects and returns the final counts.
    pub async fn finish(self) -> ProbeCounts {
        self.stop_writing.cancel();
        let missing = || {
            let ledgers = self.state.event_trackers.lock();
            ledgers.iter().map(EventTracker::missing_events).sum::<u64>()
        };
        let deadline = Instant::now() + EVENTS_TIMEOUT;
        while missing() > 0 && Instant::now() < deadline {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        let lost = missing();
        self.state.update_counts(|counts| counts.lost_events = lost);
        if let Err(error) = self.tasks.stop(STOP_GRACE).await {
            tracing::warn!(%error, "probe did not end in time");
        }
        for subject in &self.objects {
            let _ = self.load_balancer.request(subject.delete_request()).await;
        }
        self.counts()
    }
}

/// Returns the listable resources of the server's own (unmerged) discovery documents; empty if they cannot be read.
async fn fetch_listable_resources(client: &AdminClient) -> BTreeSet<ProbedResource> {
    let mut names = BTreeSet::new();
    for path in ["/api", "/apis"] {
        let Ok(answer) = client.request(AdminRequest::get(path).with_header("accept", LOCAL_DISCOVERY_ACCEPT)).await
        else {
            continue;
        };
        let Ok(groups) = discovery::parse::parse_aggregated(&answer.body) else { continue };
        names.extend(reader::listable_resources(&groups));
    }
    names
}
