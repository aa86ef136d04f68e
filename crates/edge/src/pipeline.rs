//! The life of a request, in one function.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use access::user::ANONYMOUS;
use api::{Status, Target, Verb};
use futures_util::FutureExt as _;
use http::header::{CACHE_CONTROL, CONTENT_LENGTH, HeaderValue};
use peering::forward::{Span, UnsendableUser};
use peering::{Hop, Why};
use tokio::time::Instant;

use crate::access_log::{AccessLog, Note};
use crate::audit::{self, AUDIT_ID, Auditor, Ending, Trail};
use crate::call::{Call, Connection, Gate, Local};
use crate::health::{self, Health, HealthPage};
use crate::metrics::Metrics;
use crate::peers::{Errand, FORWARDING_RULE, Peers, Place};
use crate::respond::{Error, respond, status_of};
use crate::seats::{Seats, is_mutating};
use crate::{Body, Request, Response};

/// The longest time that a request may be given: no deadline lies further away, whatever `--request-timeout` says.
const REQUEST_TIMEOUT_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// What every request goes through.
#[derive(Debug)]
pub struct Pipeline<G, L> {
    gate: G,
    local: L,
    health: Health,
    metrics: Metrics,
    auditor: Option<Arc<Auditor>>,
    access_log: Option<AccessLog>,
    peers: Option<Peers>,
    seats: Seats,
    request_timeout: Duration,
}

/// How much the pipeline takes on.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// `--max-requests-inflight`: reads under way at once; 0 for no limit.
    pub reads: usize,
    /// `--max-mutating-requests-inflight`: writes under way at once; 0 for no limit.
    pub writes: usize,
    /// `--request-timeout`: for requests that do not ask for less.
    pub request_timeout: Duration,
}

impl<G: Gate, L: Local<G::Caller>> Pipeline<G, L> {
    /// A pipeline that lets in whom the gate lets in, and serves what the local serves.
    pub fn new(gate: G, local: L, health: Health, metrics: Metrics, limits: Limits) -> Self {
        let request_timeout = limits.request_timeout.min(REQUEST_TIMEOUT_MAX);
        let seats = Seats::new(limits);
        Self { gate, local, health, metrics, auditor: None, access_log: None, peers: None, seats, request_timeout }
    }

    /// The same, with every request recorded.
    pub fn audited(self, auditor: Option<Auditor>) -> Self {
        Self { auditor: auditor.map(Arc::new), ..self }
    }

    /// The same, with a line about every request.
    pub fn logged(self, access_log: Option<AccessLog>) -> Self {
        Self { access_log, ..self }
    }

    /// The same, among others that answer what is not served here.
    pub fn among(self, peers: Option<Peers>) -> Self {
        Self { peers, ..self }
    }

    /// Answers a request, whatever happens.
    pub async fn answer(&self, connection: &Connection, mut request: Request) -> Response {
        let id = audit::identify(request.headers_mut());
        let is_head = request.method() == http::Method::HEAD;
        let mut entry = self.access_log.as_ref().map(|log| log.begin(&id, connection, &mut request));
        let uri = request.uri().clone();
        let line = uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
        let mut response = match Target::parse(request.method().as_str(), line) {
            Err(error) => {
                let status = status_of(Error::Malformed(error.to_string()));
                if let Some(entry) = &entry {
                    entry.note_error(&status.message);
                }
                respond(&status)
            }
            Ok(target) => {
                if let Some(entry) = &mut entry {
                    entry.note_verb(target.verb());
                }
                let trail = self.auditor.as_ref().map(|auditor| {
                    let trail = auditor.follow(&id, connection.peer.ip(), &target, request.headers());
                    request.extensions_mut().insert(trail.clone());
                    trail
                });
                self.answer_parsed(connection, &target, request, trail).await
            }
        };
        let headers = response.headers_mut();
        headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-cache, private"));
        headers.insert(AUDIT_ID, id);
        let response = if is_head { without_body(response) } else { response };
        match entry {
            Some(entry) => entry.follow(response),
            None => response,
        }
    }

    /// Answers a request whose line could be read.
    async fn answer_parsed(
        &self,
        connection: &Connection,
        target: &Target<'_>,
        request: Request,
        trail: Option<Arc<Trail>>,
    ) -> Response {
        let started = Instant::now();
        let note = self.access_log.as_ref().and_then(|_| Note::of(&request));
        let ending = trail.map(Ending::new);
        let (trail_of, note_of) = (ending.as_ref().map(Ending::trail), note.as_deref());
        let serving = AssertUnwindSafe(self.serve(connection, target, request, started, trail_of, note_of));
        let (response, failure) = match serving.catch_unwind().await {
            Ok(Ok(response)) => (response, None),
            Ok(Err(error)) => {
                tracing::debug!(line = target.raw(), %error, "a request was refused");
                refuse(error)
            }
            Err(_) => {
                tracing::error!(line = target.raw(), "a request handler panicked");
                refuse(Error::Panicked)
            }
        };
        self.count(target, &response, started);
        if let (Some(note), Some(failure)) = (&note, &failure) {
            note.error(&failure.status.message);
        }
        match ending {
            Some(ending) => record(ending, target, response, failure.as_ref()),
            None => response,
        }
    }

    /// One request, from its parsed line to its response. The order of these lines is the contract.
    async fn serve(
        &self,
        connection: &Connection,
        target: &Target<'_>,
        mut request: Request,
        started: Instant,
        trail: Option<&Trail>,
        note: Option<&Note>,
    ) -> Result<Response, Error> {
        let caller = self.gate.identify(connection, &mut request).await?;
        if let Some(note) = note {
            note.user(self.gate.named(&caller, &request));
        }
        if let Some(trail) = trail {
            trail.note_user(target, self.gate.actors(&caller).user);
        }
        let caller = self.gate.act_as(caller, &mut request)?;
        if let Some(trail) = trail {
            trail.note_impersonated(self.gate.actors(&caller).impersonated);
        }
        self.gate.authorize(&caller, target, trail)?;
        let hop = Hop::take(request.headers_mut(), self.gate.sender(&caller));
        if let Some(page) = self.page(&caller, &request, hop).await {
            return page;
        }
        let deadline = started + self.timeout_of(target)?;
        let seat = self.seats.take(target, deadline)?;
        let place = self.place(target, hop).await?;
        if let Some(note) = note {
            note.rule(match &place {
                Place::Here(why) => why.rule(),
                Place::Away(_) => FORWARDING_RULE,
            });
        }
        let response = match place {
            Place::Here(why) => self.serve_here(Call { target, caller, deadline }, request, why).await?,
            Place::Away(away) => {
                let unsendable = |error: UnsendableUser| Status::service_unavailable(error.to_string());
                let user = self.gate.identity(&caller).map_err(unsendable)?;
                let span = if target.is_long_running() { Span::Open } else { Span::Until(deadline) };
                // In a box, because it is large and every request would carry the room for it.
                Box::pin(away.forward(&Errand { user, connection, span }, request)).await?
            }
        };
        Ok(match seat {
            Some(seat) => seat.follow(response),
            None => response,
        })
    }

    async fn place<'a>(&'a self, target: &'a Target<'a>, hop: Hop) -> Result<Place<'a>, Error> {
        match &self.peers {
            None => Ok(Place::Here(Why::ServedHere)),
            Some(peers) => Ok(peers.place(target, hop, is_mutating(target)).await?),
        }
    }

    async fn serve_here(&self, call: Call<'_, G::Caller>, request: Request, why: Why) -> Result<Response, Error> {
        let (target, deadline) = (call.target, call.deadline);
        let serving = self.local.serve(call, request);
        let served = if target.is_long_running() {
            serving.await
        } else {
            tokio::time::timeout_at(deadline, serving).await.map_err(|_| Error::TimedOut)?
        };
        match &self.peers {
            None => served,
            Some(peers) => served.map(|response| peers.told(response, why)),
        }
    }

    /// The pages that are the pipeline's own.
    async fn page(&self, caller: &G::Caller, request: &Request, hop: Hop) -> Option<Result<Response, Error>> {
        let uri = request.uri();
        match self.health.serve(uri.path(), uri.query()) {
            None => {}
            Some(HealthPage::Public(page)) => return Some(Ok(page)),
            Some(HealthPage::Restricted { path, public, detailed }) => {
                let is_anonymous = self.gate.named(caller, request).as_deref() == Some(ANONYMOUS);
                let may_read = !is_anonymous && self.gate.shows(caller, request, &path).await;
                return Some(Ok(if may_read { detailed } else { public }));
            }
        }
        let is_metrics = uri.path() == "/metrics";
        let is_ours = is_metrics || self.peers.as_ref().is_some_and(|peers| peers.has_page(uri.path()));
        if !is_ours || !self.gate.shows(caller, request, uri.path()).await {
            return None;
        }
        if is_metrics {
            let (reads, writes) = self.seats.taken();
            return Some(Ok(health::text(http::StatusCode::OK, self.metrics.page(reads, writes))));
        }
        self.peers.as_ref()?.page(request, hop).await
    }

    /// A request may ask for less time than it would get, never for more.
    fn timeout_of(&self, target: &Target<'_>) -> Result<Duration, Error> {
        if target.is_long_running() {
            return Ok(self.request_timeout);
        }
        let query = target.raw().split_once('?').map_or("", |(_, query)| query);
        let Some(asked) = api::query::first(query, "timeout").filter(|asked| !asked.is_empty()) else {
            return Ok(self.request_timeout);
        };
        // A negative timeout counts as none, as in kube-apiserver.
        let positive = asked.strip_prefix('-').unwrap_or(&asked);
        let timeout = api::duration::parse(positive).map_err(|_| {
            let reason = format!("invalid timeout specified in the request URL - time: invalid duration \"{asked}\"");
            Status::bad_request(reason)
        })?;
        let is_asked = positive.len() == asked.len() && !timeout.is_zero();
        Ok(if is_asked { timeout.min(self.request_timeout) } else { self.request_timeout })
    }

    fn count(&self, target: &Target<'_>, response: &Response, started: Instant) {
        let Target::Resource(resource) = target else { return };
        let took = (!target.is_long_running()).then(|| started.elapsed());
        self.metrics.count(verb_label(resource.verb), resource, response.status(), took);
    }
}

/// What a HEAD is answered with: how long the body would be, and no body. HTTP/1 leaves it out by itself, HTTP/2 does not.
fn without_body(mut response: Response) -> Response {
    use http_body::Body as _;
    if let Some(length) = response.body().size_hint().exact().filter(|length| *length > 0) {
        response.headers_mut().entry(CONTENT_LENGTH).or_insert(HeaderValue::from(length));
    }
    *response.body_mut() = Body::Empty;
    response
}

fn refuse(error: Error) -> (Response, Option<Failure>) {
    let sort = match &error {
        Error::Unauthorized { .. } => Sort::Unauthorized,
        Error::Panicked => Sort::Panicked,
        Error::Malformed(_) | Error::Status(_) | Error::Overloaded | Error::TimedOut | Error::ShuttingDown => {
            Sort::Refused
        }
    };
    let status = status_of(error);
    (respond(&status), Some(Failure { sort, status }))
}

/// Why a request did not get what it asked for, for its trail.
struct Failure {
    sort: Sort,
    status: Status,
}

enum Sort {
    Unauthorized,
    Panicked,
    Refused,
}

/// Ends a trail, or has the body of a long response end it.
fn record(mut ending: Ending, target: &Target<'_>, response: Response, failure: Option<&Failure>) -> Response {
    let code = response.status().as_u16();
    let trail = ending.trail();
    match failure {
        Some(Failure { sort: Sort::Unauthorized, status }) => trail.note_unauthorized(target, status),
        Some(Failure { sort: Sort::Panicked, status }) => trail.note_panic(status),
        Some(Failure { sort: Sort::Refused, status }) => trail.note_complete(code, Some(status)),
        None if target.is_long_running() => {
            ending.note_started(code);
            return response.map(|body| Body::Guarded { body: Box::new(body), guard: Box::new(ending) });
        }
        None => trail.note_complete(code, None),
    }
    response
}

/// How kube-apiserver's metrics name a verb.
fn verb_label(verb: Verb) -> &'static str {
    match verb {
        Verb::Get => "GET",
        Verb::List => "LIST",
        Verb::Watch => "WATCH",
        Verb::Create => "POST",
        Verb::Update => "PUT",
        Verb::Patch => "PATCH",
        Verb::Delete => "DELETE",
        Verb::DeleteCollection => "DELETECOLLECTION",
        Verb::Proxy => "PROXY",
        Verb::Unknown => "other",
    }
}
