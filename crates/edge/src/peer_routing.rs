//! Routes requests to the local handler or to a peer, and serves the pages about the cluster: merged discovery, merged
//! OpenAPI and `/debug/peers`.

use std::fmt;
use std::sync::Arc;

use api::target::ResourceTarget;
use api::{GroupVersionResource, RouteMismatch, Status, Target, Verb};
use forward::{
    Candidate, Effect, ForwardError, ForwardRequest, ForwardedUser, Forwarder, Lifetime, RespondingPeer, ResponseOrigin,
};
use http::StatusCode;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use membership::metrics::{Metrics, ProxyError};
use membership::{Cluster, Hop, LocalReason, MemberIndex, Route, ServerId, UnavailableReason, View};
use tasks::Tasks;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::merged_discovery::MergedPages;
use crate::openapi::MergedOpenApi;
use crate::{Body, ClientConnection, Error, Request, RequestRecord, Response, routing_status};

/// Response header: the id of the server that produced the response.
const SERVED_BY: HeaderName = HeaderName::from_static("x-unskew-served-by");
/// Response header: the number of the routing rule in docs/decisions/README.md that chose the server.
const ROUTING_RULE: HeaderName = HeaderName::from_static("x-unskew-routing-rule");

/// The path of the cluster report.
pub(crate) const DEBUG_PAGE: &str = "/debug/peers";
/// The number of the routing rule that forwards a request to a peer.
pub(crate) const FORWARDING_RULE: u8 = 5;

/// Everything that the pipeline needs to route requests among the members of the cluster.
pub struct PeerRouting {
    /// The members and the resources that each of them serves.
    pub cluster: Arc<Cluster>,
    /// Forwards requests to peers; `None` without a client certificate for peers.
    pub forwarder: Option<Forwarder>,
    /// Counts forwarded requests, forwarding errors and discovery requests.
    pub metrics: Metrics,
    /// The discovery documents that merge the resources of all members.
    pub merged_pages: MergedPages,
    /// The OpenAPI documents of all members; `None` if this server does not reach its peers.
    pub merged_openapi: Option<MergedOpenApi>,
    /// The server that rejects a request whose path or method does not fit a resource that only peers serve.
    pub mismatch_policy: RouteMismatchPolicy,
    /// `--peer-response-headers`: responses name the serving server and the routing rule.
    pub peer_response_headers: bool,
    /// True once this server has joined the cluster; until then it rejects writes forwarded by peers.
    pub has_joined: watch::Receiver<bool>,
    /// The peer that the forwarder prefers while it is healthy. Only a gateway sets it, to its local upstream.
    pub nearest_peer: Option<ServerId>,
    /// True while the discovery documents of the members are recent enough to serve; `None` if storage reports every
    /// change.
    pub is_view_recent: Option<Box<dyn Fn() -> bool + Send + Sync>>,
    /// For `/debug/peers`: why a member receives no requests of certificate users. `None` if every member receives
    /// them.
    pub not_vouched: Option<NotVouchedReason>,
}

/// The server that rejects a request whose path or method does not fit a resource that only peers serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteMismatchPolicy {
    /// This server rejects a built-in resource itself: it has authorized the request.
    RejectLocally,
    /// A peer that lists the resource rejects it. A gateway does not authorize requests, so it must not reveal what
    /// exists.
    LeaveToPeer,
}

/// Given a member's id, returns why it receives no requests of certificate users, if so.
pub type NotVouchedReason = Box<dyn Fn(&str) -> Option<String> + Send + Sync>;

impl fmt::Debug for PeerRouting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeerRouting").field("cluster", &self.cluster).finish_non_exhaustive()
    }
}

/// The server that handles a request.
pub(crate) enum Destination<'a> {
    Local(LocalReason),
    Peer(PeerDestination<'a>),
}

/// The route of a request for a resource that only peers serve.
pub(crate) struct PeerDestination<'a> {
    peers: &'a PeerRouting,
    resource: &'a ResourceTarget<'a>,
    candidates: Vec<Candidate>,
    origin: ResponseOrigin,
}

impl PeerRouting {
    /// Routes a request. The error is the response if no server can handle it now, or if this server rejects it.
    pub(crate) async fn destination<'a>(
        &'a self,
        target: &'a Target<'a>,
        hop: Hop,
        is_mutating: bool,
    ) -> Result<Destination<'a>, Status> {
        if hop == Hop::FromPeer && is_mutating && !*self.has_joined.borrow() {
            return Err(routing_status::peer_not_ready_status());
        }
        let (route, view) = self.cluster.route(target, hop).await;
        match (route, target) {
            (Route::Local(why), _) => Ok(Destination::Local(why)),
            (Route::Peers(members), Target::Resource(resource)) => {
                let (candidates, origin) = (candidates(&view, &members), ResponseOrigin::for_resource(resource));
                Ok(Destination::Peer(PeerDestination { peers: self, resource, candidates, origin }))
            }
            (Route::RouteMismatch(mismatch), Target::Resource(resource)) => {
                let is_ours = self.mismatch_policy == RouteMismatchPolicy::RejectLocally && mismatch.may_be_built_in;
                match mismatch.live {
                    _ if is_ours => Err(Status::for_route_mismatch(mismatch.mismatch)),
                    Some(members) => {
                        // The expected response to a wrong path is 404, so any peer's 404 counts. A wrong method may
                        // exist on some peer.
                        let origin = match mismatch.mismatch {
                            RouteMismatch::NotFound => ResponseOrigin::AnyServer,
                            RouteMismatch::MethodNotAllowed
                            | RouteMismatch::NameRequired
                            | RouteMismatch::NamespaceRequired => ResponseOrigin::for_resource(resource),
                        };
                        let candidates = candidates(&view, &members);
                        Ok(Destination::Peer(PeerDestination { peers: self, resource, candidates, origin }))
                    }
                    None => Err(routing_status::unavailable_status(UnavailableReason::OnlyUnreachableMembers)),
                }
            }
            (Route::Unavailable(why), _) => Err(routing_status::unavailable_status(why)),
            // Unreachable: only resources are routed to peers, and `Cluster::route` resolves `ProveAbsence` itself.
            (Route::Peers(_) | Route::RouteMismatch(_), Target::NonResource(_)) | (Route::ProveAbsence, _) => {
                Err(routing_status::unavailable_status(UnavailableReason::AbsenceNotProven))
            }
        }
    }
}

impl PeerDestination<'_> {
    /// Forwards the request to one of the candidates and counts the outcome.
    pub(crate) async fn forward(
        &self,
        user: &ForwardedUser,
        connection: &ClientConnection,
        lifetime: Lifetime,
        record: &RequestRecord,
        request: Request,
    ) -> Result<Response, Error> {
        let name = self.resource.group_version_resource();
        let (ip, effect) = (connection.client_address.ip(), Effect::for_resource(self.resource));
        let forward_request = ForwardRequest::new(user, ip, effect, self.origin, lifetime);
        let result = self.forward_to_peer(forward_request, connection, name, record, request).await;
        let code = match &result {
            Ok(response) => response.status(),
            Err(_) => StatusCode::SERVICE_UNAVAILABLE,
        };
        self.peers.metrics.count_rerouted(code.as_str(), name);
        Ok(result?)
    }

    async fn forward_to_peer(
        &self,
        forward_request: ForwardRequest<'_>,
        connection: &ClientConnection,
        name: GroupVersionResource<&str>,
        record: &RequestRecord,
        request: Request,
    ) -> Result<Response, Status> {
        // Without a forwarder no member is live, so no request is routed to a peer.
        let Self { peers, resource, candidates, origin } = self;
        let Some(forwarder) = &peers.forwarder else {
            return Err(routing_status::forward_error_status(&ForwardError::NoEndpoint));
        };
        let sticky_peer = (forward_request.effect == Effect::Reads && has_resource_version(&request))
            .then_some(&connection.sticky_peer);
        let preferred_peer = sticky_peer.and_then(|sticky_peer| sticky_peer.lock().clone());
        let forward_request = ForwardRequest {
            candidates,
            preferred_peer: preferred_peer.as_deref().or(peers.nearest_peer.as_ref().map(ServerId::as_str)),
            has_short_response: resource.verb == Verb::Get,
            add_hop_mark: *origin != ResponseOrigin::AnyServer,
            mark_stale: &|id| mark_stale(&peers.cluster, id),
            ..forward_request
        };
        match forwarder.forward(forward_request, request).await {
            Ok(response) => {
                if let (Some(sticky_peer), Some(RespondingPeer(id))) = (sticky_peer, response.extensions().get()) {
                    *sticky_peer.lock() = Some(id.clone());
                }
                Ok(peers.add_served_by_peer(response.map(|body| Body::Peer(Box::new(body)))))
            }
            Err(error) => {
                tracing::debug!(resource = %resource.group_resource(), %error, "forwarding failed");
                peers.metrics.count_proxy_error(proxy_error(&error), name);
                record.set_retries(error.retries());
                Err(routing_status::forward_error_status(&error))
            }
        }
    }
}

impl PeerRouting {
    /// True for paths that [`Self::serve_page`] may serve, and for `/api`, whose nopeer requests it counts.
    pub(crate) fn has_page(&self, path: &str) -> bool {
        path == DEBUG_PAGE || path == "/api" || path.starts_with("/openapi/v") || self.merged_pages.has_page(path)
    }

    /// Serves `/debug/peers` and merged documents of discovery and OpenAPI; `None` leaves the request to the local
    /// handler.
    ///
    /// A peer always gets the local document: some releases do not ask for the nopeer profile and would publish the
    /// merged document as their own.
    pub(crate) async fn serve_page(&self, request: &Request, hop: Hop) -> Option<Result<Response, Error>> {
        let (path, query) = (request.uri().path(), request.uri().query().unwrap_or_default());
        if path == DEBUG_PAGE {
            return Some(self.debug_report(query).map_err(Error::from));
        }
        if self.merged_pages.is_nopeer_request(path, request.headers()) {
            self.metrics.count_nopeer_discovery();
            return None;
        }
        let is_openapi = path.starts_with("/openapi/");
        if hop == Hop::FromPeer || !is_openapi && !self.merged_pages.has_page(path) {
            return None;
        }
        if self.is_view_recent.as_ref().is_some_and(|is_recent| !is_recent()) {
            // A failure only means that some members do not respond; the document then covers the others.
            let _ = self.cluster.catch_up().await;
        }
        if is_openapi {
            let served = self.merged_openapi.as_ref()?.serve(self.cluster.view(), request);
            return Some(Box::pin(served).await?.map_err(Error::from));
        }
        let page = self.merged_pages.serve(path, query, request.headers(), &self.cluster.view(), &self.metrics)?;
        Some(page.map_err(Error::from))
    }

    /// Serves `/debug/peers`; with `?ifStopped=SERVER` the resources that would be unavailable without that server.
    fn debug_report(&self, query: &str) -> Result<Response, Status> {
        let view = self.cluster.view();
        let json = match api::query::first_value(query, "ifStopped") {
            None => {
                let mut report = membership::debug::report(&view, Instant::now());
                for member in &mut report.members {
                    member.not_vouched = self.not_vouched.as_ref().and_then(|reason| reason(member.server));
                }
                serde_json::to_vec_pretty(&report)
            }
            Some(name) => {
                let server = ServerId::from_name(&name);
                let items = server.and_then(|server| membership::debug::resources_lost_if_stopped(&view, &server));
                let missing = || Status::bad_request(format!("ifStopped: there is no server {name:?}"));
                serde_json::to_vec_pretty(&items.ok_or_else(missing)?)
            }
        };
        let mut response = Response::new(Body::from(json.expect("a report is always JSON")));
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        Ok(response)
    }

    /// Adds the routing headers to a locally handled response, if enabled. They name the peer if a local handler
    /// obtained the response from one.
    pub(crate) fn add_served_by(&self, mut response: Response, reason: LocalReason) -> Response {
        let responding_peer = response.extensions().get().map(|RespondingPeer(id)| id.clone());
        if responding_peer.is_some() {
            strip_served_by(&mut response);
        }
        if self.peer_response_headers {
            insert_served_by(
                &mut response,
                responding_peer.as_ref().unwrap_or(self.cluster.view().this_server().name()),
                reason.routing_rule(),
            );
        }
        response
    }

    fn add_served_by_peer(&self, mut response: Response) -> Response {
        strip_served_by(&mut response);
        if self.peer_response_headers
            && let Some(RespondingPeer(id)) = response.extensions().get().cloned()
        {
            insert_served_by(&mut response, &id, FORWARDING_RULE);
        }
        response
    }
}

/// Converts members to forwarding candidates, skipping those without an address. Every live member has one.
pub fn candidates(view: &View, members: &[MemberIndex]) -> Vec<Candidate> {
    let candidates = members.iter().filter_map(|&index| {
        let address = view.address(index)?.clone();
        Some(Candidate::new(view.member(index).server.name().clone(), address))
    });
    candidates.collect()
}

/// Schedules a fresh fetch of a member's discovery document. `id` is its [`Candidate`] id.
pub fn mark_stale(cluster: &Cluster, id: &str) {
    if let Some(server) = ServerId::from_name(id) {
        cluster.mark_stale(&server);
    }
}

/// Starts the task that drops the forwarder's state of members that left the cluster.
pub fn start_forgetting_departed(forwarder: Forwarder, mut views: watch::Receiver<Arc<View>>, tasks: &Tasks) {
    tasks.spawn("peer-forgetter", |stop| async move {
        while let Some(Ok(())) = stop.run_until_cancelled(views.changed()).await {
            let view = views.borrow_and_update().clone();
            forwarder.retain_candidates(|id| view.members().iter().any(|member| member.server.as_str() == id));
        }
        // The sender of views is gone because the server stops.
        stop.cancelled().await;
    });
}

/// Maps a forwarding error to the `type` label of `apiserver_peer_proxy_errors_total`.
fn proxy_error(error: &ForwardError) -> ProxyError {
    match error {
        ForwardError::NoEndpoint | ForwardError::NotVouched => ProxyError::EndpointResolution,
        ForwardError::Failed { .. }
        | ForwardError::TimedOut { .. }
        | ForwardError::Overloaded(_)
        | ForwardError::ClientAborted => ProxyError::ProxyTransport,
    }
}

/// Removes the routing headers that a peer added: they describe the peer's routing, not this server's.
fn strip_served_by(response: &mut Response) {
    for name in [SERVED_BY, ROUTING_RULE] {
        response.headers_mut().remove(name);
    }
}

/// True if a read sets `resourceVersion`. These reads stick to one peer per connection.
fn has_resource_version(request: &Request) -> bool {
    let query = request.uri().query().unwrap_or_default();
    api::query::first_value(query, "resourceVersion").is_some_and(|revision| !revision.is_empty())
}

fn insert_served_by(response: &mut Response, server: &str, rule: u8) {
    if let Ok(name) = HeaderValue::from_str(server) {
        response.headers_mut().insert(SERVED_BY, name);
    }
    response.headers_mut().insert(ROUTING_RULE, HeaderValue::from(u16::from(rule)));
}
