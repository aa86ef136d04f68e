//! Whether what a peer answers is an answer, or its failure.
//!
//! What a peer says of the request (403, 409, 429, 500 and all else) passes. What it says of itself does not: that it does not
//! serve the resource, does not trust us, is not ready, or wants us elsewhere. What a process behind the peer says always passes.

mod named;

use std::time::Duration;

use api::Status;
use bytes::{Bytes, BytesMut};
use http::{Response, StatusCode};
use http_body::Body as _;
use http_body_util::BodyExt as _;
use transport::peer::{LineError, PeerBody};

use super::attempt::Failed;
use super::{Fault, ResponseOrigin};
use crate::status::{self, Execution};
use named::names_an_object;

/// How much of an answer is looked at. A Status has some hundred bytes.
const LOOKED_AT_MAX: usize = 64 << 10;

/// An answer that goes back to the client.
#[derive(Debug)]
pub(super) enum Judged {
    /// What was read of the body, and what is left of it.
    Answer(Response<(Bytes, Option<PeerBody>)>),
    /// The connection is handed over.
    Switched(Response<PeerBody>),
}

/// By what an answer is judged.
pub(super) struct Lens {
    pub(super) asked_for_upgrade: bool,
    pub(super) origin: ResponseOrigin,
    /// Whether the peer has only our word for who asks: then a 401 is about us.
    pub(super) is_vouched_for: bool,
    /// A peer that begins to say why not must come to the point within this time.
    pub(super) patience: Duration,
}

impl Lens {
    /// Judges an answer.
    pub(super) async fn judge(&self, response: Response<PeerBody>) -> Result<Judged, Failed> {
        match (response.status(), self.origin) {
            (StatusCode::SWITCHING_PROTOCOLS, _) if self.asked_for_upgrade => Ok(Judged::Switched(response)),
            (StatusCode::SWITCHING_PROTOCOLS, _) => Err((Fault::UnaskedUpgrade, Execution::Unknown)),
            (_, ResponseOrigin::ProxiedBackend) => Ok(whole(response)),
            // Refused before anything was looked at.
            (StatusCode::UNAUTHORIZED, _) if self.is_vouched_for => Err((Fault::Unauthorized, Execution::None)),
            (_, ResponseOrigin::AnyServer) => Ok(whole(response)),
            _ if self.reads_body_of(&response) => {
                let judging = judge_body(response);
                tokio::time::timeout(self.patience, judging).await.unwrap_or(Err((Fault::Deaf, Execution::Unknown)))
            }
            (StatusCode::NOT_MODIFIED, ResponseOrigin::ServingPeer) => Ok(whole(response)),
            (status, ResponseOrigin::ServingPeer) if status.is_redirection() => {
                Err((Fault::Redirect(status), Execution::Unknown))
            }
            (_, ResponseOrigin::ServingPeer) => Ok(whole(response)),
        }
    }

    /// Whether the body of a response decides between an answer and a failure of the peer.
    pub(super) fn reads_body_of(&self, response: &Response<PeerBody>) -> bool {
        self.origin == ResponseOrigin::ServingPeer
            && matches!(response.status(), StatusCode::NOT_FOUND | StatusCode::SERVICE_UNAVAILABLE)
    }
}

/// A response that passes to the client as it comes.
pub(super) fn whole(response: Response<PeerBody>) -> Judged {
    Judged::Answer(response.map(|body| (Bytes::new(), Some(body))))
}

async fn judge_body(response: Response<PeerBody>) -> Result<Judged, Failed> {
    let (head, mut body) = response.into_parts();
    let looked_at = look_at(&mut body).await.map_err(|error| (Fault::Broken(error), Execution::Unknown))?;
    match head.status {
        StatusCode::NOT_FOUND if !names_an_object(&looked_at) => {
            return Err((Fault::NotServed, Execution::None));
        }
        StatusCode::SERVICE_UNAVAILABLE
            if Status::from_json(&looked_at).is_some_and(|answer| status::was_handed_back(&answer)) =>
        {
            return Err((Fault::HandedBack, Execution::None));
        }
        _ => {}
    }
    let rest = (!body.is_end_stream()).then_some(body);
    Ok(Judged::Answer(Response::from_parts(head, (looked_at, rest))))
}

/// Reads the body, or so much of it that it is certainly no Status.
async fn look_at(body: &mut PeerBody) -> Result<Bytes, LineError> {
    let mut looked_at = BytesMut::new();
    while looked_at.len() <= LOOKED_AT_MAX {
        let Some(frame) = body.frame().await else { break };
        if let Some(bytes) = frame?.data_ref() {
            looked_at.extend_from_slice(bytes);
        }
    }
    Ok(looked_at.freeze())
}
