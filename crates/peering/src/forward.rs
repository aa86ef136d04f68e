//! Carries a request to a peer that can serve it, and its answer back: rule 5 of docs/decisions/README.md.
//!
//! Candidates are tried in the order of what was observed of them. The next one is tried whenever nothing was executed, and for
//! reads as long as no byte of an answer has gone out; a write that was sent is never sent again. Path, query and body travel
//! byte for byte, as they come, in both directions; the user travels in headers that only we can set.
//!
//! In the order of a request: [`identity`] and `head` make what is sent, `choose` orders the candidates, `seats` gives it a place
//! at one of them, for which it may have to wait in a `queue`, `attempt` tries that one, `judge` decides whether its answer is
//! one, [`forwarded_response`] carries it back. [`peer_set`] remembers how each peer fared.

mod attempt;
mod bandwidth;
mod classify;
mod error;
mod fetch;
mod forwarded_head;
pub mod forwarded_response;
pub mod identity;
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
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body::Body;
use parking_lot::RwLock;
use smallvec::SmallVec;
use tasks::{Commitment, Tasks};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use transport::peer::{BoxError, Connector, PoolLimits};

pub use error::{ForwardError, PeerError, PeerFailure};
pub use forwarded_response::{FailedAttempts, ForwardedBody, RespondingPeer};
pub use identity::{ForwardedUser, IdentityHeaders, UnsendableUser};
pub use queue::{QueueLimits, QueueRejection};

use crate::endpoint_record::Address;
use crate::identity::ServerId;
use crate::metrics::Metrics;
use crate::routing_table::MemberIndex;
use crate::view::View;
use forwarded_head::ForwardedHead;
use peer_order::order_peers;
use peer_set::{Peer, PeerSet};
use queue::FlowHasher;
use replay::ReplayableBody;
use retry_loop::RetryLoop;
use upgrade::ClientUpgrade;

/// How often idle connections are looked at.
const IDLE_SWEEP_INTERVAL: Duration = Duration::from_secs(10);

/// How long and how much.
#[derive(Clone, Copy, Debug)]
pub struct ForwardLimits {
    /// For TCP and TLS together, to the last candidate; to others no longer than `ping_timeout`.
    pub connect_timeout: Duration,
    /// For how long a peer may be silent before it is pinged.
    pub silence_timeout: Duration,
    /// For how long it may take to answer that.
    pub ping_timeout: Duration,
    /// How often a peer is pinged while a watch or the like is open and silent: only its end tells a client to go elsewhere.
    pub stream_ping_interval: Duration,
    /// For how long it may take to answer that.
    pub stream_ping_timeout: Duration,
    /// How many short requests one peer is sent at once; `None` for any number. A request that is one too many goes to the next
    /// peer, and waits if they all have as many.
    pub in_flight_max: Option<usize>,
    /// How many bytes of bodies go to and from one peer in a second; `None` for any number. What is too much waits.
    pub bandwidth_max: Option<NonZeroU64>,
    /// How many wait, and for how long.
    pub queue: QueueLimits,
    /// Idle connections to one peer.
    pub pool: PoolLimits,
}

impl ForwardLimits {
    /// Two lost packets; beyond that the peer is as good as away.
    pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
    /// Longer than almost all requests take, and short enough for somebody who waits.
    pub const SILENCE_TIMEOUT: Duration = Duration::from_secs(2);
    /// A peer that lets even a ping wait so long is passed over.
    pub const PING_TIMEOUT: Duration = Duration::from_secs(2);
    /// Kubernetes' settings for HTTP/2, where a ping is part of the protocol.
    pub const STREAM_PING_INTERVAL: Duration = Duration::from_secs(30);
    /// The same.
    pub const STREAM_PING_TIMEOUT: Duration = Duration::from_secs(15);
}

impl ForwardLimits {
    /// For how long a request may wait for something before it is looked at again: for a connection, or a silent peer. `None`
    /// if it may have to wait in a queue, and nobody knows.
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

/// A peer that can serve a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Its name.
    pub server: ServerId,
    /// Where it listens.
    pub address: Address,
}

impl Candidate {
    /// Those of [`crate::Route::Peers`] that have an address, which all live ones have.
    pub fn from_members(view: &View, members: &[MemberIndex]) -> Vec<Self> {
        let candidates = members.iter().filter_map(|&index| {
            let address = view.address(index)?.clone();
            Some(Self { server: view.member(index).server.clone(), address })
        });
        candidates.collect()
    }
}

/// What is to be forwarded, apart from the request itself.
pub struct ForwardRequest<'a> {
    /// Whoever can serve it.
    pub candidates: &'a [Candidate],
    /// Who asks, after impersonation.
    pub user: &'a ForwardedUser,
    /// Where the client connects from.
    pub client_ip: IpAddr,
    /// What audit calls the request here; a peer's audit calls it the same.
    pub audit_id: Option<&'a HeaderValue>,
    /// Whether it may be sent twice.
    pub effect: Effect,
    /// For how long it may take.
    pub lifetime: Lifetime,
    /// Whether the answer will be short, as that of one object is.
    pub has_short_response: bool,
    /// Who answers, if it is well: because it answered before, or is the nearest.
    pub preferred_peer: Option<&'a ServerId>,
    /// The process that writes the response: decides what the response says about the peer.
    pub origin: ResponseOrigin,
    /// Whether the request carries the hop mark, so that the peer serves it itself or refuses it.
    pub add_hop_mark: bool,
    /// Called for a peer whose response shows that it does not serve what it lists, or does not trust us.
    pub mark_stale: &'a (dyn Fn(&ServerId) + Send + Sync),
}

/// The process that writes the response to a forwarded request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseOrigin {
    /// A server that lists the resource. A response that denies the resource is that server's failure.
    ServingPeer,
    /// Any server: whatever it says of the resource counts.
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

impl ForwardRequest<'_> {
    /// The same call for a request that asks for an upgrade. Such a request is never resent once it was sent: the connection may
    /// have been handed over. A process behind the server answers it, except for a watch over WebSocket, which is the one upgrade
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
    /// It only reads: get, list and watch.
    Reads,
    /// It may do anything.
    Writes,
}

impl Effect {
    /// What a request for a resource does. A get that runs a command in a container is no reading.
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

/// For how long a request may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lifetime {
    /// Its answer has come to its end by then.
    Until(Instant),
    /// As long as both sides like: a watch, a log, a shell.
    LongRunning,
}

/// How peers are reached, and who we are to them.
#[derive(Clone, Debug)]
pub struct ForwarderConfig {
    /// Connections that show our certificate: for users that we vouch for.
    pub front_proxy_connector: Arc<Connector>,
    /// Connections that show none: for users with credentials of their own. `None`: nobody is sent on with these.
    pub passthrough_connector: Option<Arc<Connector>>,
    /// Whom we name when we ask for ourselves.
    pub own_user: ForwardedUser,
    /// Who says which pages may read answers.
    pub cors_headers: CorsHeaders,
    /// To which peers requests may go in a user's name.
    pub vouching_policy: VouchingPolicy,
}

/// To which peers the forwarder sends requests over connections that show our certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VouchingPolicy {
    /// To every peer.
    AllPeers,
    /// To peers that [`Forwarder::set_vouching`] has allowed, and to no others.
    AllowedPeers,
}

/// Who says, to browsers, which pages may read an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CorsHeaders {
    /// We do, because browsers talk to us: what a peer says of it is removed.
    Strip,
    /// The peer that answers, and we pass it on.
    PassThrough,
}

impl ForwarderConfig {
    /// The user that servers are to each other.
    const APISERVER_USER: &str = "system:apiserver";

    /// From one server to another.
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

/// Forwards requests to peers. Clones share connections and what was observed.
#[derive(Clone)]
pub struct Forwarder(Arc<ForwarderInner>);

pub(crate) struct ForwarderInner {
    peer_set: PeerSet,
    limits: ForwardLimits,
    metrics: Metrics,
    tasks: Tasks,
    /// Ends what is open.
    stream_stop: CancellationToken,
    round_robin: AtomicUsize,
    flow_hasher: FlowHasher,
    cors_headers: CorsHeaders,
    /// Headers, beside `X-Remote-*`, that some peer reads as identity; `None` if there are none.
    peer_identity_headers: RwLock<Option<Arc<IdentityHeaders>>>,
}

impl fmt::Debug for Forwarder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Forwarder").field("limits", &self.0.limits).finish_non_exhaustive()
    }
}

impl Forwarder {
    /// Forwards over connections of these kinds.
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

    /// Forgets peers, and closes idle connections to them, as soon as they are no members any more.
    pub fn start_forgetting_departed(&self, mut views: watch::Receiver<Arc<View>>, tasks: &Tasks) {
        let shared = self.0.clone();
        tasks.spawn("peer-forgetter", |stop| async move {
            while let Some(Ok(())) = stop.run_until_cancelled(views.changed()).await {
                let view = views.borrow_and_update().clone();
                shared.peer_set.retain(|server| view.members().iter().any(|member| member.server == *server));
            }
            // Without a view there is nothing to follow, and nothing to forget before the end.
            stop.cancelled().await;
        });
    }

    /// Allows or forbids requests to a peer in a user's name: over connections that show our certificate. Health and
    /// discovery requests of our own are not affected. A peer that listens elsewhere than it did must be allowed again.
    pub fn set_vouching(&self, candidate: &Candidate, is_allowed: bool) {
        self.0.peer_set.get(candidate).may_vouch.store(is_allowed, Ordering::Relaxed);
    }

    /// Replaces the set of headers that are removed from requests in a user's name, beside `X-Remote-*`.
    pub fn set_peer_identity_headers(&self, headers: IdentityHeaders) {
        let headers = (!headers.is_empty()).then(|| Arc::new(headers));
        *self.0.peer_identity_headers.write() = headers;
    }

    /// Ends watches and the like, and connections that were handed over, as if the peers had: their clients come back, to
    /// another server if this one stops.
    pub fn end_streams(&self) {
        self.0.stream_stop.cancel();
    }

    /// How the peers have fared, for `/debug/peers` and tests.
    pub fn peers(&self) -> &PeerSet {
        &self.0.peer_set
    }

    /// Sends a request to one of the candidates and returns its answer, of which the head has arrived.
    ///
    /// Dropped, or with its answer dropped, it takes the request back, which tells the peer to stop. A request with a
    /// [`Commitment`] in its extensions commits when it is first sent.
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
        let head = ForwardedHead::new(parts, &call, upgrade.is_some());
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

/// Waits for some work until its deadline. Almost every request is answered when it is looked at for the second time, so that
/// only then an alarm is set, if the work is certainly looked at again long before.
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
    /// Removes what a peer would read as a user's name or group: it would believe it, because it believes our certificate.
    fn remove_peer_identity_headers(&self, headers: &mut HeaderMap) {
        let identity_headers = self.peer_identity_headers.read().clone();
        if let Some(identity_headers) = identity_headers {
            identity_headers.remove_from(headers);
        }
    }

    /// The candidates of a call that may be asked for its user, the best one first.
    fn order_candidates(&self, forward_request: &ForwardRequest<'_>) -> SmallVec<[Arc<Peer>; 4]> {
        let mut peers: SmallVec<[Arc<Peer>; 4]> =
            forward_request.candidates.iter().map(|candidate| self.peer_set.get(candidate)).collect();
        peers.retain(|peer| peer.accepts_user(forward_request.user));
        let [_, _, ..] = peers[..] else { return peers };
        let now = Instant::now();
        let statuses: SmallVec<[_; 4]> = peers.iter().map(|peer| peer.status(now)).collect();
        let round_robin = self.round_robin.fetch_add(1, Ordering::Relaxed);
        let preferred =
            forward_request.preferred_peer.and_then(|server| peers.iter().position(|peer| peer.server() == server));
        let order = order_peers(&statuses, forward_request.effect, preferred, round_robin);
        if let Some(&first) = order.first() {
            peers[first].delay_next_retry(now);
        }
        order.into_iter().map(|index| peers[index].clone()).collect()
    }
}

#[cfg(test)]
mod tests;
