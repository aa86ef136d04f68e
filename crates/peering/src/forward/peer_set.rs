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
use transport::peer::{ConnectionPool, Connector, PoolStats, RequestBody};

pub use super::peer_order::{PeerHealth, PeerStatus};
pub(super) use super::seats::{PeerSeat, SeatKind};

use super::bandwidth::Bandwidth;
use super::seats::PeerSeats;
use super::{Candidate, ForwardLimits, ForwardedUser, ForwarderConfig, PeerError, VouchingPolicy};
use crate::hop;
use crate::identity::ServerId;
use crate::metrics::Metrics;

/// For how long a peer that failed is tried last: doubled with every failure, up to the maximum. A crashed server restarts
/// within seconds, and the endpoint record of one that does not is gone after fifteen.
const REST: Backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(8));

/// More requests than this at once are a crowd, and after so many without one there is none.
const CONTENTION_MIN: usize = 2;
const UNCONTENDED_REQUESTS_MAX: usize = 100;

/// All peers that requests were sent to.
pub struct PeerSet {
    config: ForwarderConfig,
    limits: ForwardLimits,
    metrics: Metrics,
    peers: RwLock<HashMap<ServerId, Arc<Peer>>>,
}

impl fmt::Debug for PeerSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeerSet").field("known", &self.peers).finish_non_exhaustive()
    }
}

impl PeerSet {
    pub(super) fn new(config: ForwarderConfig, limits: ForwardLimits, metrics: Metrics) -> Self {
        Self { config, limits, metrics, peers: RwLock::default() }
    }

    /// What is known of a candidate; nothing, if it listens elsewhere than it did.
    pub(super) fn get(&self, candidate: &Candidate) -> Arc<Peer> {
        let peers = self.peers.read();
        if let Some(peer) = peers.get(&candidate.server).filter(|peer| peer.candidate.address == candidate.address) {
            return peer.clone();
        }
        drop(peers);
        let mut peers = self.peers.write();
        let peer = peers.entry(candidate.server.clone()).or_insert_with(|| self.new_peer(candidate));
        if peer.candidate.address != candidate.address {
            *peer = self.new_peer(candidate);
        }
        peer.clone()
    }

    fn new_peer(&self, candidate: &Candidate) -> Arc<Peer> {
        let Candidate { server, address } = candidate;
        let ForwardLimits { in_flight_max, queue, .. } = self.limits;
        let host = HeaderValue::try_from(address.to_string()).expect("an address has no odd characters");
        let pool = |connector: &Arc<Connector>| {
            ConnectionPool::new(connector.clone(), address.host(), address.port(), self.limits.pool)
        };
        Arc::new(Peer {
            candidate: candidate.clone(),
            host,
            front_proxy_pool: pool(&self.config.front_proxy_connector),
            passthrough_pool: self.config.passthrough_connector.as_ref().map(pool),
            may_vouch: AtomicBool::new(self.config.vouching_policy == VouchingPolicy::AllPeers),
            limits: self.limits,
            bandwidth: self.limits.bandwidth_max.map(|limit| {
                Arc::new(Bandwidth::new(limit, self.metrics.bandwidth_waits.with_label_values(&[server.as_str()])))
            }),
            own_user: self.config.own_user.clone(),
            response_duration: self.metrics.forward_duration.with_label_values(&[server.as_str()]),
            is_failing: AtomicBool::new(false),
            failure_state: Mutex::new(FailureState { consecutive_failures: 0, backoff_until: Instant::now() }),
            seats: PeerSeats::new(in_flight_max, queue, in_flight_max.map(|_| self.metrics.queue_length(server))),
            requests_since_contention: AtomicUsize::new(UNCONTENDED_REQUESTS_MAX),
            ping: SharedPing::new(self.limits.ping_timeout),
            stream_ping: SharedPing::new(self.limits.stream_ping_timeout),
        })
    }

    pub(super) fn retain(&self, is_member: impl Fn(&ServerId) -> bool) {
        let mut peers = self.peers.write();
        peers.retain(|server, _| {
            let stays = is_member(server);
            if !stays {
                self.metrics.remove_peer(server);
            }
            stays
        });
    }

    pub(super) fn close_expired_connections(&self) {
        let peers: Vec<_> = self.peers.read().values().cloned().collect();
        for peer in peers {
            for pool in [Some(&peer.front_proxy_pool), peer.passthrough_pool.as_ref()].into_iter().flatten() {
                pool.close_expired();
            }
        }
    }

    /// What was observed of a peer; `None` if nothing was ever sent to it.
    pub fn status(&self, server: &ServerId) -> Option<PeerStatus> {
        Some(self.find(server)?.status(Instant::now()))
    }

    /// How requests to a peer found a connection.
    pub fn pool_stats(&self, server: &ServerId) -> Option<PoolStats> {
        Some(self.find(server)?.front_proxy_pool.stats())
    }

    fn find(&self, server: &ServerId) -> Option<Arc<Peer>> {
        self.peers.read().get(server).cloned()
    }
}

/// One peer.
pub(super) struct Peer {
    candidate: Candidate,
    /// What it is called in `Host`.
    pub(super) host: HeaderValue,
    /// Connections that show our certificate.
    pub(super) front_proxy_pool: Arc<ConnectionPool>,
    /// Connections that show none.
    passthrough_pool: Option<Arc<ConnectionPool>>,
    /// Whether requests in a user's name may go over connections that show our certificate.
    pub(super) may_vouch: AtomicBool,
    limits: ForwardLimits,
    bandwidth: Option<Arc<Bandwidth>>,
    /// Who pings it.
    own_user: ForwardedUser,
    /// From sending a request to the head of its answer.
    pub(super) response_duration: Histogram,
    /// Whether the last request failed: most requests need to know no more.
    is_failing: AtomicBool,
    failure_state: Mutex<FailureState>,
    /// The requests that it has.
    pub(super) seats: PeerSeats,
    /// How many requests have found hardly anybody else here, since one that did.
    requests_since_contention: AtomicUsize,
    /// For those who wait for an answer to begin.
    ping: SharedPing,
    /// For those whose answer has begun, who are more patient.
    stream_ping: SharedPing,
}

/// How many requests in a row have found no crowd, after one more that finds so many at the peer, itself among them.
fn next_requests_since_contention(requests_since_contention: usize, in_flight: usize) -> usize {
    if in_flight > CONTENTION_MIN {
        0
    } else {
        requests_since_contention.saturating_add(1).min(UNCONTENDED_REQUESTS_MAX)
    }
}

/// A ping that everybody who waits shares.
struct SharedPing {
    timeout: Duration,
    /// When the last one was over, and what it found. Held while one is under way.
    last: tokio::sync::Mutex<Option<(Instant, PingResult)>>,
}

impl SharedPing {
    fn new(timeout: Duration) -> Self {
        Self { timeout, last: tokio::sync::Mutex::new(None) }
    }

    /// What a ping finds that is over after `since`.
    async fn send(&self, peer: &Peer, since: Instant) -> PingResult {
        let mut last = self.last.lock().await;
        if let Some((when, result)) = *last
            && when > since
        {
            return result;
        }
        // Boxed, because every open watch holds the room for it and hardly ever asks.
        let pinging = Box::pin(peer.send_ping(self.timeout));
        let responded = tokio::time::timeout(self.timeout, pinging).await;
        let result = if responded.unwrap_or(false) { PingResult::Alive } else { PingResult::Unresponsive };
        *last = Some((Instant::now(), result));
        result
    }
}

#[derive(Clone, Copy, Debug)]
struct FailureState {
    consecutive_failures: u32,
    backoff_until: Instant,
}

/// Whether a peer lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PingResult {
    /// It answered, whatever it said.
    Alive,
    /// It did not answer in time.
    Unresponsive,
}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Peer")
            .field("candidate", &self.candidate)
            .field("failing", &self.failure_state)
            .finish_non_exhaustive()
    }
}

impl Peer {
    pub(super) fn server(&self) -> &ServerId {
        &self.candidate.server
    }

    /// The connections for a user's requests; `None` if there are none, or we do not vouch for users to this peer. Asked
    /// right before a request is sent, so that one that waited in a queue meets what was decided meanwhile.
    pub(super) fn pool_for(&self, user: &ForwardedUser) -> Option<&Arc<ConnectionPool>> {
        match user.is_vouched_for() {
            true => Some(&self.front_proxy_pool).filter(|_| self.accepts_user(user)),
            false => self.passthrough_pool.as_ref(),
        }
    }

    /// False for a user that only we vouch for, if we do not vouch for users to this peer.
    pub(super) fn accepts_user(&self, user: &ForwardedUser) -> bool {
        !user.is_vouched_for() || self.may_vouch.load(Ordering::Relaxed)
    }

    /// Whether many ask it at once, or did a moment ago: then it pays that what they ask travels together. Alone, a request
    /// arrives sooner. Called once for each request.
    pub(super) fn should_multiplex(&self) -> bool {
        let (in_flight, _) = self.seats.occupied();
        let requests_since_contention =
            next_requests_since_contention(self.requests_since_contention.load(Ordering::Relaxed), in_flight);
        self.requests_since_contention.store(requests_since_contention, Ordering::Relaxed);
        requests_since_contention < UNCONTENDED_REQUESTS_MAX
    }

    /// What bodies to and from it wait for, if anything.
    pub(super) fn bandwidth(&self) -> Option<&Arc<Bandwidth>> {
        self.bandwidth.as_ref()
    }

    pub(super) fn status(&self, now: Instant) -> PeerStatus {
        let health = if !self.is_failing.load(Ordering::Relaxed) {
            PeerHealth::Healthy
        } else if self.failure_state.lock().backoff_until <= now {
            PeerHealth::RetryDue
        } else {
            PeerHealth::BackingOff
        };
        let (in_flight, streams) = self.seats.occupied();
        PeerStatus { health, in_flight, streams }
    }

    /// It is about to be tried first. If it has failed, the others do not follow until it is known how this ends.
    pub(super) fn delay_next_retry(&self, now: Instant) {
        if self.is_failing.load(Ordering::Relaxed) {
            let mut failing = self.failure_state.lock();
            failing.backoff_until =
                failing.backoff_until.max(now + self.limits.silence_timeout + self.limits.ping_timeout);
        }
    }

    pub(super) fn record_failure(&self, error: &PeerError) {
        let mut failing = self.failure_state.lock();
        failing.consecutive_failures = failing.consecutive_failures.saturating_add(1);
        failing.backoff_until = Instant::now() + REST.after(failing.consecutive_failures);
        if !self.is_failing.swap(true, Ordering::Relaxed) {
            let Candidate { server, address } = &self.candidate;
            tracing::warn!(peer = server.as_str(), %address, error = %error, "a peer fails; others are preferred to it");
        }
    }

    pub(super) fn record_success(&self) {
        if !self.is_failing.load(Ordering::Relaxed) {
            return;
        }
        let mut failing = self.failure_state.lock();
        failing.consecutive_failures = 0;
        if self.is_failing.swap(false, Ordering::Relaxed) {
            let Candidate { server, address } = &self.candidate;
            tracing::info!(peer = server.as_str(), %address, "a peer that failed answers again");
        }
    }

    /// Asks a peer that is silent whether it lives, on a connection of its own.
    pub(super) async fn ping(&self) -> PingResult {
        self.ping.send(self, Instant::now()).await
    }

    /// Returns when the peer does not answer pings any more, which are sent from time to time, few for many who wait.
    pub(super) async fn wait_until_unresponsive(self: Arc<Self>) {
        let interval = self.limits.stream_ping_interval;
        loop {
            let begun = Instant::now();
            tokio::time::sleep(interval).await;
            if self.stream_ping.send(&self, begun + interval / 2).await == PingResult::Unresponsive {
                self.record_failure(&PeerError::Unresponsive);
                return;
            }
        }
    }

    async fn send_ping(&self, timeout: Duration) -> bool {
        let connection = match self.front_proxy_pool.take_idle() {
            Some(connection) => connection,
            None => match self.front_proxy_pool.open(timeout).await {
                Ok(connection) => connection,
                Err(_) => return false,
            },
        };
        let mut headers = HeaderMap::new();
        headers.insert(HOST, self.host.clone());
        self.own_user.write_headers(&mut headers);
        hop::mark_forwarded(&mut headers);
        let mut request = Request::new(RequestBody::empty());
        *request.method_mut() = Method::GET;
        *request.uri_mut() = http::Uri::from_static("/livez");
        *request.headers_mut() = headers;
        connection.send(request).await.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contention_is_remembered_for_a_number_of_requests() {
        let is_crowd = |requests_since_contention| requests_since_contention < UNCONTENDED_REQUESTS_MAX;
        assert!(
            !is_crowd(next_requests_since_contention(UNCONTENDED_REQUESTS_MAX, 1)),
            "one client that asks again and again"
        );
        let mut requests_since_contention =
            next_requests_since_contention(UNCONTENDED_REQUESTS_MAX, CONTENTION_MIN + 1);
        assert!(is_crowd(requests_since_contention));
        for _ in 1..UNCONTENDED_REQUESTS_MAX {
            requests_since_contention = next_requests_since_contention(requests_since_contention, CONTENTION_MIN);
            assert!(is_crowd(requests_since_contention));
        }
        assert!(!is_crowd(next_requests_since_contention(requests_since_contention, CONTENTION_MIN)));
    }
}
