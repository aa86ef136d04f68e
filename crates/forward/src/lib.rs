//! Carries a request to one of several candidates and the response back: rule 5 of docs/decisions/README.md.
//!
//! The crate knows nothing of members: a [`Candidate`] is an opaque id and an address. The forwarder tries candidates in the order
//! of what it observed of them. It tries the next one if nothing was executed, and for reads as long as no byte of a response went
//! out; a write that was sent is never sent again. Path, query and body travel byte for byte in both directions; the user travels
//! in headers that only the forwarder sets.
//!
//! In the order of a request: [`identity`] and `forwarded_head` build the head, `peer_order` orders the candidates, `seats` and
//! `queue` limit the requests in flight at each, `attempt` sends the request to one of them, `classify` tells a response from a
//! failure, [`forwarded_response`] carries the response back. [`peer_set`] holds connections and observations of each candidate.

mod attempt;
mod bandwidth;
mod candidate;
mod classify;
mod error;
mod fetch;
mod forwarded_head;
pub mod forwarded_response;
pub mod identity;
mod metrics;
mod peer_order;
pub mod peer_set;
mod queue;
mod replay;
mod retry_loop;
mod seats;
mod upgrade;

use std::fmt;
use std::future::poll_fn;
use std::net::IpAddr;
use std::num::NonZeroU64;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use api::Verb;
use api::target::ResourceTarget;
use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body::Body;
use parking_lot::RwLock;
use smallvec::SmallVec;
use tasks::{Commitment, Tasks};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use transport::peer::{BoxError, Connector, PoolLimits};

pub use candidate::Candidate;
pub use error::{Execution, ForwardError, PeerError, PeerFailure};
pub use fetch::GetError;
pub use forwarded_response::{FailedAttempts, ForwardedBody, RespondingPeer};
pub use identity::{ForwardedUser, IdentityHeaders, UnsendableUser};
pub use metrics::Metrics;
pub use queue::{QueueLimits, QueueRejection};

use forwarded_head::ForwardedHead;
use peer_order::order_peers;
use peer_set::{Peer, PeerSet};
use queue::FlowHasher;
use replay::ReplayableBody;
use retry_loop::RetryLoop;
use upgrade::ClientUpgrade;

/// How often idle connections are checked for expiry.
const IDLE_SWEEP_INTERVAL: Duration = Duration::from_secs(10);

/// Timeouts and limits, each for one candidate.
#[derive(Clone, Copy, Debug)]
pub struct ForwardLimits {
    /// For TCP and TLS together, to the last candidate; for earlier candidates at most `ping_timeout`.
    pub connect_timeout: Duration,
    /// How long a response may fail to begin before the peer is pinged.
    pub silence_timeout: Duration,
    /// For how long it may take to answer that.
    pub ping_timeout: Duration,
    /// How often a peer is pinged while an open stream such as a watch is silent: only the end of the stream makes a client
    /// reconnect.
    pub stream_ping_interval: Duration,
    /// For how long it may take to answer that.
    pub stream_ping_timeout: Duration,
    /// Short requests in flight at one peer; `None` for no limit. At the limit a request goes to the next peer, and waits if
    /// all are at it.
    pub in_flight_max: Option<usize>,
    /// Bytes of bodies per second to and from one peer; `None` for no limit. Bytes beyond the limit are delayed.
    pub bandwidth_max: Option<NonZeroU64>,
    /// Requests that wait for a seat.
    pub queue: QueueLimits,
    /// Idle connections to one peer.
    pub pool: PoolLimits,
}

impl ForwardLimits {
    /// Allows for two lost packets; a peer that needs longer counts as unreachable.
    pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
    /// Longer than almost all requests take, and short enough for an interactive client.
    pub const SILENCE_TIMEOUT: Duration = Duration::from_secs(2);
    /// A peer that does not answer a ping within this time counts as unresponsive.
    pub const PING_TIMEOUT: Duration = Duration::from_secs(2);
    /// Kubernetes' settings for HTTP/2, where a ping is part of the protocol.
    pub const STREAM_PING_INTERVAL: Duration = Duration::from_secs(30);
    /// See [`Self::STREAM_PING_INTERVAL`].
    pub const STREAM_PING_TIMEOUT: Duration = Duration::from_secs(15);
}

impl ForwardLimits {
    /// The longest time between two polls of a request: a connect or silence timeout. `None` if the request may wait in a
    /// queue, where the time is not bounded.
    fn repoll_interval_max(&self) -> Option<Duration> {
        (self.queue.length_max == 0).then_some(self.silence_timeout.max(self.connect_timeout))
    }
}

impl Default for ForwardLimits {
    fn default() -> Self {
        Self {
            connect_timeout: Self::CONNECT_TIMEOUT,
            silence_timeout: Self::SILENCE_TIMEOUT,
            ping_timeout: Self::PING_TIMEOUT,
            stream_ping_interval: Self::STREAM_PING_INTERVAL,
            stream_ping_timeout: Self::STREAM_PING_TIMEOUT,
            in_flight_max: None,
            bandwidth_max: None,
            queue: QueueLimits::NONE,
            pool: PoolLimits::default(),
        }
    }
}

/// How to forward a request: everything apart from the HTTP request itself.
pub struct ForwardRequest<'a> {
    /// The servers that can serve the request.
    pub candidates: &'a [Candidate],
    /// The user of the request, after impersonation.
    pub user: &'a ForwardedUser,
    /// The address that the client connects from, for `X-Forwarded-For`.
    pub client_ip: IpAddr,
    /// Whether the request may be sent twice.
    pub effect: Effect,
    /// How long the request may take.
    pub lifetime: Lifetime,
    /// True if the response is one object: short reads share HTTP/2 connections while requests to a peer overlap.
    pub has_short_response: bool,
    /// The id of the candidate to try first if it is healthy: it answered before, or is the nearest.
    pub preferred_peer: Option<&'a str>,
    /// The process that writes the response: decides what the response says about the peer.
    pub origin: ResponseOrigin,
    /// Whether the request carries the hop mark, so that the peer serves it itself or refuses it.
    pub add_hop_mark: bool,
    /// Called for a peer whose response shows that it does not serve what it lists, or does not trust us.
    pub mark_stale: &'a (dyn Fn(&str) + Send + Sync),
}

/// The process that writes the response to a forwarded request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseOrigin {
    /// A server that lists the resource. A response that denies the resource is that server's failure.
    ServingPeer,
    /// Any server: its response counts, even if it denies the resource.
    AnyServer,
    /// A process behind the server, such as a kubelet or a pod: the response reaches the client unchanged, whatever its status,
    /// and says nothing about the server.
    ProxiedBackend,
}

impl ResponseOrigin {
    /// The origin of the response to a request for a resource that the peer lists.
    pub fn for_resource(resource: &ResourceTarget<'_>) -> Self {
        if resource.reaches_backend() { Self::ProxiedBackend } else { Self::ServingPeer }
    }
}

impl<'a> ForwardRequest<'a> {
    /// A request without candidates or preference, whose hop is not marked.
    pub fn new(
        user: &'a ForwardedUser,
        client_ip: IpAddr,
        effect: Effect,
        origin: ResponseOrigin,
        lifetime: Lifetime,
    ) -> Self {
        Self {
            candidates: &[],
            user,
            client_ip,
            effect,
            lifetime,
            has_short_response: false,
            preferred_peer: None,
            origin,
            add_hop_mark: false,
            mark_stale: &|_| {},
        }
    }

    /// The same for a request that asks for an upgrade. An upgrade that was sent is never sent again: the connection may have
    /// switched protocols. A process behind the server answers it, except for a watch over WebSocket, which is the one upgrade
    /// that a server serves itself.
    fn for_upgrade(self) -> Self {
        let is_watch = matches!(
            (self.lifetime, self.effect, self.origin),
            (Lifetime::LongRunning, Effect::Reads, ResponseOrigin::ServingPeer)
        );
        let origin = if is_watch { self.origin } else { ResponseOrigin::ProxiedBackend };
        Self { effect: Effect::Writes, origin, ..self }
    }
}

/// Whether a request can be repeated without harm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// A get, list or watch.
    Reads,
    /// Anything else: the request may change state.
    Writes,
}

impl Effect {
    /// The effect of a request for a resource. A get that runs a command in a container is a write.
    pub fn for_resource(resource: &ResourceTarget<'_>) -> Self {
        match resource.verb {
            Verb::Get | Verb::List | Verb::Watch if !resource.is_connect() => Self::Reads,
            Verb::Get
            | Verb::List
            | Verb::Watch
            | Verb::Create
            | Verb::Update
            | Verb::Patch
            | Verb::Delete
            | Verb::DeleteCollection
            | Verb::Proxy
            | Verb::Unknown => Self::Writes,
        }
    }
}

/// How long a request may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lifetime {
    /// The response must be complete by this time.
    Until(Instant),
    /// No limit: a watch, a log, a shell.
    LongRunning,
}

/// The connections to candidates, and how this server appears to them.
#[derive(Clone, Debug)]
pub struct ForwarderConfig {
    /// Connections with the front-proxy client certificate, for users named in `X-Remote-*` headers.
    pub front_proxy_connector: Arc<Connector>,
    /// Connections without a client certificate, for users with credentials of their own; `None` if no such requests are
    /// forwarded.
    pub passthrough_connector: Option<Arc<Connector>>,
    /// The user of this server's own requests: pings, health and discovery.
    pub own_user: ForwardedUser,
    /// What becomes of CORS headers in responses.
    pub cors_headers: CorsHeaders,
    /// To which candidates users are named.
    pub vouching_policy: VouchingPolicy,
}

/// To which candidates the forwarder sends users' requests over connections with the front-proxy certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VouchingPolicy {
    /// To every candidate.
    AllPeers,
    /// To candidates that [`Forwarder::set_vouching`] has allowed, and to no others.
    AllowedPeers,
}

/// What becomes of the CORS headers of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CorsHeaders {
    /// Removed: this server sets its own.
    Strip,
    /// Passed on to the client.
    PassThrough,
}

impl ForwarderConfig {
    /// The user by which API servers know each other.
    const APISERVER_USER: &str = "system:apiserver";

    /// The configuration of one API server that forwards to others.
    pub fn for_server(front_proxy_connector: Arc<Connector>) -> Self {
        let ourselves = ForwardedUser::new(Self::APISERVER_USER, Self::APISERVER_USER, ["system:authenticated"], []);
        let ourselves = ourselves.expect("the name has no odd characters");
        let vouching_policy = VouchingPolicy::AllPeers;
        Self {
            front_proxy_connector,
            passthrough_connector: None,
            own_user: ourselves,
            cors_headers: CorsHeaders::Strip,
            vouching_policy,
        }
    }
}

/// Forwards requests to candidates. Clones share connections and observations.
#[derive(Clone)]
pub struct Forwarder(Arc<ForwarderInner>);

pub(crate) struct ForwarderInner {
    peer_set: PeerSet,
    limits: ForwardLimits,
    metrics: Metrics,
    tasks: Tasks,
    /// Ends open streams.
    stream_stop: CancellationToken,
    round_robin: AtomicUsize,
    flow_hasher: FlowHasher,
    cors_headers: CorsHeaders,
    /// Headers besides `X-Remote-*` that some candidate reads as identity; `None` if there are none.
    peer_identity_headers: RwLock<Option<Arc<IdentityHeaders>>>,
}

impl fmt::Debug for Forwarder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Forwarder").field("limits", &self.0.limits).finish_non_exhaustive()
    }
}

impl Forwarder {
    /// Starts a forwarder and the task that closes its idle connections.
    pub fn new(config: ForwarderConfig, limits: ForwardLimits, metrics: Metrics, tasks: &Tasks) -> Self {
        let cross_origin = config.cors_headers;
        let peers = PeerSet::new(config, limits, metrics.clone());
        let ending = tasks.stop_token().child_token();
        let (turn, flows) = (AtomicUsize::new(0), FlowHasher::default());
        let shared_tasks = tasks.clone();
        let shared = Arc::new(ForwarderInner {
            peer_set: peers,
            limits,
            metrics,
            tasks: shared_tasks,
            stream_stop: ending,
            round_robin: turn,
            flow_hasher: flows,
            cors_headers: cross_origin,
            peer_identity_headers: RwLock::default(),
        });
        let swept_inner = shared.clone();
        tasks.spawn("peer-connection-sweeper", |stop| async move {
            while stop.run_until_cancelled(tokio::time::sleep(IDLE_SWEEP_INTERVAL)).await.is_some() {
                swept_inner.peer_set.close_expired_connections();
            }
        });
        Self(shared)
    }

    /// Forgets all candidates but these: closes their idle connections and removes their metrics.
    pub fn retain_candidates(&self, is_candidate: impl Fn(&str) -> bool) {
        self.0.peer_set.retain(is_candidate);
    }

    /// The user in whose name this server sends requests of its own.
    pub fn own_user(&self) -> &ForwardedUser {
        self.0.peer_set.own_user()
    }

    /// Allows or forbids users' requests to a candidate over connections with the front-proxy certificate. This server's own
    /// health and discovery requests are not affected. A candidate whose address changes must be allowed again.
    pub fn set_vouching(&self, candidate: &Candidate, is_allowed: bool) {
        self.0.peer_set.get(candidate).may_vouch.store(is_allowed, Ordering::Relaxed);
    }

    /// Replaces the set of headers that are removed, besides `X-Remote-*`, from requests over connections with the front-proxy
    /// certificate.
    pub fn set_peer_identity_headers(&self, headers: IdentityHeaders) {
        let headers = (!headers.is_empty()).then(|| Arc::new(headers));
        *self.0.peer_identity_headers.write() = headers;
    }

    /// Ends long-running responses and upgraded connections as if the peers had ended them, so that clients reconnect, to
    /// another server if this one stops.
    pub fn end_streams(&self) {
        self.0.stream_stop.cancel();
    }

    /// What was observed of each candidate, for tests.
    pub fn peers(&self) -> &PeerSet {
        &self.0.peer_set
    }

    /// Sends a request to one of the candidates and returns its response as soon as the head has arrived.
    ///
    /// Dropping the future or the response cancels the request at the peer. A request with a [`Commitment`] in its extensions
    /// commits when it is first sent.
    pub async fn forward<B>(
        &self,
        forward_request: ForwardRequest<'_>,
        request: Request<B>,
    ) -> Result<Response<ForwardedBody>, ForwardError>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        if forward_request.candidates.is_empty() {
            return Err(ForwardError::NoEndpoint);
        }
        let peers = self.0.order_candidates(&forward_request);
        if peers.is_empty() {
            return Err(ForwardError::NotVouched);
        }
        let (mut parts, body) = request.into_parts();
        if forward_request.user.is_vouched_for() {
            self.0.remove_peer_identity_headers(&mut parts.headers);
        }
        let upgrade = ClientUpgrade::from_request(&mut parts);
        let call = if upgrade.is_some() { forward_request.for_upgrade() } else { forward_request };
        let commitment = parts.extensions.remove::<Arc<Commitment>>();
        let head = ForwardedHead::new(parts, &body.size_hint(), &call, upgrade.is_some());
        let retry_loop = RetryLoop {
            forwarder: &self.0,
            forward_request: &call,
            peers,
            current_peer: AtomicUsize::new(0),
            head,
            body: ReplayableBody::new(body),
            client_upgrade: parking_lot::Mutex::new(upgrade),
            is_sent: AtomicBool::new(false),
            commitment,
        };
        match call.lifetime {
            Lifetime::LongRunning => retry_loop.run().await,
            Lifetime::Until(deadline) => {
                run_until_deadline(deadline, self.0.limits.repoll_interval_max(), retry_loop.run())
                    .await
                    .unwrap_or_else(|| Err(retry_loop.timeout_error()))
            }
        }
    }
}

/// Runs `work` until its deadline. Most requests complete on the second poll, so the timer is armed only on the second
/// `Pending`, provided that `work` is polled again well before the deadline.
async fn run_until_deadline<T>(
    deadline: Instant,
    repoll_interval_max: Option<Duration>,
    work: impl Future<Output = T>,
) -> Option<T> {
    let (mut work, mut timer) = (pin!(work), pin!(tokio::time::sleep_until(deadline)));
    let left = deadline.saturating_duration_since(Instant::now());
    let mut can_skip_timer = repoll_interval_max.is_some_and(|unseen| left > 2 * unseen);
    poll_fn(|context| match work.as_mut().poll(context) {
        Poll::Ready(done) => Poll::Ready(Some(done)),
        Poll::Pending if std::mem::take(&mut can_skip_timer) => Poll::Pending,
        Poll::Pending => timer.as_mut().poll(context).map(|()| None),
    })
    .await
}

impl ForwarderInner {
    /// Removes headers that a peer would read as the user's identity: the peer trusts our certificate and would believe the
    /// client.
    fn remove_peer_identity_headers(&self, headers: &mut HeaderMap) {
        let identity_headers = self.peer_identity_headers.read().clone();
        if let Some(identity_headers) = identity_headers {
            identity_headers.remove_from(headers);
        }
    }

    /// The candidates that accept the user of the request, in the order in which they are tried.
    fn order_candidates(&self, forward_request: &ForwardRequest<'_>) -> SmallVec<[Arc<Peer>; 4]> {
        let mut peers: SmallVec<[Arc<Peer>; 4]> =
            forward_request.candidates.iter().map(|candidate| self.peer_set.get(candidate)).collect();
        peers.retain(|peer| peer.accepts_user(forward_request.user));
        let [_, _, ..] = peers[..] else { return peers };
        let now = Instant::now();
        let statuses: SmallVec<[_; 4]> = peers.iter().map(|peer| peer.status(now)).collect();
        let round_robin = self.round_robin.fetch_add(1, Ordering::Relaxed);
        let preferred = forward_request.preferred_peer.and_then(|id| peers.iter().position(|peer| **peer.id() == *id));
        let order = order_peers(&statuses, forward_request.effect, preferred, round_robin);
        if let Some(&first) = order.first() {
            peers[first].delay_next_retry(now);
        }
        order.into_iter().map(|index| peers[index].clone()).collect()
    }
}

#[cfg(test)]
mod tests;
