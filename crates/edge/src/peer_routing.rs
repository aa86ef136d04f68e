//! The other servers, as the pipeline meets them: where a request goes, how it gets there, and the pages about all of them.

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
use membership::{Cluster, Hop, LocalReason, MemberIndex, Route, ServerId, UnavailableReason, View, status};
use tasks::Tasks;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::merged_discovery::MergedPages;
use crate::{Body, ClientConnection, Error, Request, RequestRecord, Response};

/// Which server answered.
const SERVED_BY: HeaderName = HeaderName::from_static("x-unskew-served-by");
/// By which rule of docs/decisions/README.md it was chosen.
const ROUTING_RULE: HeaderName = HeaderName::from_static("x-unskew-routing-rule");

/// The page about the cluster.
pub(crate) const DEBUG_PAGE: &str = "/debug/peers";
/// The rule by which requests are forwarded.
pub(crate) const FORWARDING_RULE: u8 = 5;

/// This server's part in its cluster.
pub struct PeerRouting {
    /// What it knows of the others.
    pub cluster: Arc<Cluster>,
    /// The way to them; `None` if there is none for want of certificates.
    pub forwarder: Option<Forwarder>,
    /// What is counted.
    pub metrics: Metrics,
    /// Which discovery pages speak for all.
    pub merged_pages: MergedPages,
    /// Who answers requests whose path does not fit the scope of a resource that only peers serve.
    pub mismatch_policy: RouteMismatchPolicy,
    /// Whether answers tell who answered and why: `--peer-response-headers`.
    pub peer_response_headers: bool,
    /// Whether this server has joined: before that it takes no writes from others.
    pub has_joined: watch::Receiver<bool>,
    /// Who answers whatever it serves, if it is well: the nearest of several.
    pub nearest_peer: Option<ServerId>,
    /// Whether what we know of the others is recent enough to be told; `None` where storage tells of every change.
    pub is_view_recent: Option<Box<dyn Fn() -> bool + Send + Sync>>,
    /// Why a member is sent no requests of certificate users, for `/debug/peers`; `None` where all members are.
    pub not_vouched: Option<NotVouchedReason>,
}

/// Who answers requests whose path does not fit the scope of a resource that only peers serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteMismatchPolicy {
    /// This server, which has authorized the request.
    RejectLocally,
    /// A peer that lists the resource: a gateway authorizes nothing, so that it must not tell anything either.
    LeaveToPeer,
}

/// The reason why a member is sent no requests of certificate users, if there is one.
pub type NotVouchedReason = Box<dyn Fn(&str) -> Option<String> + Send + Sync>;

impl fmt::Debug for PeerRouting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeerRouting").field("cluster", &self.cluster).finish_non_exhaustive()
    }
}

/// Where a request goes.
pub(crate) enum Destination<'a> {
    /// It is answered here.
    Local(LocalReason),
    /// Another server is to answer it.
    Peer(PeerDestination<'a>),
}

/// A request for a resource that others serve.
pub(crate) struct PeerDestination<'a> {
    peers: &'a PeerRouting,
    resource: &'a ResourceTarget<'a>,
    candidates: Vec<Candidate>,
    origin: ResponseOrigin,
}

impl PeerRouting {
    /// Where a request goes, or why it goes nowhere now.
    pub(crate) async fn destination<'a>(
        &'a self,
        target: &'a Target<'a>,
        hop: Hop,
        is_mutating: bool,
    ) -> Result<Destination<'a>, Status> {
        if hop == Hop::FromPeer && is_mutating && !*self.has_joined.borrow() {
            return Err(status::peer_not_ready_status());
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
                        // A 404 is what is due for such a path; for such a method, a peer may have it after all.
                        let origin = match mismatch.mismatch {
                            RouteMismatch::NotFound => ResponseOrigin::AnyServer,
                            RouteMismatch::MethodNotAllowed
                            | RouteMismatch::NameRequired
                            | RouteMismatch::NamespaceRequired => ResponseOrigin::for_resource(resource),
                        };
                        let candidates = candidates(&view, &members);
                        Ok(Destination::Peer(PeerDestination { peers: self, resource, candidates, origin }))
                    }
                    None => Err(status::unavailable_status(UnavailableReason::OnlyUnreachableMembers)),
                }
            }
            (Route::Unavailable(why), _) => Err(status::unavailable_status(why)),
            // Only resources are ever served by others, and the proof was asked for already.
            (Route::Peers(_) | Route::RouteMismatch(_), Target::NonResource(_)) | (Route::ProveAbsence, _) => {
                Err(status::unavailable_status(UnavailableReason::AbsenceNotProven))
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
        // Without a way there is no live member either, so that nothing is routed here.
        let Self { peers, resource, candidates, origin } = self;
        let Some(forwarder) = &peers.forwarder else {
            return Err(ForwardError::NoEndpoint.status());
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
                tracing::debug!(resource = %resource.group_resource(), %error, "a request could not be forwarded");
                peers.metrics.count_proxy_error(proxy_error(&error), name);
                record.set_retries(error.retries());
                Err(error.status())
            }
        }
    }
}

impl PeerRouting {
    /// Whether a path may be one of our pages, or one that is counted.
    pub(crate) fn has_page(&self, path: &str) -> bool {
        path == DEBUG_PAGE || path == "/api" || self.merged_pages.has_page(path)
    }

    /// The pages about the cluster, and the documents that speak for it. Peers of some releases ask for documents without saying
    /// that they want ours alone, and would echo what we merged: they get the local document.
    pub(crate) async fn serve_page(&self, request: &Request, hop: Hop) -> Option<Result<Response, Error>> {
        let (path, query) = (request.uri().path(), request.uri().query().unwrap_or_default());
        if path == DEBUG_PAGE {
            return Some(self.debug_report(query).map_err(Error::from));
        }
        if self.merged_pages.is_nopeer_request(path, request.headers()) {
            self.metrics.count_nopeer_discovery();
            return None;
        }
        if hop == Hop::FromPeer || !self.merged_pages.has_page(path) {
            return None;
        }
        if self.is_view_recent.as_ref().is_some_and(|is_recent| !is_recent()) {
            // Those who do not answer now are no members any more, or are known to be away; the rest is what there is.
            let _ = self.cluster.catch_up().await;
        }
        let page = self.merged_pages.serve(path, query, request.headers(), &self.cluster.view(), &self.metrics)?;
        Some(page.map_err(Error::from))
    }

    /// `/debug/peers`, and with `ifStopped` what would be unavailable without that server.
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

    /// Says that this server answered, if that is wanted; or who did for it.
    pub(crate) fn add_served_by(&self, mut response: Response, reason: LocalReason) -> Response {
        let responding_peer = response.extensions().get().map(|RespondingPeer(id)| id.clone());
        if responding_peer.is_some() {
            strip_served_by(&mut response);
        }
        if self.peer_response_headers {
            insert_served_by(
                &mut response,
                responding_peer.as_ref().unwrap_or(self.cluster.view().this_server().name()),
                reason.rule(),
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

/// The candidates of a route: the members that have an address, which every live one has.
pub fn candidates(view: &View, members: &[MemberIndex]) -> Vec<Candidate> {
    let candidates = members.iter().filter_map(|&index| {
        let address = view.address(index)?.clone();
        Some(Candidate { id: view.member(index).server.name().clone(), address })
    });
    candidates.collect()
}

/// Has the document of a member fetched again, given its id as a candidate.
pub fn mark_stale(cluster: &Cluster, id: &str) {
    if let Some(server) = ServerId::from_name(id) {
        cluster.mark_stale(&server);
    }
}

/// Makes the forwarder forget peers as soon as they are no members any more.
pub fn start_forgetting_departed(forwarder: Forwarder, mut views: watch::Receiver<Arc<View>>, tasks: &Tasks) {
    tasks.spawn("peer-forgetter", |stop| async move {
        while let Some(Ok(())) = stop.run_until_cancelled(views.changed()).await {
            let view = views.borrow_and_update().clone();
            forwarder.retain_candidates(|id| view.members().iter().any(|member| member.server.as_str() == id));
        }
        // The view has no writer any more: the server stops.
        stop.cancelled().await;
    });
}

/// The label of kube-apiserver's metric for a request that could not be forwarded.
fn proxy_error(error: &ForwardError) -> ProxyError {
    match error {
        ForwardError::NoEndpoint | ForwardError::NotVouched => ProxyError::EndpointResolution,
        ForwardError::Failed { .. }
        | ForwardError::TimedOut { .. }
        | ForwardError::Overloaded(_)
        | ForwardError::ClientAborted => ProxyError::ProxyTransport,
    }
}

/// A peer may tell as well, and it need not be the same.
fn strip_served_by(response: &mut Response) {
    for name in [SERVED_BY, ROUTING_RULE] {
        response.headers_mut().remove(name);
    }
}

/// Whether a read asks for what was at a revision, or after it.
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
