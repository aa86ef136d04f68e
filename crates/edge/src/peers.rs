//! The other servers, as the pipeline meets them: where a request goes, how it gets there, and the pages about all of them.

use std::fmt;
use std::sync::Arc;

use api::target::Resource;
use api::{GroupVersionResource, Misfit, Status, Target, Verb};
use http::StatusCode;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use peering::forward::{AnsweredBy, Call, Candidate, Effect, Forwarder, Identity, ResponseOrigin, Span};
use peering::metrics::Metrics;
use peering::{Cluster, Hop, Route, ServerId, Unavailable, Why, status};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::access_log::Note;
use crate::audit::AUDIT_ID;
use crate::merged::MergedPages;
use crate::{Body, Connection, Error, Request, Response};

/// Which server answered.
const SERVED_BY: HeaderName = HeaderName::from_static("x-unskew-served-by");
/// By which rule of docs/decisions/README.md it was chosen.
const ROUTING_RULE: HeaderName = HeaderName::from_static("x-unskew-routing-rule");

/// The page about the cluster.
pub(crate) const DEBUG_PAGE: &str = "/debug/peers";
/// The rule by which requests are forwarded.
pub(crate) const FORWARDING_RULE: u8 = 5;

/// This server's part in its cluster.
pub struct Peers {
    /// What it knows of the others.
    pub cluster: Arc<Cluster>,
    /// The way to them; `None` if there is none for want of certificates.
    pub forwarder: Option<Forwarder>,
    /// What is counted.
    pub metrics: Metrics,
    /// Which discovery pages speak for all.
    pub merged: MergedPages,
    /// Who answers requests whose path does not fit the scope of a resource that only peers serve.
    pub misfits: MisfitPolicy,
    /// Whether answers tell who answered and why: `--peer-response-headers`.
    pub tells: bool,
    /// Whether this server has joined: before that it takes no writes from others.
    pub joined: watch::Receiver<bool>,
    /// Who answers whatever it serves, if it is well: the nearest of several.
    pub nearest: Option<ServerId>,
    /// Whether what we know of the others is recent enough to be told; `None` where storage tells of every change.
    pub is_recent: Option<Box<dyn Fn() -> bool + Send + Sync>>,
    /// Why a member is sent no requests of certificate users, for `/debug/peers`; `None` where all members are.
    pub not_vouched: Option<NotVouched>,
}

/// Who answers requests whose path does not fit the scope of a resource that only peers serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MisfitPolicy {
    /// This server, which has authorized the request.
    RefuseHere,
    /// A peer that lists the resource: a gateway authorizes nothing, so that it must not tell anything either.
    LeaveToPeer,
}

/// The reason why a member is sent no requests of certificate users, if there is one.
pub type NotVouched = Box<dyn Fn(&str) -> Option<String> + Send + Sync>;

impl fmt::Debug for Peers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Peers").field("cluster", &self.cluster).finish_non_exhaustive()
    }
}

/// Where a request goes.
pub(crate) enum Place<'a> {
    /// It is answered here.
    Here(Why),
    /// Another server is to answer it.
    Away(Away<'a>),
}

/// A request for a resource that others serve.
pub(crate) struct Away<'a> {
    peers: &'a Peers,
    resource: &'a Resource<'a>,
    candidates: Vec<Candidate>,
    origin: ResponseOrigin,
}

/// For whom a request is forwarded, and for how long it may take.
pub(crate) struct Errand<'a> {
    pub(crate) user: Identity,
    pub(crate) connection: &'a Connection,
    pub(crate) span: Span,
}

impl Peers {
    /// Where a request goes, or why it goes nowhere now.
    pub(crate) async fn place<'a>(
        &'a self,
        target: &'a Target<'a>,
        hop: Hop,
        is_mutating: bool,
    ) -> Result<Place<'a>, Status> {
        if hop == Hop::FromPeer && is_mutating && !*self.joined.borrow() {
            return Err(status::peer_not_ready());
        }
        let (route, view) = self.cluster.route(target, hop).await;
        match (route, target) {
            (Route::Here(why), _) => Ok(Place::Here(why)),
            (Route::Peers(members), Target::Resource(resource)) => {
                let (candidates, origin) = (Candidate::of(&view, &members), ResponseOrigin::of(resource));
                Ok(Place::Away(Away { peers: self, resource, candidates, origin }))
            }
            (Route::Misfit(unfit), Target::Resource(resource)) => {
                let is_ours = self.misfits == MisfitPolicy::RefuseHere && unfit.may_be_built_in;
                match unfit.live {
                    _ if is_ours => Err(Status::of_misfit(unfit.misfit)),
                    Some(members) => {
                        // A 404 is what is due for such a path; for such a method, a peer may have it after all.
                        let origin = match unfit.misfit {
                            Misfit::NotFound => ResponseOrigin::AnyServer,
                            Misfit::MethodNotAllowed | Misfit::NameRequired | Misfit::NamespaceRequired => {
                                ResponseOrigin::of(resource)
                            }
                        };
                        let candidates = Candidate::of(&view, &members);
                        Ok(Place::Away(Away { peers: self, resource, candidates, origin }))
                    }
                    None => Err(status::unavailable(Unavailable::OnlySuspects)),
                }
            }
            (Route::Unavailable(why), _) => Err(status::unavailable(why)),
            // Only resources are ever served by others, and the proof was asked for already.
            (Route::Peers(_) | Route::Misfit(_), Target::NonResource(_)) | (Route::ProveAbsence, _) => {
                Err(status::unavailable(Unavailable::NotProven))
            }
        }
    }
}

impl Away<'_> {
    /// Has a peer answer.
    pub(crate) async fn forward(&self, errand: &Errand<'_>, request: Request) -> Result<Response, Error> {
        let name = self.resource.group_version_resource();
        let answer = self.answer(errand, name, request).await;
        let code = match &answer {
            Ok(response) => response.status(),
            Err(_) => StatusCode::SERVICE_UNAVAILABLE,
        };
        self.peers.metrics.count_rerouted(code.as_str(), name);
        Ok(answer?)
    }

    async fn answer(
        &self,
        errand: &Errand<'_>,
        name: GroupVersionResource<&str>,
        request: Request,
    ) -> Result<Response, Status> {
        // Without a way there is no live member either, so that nothing is routed here.
        let Self { peers, resource, candidates, origin } = self;
        let Some(forwarder) = &peers.forwarder else { return Err(status::proxy_failed(status::Execution::None)) };
        let audit_id = request.headers().get(AUDIT_ID).cloned();
        let note = Note::of(&request);
        let sticks =
            (Effect::of(resource) == Effect::Reads && names_revision(&request)).then_some(&errand.connection.sticks_to);
        let prefers = sticks.and_then(|sticks| sticks.lock().clone());
        let call = Call {
            candidates,
            user: &errand.user,
            client: errand.connection.peer.ip(),
            audit_id: audit_id.as_ref(),
            effect: Effect::of(resource),
            span: errand.span,
            prefers: prefers.as_ref().or(peers.nearest.as_ref()),
            is_brief: resource.verb == Verb::Get,
            origin: *origin,
            marks_hop: *origin != ResponseOrigin::AnyServer,
            doubt: &|server| peers.cluster.doubt(server),
        };
        match forwarder.forward(call, request).await {
            Ok(response) => {
                if let (Some(sticks), Some(AnsweredBy(server))) = (sticks, response.extensions().get()) {
                    *sticks.lock() = Some(server.clone());
                }
                Ok(peers.told_of_peer(response.map(|body| Body::Peer(Box::new(body)))))
            }
            Err(error) => {
                tracing::debug!(resource = %resource.group_resource(), %error, "a request could not be forwarded");
                peers.metrics.count_proxy_error(error.metric(), name);
                if let Some(note) = note {
                    note.retries(error.retries());
                }
                Err(error.status())
            }
        }
    }
}

impl Peers {
    /// Whether a path may be one of our pages, or one that is counted.
    pub(crate) fn has_page(&self, path: &str) -> bool {
        path == DEBUG_PAGE || path == "/api" || self.merged.has_page(path)
    }

    /// The pages about the cluster, and the documents that speak for it. Peers of some releases ask for documents without saying
    /// that they want ours alone, and would echo what we merged: they get it from whoever serves it here.
    pub(crate) async fn page(&self, request: &Request, hop: Hop) -> Option<Result<Response, Error>> {
        let (path, query) = (request.uri().path(), request.uri().query().unwrap_or_default());
        if path == DEBUG_PAGE {
            return Some(self.report(query).map_err(Error::from));
        }
        if self.merged.is_for_local(path, request.headers()) {
            self.metrics.count_nopeer();
            return None;
        }
        if hop == Hop::FromPeer || !self.merged.has_page(path) {
            return None;
        }
        if self.is_recent.as_ref().is_some_and(|is_recent| !is_recent()) {
            // Those who do not answer now are no members any more, or are known to be away; the rest is what there is.
            let _ = self.cluster.catch_up().await;
        }
        let page = self.merged.serve(path, query, request.headers(), &self.cluster.view(), &self.metrics)?;
        Some(page.map_err(Error::from))
    }

    /// `/debug/peers`, and with `ifStopped` what would be unavailable without that server.
    fn report(&self, query: &str) -> Result<Response, Status> {
        let view = self.cluster.view();
        let json = match api::query::first(query, "ifStopped") {
            None => {
                let mut report = peering::debug::report(&view, Instant::now());
                for member in &mut report.members {
                    member.not_vouched = self.not_vouched.as_ref().and_then(|reason| reason(member.server));
                }
                serde_json::to_vec_pretty(&report)
            }
            Some(name) => {
                let server = ServerId::from_name(&name);
                let items = server.and_then(|server| peering::debug::if_stopped(&view, &server));
                let missing = || Status::bad_request(format!("ifStopped: there is no server {name:?}"));
                serde_json::to_vec_pretty(&items.ok_or_else(missing)?)
            }
        };
        let mut response = Response::new(Body::from(json.expect("a report is always JSON")));
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        Ok(response)
    }

    /// Says that this server answered, if that is wanted; or who did for it.
    pub(crate) fn told(&self, mut response: Response, why: Why) -> Response {
        let by = response.extensions().get().map(|AnsweredBy(server)| server.clone());
        if by.is_some() {
            untell(&mut response);
        }
        if self.tells {
            tell(&mut response, by.as_ref().unwrap_or(self.cluster.view().me()), why.rule());
        }
        response
    }

    fn told_of_peer(&self, mut response: Response) -> Response {
        untell(&mut response);
        if self.tells
            && let Some(AnsweredBy(server)) = response.extensions().get().cloned()
        {
            tell(&mut response, &server, FORWARDING_RULE);
        }
        response
    }
}

/// A peer may tell as well, and it need not be the same.
fn untell(response: &mut Response) {
    for name in [SERVED_BY, ROUTING_RULE] {
        response.headers_mut().remove(name);
    }
}

/// Whether a read asks for what was at a revision, or after it.
fn names_revision(request: &Request) -> bool {
    let query = request.uri().query().unwrap_or_default();
    api::query::first(query, "resourceVersion").is_some_and(|revision| !revision.is_empty())
}

fn tell(response: &mut Response, server: &ServerId, rule: u8) {
    if let Ok(name) = HeaderValue::from_str(server.as_str()) {
        response.headers_mut().insert(SERVED_BY, name);
    }
    response.headers_mut().insert(ROUTING_RULE, HeaderValue::from(u16::from(rule)));
}
