//! The members of `--etcd-servers`, and the choice of the member for each request.
//!
//! Requests go to the member that responded last. A member that fails backs off for a while, during which the others
//! come first, so that a dead member costs one failure and not one per request. A write moves on to another member only
//! if it was certainly not executed. After all members have failed, a request retries them, unless the outage already
//! lasts longer than [`OUTAGE_TIMEOUT`]: then it tries each member once and fails fast.

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use parking_lot::Mutex;
use tasks::Backoff;
use tokio::time::{Instant, timeout_at};

use super::connection::{ConnectionPurpose, EtcdAddress, EtcdConnection, EtcdDialer};
use super::failure::{EtcdFailure, classify_status};
use super::probe_connection::EtcdProbeTarget;
use super::proto::{EtcdRequest, RetrySafety};
use super::version::EtcdVersion;

/// The backoff after a member's first failure; doubled with each further one.
const FAILURE_BACKOFF_MIN: Duration = Duration::from_secs(1);

/// The longest backoff, so that a recovered member is soon used again.
const FAILURE_BACKOFF_MAX: Duration = Duration::from_secs(30);

/// The pauses between rounds over all members; never past the deadline. The longest is about half of what a cluster
/// needs to elect a leader.
const PAUSES: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_millis(500));

/// How long requests retry while no member responds: longer than a leader election takes, short enough for an
/// interactive client.
const OUTAGE_TIMEOUT: Duration = Duration::from_secs(3);

/// The members of one etcd cluster, with their connections and health.
#[derive(Debug)]
pub(super) struct EtcdMembers {
    members: Vec<EtcdMember>,
    dialer: EtcdDialer,
    /// The index of the member that the next request goes to first.
    preferred: AtomicUsize,
    /// The cluster id of the first member that responded; all must have the same.
    cluster: OnceLock<u64>,
    /// The start of the oldest failed request since the last response of any member.
    outage_since: Mutex<Option<Instant>>,
}

#[derive(Debug)]
struct EtcdMember {
    address: EtcdAddress,
    requests: tokio::sync::Mutex<ConnectionSlot>,
    watches: tokio::sync::Mutex<ConnectionSlot>,
    health: Mutex<MemberHealth>,
}

#[derive(Debug, Default)]
struct ConnectionSlot {
    connection: Option<EtcdConnection>,
    last_failure: Option<(Instant, String)>,
}

#[derive(Debug, Default)]
struct MemberHealth {
    failures: u32,
    backoff_until: Option<Instant>,
    version: Option<EtcdVersion>,
}

impl EtcdMembers {
    pub(super) fn new(addresses: Vec<EtcdAddress>, dialer: EtcdDialer) -> Self {
        let member = |address| EtcdMember {
            address,
            requests: tokio::sync::Mutex::default(),
            watches: tokio::sync::Mutex::default(),
            health: Mutex::default(),
        };
        Self {
            members: addresses.into_iter().map(member).collect(),
            dialer,
            preferred: AtomicUsize::new(0),
            cluster: OnceLock::new(),
            outage_since: Mutex::default(),
        }
    }

    /// Connects to every reachable member, to learn their versions. Failed connections are retried when needed.
    pub(super) async fn connect_all(&self) {
        let dialing = self.members.iter().map(|member| self.dialer.dial(&member.address, ConnectionPurpose::Requests));
        // In order of the flag, so that its first reachable member determines the cluster id.
        for (index, dialed) in join_all(dialing).await.into_iter().enumerate() {
            let mut slot = self.members[index].requests.lock().await;
            // The slot records the failure.
            let _ = self.store_connection(index, &mut slot, dialed);
        }
    }

    pub(super) fn dialer(&self) -> &EtcdDialer {
        &self.dialer
    }

    /// The address of the member that responded last, for probes; `None` if none ever did.
    pub(super) fn probe_target(&self) -> Option<EtcdProbeTarget> {
        let cluster = *self.cluster.get()?;
        let address = self.members[self.preferred.load(Ordering::Relaxed)].address.clone();
        Some(EtcdProbeTarget { address, cluster })
    }

    /// The deadline of a request that starts now.
    pub(super) fn deadline(&self) -> Instant {
        Instant::now() + self.dialer.timeouts.request
    }

    /// True if the version of at least one member is known and every known version supports progress requests.
    pub(super) fn support_progress_requests(&self) -> bool {
        let versions = self.members.iter().filter_map(|member| member.health.lock().version);
        let mut known = versions.map(EtcdVersion::supports_progress_requests).peekable();
        known.peek().is_some() && known.all(|answers| answers)
    }

    /// Sends a request to one member after another until one responds, `deadline` passes, or the outage lasts too long.
    pub(super) async fn send<C: EtcdRequest>(&self, message: C, deadline: Instant) -> Result<C::Response, EtcdFailure> {
        let began = Instant::now();
        let mut pauses = PAUSES;
        let mut reasons = BTreeMap::new();
        loop {
            for index in self.candidate_order() {
                match self.send_to(index, message.clone(), deadline).await {
                    Ok(answer) => return Ok(answer),
                    Err(EtcdFailure::Rejected(refusal)) => return Err(EtcdFailure::Rejected(refusal)),
                    Err(EtcdFailure::OutcomeUnknown(reason)) if C::RETRY == RetrySafety::Unsafe => {
                        return Err(EtcdFailure::OutcomeUnknown(self.describe_failure(index, &reason)));
                    }
                    // A failure that is only due to the deadline says less than the earlier one.
                    Err(_) if Instant::now() >= deadline && reasons.contains_key(&index) => {}
                    Err(EtcdFailure::NotExecuted(reason) | EtcdFailure::OutcomeUnknown(reason)) => {
                        reasons.insert(index, self.describe_failure(index, &reason));
                    }
                }
            }
            let pause = pauses.next_wait();
            if self.record_outage(began) >= OUTAGE_TIMEOUT || Instant::now() + pause >= deadline {
                let reasons: Vec<_> = reasons.into_values().collect();
                return Err(EtcdFailure::NotExecuted(reasons.join("; ")));
            }
            tokio::time::sleep(pause).await;
        }
    }

    /// Sends a request to one member and records the member's health.
    async fn send_to<C: EtcdRequest>(
        &self,
        index: usize,
        message: C,
        deadline: Instant,
    ) -> Result<C::Response, EtcdFailure> {
        let connecting = timeout_at(deadline, self.connection(index, ConnectionPurpose::Requests));
        let link = match connecting.await {
            Ok(linked) => linked.map_err(EtcdFailure::NotExecuted)?,
            Err(_) => return Err(EtcdFailure::NotExecuted("no connection before the deadline".to_owned())),
        };
        let began = Instant::now();
        if began >= deadline {
            return Err(EtcdFailure::NotExecuted("no time left to send the request".to_owned()));
        }
        let limit = self.attempt_deadline(C::RETRY, began, deadline);
        let result = match timeout_at(limit, link.send(message, limit - began)).await {
            Ok(result) => result.map_err(|status| classify_status(&status)),
            Err(_) => Err(EtcdFailure::OutcomeUnknown(format!("no response within {:?}", limit - began))),
        };
        match &result {
            Ok(_) | Err(EtcdFailure::Rejected(_)) => self.record_success(index),
            Err(EtcdFailure::NotExecuted(_)) => self.record_failure(index),
            Err(EtcdFailure::OutcomeUnknown(_)) => {
                // The connection may be broken: send no further request on it.
                link.retire();
                self.record_failure(index);
            }
        }
        result
    }

    /// The deadline of one attempt. A read leaves time for two more attempts; a write that was sent can only wait.
    pub(super) fn attempt_deadline(&self, repeat: RetrySafety, began: Instant, deadline: Instant) -> Instant {
        match repeat {
            RetrySafety::Safe => deadline.min(began + self.dialer.timeouts.request / 3),
            RetrySafety::Unsafe => deadline,
        }
    }

    /// A connection for a stream to the first reachable member, with the member's index.
    pub(super) async fn stream_connection(
        &self,
        purpose: ConnectionPurpose,
    ) -> Result<(usize, EtcdConnection), String> {
        let mut reasons = Vec::new();
        for index in self.candidate_order() {
            match self.connection(index, purpose).await {
                Ok(link) => return Ok((index, link)),
                Err(reason) => reasons.push(self.describe_failure(index, &reason)),
            }
        }
        Err(reasons.join("; "))
    }

    /// Records that a stream failed, so that the next one tries another member first.
    pub(super) fn report_stream_failure(&self, index: usize, link: &EtcdConnection) {
        link.retire();
        self.record_failure(index);
    }

    /// Records that a stream was established.
    pub(super) fn report_stream_success(&self, index: usize) {
        self.record_success(index);
    }

    /// Prefixes a reason with the address of the member.
    pub(super) fn describe_failure(&self, index: usize, reason: &str) -> String {
        format!("{}: {reason}", self.members[index].address)
    }

    /// Every member once: from the preferred one on, those in backoff last.
    fn candidate_order(&self) -> Vec<usize> {
        let now = Instant::now();
        let first = self.preferred.load(Ordering::Relaxed);
        let count = self.members.len();
        let mut order: Vec<usize> = (0..count).map(|step| (first + step) % count).collect();
        order.sort_by_key(|&index| self.members[index].health.lock().backoff_until.is_some_and(|until| until > now));
        order
    }

    /// Returns the connection to one member, dialing if there is none. Callers that wait for the same dial share its
    /// failure.
    async fn connection(&self, index: usize, purpose: ConnectionPurpose) -> Result<EtcdConnection, String> {
        let member = &self.members[index];
        let asked = Instant::now();
        let mut slot = member.connection_slot(purpose).lock().await;
        if let Some(link) = slot.connection.as_ref().filter(|link| !link.is_unusable()) {
            return Ok(link.clone());
        }
        if let Some((at, reason)) = &slot.last_failure
            && *at >= asked
        {
            return Err(reason.clone());
        }
        // Boxed because the dialing future is large and rare, and would enlarge the future of every request.
        let dialed = Box::pin(self.dialer.dial(&member.address, purpose)).await;
        self.store_connection(index, &mut slot, dialed)
    }

    /// Stores the result of dialing in the slot and in the member's health.
    fn store_connection(
        &self,
        index: usize,
        slot: &mut ConnectionSlot,
        dialed: Result<EtcdConnection, String>,
    ) -> Result<EtcdConnection, String> {
        let admitted = dialed.and_then(|link| self.check_cluster(link));
        slot.connection = admitted.as_ref().ok().cloned();
        match &admitted {
            Ok(link) => self.members[index].health.lock().version = link.version,
            Err(reason) => {
                slot.last_failure = Some((Instant::now(), reason.clone()));
                self.record_failure(index);
            }
        }
        admitted
    }

    /// Rejects a member of another cluster: otherwise each cluster would receive part of the data.
    fn check_cluster(&self, link: EtcdConnection) -> Result<EtcdConnection, String> {
        match *self.cluster.get_or_init(|| link.cluster) == link.cluster {
            true => Ok(link),
            false => Err("it belongs to another etcd cluster than the others; correct --etcd-servers".to_owned()),
        }
    }

    /// Records that no member responded to a request that started at `began`; returns the duration of the outage.
    fn record_outage(&self, began: Instant) -> Duration {
        self.outage_since.lock().get_or_insert(began).elapsed()
    }

    fn record_success(&self, index: usize) {
        self.preferred.store(index, Ordering::Relaxed);
        *self.outage_since.lock() = None;
        let mut health = self.members[index].health.lock();
        health.failures = 0;
        health.backoff_until = None;
    }

    /// Puts a member into exponential backoff.
    fn record_failure(&self, index: usize) {
        let mut health = self.members[index].health.lock();
        let rest = FAILURE_BACKOFF_MIN.saturating_mul(1 << health.failures.min(8)).min(FAILURE_BACKOFF_MAX);
        health.failures = health.failures.saturating_add(1);
        health.backoff_until = Some(Instant::now() + rest);
    }
}

impl EtcdMember {
    fn connection_slot(&self, purpose: ConnectionPurpose) -> &tokio::sync::Mutex<ConnectionSlot> {
        match purpose {
            ConnectionPurpose::Requests => &self.requests,
            ConnectionPurpose::Watches => &self.watches,
        }
    }
}
