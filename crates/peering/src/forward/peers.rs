//! What this server itself has observed of each peer: connections, failures, load. It changes our choice and nothing else.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use http::header::{HOST, HeaderMap, HeaderValue};
use http::{Method, Request};
use parking_lot::{Mutex, RwLock};
use prometheus::Histogram;
use tasks::Backoff;
use tokio::time::Instant;
use transport::peer::{Connector, Pool, RequestBody, ServedBy};

pub use super::choose::{Observed, Standing};
pub(super) use super::seats::{Seat, SeatKind};

use super::bandwidth::Bandwidth;
use super::seats::Seats;
use super::{Candidate, Fault, ForwardLimits, Identity, VouchingPolicy, Ways};
use crate::hop;
use crate::identity::ServerId;
use crate::metrics::Metrics;

/// For how long a peer that failed is tried last: doubled with every failure, up to the maximum. A crashed server restarts
/// within seconds, and the endpoint record of one that does not is gone after fifteen.
const REST: Backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(8));

/// More requests than this at once are a crowd, and after so many without one there is none.
const CROWD_MIN: usize = 2;
const LONELY_MAX: usize = 100;

/// All peers that requests were sent to.
pub struct Peers {
    ways: Ways,
    limits: ForwardLimits,
    metrics: Metrics,
    known: RwLock<HashMap<ServerId, Arc<Peer>>>,
}

impl fmt::Debug for Peers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Peers").field("known", &self.known).finish_non_exhaustive()
    }
}

impl Peers {
    pub(super) fn new(ways: Ways, limits: ForwardLimits, metrics: Metrics) -> Self {
        Self { ways, limits, metrics, known: RwLock::default() }
    }

    /// What is known of a candidate; nothing, if it listens elsewhere than it did.
    pub(super) fn get(&self, candidate: &Candidate) -> Arc<Peer> {
        let known = self.known.read();
        if let Some(peer) = known.get(&candidate.server).filter(|peer| peer.candidate.address == candidate.address) {
            return peer.clone();
        }
        drop(known);
        let mut known = self.known.write();
        let peer = known.entry(candidate.server.clone()).or_insert_with(|| self.new_peer(candidate));
        if peer.candidate.address != candidate.address {
            *peer = self.new_peer(candidate);
        }
        peer.clone()
    }

    fn new_peer(&self, candidate: &Candidate) -> Arc<Peer> {
        let Candidate { server, address } = candidate;
        let ForwardLimits { in_flight_max, queue, .. } = self.limits;
        let host = HeaderValue::try_from(address.to_string()).expect("an address has no odd characters");
        let pool =
            |connector: &Arc<Connector>| Pool::new(connector.clone(), address.host(), address.port(), self.limits.pool);
        Arc::new(Peer {
            candidate: candidate.clone(),
            host,
            pool: pool(&self.ways.vouching),
            bare: self.ways.bare.as_ref().map(pool),
            may_vouch: AtomicBool::new(self.ways.vouching_policy == VouchingPolicy::AllPeers),
            limits: self.limits,
            bandwidth: self.limits.bandwidth_max.map(|limit| {
                Arc::new(Bandwidth::new(limit, self.metrics.bandwidth_waits.with_label_values(&[server.as_str()])))
            }),
            ourselves: self.ways.ourselves.clone(),
            duration: self.metrics.forward_duration.with_label_values(&[server.as_str()]),
            is_failing: AtomicBool::new(false),
            failing: Mutex::new(Failing { failures: 0, rests_until: Instant::now() }),
            seats: Seats::new(in_flight_max, queue, in_flight_max.map(|_| self.metrics.queue_length(server))),
            lonely: AtomicUsize::new(LONELY_MAX),
            ping: Ping::new(self.limits.ping_timeout),
            stream_ping: Ping::new(self.limits.stream_ping_timeout),
        })
    }

    pub(super) fn retain(&self, is_member: impl Fn(&ServerId) -> bool) {
        let mut known = self.known.write();
        known.retain(|server, _| {
            let stays = is_member(server);
            if !stays {
                self.metrics.forget(server);
            }
            stays
        });
    }

    pub(super) fn sweep(&self) {
        let known: Vec<_> = self.known.read().values().cloned().collect();
        for peer in known {
            for pool in [Some(&peer.pool), peer.bare.as_ref()].into_iter().flatten() {
                pool.sweep();
            }
        }
    }

    /// What was observed of a peer; `None` if nothing was ever sent to it.
    pub fn observed(&self, server: &ServerId) -> Option<Observed> {
        Some(self.find(server)?.observed(Instant::now()))
    }

    /// How requests to a peer found a connection.
    pub fn served_by(&self, server: &ServerId) -> Option<ServedBy> {
        Some(self.find(server)?.pool.served_by())
    }

    fn find(&self, server: &ServerId) -> Option<Arc<Peer>> {
        self.known.read().get(server).cloned()
    }
}

/// One peer.
pub(super) struct Peer {
    candidate: Candidate,
    /// What it is called in `Host`.
    pub(super) host: HeaderValue,
    /// Connections that show our certificate.
    pub(super) pool: Arc<Pool>,
    /// Connections that show none.
    bare: Option<Arc<Pool>>,
    /// Whether requests in a user's name may go over connections that show our certificate.
    pub(super) may_vouch: AtomicBool,
    limits: ForwardLimits,
    bandwidth: Option<Arc<Bandwidth>>,
    /// Who pings it.
    ourselves: Identity,
    /// From sending a request to the head of its answer.
    pub(super) duration: Histogram,
    /// Whether the last request failed: most requests need to know no more.
    is_failing: AtomicBool,
    failing: Mutex<Failing>,
    /// The requests that it has.
    pub(super) seats: Seats,
    /// How many requests have found hardly anybody else here, since one that did.
    lonely: AtomicUsize,
    /// For those who wait for an answer to begin.
    ping: Ping,
    /// For those whose answer has begun, who are more patient.
    stream_ping: Ping,
}

/// How many requests in a row have found no crowd, after one more that finds so many at the peer, itself among them.
fn lonely_after(lonely: usize, in_flight: usize) -> usize {
    if in_flight > CROWD_MIN { 0 } else { lonely.saturating_add(1).min(LONELY_MAX) }
}

/// A ping that everybody who waits shares.
struct Ping {
    timeout: Duration,
    /// When the last one was over, and what it found. Held while one is under way.
    last: tokio::sync::Mutex<Option<(Instant, Pinged)>>,
}

impl Ping {
    fn new(timeout: Duration) -> Self {
        Self { timeout, last: tokio::sync::Mutex::new(None) }
    }

    /// What a ping finds that is over after `since`.
    async fn send(&self, peer: &Peer, since: Instant) -> Pinged {
        let mut last = self.last.lock().await;
        if let Some((when, found)) = *last
            && when > since
        {
            return found;
        }
        // Boxed, because every open watch holds the room for it and hardly ever asks.
        let asking = Box::pin(peer.answers_ping(self.timeout));
        let answered = tokio::time::timeout(self.timeout, asking).await;
        let found = if answered.unwrap_or(false) { Pinged::Alive } else { Pinged::Deaf };
        *last = Some((Instant::now(), found));
        found
    }
}

#[derive(Clone, Copy, Debug)]
struct Failing {
    failures: u32,
    rests_until: Instant,
}

/// Whether a peer lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pinged {
    /// It answered, whatever it said.
    Alive,
    /// It did not answer in time.
    Deaf,
}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Peer")
            .field("candidate", &self.candidate)
            .field("failing", &self.failing)
            .finish_non_exhaustive()
    }
}

impl Peer {
    pub(super) fn server(&self) -> &ServerId {
        &self.candidate.server
    }

    /// The connections for a user's requests; `None` if there are none, or we do not vouch for users to this peer. Asked
    /// right before a request is sent, so that one that waited in a queue meets what was decided meanwhile.
    pub(super) fn pool_for(&self, user: &Identity) -> Option<&Arc<Pool>> {
        match user.is_vouched_for() {
            true => Some(&self.pool).filter(|_| self.may_be_asked_for(user)),
            false => self.bare.as_ref(),
        }
    }

    /// False for a user that only we vouch for, if we do not vouch for users to this peer.
    pub(super) fn may_be_asked_for(&self, user: &Identity) -> bool {
        !user.is_vouched_for() || self.may_vouch.load(Ordering::Relaxed)
    }

    /// Whether many ask it at once, or did a moment ago: then it pays that what they ask travels together. Alone, a request
    /// arrives sooner. Called once for each request.
    pub(super) fn is_sought(&self) -> bool {
        let (in_flight, _) = self.seats.taken();
        let lonely = lonely_after(self.lonely.load(Ordering::Relaxed), in_flight);
        self.lonely.store(lonely, Ordering::Relaxed);
        lonely < LONELY_MAX
    }

    /// What bodies to and from it wait for, if anything.
    pub(super) fn bandwidth(&self) -> Option<&Arc<Bandwidth>> {
        self.bandwidth.as_ref()
    }

    pub(super) fn observed(&self, now: Instant) -> Observed {
        let standing = if !self.is_failing.load(Ordering::Relaxed) {
            Standing::Well
        } else if self.failing.lock().rests_until <= now {
            Standing::Due
        } else {
            Standing::Resting
        };
        let (in_flight, streams) = self.seats.taken();
        Observed { standing, in_flight, streams }
    }

    /// It is about to be tried first. If it has failed, the others do not follow until it is known how this ends.
    pub(super) fn is_chosen(&self, now: Instant) {
        if self.is_failing.load(Ordering::Relaxed) {
            let mut failing = self.failing.lock();
            failing.rests_until = failing.rests_until.max(now + self.limits.patience + self.limits.ping_timeout);
        }
    }

    pub(super) fn failed(&self, fault: &Fault) {
        let mut failing = self.failing.lock();
        failing.failures = failing.failures.saturating_add(1);
        failing.rests_until = Instant::now() + REST.after(failing.failures);
        if !self.is_failing.swap(true, Ordering::Relaxed) {
            let Candidate { server, address } = &self.candidate;
            tracing::warn!(peer = server.as_str(), %address, error = %fault, "a peer fails; others are preferred to it");
        }
    }

    pub(super) fn answered(&self) {
        if !self.is_failing.load(Ordering::Relaxed) {
            return;
        }
        let mut failing = self.failing.lock();
        failing.failures = 0;
        if self.is_failing.swap(false, Ordering::Relaxed) {
            let Candidate { server, address } = &self.candidate;
            tracing::info!(peer = server.as_str(), %address, "a peer that failed answers again");
        }
    }

    /// Asks a peer that is silent whether it lives, on a connection of its own.
    pub(super) async fn ping(&self) -> Pinged {
        self.ping.send(self, Instant::now()).await
    }

    /// Returns when the peer does not answer pings any more, which are sent from time to time, few for many who wait.
    pub(super) async fn falls_silent(self: Arc<Self>) {
        let interval = self.limits.stream_ping_interval;
        loop {
            let begun = Instant::now();
            tokio::time::sleep(interval).await;
            if self.stream_ping.send(&self, begun + interval / 2).await == Pinged::Deaf {
                self.failed(&Fault::Deaf);
                return;
            }
        }
    }

    async fn answers_ping(&self, timeout: Duration) -> bool {
        let line = match self.pool.take() {
            Some(line) => line,
            None => match self.pool.open(timeout).await {
                Ok(line) => line,
                Err(_) => return false,
            },
        };
        let mut headers = HeaderMap::new();
        headers.insert(HOST, self.host.clone());
        self.ourselves.write(&mut headers);
        hop::mark(&mut headers);
        let mut request = Request::new(RequestBody::empty());
        *request.method_mut() = Method::GET;
        *request.uri_mut() = http::Uri::from_static("/livez");
        *request.headers_mut() = headers;
        line.send(request).await.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crowd_is_remembered_for_a_while() {
        let is_crowd = |lonely| lonely < LONELY_MAX;
        assert!(!is_crowd(lonely_after(LONELY_MAX, 1)), "one client that asks again and again");
        let mut lonely = lonely_after(LONELY_MAX, CROWD_MIN + 1);
        assert!(is_crowd(lonely));
        for _ in 1..LONELY_MAX {
            lonely = lonely_after(lonely, CROWD_MIN);
            assert!(is_crowd(lonely));
        }
        assert!(!is_crowd(lonely_after(lonely, CROWD_MIN)));
    }
}
