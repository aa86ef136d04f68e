//! What travels with a request, and the two values that make a pipeline a server or a gateway.

use std::any::Any;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use api::Target;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use peering::ServerId;
use peering::forward::{ForwardedUser, UnsendableUser};
use peering::hop::RequestSender;
use rustls::pki_types::CertificateDer;
use tokio::time::Instant;

use crate::audit::{AuditedUsers, RequestRecord};
use crate::{Error, Request, Response};

/// What is known of a connection, once for all its requests.
#[derive(Debug)]
pub struct ClientConnection {
    /// Who is at the other end.
    pub client_address: SocketAddr,
    /// The certificates that the client showed, its own first; it holds that one's key, and nothing else is known of them.
    pub certificates: Vec<CertificateDer<'static>>,
    /// What the gate remembers of this connection, so that a certificate is judged once and not per request.
    pub access_cache: Mutex<Option<Arc<dyn Any + Send + Sync>>>,
    /// Who of several servers has answered a read that names a revision: the next such reads go there too, because another
    /// server may be behind it.
    pub sticky_peer: Mutex<Option<ServerId>>,
}

/// One request after it was let in.
pub struct AuthorizedRequest<'a, Caller> {
    /// What it asks for.
    pub target: &'a Target<'a>,
    /// Who asks.
    pub caller: Caller,
    /// When it must be over, unless it is long-running.
    pub deadline: Instant,
}

/// Who may come in, and what for.
pub trait AccessControl: fmt::Debug + Send + Sync + 'static {
    /// Somebody who was identified.
    type Caller: Clone + Send + Sync + 'static;

    /// Who is asking. Removes from the request whatever only the gate may read: credentials and claims of identity.
    fn authenticate(
        &self,
        connection: &ClientConnection,
        request: &mut Request,
    ) -> impl Future<Output = Result<Self::Caller, Error>> + Send;

    /// Whom they ask to act as, if they may; themselves otherwise. Removes the wish from the request.
    fn impersonate(&self, caller: Self::Caller, request: &mut Request) -> Result<Self::Caller, Error>;

    /// Whether they may. Tells the trail why, if there is one.
    fn authorize(
        &self,
        caller: &Self::Caller,
        target: &Target<'_>,
        request_record: Option<&RequestRecord>,
    ) -> Result<(), Error>;

    /// True if the caller may read the page at `path`, one of the pipeline's own. Asked only for pages whose content is not
    /// public, beside the request's own path also for another page that shows the same.
    fn may_read_page(&self, caller: &Self::Caller, request: &Request, path: &str) -> impl Future<Output = bool> + Send {
        // The request's own path was authorized before.
        let is_allowed = || Target::parse("GET", path).is_ok_and(|page| self.authorize(caller, &page, None).is_ok());
        std::future::ready(path == request.uri().path() || is_allowed())
    }

    /// Whom audit events name.
    fn audited_users(&self, caller: &Self::Caller) -> AuditedUsers;

    /// Whom the access log names; `None` if only whoever answers can tell.
    fn user_name(&self, caller: &Self::Caller, _request: &Request) -> Option<String> {
        self.audited_users(caller).user.map(|user| user.name.to_string())
    }

    /// Whether they authenticated as a front proxy, as other servers do: only then their marks on a request are believed.
    fn request_sender(&self, caller: &Self::Caller) -> RequestSender;

    /// Whom a peer is told that the request is for.
    fn forwarded_user(&self, caller: &Self::Caller) -> Result<ForwardedUser, UnsendableUser>;
}

/// What this process itself can serve.
pub trait LocalHandler<Caller>: fmt::Debug + Send + Sync + 'static {
    /// Answers a request that was let in and is to be served here.
    fn serve<'a>(
        &'a self,
        authorized: AuthorizedRequest<'a, Caller>,
        request: Request,
    ) -> BoxFuture<'a, Result<Response, Error>>;
}

impl<Caller: Send + 'static, L: LocalHandler<Caller>> LocalHandler<Caller> for Arc<L> {
    fn serve<'a>(
        &'a self,
        authorized: AuthorizedRequest<'a, Caller>,
        request: Request,
    ) -> BoxFuture<'a, Result<Response, Error>> {
        self.as_ref().serve(authorized, request)
    }
}
