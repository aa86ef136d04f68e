//! Tells a response to the request from a failure of the peer.
//!
//! A response about the request (403, 409, 429, 500 and so on) passes to the client. A response about the peer itself does not:
//! it does not serve the resource, does not trust us, is not ready, or redirects. Responses of processes behind the peer always
//! pass.

mod status_details;

use std::time::Duration;

use api::Status;
use bytes::{Bytes, BytesMut};
use http::{Response, StatusCode};
use http_body::Body as _;
use http_body_util::BodyExt as _;
use transport::peer::{PeerBody, PeerConnectionError};

use super::attempt::AttemptFailure;
use super::{Execution, PeerError, ResponseOrigin};
use status_details::has_details_name;

/// How much of a body is read for classification. A Status has a few hundred bytes.
const INSPECTED_BYTES_MAX: usize = 64 << 10;

/// A response that passes to the client.
#[derive(Debug)]
pub(super) enum ClassifiedResponse {
    /// The bytes of the body that were read, and the rest of it.
    Response(Response<(Bytes, Option<PeerBody>)>),
    /// The connection switches protocols.
    Upgrade(Response<PeerBody>),
}

/// Classifies the responses to one request.
pub(super) struct ResponseClassifier {
    pub(super) is_upgrade: bool,
    pub(super) origin: ResponseOrigin,
    /// True if only our certificate proves the user: then a 401 rejects our certificate.
    pub(super) is_vouched_for: bool,
    /// How long the body of an error response may take.
    pub(super) body_timeout: Duration,
}

impl ResponseClassifier {
    /// Reads the body where the status alone does not decide.
    pub(super) async fn classify(&self, response: Response<PeerBody>) -> Result<ClassifiedResponse, AttemptFailure> {
        match (response.status(), self.origin) {
            (StatusCode::SWITCHING_PROTOCOLS, _) if self.is_upgrade => Ok(ClassifiedResponse::Upgrade(response)),
            (StatusCode::SWITCHING_PROTOCOLS, _) => Err((PeerError::UnexpectedUpgrade, Execution::Unknown)),
            (_, ResponseOrigin::ProxiedBackend) => Ok(pass_through(response)),
            // The peer refused before it executed anything.
            (StatusCode::UNAUTHORIZED, _) if self.is_vouched_for => Err((PeerError::Unauthorized, Execution::None)),
            (_, ResponseOrigin::AnyServer) => Ok(pass_through(response)),
            _ if self.needs_body(&response) => {
                let classifying = classify_body(response);
                tokio::time::timeout(self.body_timeout, classifying)
                    .await
                    .unwrap_or(Err((PeerError::Unresponsive, Execution::Unknown)))
            }
            (StatusCode::NOT_MODIFIED, ResponseOrigin::ServingPeer) => Ok(pass_through(response)),
            (status, ResponseOrigin::ServingPeer) if status.is_redirection() => {
                Err((PeerError::Redirect(status), Execution::Unknown))
            }
            (_, ResponseOrigin::ServingPeer) => Ok(pass_through(response)),
        }
    }

    /// True if only the body tells a response from a failure of the peer.
    pub(super) fn needs_body(&self, response: &Response<PeerBody>) -> bool {
        self.origin == ResponseOrigin::ServingPeer
            && matches!(response.status(), StatusCode::NOT_FOUND | StatusCode::SERVICE_UNAVAILABLE)
    }
}

/// A response that passes to the client unread.
pub(super) fn pass_through(response: Response<PeerBody>) -> ClassifiedResponse {
    ClassifiedResponse::Response(response.map(|body| (Bytes::new(), Some(body))))
}

async fn classify_body(response: Response<PeerBody>) -> Result<ClassifiedResponse, AttemptFailure> {
    let (head, mut body) = response.into_parts();
    let inspected = read_inspected_bytes(&mut body)
        .await
        .map_err(|error| (PeerError::ConnectionBroken(error), Execution::Unknown))?;
    match head.status {
        StatusCode::NOT_FOUND if !has_details_name(&inspected) => {
            return Err((PeerError::NotServed, Execution::None));
        }
        StatusCode::SERVICE_UNAVAILABLE
            if Status::from_json(&inspected).is_some_and(|status| status.was_not_executed()) =>
        {
            return Err((PeerError::NotExecuted, Execution::None));
        }
        _ => {}
    }
    let rest = (!body.is_end_stream()).then_some(body);
    Ok(ClassifiedResponse::Response(Response::from_parts(head, (inspected, rest))))
}

/// Reads the body, or its beginning if it is too long to be a Status.
async fn read_inspected_bytes(body: &mut PeerBody) -> Result<Bytes, PeerConnectionError> {
    let mut inspected = BytesMut::new();
    while inspected.len() <= INSPECTED_BYTES_MAX {
        let Some(frame) = body.frame().await else { break };
        if let Some(bytes) = frame?.data_ref() {
            inspected.extend_from_slice(bytes);
        }
    }
    Ok(inspected.freeze())
}
