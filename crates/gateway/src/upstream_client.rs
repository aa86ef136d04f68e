//! Client for requests that any ready upstream can serve.

use std::sync::Arc;

use bytes::Bytes;
use edge::peer_routing::{candidates, mark_stale};
use edge::{Body, Error, RequestRecord, Response};
use forward::{Candidate, ForwardRequest, Forwarder};
use http::Request;
use membership::members::MemberState;
use membership::{Cluster, MemberIndex, ServerId, View};
use transport::peer::BoxError;

use crate::Upstreams;

/// Sends requests to any ready upstream. Clones share the state.
#[derive(Clone, Debug)]
pub struct UpstreamClient {
    /// Cluster view whose live members are the ready upstreams.
    pub cluster: Arc<Cluster>,
    /// Forwarder with the connection pools of the upstreams.
    pub forwarder: Forwarder,
    /// Upstreams with their versions; the newest ready one is preferred.
    pub upstreams: Arc<Upstreams>,
}

impl UpstreamClient {
    /// Forwards a request to any upstream that is ready, preferably the newest.
    pub(crate) async fn forward_to_any<B>(
        &self,
        forward_request: ForwardRequest<'_>,
        record: &RequestRecord,
        request: Request<B>,
    ) -> Result<Response, Error>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let candidates = live_candidates(&self.cluster.view());
        if candidates.is_empty() {
            return Err(Error::NoUpstreamReady);
        }
        let newest = self.upstreams.newest_ready();
        let forward_request = ForwardRequest {
            candidates: &candidates,
            preferred_peer: newest.as_ref().map(ServerId::as_str),
            mark_stale: &|id| mark_stale(&self.cluster, id),
            ..forward_request
        };
        match self.forwarder.forward(forward_request, request).await {
            Ok(response) => Ok(response.map(|body| Body::Peer(Box::new(body)))),
            Err(error) => {
                tracing::debug!(%error, "forward to any upstream failed");
                record.set_retries(error.retries());
                Err(edge::routing_status::forward_error_status(&error).into())
            }
        }
    }
}

fn live_candidates(view: &View) -> Vec<Candidate> {
    let members = (0..).map(MemberIndex).zip(view.members());
    let live: Vec<MemberIndex> =
        members.filter(|(_, member)| member.state == MemberState::Live).map(|(index, _)| index).collect();
    candidates(view, &live)
}
