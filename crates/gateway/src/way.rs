//! The way from the gateway to any upstream.

use std::net::IpAddr;
use std::sync::Arc;

use api::Status;
use bytes::Bytes;
use edge::access_log::Note;
use edge::{Body, Response};
use http::{HeaderValue, Request};
use peering::forward::{Call, Candidate, Effect, Forwarder, Identity, ResponseOrigin, Span};
use peering::members::State;
use peering::ports::{Fetch, FetchAnswer, FetchFault, FetchRequest, Pending};
use peering::{Cluster, MemberIndex, View};
use transport::peer::BoxError;

use crate::Upstreams;

/// What it takes to have an upstream answer. Clones share it.
#[derive(Clone, Debug)]
pub struct Way {
    /// What is known of the upstreams.
    pub cluster: Arc<Cluster>,
    /// How requests get to them.
    pub forwarder: Forwarder,
    /// The upstreams themselves.
    pub upstreams: Arc<Upstreams>,
}

/// For whom a request goes to an upstream.
pub(crate) struct Errand<'a> {
    pub(crate) user: &'a Identity,
    pub(crate) client: IpAddr,
    pub(crate) audit_id: Option<&'a HeaderValue>,
    pub(crate) effect: Effect,
    pub(crate) origin: ResponseOrigin,
    pub(crate) span: Span,
}

impl Way {
    /// Has any upstream that is ready answer, the newest if it is well.
    pub(crate) async fn ask_anyone<B>(&self, errand: Errand<'_>, request: Request<B>) -> Result<Response, Status>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let candidates = live(&self.cluster.view());
        if candidates.is_empty() {
            return Err(Status::service_unavailable("no upstream is ready").with_retry_after(1));
        }
        let newest = self.upstreams.newest();
        let call = Call {
            candidates: &candidates,
            user: errand.user,
            client: errand.client,
            audit_id: errand.audit_id,
            effect: errand.effect,
            span: errand.span,
            prefers: newest.as_ref(),
            is_brief: false,
            origin: errand.origin,
            marks_hop: false,
            doubt: &|server| self.cluster.doubt(server),
        };
        let note = Note::of(&request);
        match self.forwarder.forward(call, request).await {
            Ok(response) => Ok(response.map(|body| Body::Peer(Box::new(body)))),
            Err(error) => {
                tracing::debug!(%error, "no upstream answered");
                if let Some(note) = note {
                    note.retries(error.retries());
                }
                Err(error.status())
            }
        }
    }
}

fn live(view: &View) -> Vec<Candidate> {
    let members = (0..).map(MemberIndex).zip(view.members());
    let live: Vec<MemberIndex> =
        members.filter(|(_, member)| member.state == State::Live).map(|(index, _)| index).collect();
    Candidate::of(view, &live)
}

/// Asks upstreams for the gateway itself, as a user of its own.
#[derive(Debug)]
pub struct AsGateway {
    /// The way to them.
    pub forwarder: Forwarder,
    /// Who the gateway is to them.
    pub user: Identity,
}

impl Fetch for AsGateway {
    fn fetch(&self, mut request: FetchRequest) -> Pending<'_, FetchAnswer, FetchFault> {
        self.user.write(&mut request.headers);
        self.forwarder.fetch(request)
    }
}
