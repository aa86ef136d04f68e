//! What this server has observed of each candidate: connections, failures, load. It affects only the order of attempts.

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
use super::forwarded_head::mark_forwarded;
use super::metrics::Metrics;
use super::seats::PeerSeats;
use super::{Candidate, ForwardLimits, ForwardedUser, ForwarderConfig, PeerError, VouchingPolicy};

/// Backoff of a failed peer, doubled with every failure up to the maximum. A crashed server restarts within seconds.
const REST: Backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(8));

/// More requests in flight than the first are contention; after as many requests as the second without it there is none.
const CONTENTION_MIN: usize = 2;
const UNCONTENDED_REQUESTS_MAX: usize = 100;

/// All candidates that requests were sent to.
pub struct PeerSet {
    config: ForwarderConfig,
    limits: ForwardLimits,
    metrics: Metrics,
    peers: RwLock<HashMap<Arc<str>, Arc<Peer>>>,
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

    /// Returns what is known of a candidate; a new entry if its address has changed.
    pub(super) fn get(&self, candidate: &Candidate) -> Arc<Peer> {
        let peers = self.peers.read();
        if let Some(peer) = peers.get(&candidate.id).filter(|peer| peer.candidate.is_reached_like(candidate)) {
            return peer.clone();
        }
        drop(peers);
        let mut peers = self.peers.write();
        let peer = peers.entry(candidate.id.clone()).or_insert_with(|| self.new_peer(candidate));
        if !peer.candidate.is_reached_like(candidate) {
            *peer = self.new_peer(candidate);
        }
        peer.clone()
    }

    fn new_peer(&self, candidate: &Candidate) -> Arc<Peer> {
        let Candidate { id, address, connector } = candidate;
        let ForwardLimits { in_flight_max, queue, .. } = self.limits;
        let host = HeaderValue::try_from(address.to_string()).expect("an address has no odd characters");
        let pool = |connector: &Arc<Connector>| {
            ConnectionPool::new(connector.clone(), address.host(), address.port(), self.limits.pool)
        };
        Arc::new(Peer {
            candidate: candidate.clone(),
            host,
            front_proxy_pool: pool(connector.as_ref().unwrap_or(&self.config.front_proxy_connector)),
            passthrough_pool: self.config.passthrough_connector.as_ref().map(pool),
            may_vouch: AtomicBool::new(self.config.vouching_policy == VouchingPolicy::AllPeers),
            limits: self.limits,
            bandwidth: self
                .limits
                .bandwidth_max
                .map(|limit| Arc::new(Bandwidth::new(limit, self.metrics.bandwidth_waits.with_label_values(&[id])))),
            own_user: self.config.own_user.clone(),
            response_duration: self.metrics.forward_duration.with_label_values(&[id]),
            is_failing: AtomicBool::new(false),
            failure_state: Mutex::new(FailureState { consecutive_failures: 0, backoff_until: Instant::now() }),
            seats: PeerSeats::new(in_flight_max, queue, in_flight_max.map(|_| self.metrics.queue_length(id))),
            requests_since_contention: AtomicUsize::new(UNCONTENDED_REQUESTS_MAX),
            ping: SharedPing::new(self.limits.ping_timeout),
            stream_ping: SharedPing::new(self.limits.stream_ping_timeout),
        })
    }

    pub(super) fn retain(&self, is_candidate: impl Fn(&str) -> bool) {
        let mut peers = self.peers.write();
        peers.retain(|id, _| {
            let stays = is_candidate(id);
            if !stays {
                self.metrics.remove_peer(id);
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

    /// What was observed of a candidate; `None` if nothing was sent to it.
    pub fn status(&self, id: &str) -> Option<PeerStatus> {
        Some(self.find(id)?.status(Instant::now()))
    }

    /// How often requests to a candidate opened or reused a connection.
    pub fn pool_stats(&self, id: &str) -> Option<PoolStats> {
        Some(self.find(id)?.front_proxy_pool.stats())
    }

    pub(super) fn own_user(&self) -> &ForwardedUser {
        &self.config.own_user
    }

    fn find(&self, id: &str) -> Option<Arc<Peer>> {
        self.peers.read().get(id).cloned()
    }
}

/// A candidate with its connections and observations.
pub(super) struct Peer {
    candidate: Candidate,
    /// The value of `Host`.
    pub(super) host: HeaderValue,
    /// Connections with the front-proxy certificate.
    pub(super) front_proxy_pool: Arc<ConnectionPool>,
    /// Connections without a client certificate.
    passthrough_pool: Option<Arc<ConnectionPool>>,
    /// Whether users' requests may use `front_proxy_pool`.
    pub(super) may_vouch: AtomicBool,
    limits: ForwardLimits,
    bandwidth: Option<Arc<Bandwidth>>,
    /// The user of pings.
    own_user: ForwardedUser,
    /// From sending a request to the head of its response.
    pub(super) response_duration: Histogram,
    /// Whether the last request failed. Read without the lock of `failure_state`.
    is_failing: AtomicBool,
    failure_state: Mutex<FailureState>,
    /// The requests in flight.
    pub(super) seats: PeerSeats,
    /// Consecutive requests without contention, up to [`UNCONTENDED_REQUESTS_MAX`].
    requests_since_contention: AtomicUsize,
    /// For requests whose response has not begun.
    ping: SharedPing,
    /// For long-running responses, with a longer timeout.
    stream_ping: SharedPing,
}

/// The number of consecutive requests without contention, after one more request, which is counted in `in_flight`.
fn next_requests_since_contention(requests_since_contention: usize, in_flight: usize) -> usize {
    if in_flight > CONTENTION_MIN {
        0
    } else {
        requests_since_contention.saturating_add(1).min(UNCONTENDED_REQUESTS_MAX)
    }
}

/// A ping shared by all requests that wait for it.
struct SharedPing {
    timeout: Duration,
    /// End and result of the last ping. Locked while a ping runs.
    last: tokio::sync::Mutex<Option<(Instant, PingResult)>>,
}

impl SharedPing {
    fn new(timeout: Duration) -> Self {
        Self { timeout, last: tokio::sync::Mutex::new(None) }
    }

    /// Returns the result of a ping that ends after `since`, and sends one if there is none.
    async fn send(&self, peer: &Peer, since: Instant) -> PingResult {
        let mut last = self.last.lock().await;
        if let Some((when, result)) = *last
            && when > since
        {
            return result;
        }
        // Boxed: rarely needed, and it would enlarge every open watch.
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

/// The result of a ping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PingResult {
    /// The peer answered, with whatever status.
    Alive,
    /// The peer did not answer in time.
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
    pub(super) fn id(&self) -> &Arc<str> {
        &self.candidate.id
    }

    /// The connections for a user's requests; `None` if there are none, or users are not named to this peer. Called right
    /// before a request is sent, because vouching may be withdrawn while the request waits in a queue.
    pub(super) fn pool_for(&self, user: &ForwardedUser) -> Option<&Arc<ConnectionPool>> {
        match user.is_vouched_for() {
            true => Some(&self.front_proxy_pool).filter(|_| self.accepts_user(user)),
            false => self.passthrough_pool.as_ref(),
        }
    }

    /// False for a user that only our certificate proves, if users are not named to this peer.
    pub(super) fn accepts_user(&self, user: &ForwardedUser) -> bool {
        !user.is_vouched_for() || self.may_vouch.load(Ordering::Relaxed)
    }

    /// True while requests to this peer overlap: multiplexing them over HTTP/2 is then cheaper than HTTP/1.1. Called once per
    /// request.
    pub(super) fn should_multiplex(&self) -> bool {
        let (in_flight, _) = self.seats.occupied();
        let requests_since_contention =
            next_requests_since_contention(self.requests_since_contention.load(Ordering::Relaxed), in_flight);
        self.requests_since_contention.store(requests_since_contention, Ordering::Relaxed);
        requests_since_contention < UNCONTENDED_REQUESTS_MAX
    }

    /// The bandwidth limit, if there is one.
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

    /// Extends the backoff of a failed peer that is tried first, so that one request probes it at a time.
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
            let Candidate { id, address, .. } = &self.candidate;
            tracing::warn!(peer = %id, %address, error = %error, "peer failed");
        }
    }

    pub(super) fn record_success(&self) {
        if !self.is_failing.load(Ordering::Relaxed) {
            return;
        }
        let mut failing = self.failure_state.lock();
        failing.consecutive_failures = 0;
        if self.is_failing.swap(false, Ordering::Relaxed) {
            let Candidate { id, address, .. } = &self.candidate;
            tracing::info!(peer = %id, %address, "peer recovered");
        }
    }

    /// Pings a silent peer over another connection.
    pub(super) async fn ping(&self) -> PingResult {
        self.ping.send(self, Instant::now()).await
    }

    /// Pings the peer at intervals and returns when it does not answer. Concurrent callers share pings.
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
        mark_forwarded(&mut headers);
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
