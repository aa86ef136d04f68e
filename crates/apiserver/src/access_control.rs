//! Authentication by front proxy, client certificate, token or as anonymous; then impersonation; then authorization.

mod access_rules;
mod caller;
mod identity_cache;

use std::sync::Arc;

use access::authentication::{
    AuthenticationError, AuthenticationMethod, Authenticator, PresentedCredentials, RequestIdentity, Unauthenticated,
};
use access::authorization::AccessDenied;
use access::impersonation::{ImpersonatedUser, ImpersonationError};
use access::tokens::{TokenAuditAnnotation, TokenError};
use access::{Attributes, Decision};
use api::Target;
use edge::audit::AuditedUsers;
use edge::{AccessControl, CachedConnection, Error, Request, RequestRecord};
use forward::UnsendableUser;
use http::header::{HeaderMap, HeaderValue, SEC_WEBSOCKET_PROTOCOL};
use jiff::Timestamp;
use membership::hop::RequestSender;
use smallvec::SmallVec;

pub use access_rules::{AccessRules, TokenSigning};
pub use caller::AuthenticatedCaller;
pub use edge::certificate_verification::CaBundles;
use edge::certificate_verification::{CertificateVerification, VerificationCache};
use edge::identity_headers::remove_headers;
pub use identity_cache::IdentityCache;

use crate::bound_objects::CachedBoundObjects;
use crate::error_status;

/// The [`AccessControl`] of an API server.
#[derive(Debug)]
pub struct RbacAccessControl {
    /// The CAs that verify client and front-proxy certificates.
    pub bundles: CaBundles,
    /// The authenticator and authorizer.
    pub access_rules: Arc<AccessRules>,
    /// The objects that service account tokens are bound to.
    pub bound_objects: CachedBoundObjects,
}

impl RbacAccessControl {
    fn authenticate(
        &self,
        authenticator: &Authenticator,
        judged: &CertificateVerification<IdentityCache>,
        request: &Request,
    ) -> Result<RequestIdentity, Unauthenticated> {
        let path = request.uri().path();
        let lines = header_pairs(request.headers());
        let headers = lines.iter().copied();
        let credentials = PresentedCredentials {
            client_certificate: judged.client_certificate(),
            front_proxy_certificate: judged.front_proxy_certificate(),
            headers,
            path,
        };
        authenticator.authenticate(&credentials, &self.bound_objects, Timestamp::now())
    }
}

impl AccessControl for RbacAccessControl {
    type Caller = AuthenticatedCaller;
    type ConnectionCache = VerificationCache<IdentityCache>;

    async fn authenticate(
        &self,
        connection: &CachedConnection<Self::ConnectionCache>,
        request: &mut Request,
        record: &RequestRecord,
    ) -> Result<AuthenticatedCaller, Error> {
        let authenticator = self.access_rules.authenticator.get();
        let judged = self.bundles.verify(connection);
        let identity_cache = &judged.derived;
        if let Some(caller) = identity_cache.get(&authenticator, request.headers()) {
            remove_headers(request.headers_mut(), |name| authenticator.is_credential(name));
            return Ok(caller);
        }
        let mut authenticated = self.authenticate(&authenticator, &judged, request);
        // The cache may not contain an account that was just created through another server.
        if authenticated.as_ref().is_err_and(may_depend_on_unseen_object) && self.bound_objects.catch_up().await {
            authenticated = self.authenticate(&authenticator, &judged, request);
        }
        let identity = authenticated.map_err(|refused| Error::Unauthorized { reason: refused.to_string() })?;
        for (key, value) in identity.audit_annotations.iter().map(TokenAuditAnnotation::key_and_value) {
            record.annotate(key, || value);
        }
        let caller = identity_cache.insert(&authenticator, request.headers(), &identity);
        strip_credentials(request.headers_mut(), &authenticator, &identity);
        Ok(caller)
    }

    fn impersonate(&self, caller: AuthenticatedCaller, request: &mut Request) -> Result<AuthenticatedCaller, Error> {
        if !request.headers().keys().any(|name| ImpersonatedUser::is_impersonation_header(name.as_str())) {
            return Ok(caller);
        }
        let reject = |error: ImpersonationError| Error::from(error_status::status_for_impersonation(&error));
        let impersonated =
            ImpersonatedUser::from_headers(&header_pairs(request.headers()).iter().copied()).map_err(reject)?;
        remove_headers(request.headers_mut(), ImpersonatedUser::is_impersonation_header);
        let Some(impersonated) = impersonated else { return Ok(caller) };
        let index = self.access_rules.index.load();
        let user = impersonated.authorize(&self.access_rules.authorizer, &index, &caller.user).map_err(reject)?;
        Ok(caller.impersonate(user))
    }

    async fn authorize(
        &self,
        caller: &AuthenticatedCaller,
        target: &Target<'_>,
        record: &RequestRecord,
    ) -> Result<(), Error> {
        let index = self.access_rules.index.load();
        let attributes = Attributes::from_target(&caller.user, target);
        let decision = self.access_rules.authorizer.decide(&index, &attributes);
        let word = if decision.is_allowed() { "allow" } else { "forbid" };
        record.annotate("authorization.k8s.io/decision", || word.to_owned());
        record.annotate("authorization.k8s.io/reason", || decision.reason());
        match decision {
            Decision::Allowed(_) => Ok(()),
            Decision::NotAllowed { reason } => {
                Err(error_status::status_for_denied(&AccessDenied::new(&attributes, &reason)).into())
            }
        }
    }

    fn audited_users(&self, caller: &AuthenticatedCaller) -> AuditedUsers {
        match &caller.impersonator {
            None => AuditedUsers { user: Some(caller.user.clone()), impersonated: None },
            Some(asking) => AuditedUsers { user: Some(asking.clone()), impersonated: Some(caller.user.clone()) },
        }
    }

    fn request_sender(&self, caller: &AuthenticatedCaller) -> RequestSender {
        match caller.method {
            AuthenticationMethod::FrontProxy => RequestSender::FrontProxy,
            AuthenticationMethod::Certificate | AuthenticationMethod::Token | AuthenticationMethod::Anonymous => {
                RequestSender::Other
            }
        }
    }

    fn forwarded_user(&self, caller: &AuthenticatedCaller) -> Result<forward::ForwardedUser, UnsendableUser> {
        caller.forward_identity()
    }
}

/// True if authentication may succeed once the cache has caught up: an object that the token is bound to may be too new
/// for it.
fn may_depend_on_unseen_object(failure: &Unauthenticated) -> bool {
    use TokenError::{AccountNotFound, Invalidated, LegacyInvalidated, UidMismatch};
    failure.errors.iter().any(|error| match error {
        AuthenticationError::Token(error) => {
            matches!(error, AccountNotFound(_) | UidMismatch { .. } | Invalidated | LegacyInvalidated)
        }
        AuthenticationError::UntrustedCertificate(_)
        | AuthenticationError::InvalidSubject(_)
        | AuthenticationError::CommonNameNotAllowed(_)
        | AuthenticationError::HeaderNotUtf8(_)
        | AuthenticationError::UnknownToken
        | AuthenticationError::Websocket(_) => false,
    })
}

/// The headers as pairs. Collected, because authentication iterates over them several times.
fn header_pairs(headers: &HeaderMap) -> SmallVec<[(&str, &[u8]); 16]> {
    headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect()
}

/// Removes credentials and identity headers from the request, so that they reach neither handlers nor peers.
fn strip_credentials(headers: &mut HeaderMap, authenticator: &Authenticator, identity: &RequestIdentity) {
    remove_headers(headers, |name| authenticator.is_credential(name));
    if let Some(protocols) = &identity.websocket_protocols {
        // The protocols came from a header, so they are a valid header value.
        let value = HeaderValue::try_from(protocols).unwrap_or(HeaderValue::from_static(""));
        headers.insert(SEC_WEBSOCKET_PROTOCOL, value);
    }
}

#[cfg(test)]
mod tests;
