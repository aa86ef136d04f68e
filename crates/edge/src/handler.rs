//! The two traits in which an API server and a gateway differ, and the values that they get.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use api::Target;
use forward::{ForwardedUser, UnsendableUser};
use futures_util::future::BoxFuture;
use membership::hop::RequestSender;
use parking_lot::Mutex;
use rustls::pki_types::CertificateDer;
use tokio::time::Instant;

use crate::audit::AuditedUsers;
use crate::{Error, Request, RequestRecord, Response};

/// A client connection, shared by all its requests.
#[derive(Debug)]
pub struct ClientConnection {
    /// The address of the client.
    pub client_address: SocketAddr,
    /// The client's certificate chain, leaf first. The handshake proved possession of its key; nothing else is verified.
    pub certificates: Vec<CertificateDer<'static>>,
    /// The peer that served the last read with a resourceVersion. Further ones go to the same peer, because another one may lag
    /// behind it.
    pub sticky_peer: Mutex<Option<Arc<str>>>,
}

/// A connection and what access control keeps with it, so that a certificate is verified once and not per request.
#[derive(Debug)]
pub struct CachedConnection<Cache> {
    /// The connection itself.
    pub client: ClientConnection,
    /// The cache of [`AccessControl`].
    pub cache: Cache,
}

/// An authorized request.
pub struct AuthorizedRequest<'a, Caller> {
    /// The parsed request line.
    pub target: &'a Target<'a>,
    /// The authenticated caller.
    pub caller: Caller,
    /// The address that the client connects from.
    pub client_ip: IpAddr,
    /// The deadline, for requests that are not long-running.
    pub deadline: Instant,
    /// The record to which the handler adds what it learns.
    pub record: &'a RequestRecord,
}

/// Authentication and authorization.
pub trait AccessControl: fmt::Debug + Send + Sync + 'static {
    /// An authenticated caller.
    type Caller: Clone + Send + Sync + 'static;
    /// The state that is kept with each connection.
    type ConnectionCache: Default + Send + Sync + 'static;

    /// Authenticates a request, and removes credentials and identity headers from it.
    fn authenticate(
        &self,
        connection: &CachedConnection<Self::ConnectionCache>,
        request: &mut Request,
        record: &RequestRecord,
    ) -> impl Future<Output = Result<Self::Caller, Error>> + Send;

    /// Applies impersonation headers, and removes them from the request. Without such headers returns the caller.
    fn impersonate(&self, caller: Self::Caller, request: &mut Request) -> Result<Self::Caller, Error>;

    /// Checks that the caller may do this, and records why or why not.
    fn authorize(
        &self,
        caller: &Self::Caller,
        target: &Target<'_>,
        record: &RequestRecord,
    ) -> impl Future<Output = Result<(), Error>> + Send;

    /// True if the caller may read one of the pipeline's own pages that is not public. `path` is the request's own path, or that of
    /// another page with the same content.
    fn may_read_page(&self, caller: &Self::Caller, request: &Request, path: &str) -> impl Future<Output = bool> + Send {
        // The request's own path was authorized before.
        let is_authorized = path == request.uri().path();
        async move {
            if is_authorized {
                return true;
            }
            let Ok(page) = Target::parse("GET", path) else { return false };
            self.authorize(caller, &page, &RequestRecord::default()).await.is_ok()
        }
    }

    /// The users that audit events name.
    fn audited_users(&self, caller: &Self::Caller) -> AuditedUsers;

    /// The user name in the access log; `None` if only the server that responds knows it.
    fn user_name(&self, caller: &Self::Caller, _request: &Request) -> Option<String> {
        self.audited_users(caller).user.map(|user| user.name.to_string())
    }

    /// Whether the caller authenticated as a front proxy, as peers do: only then its hop marks are trusted.
    fn request_sender(&self, caller: &Self::Caller) -> RequestSender;

    /// The user as sent to a peer.
    fn forwarded_user(&self, caller: &Self::Caller) -> Result<ForwardedUser, UnsendableUser>;
}

/// Serves the requests that are not forwarded to a peer.
pub trait LocalHandler<Caller>: fmt::Debug + Send + Sync + 'static {
    /// Serves an authorized request.
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
