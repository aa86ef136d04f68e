//! The etcds that we may ask, and which of them is asked next.
//!
//! Requests go to the etcd that answered last. One that fails rests for a while, during which the others are asked first,
//! so that a dead etcd costs its one failure and not one per request. A write goes on to another etcd only if it is
//! certain that it was not done. When all have failed they are asked again, unless that has been so for a while: then a
//! request asks each once, and who sent it knows soon.

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

/// How long an etcd rests after its first failure; doubled with each further one.
const FAILURE_BACKOFF_MIN: Duration = Duration::from_secs(1);

/// The longest rest, so that an etcd which is back is soon used when it is needed.
const FAILURE_BACKOFF_MAX: Duration = Duration::from_secs(30);

/// The pauses after all etcds have failed, before they are asked again; never past the deadline. The longest is about half of
/// what a cluster needs to elect a leader.
const PAUSES: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_millis(500));

/// How long requests wait for etcds of which none answers: longer than an election takes, shorter than people like to wait.
const OUTAGE_TIMEOUT: Duration = Duration::from_secs(3);

/// All etcds of `--etcd-servers`.
#[derive(Debug)]
pub(super) struct EtcdMembers {
    members: Vec<EtcdMember>,
    dialer: EtcdDialer,
    /// Where the next request goes first.
    preferred: AtomicUsize,
    /// The cluster of the first etcd that answered, which all must belong to.
    cluster: OnceLock<u64>,
    /// When the first of the requests began that no etcd has answered, if none was answered since.
    outage_since: Mutex<Option<Instant>>,
}

#[derive(Debug)]
struct EtcdMember {
    address: EtcdAddress,
    requests: tokio::sync::Mutex<ConnectionSlot>,
    watches: tokio::sync::Mutex<ConnectionSlot>,
    health: Mutex<MemberHealth>,
}

/// A connection, or why there is none.
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

    /// Connects to every etcd that is there, to learn their versions. What fails is tried again when it is needed.
    pub(super) async fn connect_all(&self) {
        let dialing = self.members.iter().map(|member| self.dialer.dial(&member.address, ConnectionPurpose::Requests));
        // Let in one by one, so that the order of the flag and not that of the answers decides whose cluster it is.
        for (index, dialed) in join_all(dialing).await.into_iter().enumerate() {
            let mut slot = self.members[index].requests.lock().await;
            // Why one was not let in is told to those who need it.
            let _ = self.store_connection(index, &mut slot, dialed);
        }
    }

    /// How connections are made.
    pub(super) fn dialer(&self) -> &EtcdDialer {
        &self.dialer
    }

    /// The etcd that answered last, for probes; `None` if none ever did.
    pub(super) fn probe_target(&self) -> Option<EtcdProbeTarget> {
        let cluster = *self.cluster.get()?;
        let address = self.members[self.preferred.load(Ordering::Relaxed)].address.clone();
        Some(EtcdProbeTarget { address, cluster })
    }

    /// The time that a request of now may take.
    pub(super) fn deadline(&self) -> Instant {
        Instant::now() + self.dialer.timeouts.request
    }

    /// Whether every etcd that we know the version of answers progress requests, and we know one.
    pub(super) fn support_progress_requests(&self) -> bool {
        let versions = self.members.iter().filter_map(|member| member.health.lock().version);
        let mut known = versions.map(EtcdVersion::supports_progress_requests).peekable();
        known.peek().is_some() && known.all(|answers| answers)
    }

    /// Asks one etcd after another until one has answered, `deadline` has come, or none has answered anybody for a while.
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
                    // What was cut short by the deadline says less than what came before.
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

    async fn send_to<C: EtcdRequest>(
        &self,
        index: usize,
        message: C,
        deadline: Instant,
    ) -> Result<C::Response, EtcdFailure> {
        let connecting = timeout_at(deadline, self.connection(index, ConnectionPurpose::Requests));
        let link = match connecting.await {
            Ok(linked) => linked.map_err(EtcdFailure::NotExecuted)?,
            Err(_) => return Err(EtcdFailure::NotExecuted("no connection in time".to_owned())),
        };
        let began = Instant::now();
        if began >= deadline {
            return Err(EtcdFailure::NotExecuted("no time left to ask it".to_owned()));
        }
        let limit = self.attempt_deadline(C::RETRY, began, deadline);
        let result = match timeout_at(limit, link.send(message, limit - began)).await {
            Ok(result) => result.map_err(|status| classify_status(&status)),
            Err(_) => Err(EtcdFailure::OutcomeUnknown(format!("no answer within {:?}", limit - began))),
        };
        match &result {
            Ok(_) | Err(EtcdFailure::Rejected(_)) => self.record_success(index),
            Err(EtcdFailure::NotExecuted(_)) => self.record_failure(index),
            Err(EtcdFailure::OutcomeUnknown(_)) => {
                // Whatever is wrong with it, the next request shall not be entrusted to this connection.
                link.retire();
                self.record_failure(index);
            }
        }
        result
    }

    /// A read leaves time for two others, at other etcds or by another connection to the same; a write that was sent can only
    /// wait.
    pub(super) fn attempt_deadline(&self, repeat: RetrySafety, began: Instant, deadline: Instant) -> Instant {
        match repeat {
            RetrySafety::Safe => deadline.min(began + self.dialer.timeouts.request / 3),
            RetrySafety::Unsafe => deadline,
        }
    }

    /// A connection for a stream to the first etcd that has one, and its place in the list.
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

    /// Tells that a stream on a connection has ended badly, so that the next one tries elsewhere first.
    pub(super) fn report_stream_failure(&self, index: usize, link: &EtcdConnection) {
        link.retire();
        self.record_failure(index);
    }

    /// Tells that a stream has brought what it was opened for.
    pub(super) fn report_stream_success(&self, index: usize) {
        self.record_success(index);
    }

    /// The reason, with the etcd that it is about.
    pub(super) fn describe_failure(&self, index: usize, reason: &str) -> String {
        format!("{}: {reason}", self.members[index].address)
    }

    /// Every etcd once: from the preferred one on, those that rest last.
    fn candidate_order(&self) -> Vec<usize> {
        let now = Instant::now();
        let first = self.preferred.load(Ordering::Relaxed);
        let count = self.members.len();
        let mut order: Vec<usize> = (0..count).map(|step| (first + step) % count).collect();
        order.sort_by_key(|&index| self.members[index].health.lock().backoff_until.is_some_and(|until| until > now));
        order
    }

    /// The connection to one etcd, made if there is none. Those who wait for it together share its failure as well.
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
        // In a box, because it is large and rare, and every request would carry the room for it.
        let dialed = Box::pin(self.dialer.dial(&member.address, purpose)).await;
        self.store_connection(index, &mut slot, dialed)
    }

    /// Keeps a new connection, or why there is none.
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

    /// Two clusters in one list would each be given half of the data.
    fn check_cluster(&self, link: EtcdConnection) -> Result<EtcdConnection, String> {
        match *self.cluster.get_or_init(|| link.cluster) == link.cluster {
            true => Ok(link),
            false => Err("it belongs to another etcd cluster than the others; correct --etcd-servers".to_owned()),
        }
    }

    /// Takes down that no etcd has answered a request that began then; for how long that has been so.
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
