//! The stages of a request, in one function.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use access::user::ANONYMOUS_USER;
use api::Target;
use api::target::TargetError;
use forward::Lifetime;
use futures_util::FutureExt as _;
use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_LENGTH, HeaderValue};
use membership::{Hop, LocalReason};
use tokio::time::Instant;

use crate::access_log::AccessLog;
use crate::audit::{self, AUDIT_ID, Auditor};
use crate::error_response::{Error, status_response};
use crate::handler::{AccessControl, AuthorizedRequest, CachedConnection, LocalHandler};
use crate::health::{HealthChecks, HealthPage};
use crate::metrics::Metrics;
use crate::peer_routing::{Destination, FORWARDING_RULE, PeerRouting};
use crate::record::{Recorder, RequestFailure};
use crate::response::plain_text_response;
use crate::seats::{Seats, is_mutating};
use crate::{Body, Request, RequestRecord, Response};

/// The upper bound of `--request-timeout`.
const REQUEST_TIMEOUT_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// The stages that every request passes, and what they use.
#[derive(Debug)]
pub struct Pipeline<G, L> {
    access_control: G,
    local_handler: L,
    health: HealthChecks,
    recorder: Recorder,
    peer_routing: Option<PeerRouting>,
    seats: Seats,
    request_timeout: Duration,
}

/// Limits of requests in flight and of their duration.
#[derive(Clone, Copy, Debug)]
pub struct RequestLimits {
    /// `--max-requests-inflight`: reads in flight; 0 for no limit.
    pub reads: usize,
    /// `--max-mutating-requests-inflight`: writes in flight; 0 for no limit.
    pub writes: usize,
    /// `--request-timeout`; a request may ask for less.
    pub request_timeout: Duration,
}

impl<G: AccessControl, L: LocalHandler<G::Caller>> Pipeline<G, L> {
    /// A pipeline without logs and peers.
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
            recorder: Recorder { metrics, auditor: None, access_log: None },
            peer_routing: None,
            seats,
            request_timeout,
        }
    }

    /// Adds the audit log.
    pub fn with_auditor(mut self, auditor: Option<Auditor>) -> Self {
        self.recorder.auditor = auditor.map(Arc::new);
        self
    }

    /// Adds the access log.
    pub fn with_access_log(mut self, access_log: Option<AccessLog>) -> Self {
        self.recorder.access_log = access_log;
        self
    }

    /// Adds routing of requests to peers.
    pub fn with_peer_routing(self, peer_routing: Option<PeerRouting>) -> Self {
        Self { peer_routing, ..self }
    }

    /// Turns a request into a response, also after an error or a panic. `target` is its parsed request line.
    pub async fn handle(
        &self,
        connection: &CachedConnection<G::ConnectionCache>,
        target: &Result<Target<'_>, TargetError>,
        mut request: Request,
    ) -> Response {
        let started = Instant::now();
        let id = audit::ensure_audit_id(request.headers_mut());
        let is_head = request.method() == http::Method::HEAD;
        let accept = request.headers().get(ACCEPT).cloned();
        let mut record = self.recorder.start(&id, &connection.client, target.as_ref().ok(), &request);
        let served = match target {
            Ok(target) => self.serve_or_panic(connection, target, request, started, &record).await,
            Err(error) => Err(Error::Malformed(error.to_string())),
        };
        let (mut response, failure) = match served {
            Ok(response) => (response, None),
            Err(error) => {
                let failure = RequestFailure::new(error);
                record.set_error(&failure.status.message);
                let accept = accept.as_ref().and_then(|value| value.to_str().ok()).unwrap_or_default();
                (status_response(&failure.status, accept), Some(failure))
            }
        };
        if let Ok(target) = target {
            self.recorder.record_response(&mut record, target, started, &response, failure.as_ref());
        }
        let headers = response.headers_mut();
        headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-cache, private"));
        headers.insert(AUDIT_ID, id);
        record.attach_to(if is_head { without_body(response) } else { response })
    }

    /// Serves a request and turns a panic into an error.
    async fn serve_or_panic(
        &self,
        connection: &CachedConnection<G::ConnectionCache>,
        target: &Target<'_>,
        request: Request,
        started: Instant,
        record: &RequestRecord,
    ) -> Result<Response, Error> {
        let serving = AssertUnwindSafe(self.serve(connection, target, request, started, record));
        match serving.catch_unwind().await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(error)) => {
                tracing::debug!(line = target.path_and_query(), %error, "request rejected");
                Err(error)
            }
            Err(_) => {
                tracing::error!(line = target.path_and_query(), "request handler panicked");
                Err(Error::Panicked)
            }
        }
    }

    /// Takes a request through its stages. The order of these lines is the contract.
    async fn serve(
        &self,
        connection: &CachedConnection<G::ConnectionCache>,
        target: &Target<'_>,
        mut request: Request,
        started: Instant,
        record: &RequestRecord,
    ) -> Result<Response, Error> {
        let access = &self.access_control;
        let caller = access.authenticate(connection, &mut request, record).await?;
        record.set_user(target, || access.user_name(&caller, &request), || access.audited_users(&caller).user);
        let caller = access.impersonate(caller, &mut request)?;
        record.set_impersonated(|| access.audited_users(&caller).impersonated);
        access.authorize(&caller, target, record).await?;
        let hop = Hop::take_from_headers(request.headers_mut(), access.request_sender(&caller));
        if let Some(page) = self.serve_own_page(&caller, &request, hop).await {
            return page;
        }
        let deadline = started + self.request_timeout_for(target, request.uri().query())?;
        let seat = self.seats.try_acquire(target, deadline)?;
        let destination = self.destination(target, hop).await?;
        record.set_rule(match &destination {
            Destination::Local(why) => why.routing_rule(),
            Destination::Peer(_) => FORWARDING_RULE,
        });
        let response = match destination {
            Destination::Local(why) => {
                let client_ip = connection.client.client_address.ip();
                let authorized = AuthorizedRequest { target, caller, client_ip, deadline, record };
                self.serve_locally(authorized, request, why).await?
            }
            Destination::Peer(peer_destination) => {
                let user = access.forwarded_user(&caller)?;
                let lifetime = if target.is_long_running() { Lifetime::LongRunning } else { Lifetime::Until(deadline) };
                // Boxed because it is large: every request would reserve room for it otherwise.
                Box::pin(peer_destination.forward(&user, &connection.client, lifetime, record, request)).await?
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

    /// Serves health pages, metrics and the pages about the cluster; `None` if the request is for none of them.
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
            return Some(Ok(plain_text_response(
                http::StatusCode::OK,
                self.recorder.metrics.render_page(reads, writes),
            )));
        }
        self.peer_routing.as_ref()?.serve_page(request, hop).await
    }

    /// The timeout of a request: `--request-timeout`, or less if the query asks for less.
    fn request_timeout_for(&self, target: &Target<'_>, query: Option<&str>) -> Result<Duration, Error> {
        if target.is_long_running() {
            return Ok(self.request_timeout);
        }
        let requested = query.and_then(|query| api::query::first_value(query, "timeout"));
        let Some(requested) = requested.filter(|requested| !requested.is_empty()) else {
            return Ok(self.request_timeout);
        };
        // A negative timeout counts as none, as in kube-apiserver.
        let timeout = api::duration::parse_magnitude(&requested).map_err(Error::InvalidTimeout)?;
        let is_requested = !requested.starts_with('-') && !timeout.is_zero();
        Ok(if is_requested { timeout.min(self.request_timeout) } else { self.request_timeout })
    }
}

/// Replaces the body of a response to HEAD by its length. hyper does this for HTTP/1 only.
fn without_body(mut response: Response) -> Response {
    use http_body::Body as _;
    if let Some(length) = response.body().size_hint().exact().filter(|length| *length > 0) {
        response.headers_mut().entry(CONTENT_LENGTH).or_insert(HeaderValue::from(length));
    }
    *response.body_mut() = Body::Empty;
    response
}
