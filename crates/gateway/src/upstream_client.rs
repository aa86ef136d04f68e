//! The way from the gateway to any upstream.

use std::net::IpAddr;
use std::sync::Arc;

use api::Status;
use bytes::Bytes;
use edge::access_log::AccessLogFields;
use edge::{Body, Response};
use http::{HeaderValue, Request};
use peering::forward::{Candidate, Effect, ForwardRequest, ForwardedUser, Forwarder, Lifetime, ResponseOrigin};
use peering::members::MemberState;
use peering::ports::{Fetch, FetchError, FetchRequest, FetchResponse, PortFuture};
use peering::{Cluster, MemberIndex, View};
use transport::peer::BoxError;

use crate::Upstreams;

/// What it takes to have an upstream answer. Clones share it.
#[derive(Clone, Debug)]
pub struct UpstreamClient {
    /// What is known of the upstreams.
    pub cluster: Arc<Cluster>,
    /// How requests get to them.
    pub forwarder: Forwarder,
    /// The upstreams themselves.
    pub upstreams: Arc<Upstreams>,
}

/// For whom a request goes to an upstream.
pub(crate) struct UpstreamRequest<'a> {
    pub(crate) user: &'a ForwardedUser,
    pub(crate) client_ip: IpAddr,
    pub(crate) audit_id: Option<&'a HeaderValue>,
    pub(crate) effect: Effect,
    pub(crate) origin: ResponseOrigin,
    pub(crate) lifetime: Lifetime,
}

impl UpstreamClient {
    /// Has any upstream that is ready answer, the newest if it is well.
    pub(crate) async fn forward_to_any<B>(
        &self,
        upstream_request: UpstreamRequest<'_>,
        request: Request<B>,
    ) -> Result<Response, Status>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let candidates = live_candidates(&self.cluster.view());
        if candidates.is_empty() {
            return Err(Status::service_unavailable("no upstream is ready").with_retry_after(1));
        }
        let newest = self.upstreams.newest_ready();
        let forward_request = ForwardRequest {
            candidates: &candidates,
            user: upstream_request.user,
            client_ip: upstream_request.client_ip,
            audit_id: upstream_request.audit_id,
            effect: upstream_request.effect,
            lifetime: upstream_request.lifetime,
            preferred_peer: newest.as_ref(),
            has_short_response: false,
            origin: upstream_request.origin,
            add_hop_mark: false,
            mark_stale: &|server| self.cluster.mark_stale(server),
        };
        let log_fields = AccessLogFields::from_request(&request);
        match self.forwarder.forward(forward_request, request).await {
            Ok(response) => Ok(response.map(|body| Body::Peer(Box::new(body)))),
            Err(error) => {
                tracing::debug!(%error, "no upstream answered");
                if let Some(log_fields) = log_fields {
                    log_fields.set_retries(error.retries());
                }
                Err(error.status())
            }
        }
    }
}

fn live_candidates(view: &View) -> Vec<Candidate> {
    let members = (0..).map(MemberIndex).zip(view.members());
    let live: Vec<MemberIndex> =
        members.filter(|(_, member)| member.state == MemberState::Live).map(|(index, _)| index).collect();
    Candidate::from_members(view, &live)
}

/// Asks upstreams for the gateway itself, as a user of its own.
#[derive(Debug)]
pub struct GatewayFetch {
    /// The way to them.
    pub forwarder: Forwarder,
    /// Who the gateway is to them.
    pub user: ForwardedUser,
}

impl Fetch for GatewayFetch {
    fn fetch(&self, mut request: FetchRequest) -> PortFuture<'_, FetchResponse, FetchError> {
        self.user.write_headers(&mut request.headers);
        self.forwarder.fetch(request)
    }
}
