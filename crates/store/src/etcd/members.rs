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

use super::failure::{Failure, judge};
use super::lane::Target;
use super::link::{Address, Dialer, Link, Purpose};
use super::proto::{Call, Repeat};
use super::version::Version;

/// How long an etcd rests after its first failure; doubled with each further one.
const REST_MIN: Duration = Duration::from_secs(1);

/// The longest rest, so that an etcd which is back is soon used when it is needed.
const REST_MAX: Duration = Duration::from_secs(30);

/// The pauses after all etcds have failed, before they are asked again; never past the deadline. The longest is about half of
/// what a cluster needs to elect a leader.
const PAUSES: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_millis(500));

/// How long requests wait for etcds of which none answers: longer than an election takes, shorter than people like to wait.
const OUTAGE_PATIENCE: Duration = Duration::from_secs(3);

/// All etcds of `--etcd-servers`.
#[derive(Debug)]
pub(super) struct Members {
    members: Vec<Member>,
    dialer: Dialer,
    /// Where the next request goes first.
    preferred: AtomicUsize,
    /// The cluster of the first etcd that answered, which all must belong to.
    cluster: OnceLock<u64>,
    /// When the first of the requests began that no etcd has answered, if none was answered since.
    silent_since: Mutex<Option<Instant>>,
}

#[derive(Debug)]
struct Member {
    address: Address,
    requests: tokio::sync::Mutex<Slot>,
    watches: tokio::sync::Mutex<Slot>,
    health: Mutex<Health>,
}

/// A connection, or why there is none.
#[derive(Debug, Default)]
struct Slot {
    link: Option<Link>,
    failed: Option<(Instant, String)>,
}

#[derive(Debug, Default)]
struct Health {
    failures: u32,
    rests_until: Option<Instant>,
    version: Option<Version>,
}

impl Members {
    pub(super) fn new(addresses: Vec<Address>, dialer: Dialer) -> Self {
        let member = |address| Member {
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
            silent_since: Mutex::default(),
        }
    }

    /// Connects to every etcd that is there, to learn their versions. What fails is tried again when it is needed.
    pub(super) async fn greet(&self) {
        let dialing = self.members.iter().map(|member| self.dialer.dial(&member.address, Purpose::Requests));
        // Let in one by one, so that the order of the flag and not that of the answers decides whose cluster it is.
        for (index, dialed) in join_all(dialing).await.into_iter().enumerate() {
            let mut slot = self.members[index].requests.lock().await;
            // Why one was not let in is told to those who need it.
            let _ = self.admit(index, &mut slot, dialed);
        }
    }

    /// How connections are made.
    pub(super) fn dialer(&self) -> &Dialer {
        &self.dialer
    }

    /// The etcd that answered last, for probes; `None` if none ever did.
    pub(super) fn probed(&self) -> Option<Target> {
        let cluster = *self.cluster.get()?;
        let address = self.members[self.preferred.load(Ordering::Relaxed)].address.clone();
        Some(Target { address, cluster })
    }

    /// The time that a request of now may take.
    pub(super) fn deadline(&self) -> Instant {
        Instant::now() + self.dialer.timeouts.request
    }

    /// Whether every etcd that we know the version of answers progress requests, and we know one.
    pub(super) fn answer_progress(&self) -> bool {
        let versions = self.members.iter().filter_map(|member| member.health.lock().version);
        let mut known = versions.map(Version::answers_progress).peekable();
        known.peek().is_some() && known.all(|answers| answers)
    }

    /// Asks one etcd after another until one has answered, `deadline` has come, or none has answered anybody for a while.
    pub(super) async fn call<C: Call>(&self, message: C, deadline: Instant) -> Result<C::Answer, Failure> {
        let began = Instant::now();
        let mut pauses = PAUSES;
        let mut reasons = BTreeMap::new();
        loop {
            for index in self.order() {
                match self.call_one(index, message.clone(), deadline).await {
                    Ok(answer) => return Ok(answer),
                    Err(Failure::Refused(refusal)) => return Err(Failure::Refused(refusal)),
                    Err(Failure::Unknown(reason)) if C::REPEAT == Repeat::Never => {
                        return Err(Failure::Unknown(self.named(index, &reason)));
                    }
                    // What was cut short by the deadline says less than what came before.
                    Err(_) if Instant::now() >= deadline && reasons.contains_key(&index) => {}
                    Err(Failure::NotDone(reason) | Failure::Unknown(reason)) => {
                        reasons.insert(index, self.named(index, &reason));
                    }
                }
            }
            let pause = pauses.next_wait();
            if self.note_silence(began) >= OUTAGE_PATIENCE || Instant::now() + pause >= deadline {
                let reasons: Vec<_> = reasons.into_values().collect();
                return Err(Failure::NotDone(reasons.join("; ")));
            }
            tokio::time::sleep(pause).await;
        }
    }

    async fn call_one<C: Call>(&self, index: usize, message: C, deadline: Instant) -> Result<C::Answer, Failure> {
        let connecting = timeout_at(deadline, self.link(index, Purpose::Requests));
        let link = match connecting.await {
            Ok(linked) => linked.map_err(Failure::NotDone)?,
            Err(_) => return Err(Failure::NotDone("no connection in time".to_owned())),
        };
        let began = Instant::now();
        if began >= deadline {
            return Err(Failure::NotDone("no time left to ask it".to_owned()));
        }
        let limit = self.attempt_deadline(C::REPEAT, began, deadline);
        let result = match timeout_at(limit, link.call(message, limit - began)).await {
            Ok(result) => result.map_err(|status| judge(&status)),
            Err(_) => Err(Failure::Unknown(format!("no answer within {:?}", limit - began))),
        };
        match &result {
            Ok(_) | Err(Failure::Refused(_)) => self.praise(index),
            Err(Failure::NotDone(_)) => self.blame(index),
            Err(Failure::Unknown(_)) => {
                // Whatever is wrong with it, the next request shall not be entrusted to this connection.
                link.give_up();
                self.blame(index);
            }
        }
        result
    }

    /// A read leaves time for two others, at other etcds or by another connection to the same; a write that was sent can only
    /// wait.
    pub(super) fn attempt_deadline(&self, repeat: Repeat, began: Instant, deadline: Instant) -> Instant {
        match repeat {
            Repeat::Safe => deadline.min(began + self.dialer.timeouts.request / 3),
            Repeat::Never => deadline,
        }
    }

    /// A connection for a stream to the first etcd that has one, and its place in the list.
    pub(super) async fn stream_link(&self, purpose: Purpose) -> Result<(usize, Link), String> {
        let mut reasons = Vec::new();
        for index in self.order() {
            match self.link(index, purpose).await {
                Ok(link) => return Ok((index, link)),
                Err(reason) => reasons.push(self.named(index, &reason)),
            }
        }
        Err(reasons.join("; "))
    }

    /// Tells that a stream on a connection has ended badly, so that the next one tries elsewhere first.
    pub(super) fn stream_failed(&self, index: usize, link: &Link) {
        link.give_up();
        self.blame(index);
    }

    /// Tells that a stream has brought what it was opened for.
    pub(super) fn stream_succeeded(&self, index: usize) {
        self.praise(index);
    }

    /// The reason, with the etcd that it is about.
    pub(super) fn named(&self, index: usize, reason: &str) -> String {
        format!("{}: {reason}", self.members[index].address)
    }

    /// Every etcd once: from the preferred one on, those that rest last.
    fn order(&self) -> Vec<usize> {
        let now = Instant::now();
        let first = self.preferred.load(Ordering::Relaxed);
        let count = self.members.len();
        let mut order: Vec<usize> = (0..count).map(|step| (first + step) % count).collect();
        order.sort_by_key(|&index| self.members[index].health.lock().rests_until.is_some_and(|until| until > now));
        order
    }

    /// The connection to one etcd, made if there is none. Those who wait for it together share its failure as well.
    async fn link(&self, index: usize, purpose: Purpose) -> Result<Link, String> {
        let member = &self.members[index];
        let asked = Instant::now();
        let mut slot = member.slot(purpose).lock().await;
        if let Some(link) = slot.link.as_ref().filter(|link| !link.is_spent()) {
            return Ok(link.clone());
        }
        if let Some((at, reason)) = &slot.failed
            && *at >= asked
        {
            return Err(reason.clone());
        }
        // In a box, because it is large and rare, and every request would carry the room for it.
        let dialed = Box::pin(self.dialer.dial(&member.address, purpose)).await;
        self.admit(index, &mut slot, dialed)
    }

    /// Keeps a new connection, or why there is none.
    fn admit(&self, index: usize, slot: &mut Slot, dialed: Result<Link, String>) -> Result<Link, String> {
        let admitted = dialed.and_then(|link| self.check_cluster(link));
        slot.link = admitted.as_ref().ok().cloned();
        match &admitted {
            Ok(link) => self.members[index].health.lock().version = link.version,
            Err(reason) => {
                slot.failed = Some((Instant::now(), reason.clone()));
                self.blame(index);
            }
        }
        admitted
    }

    /// Two clusters in one list would each be given half of the data.
    fn check_cluster(&self, link: Link) -> Result<Link, String> {
        match *self.cluster.get_or_init(|| link.cluster) == link.cluster {
            true => Ok(link),
            false => Err("it belongs to another etcd cluster than the others; correct --etcd-servers".to_owned()),
        }
    }

    /// Takes down that no etcd has answered a request that began then; for how long that has been so.
    fn note_silence(&self, began: Instant) -> Duration {
        self.silent_since.lock().get_or_insert(began).elapsed()
    }

    fn praise(&self, index: usize) {
        self.preferred.store(index, Ordering::Relaxed);
        *self.silent_since.lock() = None;
        let mut health = self.members[index].health.lock();
        health.failures = 0;
        health.rests_until = None;
    }

    fn blame(&self, index: usize) {
        let mut health = self.members[index].health.lock();
        let rest = REST_MIN.saturating_mul(1 << health.failures.min(8)).min(REST_MAX);
        health.failures = health.failures.saturating_add(1);
        health.rests_until = Some(Instant::now() + rest);
    }
}

impl Member {
    fn slot(&self, purpose: Purpose) -> &tokio::sync::Mutex<Slot> {
        match purpose {
            Purpose::Requests => &self.requests,
            Purpose::Watches => &self.watches,
        }
    }
}
