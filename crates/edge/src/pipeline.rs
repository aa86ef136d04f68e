//! The life of a request, in one function.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use access::user::ANONYMOUS_USER;
use api::{Status, Target, Verb};
use futures_util::FutureExt as _;
use http::header::{CACHE_CONTROL, CONTENT_LENGTH, HeaderValue};
use peering::forward::{Lifetime, UnsendableUser};
use peering::{Hop, LocalReason};
use tokio::time::Instant;

use crate::access_log::{AccessLog, AccessLogFields};
use crate::audit::{self, AUDIT_ID, Auditor, RequestRecord, RequestRecordGuard};
use crate::error_response::{Error, error_status, status_response};
use crate::handler::{AccessControl, AuthorizedRequest, ClientConnection, LocalHandler};
use crate::health::{self, HealthChecks, HealthPage};
use crate::metrics::Metrics;
use crate::peer_routing::{Destination, FORWARDING_RULE, ForwardContext, PeerRouting};
use crate::seats::{Seats, is_mutating};
use crate::{Body, Request, Response};

/// The longest time that a request may be given: no deadline lies further away, whatever `--request-timeout` says.
const REQUEST_TIMEOUT_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// What every request goes through.
#[derive(Debug)]
pub struct Pipeline<G, L> {
    access_control: G,
    local_handler: L,
    health: HealthChecks,
    metrics: Metrics,
    auditor: Option<Arc<Auditor>>,
    access_log: Option<AccessLog>,
    peer_routing: Option<PeerRouting>,
    seats: Seats,
    request_timeout: Duration,
}

/// How much the pipeline takes on.
#[derive(Clone, Copy, Debug)]
pub struct RequestLimits {
    /// `--max-requests-inflight`: reads under way at once; 0 for no limit.
    pub reads: usize,
    /// `--max-mutating-requests-inflight`: writes under way at once; 0 for no limit.
    pub writes: usize,
    /// `--request-timeout`: for requests that do not ask for less.
    pub request_timeout: Duration,
}

impl<G: AccessControl, L: LocalHandler<G::Caller>> Pipeline<G, L> {
    /// A pipeline that lets in whom the gate lets in, and serves what the local serves.
    pub fn new(
        access_control: G,
        local_handler: L,
        health: HealthChecks,
        metrics: Metrics,
        limits: RequestLimits,
    ) -> Self {
        let request_timeout = limits.request_timeout.min(REQUEST_TIMEOUT_MAX);
        let seats = Seats::new(limits);
        Self {
            access_control,
            local_handler,
            health,
            metrics,
            auditor: None,
            access_log: None,
            peer_routing: None,
            seats,
            request_timeout,
        }
    }

    /// The same, with every request recorded.
    pub fn with_auditor(self, auditor: Option<Auditor>) -> Self {
        Self { auditor: auditor.map(Arc::new), ..self }
    }

    /// The same, with a line about every request.
    pub fn with_access_log(self, access_log: Option<AccessLog>) -> Self {
        Self { access_log, ..self }
    }

    /// The same, among others that answer what is not served here.
    pub fn with_peer_routing(self, peer_routing: Option<PeerRouting>) -> Self {
        Self { peer_routing, ..self }
    }

    /// Answers a request, whatever happens.
    pub async fn handle(&self, connection: &ClientConnection, mut request: Request) -> Response {
        let id = audit::ensure_audit_id(request.headers_mut());
        let is_head = request.method() == http::Method::HEAD;
        let mut entry = self.access_log.as_ref().map(|log| log.start_entry(&id, connection, &mut request));
        let uri = request.uri().clone();
        let path_and_query = uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
        let mut response = match Target::parse(request.method().as_str(), path_and_query) {
            Err(error) => {
                let status = error_status(Error::Malformed(error.to_string()));
                if let Some(entry) = &entry {
                    entry.set_error(&status.message);
                }
                status_response(&status)
            }
            Ok(target) => {
                if let Some(entry) = &mut entry {
                    entry.set_verb(target.verb());
                }
                let request_record = self.auditor.as_ref().map(|auditor| {
                    let request_record =
                        auditor.start_record(&id, connection.client_address.ip(), &target, request.headers());
                    request.extensions_mut().insert(request_record.clone());
                    request_record
                });
                self.handle_parsed(connection, &target, request, request_record).await
            }
        };
        let headers = response.headers_mut();
        headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-cache, private"));
        headers.insert(AUDIT_ID, id);
        let response = if is_head { without_body(response) } else { response };
        match entry {
            Some(entry) => entry.attach_to(response),
            None => response,
        }
    }

    /// Answers a request whose line could be read.
    async fn handle_parsed(
        &self,
        connection: &ClientConnection,
        target: &Target<'_>,
        request: Request,
        request_record: Option<Arc<RequestRecord>>,
    ) -> Response {
        let started = Instant::now();
        let log_fields = self.access_log.as_ref().and_then(|_| AccessLogFields::from_request(&request));
        let record_guard = request_record.map(RequestRecordGuard::new);
        let (request_record, shared_log_fields) =
            (record_guard.as_ref().map(RequestRecordGuard::request_record), log_fields.as_deref());
        let serving =
            AssertUnwindSafe(self.serve(connection, target, request, started, request_record, shared_log_fields));
        let (response, failure) = match serving.catch_unwind().await {
            Ok(Ok(response)) => (response, None),
            Ok(Err(error)) => {
                tracing::debug!(line = target.path_and_query(), %error, "a request was refused");
                failure_response(error)
            }
            Err(_) => {
                tracing::error!(line = target.path_and_query(), "a request handler panicked");
                failure_response(Error::Panicked)
            }
        };
        self.count_request(target, &response, started);
        if let (Some(log_fields), Some(failure)) = (&log_fields, &failure) {
            log_fields.set_error(&failure.status.message);
        }
        match record_guard {
            Some(record_guard) => finish_record(record_guard, target, response, failure.as_ref()),
            None => response,
        }
    }

    /// One request, from its parsed line to its response. The order of these lines is the contract.
    async fn serve(
        &self,
        connection: &ClientConnection,
        target: &Target<'_>,
        mut request: Request,
        started: Instant,
        request_record: Option<&RequestRecord>,
        log_fields: Option<&AccessLogFields>,
    ) -> Result<Response, Error> {
        let caller = self.access_control.authenticate(connection, &mut request).await?;
        if let Some(note) = log_fields {
            note.set_user(self.access_control.user_name(&caller, &request));
        }
        if let Some(trail) = request_record {
            trail.record_user(target, self.access_control.audited_users(&caller).user);
        }
        let caller = self.access_control.impersonate(caller, &mut request)?;
        if let Some(trail) = request_record {
            trail.set_impersonated(self.access_control.audited_users(&caller).impersonated);
        }
        self.access_control.authorize(&caller, target, request_record)?;
        let hop = Hop::take_from_headers(request.headers_mut(), self.access_control.request_sender(&caller));
        if let Some(page) = self.serve_own_page(&caller, &request, hop).await {
            return page;
        }
        let deadline = started + self.request_timeout_for(target)?;
        let seat = self.seats.try_acquire(target, deadline)?;
        let destination = self.destination(target, hop).await?;
        if let Some(note) = log_fields {
            note.set_rule(match &destination {
                Destination::Local(why) => why.rule(),
                Destination::Peer(_) => FORWARDING_RULE,
            });
        }
        let response = match destination {
            Destination::Local(why) => {
                self.serve_locally(AuthorizedRequest { target, caller, deadline }, request, why).await?
            }
            Destination::Peer(peer_destination) => {
                let unsendable = |error: UnsendableUser| Status::service_unavailable(error.to_string());
                let user = self.access_control.forwarded_user(&caller).map_err(unsendable)?;
                let span = if target.is_long_running() { Lifetime::LongRunning } else { Lifetime::Until(deadline) };
                // In a box, because it is large and every request would carry the room for it.
                Box::pin(peer_destination.forward(&ForwardContext { user, connection, lifetime: span }, request))
                    .await?
            }
        };
        Ok(match seat {
            Some(seat) => seat.attach_to(response),
            None => response,
        })
    }

    async fn destination<'a>(&'a self, target: &'a Target<'a>, hop: Hop) -> Result<Destination<'a>, Error> {
        match &self.peer_routing {
            None => Ok(Destination::Local(LocalReason::ServedHere)),
            Some(peers) => Ok(peers.destination(target, hop, is_mutating(target)).await?),
        }
    }

    async fn serve_locally(
        &self,
        authorized: AuthorizedRequest<'_, G::Caller>,
        request: Request,
        reason: LocalReason,
    ) -> Result<Response, Error> {
        let (target, deadline) = (authorized.target, authorized.deadline);
        let serving = self.local_handler.serve(authorized, request);
        let served = if target.is_long_running() {
            serving.await
        } else {
            tokio::time::timeout_at(deadline, serving).await.map_err(|_| Error::TimedOut)?
        };
        match &self.peer_routing {
            None => served,
            Some(peers) => served.map(|response| peers.add_served_by(response, reason)),
        }
    }

    /// The pages that are the pipeline's own.
    async fn serve_own_page(&self, caller: &G::Caller, request: &Request, hop: Hop) -> Option<Result<Response, Error>> {
        let uri = request.uri();
        match self.health.serve(uri.path(), uri.query()) {
            None => {}
            Some(HealthPage::Public(page)) => return Some(Ok(page)),
            Some(HealthPage::Restricted { path, public, detailed }) => {
                let is_anonymous = self.access_control.user_name(caller, request).as_deref() == Some(ANONYMOUS_USER);
                let may_read = !is_anonymous && self.access_control.may_read_page(caller, request, &path).await;
                return Some(Ok(if may_read { detailed } else { public }));
            }
        }
        let is_metrics = uri.path() == "/metrics";
        let is_ours = is_metrics || self.peer_routing.as_ref().is_some_and(|peers| peers.has_page(uri.path()));
        if !is_ours || !self.access_control.may_read_page(caller, request, uri.path()).await {
            return None;
        }
        if is_metrics {
            let (reads, writes) = self.seats.occupied();
            return Some(Ok(health::plain_text_response(
                http::StatusCode::OK,
                self.metrics.render_page(reads, writes),
            )));
        }
        self.peer_routing.as_ref()?.serve_page(request, hop).await
    }

    /// A request may ask for less time than it would get, never for more.
    fn request_timeout_for(&self, target: &Target<'_>) -> Result<Duration, Error> {
        if target.is_long_running() {
            return Ok(self.request_timeout);
        }
        let query = target.path_and_query().split_once('?').map_or("", |(_, query)| query);
        let Some(requested) = api::query::first_value(query, "timeout").filter(|requested| !requested.is_empty())
        else {
            return Ok(self.request_timeout);
        };
        // A negative timeout counts as none, as in kube-apiserver.
        let positive = requested.strip_prefix('-').unwrap_or(&requested);
        let timeout = api::duration::parse(positive).map_err(|_| {
            let reason =
                format!("invalid timeout specified in the request URL - time: invalid duration \"{requested}\"");
            Status::bad_request(reason)
        })?;
        let is_requested = positive.len() == requested.len() && !timeout.is_zero();
        Ok(if is_requested { timeout.min(self.request_timeout) } else { self.request_timeout })
    }

    fn count_request(&self, target: &Target<'_>, response: &Response, started: Instant) {
        let Target::Resource(resource) = target else { return };
        let took = (!target.is_long_running()).then(|| started.elapsed());
        self.metrics.count_request(verb_label(resource.verb), resource, response.status(), took);
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

fn failure_response(error: Error) -> (Response, Option<RequestFailure>) {
    let kind = match &error {
        Error::Unauthorized { .. } => RequestFailureKind::Unauthorized,
        Error::Panicked => RequestFailureKind::Panicked,
        Error::Malformed(_) | Error::Status(_) | Error::Overloaded | Error::TimedOut | Error::ShuttingDown => {
            RequestFailureKind::Rejected
        }
    };
    let status = error_status(error);
    (status_response(&status), Some(RequestFailure { kind, status }))
}

/// Why a request did not get what it asked for, for its trail.
struct RequestFailure {
    kind: RequestFailureKind,
    status: Status,
}

enum RequestFailureKind {
    Unauthorized,
    Panicked,
    Rejected,
}

/// Ends a trail, or has the body of a long response end it.
fn finish_record(
    mut record_guard: RequestRecordGuard,
    target: &Target<'_>,
    response: Response,
    failure: Option<&RequestFailure>,
) -> Response {
    let code = response.status().as_u16();
    let request_record = record_guard.request_record();
    match failure {
        Some(RequestFailure { kind: RequestFailureKind::Unauthorized, status }) => {
            request_record.record_unauthorized(target, status)
        }
        Some(RequestFailure { kind: RequestFailureKind::Panicked, status }) => request_record.record_panic(status),
        Some(RequestFailure { kind: RequestFailureKind::Rejected, status }) => {
            request_record.record_response_complete(code, Some(status))
        }
        None if target.is_long_running() => {
            record_guard.record_response_started(code);
            return response.map(|body| Body::Guarded { body: Box::new(body), guard: Box::new(record_guard) });
        }
        None => request_record.record_response_complete(code, None),
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
