//! Who comes in: those whose certificate we verified, by their names; everybody else as whoever the upstream takes them for.
//!
//! The gateway judges certificates and nothing else. A token is passed on untouched, and what anybody may do is for the
//! upstream that answers to decide.

use std::net::IpAddr;

use access::User;
use access::authentication::{
    AuthenticationError, CertificateFieldSet, ClientCertificate, FrontProxy, FrontProxyHeaderNames,
    PresentedCredentials,
};
use access::user::ANONYMOUS_USER;
use api::headers::BEARER_PROTOCOL_PREFIX;
use api::{Status, Target};
use edge::audit::{AuditedUsers, RequestRecord};
use edge::certificate_verification::{CaBundles, CertificateVerification};
use edge::identity_headers;
use edge::{AccessControl, ClientConnection, Error, Request};
use http::Method;
use http::header::{AUTHORIZATION, HeaderMap, SEC_WEBSOCKET_PROTOCOL};
use peering::forward::{ForwardedUser, UnsendableUser};
use peering::hop::RequestSender;
use smallvec::SmallVec;

use crate::page_access::PageAccessReviews;

/// The gate of a gateway.
#[derive(Debug)]
pub struct GatewayAccessControl {
    /// By which authorities certificates are judged.
    pub ca_bundles: CaBundles,
    /// Which proxies before us may name users, if any.
    pub front_proxy: Option<FrontProxy>,
    /// Headers, beside those that are always removed, in which somebody may be named. An upstream that reads them would believe
    /// them, because it believes us.
    pub identity_headers: Option<FrontProxyHeaderNames>,
    /// Who may see our own pages.
    pub page_reviews: PageAccessReviews,
}

/// Somebody who comes in.
#[derive(Clone, Debug)]
pub struct GatewayCaller {
    /// Who they are to an upstream.
    pub user: ForwardedUser,
    /// Where they connect from.
    pub client_ip: IpAddr,
}

impl AccessControl for GatewayAccessControl {
    type Caller = GatewayCaller;

    async fn authenticate(&self, connection: &ClientConnection, request: &mut Request) -> Result<GatewayCaller, Error> {
        let identity = match self.vouched_user(connection, request) {
            Ok(Some(identity)) => identity?,
            Ok(None) => ForwardedUser::with_client_credentials(),
            // A certificate that is not believed is no reason to refuse somebody who shows something better.
            Err(_) if has_bearer_token(request.headers()) => ForwardedUser::with_client_credentials(),
            Err(error) => return Err(Error::Unauthorized { reason: error.to_string() }),
        };
        if let Some(names) = &self.identity_headers {
            identity_headers::remove_headers(request.headers_mut(), |name| names.contains(name));
        }
        Ok(GatewayCaller { user: identity, client_ip: connection.client_address.ip() })
    }

    /// The wish travels on, for the upstream to judge.
    fn impersonate(&self, caller: GatewayCaller, _request: &mut Request) -> Result<GatewayCaller, Error> {
        Ok(caller)
    }

    fn authorize(
        &self,
        _caller: &GatewayCaller,
        _target: &Target<'_>,
        _trail: Option<&RequestRecord>,
    ) -> Result<(), Error> {
        Ok(())
    }

    async fn may_read_page(&self, caller: &GatewayCaller, request: &Request, path: &str) -> bool {
        // What a browser asks before it asks: which pages may read answers is for the upstreams to say.
        if request.method() == Method::OPTIONS {
            return false;
        }
        self.page_reviews.is_allowed(caller, path, request.headers()).await
    }

    fn audited_users(&self, _caller: &GatewayCaller) -> AuditedUsers {
        AuditedUsers::default()
    }

    /// Whose a token is, only the upstream can tell.
    fn user_name(&self, caller: &GatewayCaller, request: &Request) -> Option<String> {
        let name = caller.user.name().map(str::to_owned);
        name.or_else(|| (!has_bearer_token(request.headers())).then(|| ANONYMOUS_USER.to_owned()))
    }

    /// Nobody forwards to a gateway: a mark is a client's own invention.
    fn request_sender(&self, _caller: &GatewayCaller) -> RequestSender {
        RequestSender::Other
    }

    fn forwarded_user(&self, caller: &GatewayCaller) -> Result<ForwardedUser, UnsendableUser> {
        Ok(caller.user.clone())
    }
}

impl GatewayAccessControl {
    /// The user that a certificate names: that of a proxy before us another one, any other its own.
    fn vouched_user(&self, connection: &ClientConnection, request: &Request) -> VouchedUser {
        if connection.certificates.is_empty() {
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
                (*verification.get_or_derive(vouched_certificate_user)).clone()
            }
            (Ok(None), ClientCertificate::Absent) => Ok(None),
            (Err(error), ClientCertificate::Absent) => Err(error),
        }
    }
}

/// Whom we vouch for, if that can be said to a peer; nobody, if there is nothing to go by.
type VouchedUser = Result<Option<Result<ForwardedUser, Status>>, AuthenticationError>;

/// The user that a certificate itself names: the same for every request of a connection.
fn vouched_certificate_user(verification: &CertificateVerification) -> VouchedUser {
    match verification.client_certificate() {
        ClientCertificate::Absent => Ok(None),
        ClientCertificate::Untrusted(reason) => Err(AuthenticationError::UntrustedCertificate(reason.to_owned())),
        ClientCertificate::Verified(subject) => {
            Ok(subject.user(CertificateFieldSet::ALL)?.map(|user| to_forwarded_user(&user)))
        }
    }
}

/// Impersonation is for the upstream to judge, as everything is that people may do.
fn to_forwarded_user(user: &User) -> Result<ForwardedUser, Status> {
    let unsendable = |error: UnsendableUser| Status::service_unavailable(error.to_string());
    Ok(identity_headers::to_forwarded_user(user).map_err(unsendable)?.with_impersonation_by_peer())
}

fn has_bearer_token(headers: &HeaderMap) -> bool {
    let protocols = headers.get_all(SEC_WEBSOCKET_PROTOCOL).into_iter().filter_map(|line| line.to_str().ok());
    let mut offered = protocols.flat_map(|line| line.split(',')).map(str::trim);
    headers.contains_key(AUTHORIZATION) || offered.any(|protocol| protocol.starts_with(BEARER_PROTOCOL_PREFIX))
}
