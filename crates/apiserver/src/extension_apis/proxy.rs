//! Proxies requests to extension API servers. Responses to requests that cannot be proxied are pages as in kube-apiserver.

use api::Target;
use edge::response::plain_text_response;
use edge::routing_status::forward_error_status;
use edge::{AuthorizedRequest, Body, Error, Request, Response};
use forward::{
    Candidate, Effect, ForwardError, ForwardRequest, Lifetime, PeerError, PeerFailure, RespondingPeer, ResponseOrigin,
};
use http::header::LOCATION;
use http::{Method, StatusCode};

use super::client::CandidateError;
use super::{ExtensionApi, FIRST_CHECK_TIMEOUT, ForwardedRedirects, LiveExtensionApis};
use crate::access_control::AuthenticatedCaller;

/// kube-apiserver's page for a service that is not available or has no address.
const UNAVAILABLE: &str = "service unavailable";
const REDIRECT_REJECTED: &str = "the backend attempted to redirect this request, which is not permitted";

impl LiveExtensionApis {
    /// Sends a request to an endpoint of the extension API server and returns its response. A read that fails is sent to the next
    /// endpoint; a write that may have been executed is not.
    pub(crate) async fn proxy(
        &self,
        api: &ExtensionApi,
        call: &AuthorizedRequest<'_, AuthenticatedCaller>,
        request: Request,
    ) -> Result<Response, Error> {
        let Some(client) = &self.client else { return Ok(error_page(StatusCode::SERVICE_UNAVAILABLE, UNAVAILABLE)) };
        if !self.is_available(api).await {
            return Ok(error_page(StatusCode::SERVICE_UNAVAILABLE, UNAVAILABLE));
        }
        let server = &api.api_service.server;
        let candidates = match client.candidates(server) {
            Ok(candidates) => candidates,
            Err(CandidateError::Unresolved(error)) => {
                tracing::debug!(service = server.server_name(), error, "service of extension API server not resolved");
                self.report_failure(api);
                return Ok(error_page(StatusCode::SERVICE_UNAVAILABLE, UNAVAILABLE));
            }
            Err(CandidateError::Tls(error)) => return Ok(error_page(StatusCode::INTERNAL_SERVER_ERROR, &error)),
        };
        let user = call.caller.forward_identity()?;
        let (effect, origin) = effect_and_origin(call.target, request.method());
        let lifetime =
            if call.target.is_long_running() { Lifetime::LongRunning } else { Lifetime::Until(call.deadline) };
        let forward_request = ForwardRequest {
            candidates: &candidates,
            ..ForwardRequest::new(&user, call.client_ip, effect, origin, lifetime)
        };
        match client.forwarder.forward(forward_request, request).await {
            Ok(response) => {
                let is_redirect = response.status().is_redirection() && response.headers().contains_key(LOCATION);
                if is_redirect && client.redirects == ForwardedRedirects::Rejected {
                    return Ok(error_page(StatusCode::BAD_GATEWAY, REDIRECT_REJECTED));
                }
                let mut response = response.map(|body| Body::Peer(Box::new(body)));
                // It names members: this server answers for the extension server.
                response.extensions_mut().remove::<RespondingPeer>();
                Ok(response)
            }
            Err(error) => {
                tracing::debug!(api_service = api.api_service.name(), %error, "proxying to extension API server failed");
                call.record.set_retries(error.retries());
                self.report_failure(api);
                forward_error_response(&error, &candidates, &server.server_name())
            }
        }
    }

    /// Whether the extension server can be reached, after its first check.
    async fn is_available(&self, api: &ExtensionApi) -> bool {
        if let Some(judged) = &api.availability {
            return judged.is_available();
        }
        let name = api.api_service.name();
        let mut snapshots = self.snapshots();
        let judged = snapshots.wait_for(|apis| apis.get_by_name(&name).is_none_or(|api| api.availability.is_some()));
        match tokio::time::timeout(FIRST_CHECK_TIMEOUT, judged).await {
            Ok(Ok(apis)) => apis.get_by_name(&name).is_some_and(|api| api.is_available()),
            Ok(Err(_)) | Err(_) => false,
        }
    }

    /// Has the extension server checked at once.
    fn report_failure(&self, api: &ExtensionApi) {
        // A full queue holds enough failures to check again.
        let _ = self.failures.try_send(api.api_service.name());
    }
}

fn effect_and_origin(target: &Target<'_>, method: &Method) -> (Effect, ResponseOrigin) {
    match target {
        Target::Resource(resource) if resource.reaches_backend() => {
            (Effect::for_resource(resource), ResponseOrigin::ProxiedBackend)
        }
        Target::Resource(_) | Target::NonResource(_) => {
            let is_safe = [Method::GET, Method::HEAD, Method::OPTIONS].contains(method);
            (if is_safe { Effect::Reads } else { Effect::Writes }, ResponseOrigin::AnyServer)
        }
    }
}

fn forward_error_response(
    error: &ForwardError,
    candidates: &[Candidate],
    server_name: &str,
) -> Result<Response, Error> {
    match error {
        ForwardError::TimedOut { .. } => Err(Error::TimedOut),
        ForwardError::ClientAborted | ForwardError::Overloaded(_) => Err(forward_error_status(error).into()),
        ForwardError::NoEndpoint | ForwardError::NotVouched => {
            Ok(error_page(StatusCode::SERVICE_UNAVAILABLE, UNAVAILABLE))
        }
        ForwardError::Failed { failures, .. } => {
            let reason = failures.last().map(|failure| failure_reason(failure, candidates, server_name));
            let text = format!("error trying to reach service: {}", reason.unwrap_or_default());
            Ok(error_page(StatusCode::SERVICE_UNAVAILABLE, &text))
        }
    }
}

/// Why an endpoint failed, in the words of Go's HTTP client.
fn failure_reason(failure: &PeerFailure, candidates: &[Candidate], server_name: &str) -> String {
    let address = candidates.iter().find(|candidate| candidate.id == failure.id).map(|candidate| &candidate.address);
    match (&failure.error, address) {
        (PeerError::Dial(error), Some(address)) => {
            webhook::dial_reason(error, address.host(), address.port(), server_name)
        }
        (PeerError::ConnectionBroken(error), _) => webhook::connection_reason(error),
        (error, _) => error.to_string(),
    }
}

fn error_page(status: StatusCode, text: &str) -> Response {
    plain_text_response(status, format!("{text}\n"))
}
