//! Authentication at the gateway: verified client certificates name the user; every other request passes with its own
//! credentials.
//!
//! The gateway verifies certificates only. Tokens are passed on unchanged, and the upstream that serves a request
//! authorizes it.

use std::net::IpAddr;
use std::sync::OnceLock;

use access::User;
use access::authentication::{
    AuthenticationError, CertificateFieldSet, ClientCertificate, FrontProxy, FrontProxyHeaderNames,
    PresentedCredentials,
};
use access::user::ANONYMOUS_USER;
use api::Target;
use api::headers::BEARER_PROTOCOL_PREFIX;
use edge::audit::AuditedUsers;
use edge::certificate_verification::{CaBundles, CertificateVerification, VerificationCache};
use edge::identity_headers;
use edge::{AccessControl, CachedConnection, Error, Request, RequestRecord};
use forward::{ForwardedUser, UnsendableUser};
use http::Method;
use http::header::{AUTHORIZATION, HeaderMap, SEC_WEBSOCKET_PROTOCOL};
use membership::hop::RequestSender;
use smallvec::SmallVec;

use crate::page_access::PageAccessReviews;

/// Access control of a gateway.
#[derive(Debug)]
pub struct GatewayAccessControl {
    /// CA bundles that verify client certificates.
    pub ca_bundles: CaBundles,
    /// Front proxies in front of the gateway that may name users, if configured.
    pub front_proxy: Option<FrontProxy>,
    /// Identity headers to remove besides the standard ones. An upstream that reads them would trust them, because it
    /// trusts the gateway's front-proxy certificate.
    pub identity_headers: Option<FrontProxyHeaderNames>,
    /// Access reviews for the gateway's own pages.
    pub page_reviews: PageAccessReviews,
}

/// An authenticated caller, or one whose credentials the upstream authenticates.
#[derive(Clone, Debug)]
pub struct GatewayCaller {
    /// How the request names its user to an upstream.
    pub user: ForwardedUser,
    /// IP address of the client.
    pub client_ip: IpAddr,
}

impl AccessControl for GatewayAccessControl {
    type Caller = GatewayCaller;
    type ConnectionCache = GatewayConnectionCache;

    async fn authenticate(
        &self,
        connection: &CachedConnection<GatewayConnectionCache>,
        request: &mut Request,
        _record: &RequestRecord,
    ) -> Result<GatewayCaller, Error> {
        let identity = match self.vouched_user(connection, request) {
            Ok(Some(identity)) => identity?,
            Ok(None) => ForwardedUser::with_client_credentials(),
            // A bearer token counts even if the certificate is not trusted.
            Err(_) if has_bearer_token(request.headers()) => ForwardedUser::with_client_credentials(),
            Err(error) => return Err(Error::Unauthorized { reason: error.to_string() }),
        };
        if let Some(names) = &self.identity_headers {
            identity_headers::remove_headers(request.headers_mut(), |name| names.contains(name));
        }
        Ok(GatewayCaller { user: identity, client_ip: connection.client.client_address.ip() })
    }

    /// Impersonation headers are passed on; the upstream authorizes them.
    fn impersonate(&self, caller: GatewayCaller, _request: &mut Request) -> Result<GatewayCaller, Error> {
        Ok(caller)
    }

    async fn authorize(
        &self,
        _caller: &GatewayCaller,
        _target: &Target<'_>,
        _record: &RequestRecord,
    ) -> Result<(), Error> {
        Ok(())
    }

    async fn may_read_page(&self, caller: &GatewayCaller, request: &Request, path: &str) -> bool {
        // An upstream serves CORS preflights: only upstreams know the allowed origins.
        if request.method() == Method::OPTIONS {
            return false;
        }
        self.page_reviews.is_allowed(caller, path, request.headers()).await
    }

    fn audited_users(&self, _caller: &GatewayCaller) -> AuditedUsers {
        AuditedUsers::default()
    }

    /// Name for the access log: `None` for a token, which only the upstream can resolve.
    fn user_name(&self, caller: &GatewayCaller, request: &Request) -> Option<String> {
        let name = caller.user.name().map(str::to_owned);
        name.or_else(|| (!has_bearer_token(request.headers())).then(|| ANONYMOUS_USER.to_owned()))
    }

    /// No server forwards to a gateway, so a peer header from a client is ignored.
    fn request_sender(&self, _caller: &GatewayCaller) -> RequestSender {
        RequestSender::Other
    }

    fn forwarded_user(&self, caller: &GatewayCaller) -> Result<ForwardedUser, UnsendableUser> {
        Ok(caller.user.clone())
    }
}

impl GatewayAccessControl {
    /// The user named by a trusted front proxy's headers, else by the client certificate.
    fn vouched_user(&self, connection: &CachedConnection<GatewayConnectionCache>, request: &Request) -> VouchedUser {
        if connection.client.certificates.is_empty() {
            return Ok(None);
        }
        let verification = self.ca_bundles.verify(connection);
        let front_proxy_user = match &self.front_proxy {
            None => Ok(None),
            Some(front_proxy) => {
                let header_pairs: SmallVec<[(&str, &[u8]); 16]> =
                    request.headers().iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
                let (client, path) = (ClientCertificate::Absent, request.uri().path());
                let headers = header_pairs.iter().copied();
                front_proxy.authenticate(&PresentedCredentials {
                    client_certificate: client,
                    front_proxy_certificate: verification.front_proxy_certificate(),
                    headers,
                    path,
                })
            }
        };
        match (front_proxy_user, verification.client_certificate()) {
            (Ok(Some(user)), _) => Ok(Some(to_forwarded_user(&user))),
            (_, ClientCertificate::Verified(_) | ClientCertificate::Untrusted(_)) => {
                verification.derived.get_or_init(|| vouched_certificate_user(&verification)).clone()
            }
            (Ok(None), ClientCertificate::Absent) => Ok(None),
            (Err(error), ClientCertificate::Absent) => Err(error),
        }
    }
}

/// User to forward under the gateway's front-proxy certificate. `None` without a certificate; the inner error is a user
/// that HTTP headers cannot carry.
pub type VouchedUser = Result<Option<Result<ForwardedUser, UnsendableUser>>, AuthenticationError>;

/// Per-connection cache of the verified certificate and the user it names.
pub type GatewayConnectionCache = VerificationCache<OnceLock<VouchedUser>>;

/// The user that the client certificate names; constant for a connection, so the result is cached.
fn vouched_certificate_user(verification: &CertificateVerification<OnceLock<VouchedUser>>) -> VouchedUser {
    match verification.client_certificate() {
        ClientCertificate::Absent => Ok(None),
        ClientCertificate::Untrusted(reason) => Err(AuthenticationError::UntrustedCertificate(reason.to_owned())),
        ClientCertificate::Verified(subject) => {
            Ok(subject.user(CertificateFieldSet::ALL)?.map(|user| to_forwarded_user(&user)))
        }
    }
}

/// Converts a user for forwarding. Impersonation headers stay in the request, for the upstream to authorize.
fn to_forwarded_user(user: &User) -> Result<ForwardedUser, UnsendableUser> {
    Ok(identity_headers::to_forwarded_user(user)?.with_impersonation_by_peer())
}

fn has_bearer_token(headers: &HeaderMap) -> bool {
    let protocols = headers.get_all(SEC_WEBSOCKET_PROTOCOL).into_iter().filter_map(|line| line.to_str().ok());
    let mut offered = protocols.flat_map(|line| line.split(',')).map(str::trim);
    headers.contains_key(AUTHORIZATION) || offered.any(|protocol| protocol.starts_with(BEARER_PROTOCOL_PREFIX))
}
