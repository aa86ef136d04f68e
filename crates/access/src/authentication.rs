//! Authentication: by front proxy, client certificate, bearer token, or as anonymous.
//!
//! The authenticators run in this order and the first one that identifies a user wins. If one of them rejects a
//! credential and none succeeds, the request gets 401 even where anonymous requests are allowed: a bad credential is
//! never treated as none.

mod client_certificate;
mod front_proxy;
mod token_authenticator;

use std::sync::Arc;

use jiff::Timestamp;

pub(crate) use front_proxy::{parse_extra_headers, strip_header_prefix};

pub use client_certificate::{CertificateFieldSet, CertificateSubject, ClientCertificate};
pub use front_proxy::{CaBundleOverlap, FrontProxy, FrontProxyError, FrontProxyHeaderNames};
pub use token_authenticator::{TokenAuthenticator, WebsocketTokenError};

use crate::tokens::{BoundObjects, TokenAuditAnnotation, TokenError};
use crate::user::User;

/// The authenticators of a server.
#[derive(Debug)]
pub struct Authenticator {
    /// `None` without `--requestheader-client-ca-file`.
    pub front_proxy: Option<FrontProxy>,
    /// The fields taken from client certificates.
    pub certificate_fields: CertificateFieldSet,
    /// The static token file and the service account token verifier.
    pub token_authenticator: TokenAuthenticator,
    /// Applies only if the request presents no credential.
    pub anonymous: AnonymousAccess,
}

/// Whether requests without credentials are accepted, as `system:anonymous`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnonymousAccess {
    /// On no path.
    Disabled,
    /// On every path; authorization decides what they are allowed.
    Enabled,
    /// On these paths only.
    OnlyPaths(Vec<String>),
}

/// The credentials of one request, with its certificate already verified by the TLS layer.
#[derive(Clone, Debug)]
pub struct PresentedCredentials<'a, Headers> {
    /// The connection's certificate, verified against `--client-ca-file`.
    pub client_certificate: ClientCertificate<'a>,
    /// The same certificate, verified against `--requestheader-client-ca-file`.
    pub front_proxy_certificate: ClientCertificate<'a>,
    /// Names and values of all headers, in request order.
    pub headers: Headers,
    /// The percent-decoded path.
    pub path: &'a str,
}

/// The user of a request, and how it was authenticated.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestIdentity {
    /// Includes `system:authenticated` or `system:unauthenticated` among its groups.
    pub user: Arc<User>,
    /// The authenticator that succeeded.
    pub method: AuthenticationMethod,
    /// Annotations about the token for the audit log.
    pub audit_annotations: Vec<TokenAuditAnnotation>,
    /// Texts for the response's `Warning` headers.
    pub warnings: Vec<&'static str>,
    /// The offered WebSocket subprotocols without the one that carried the token; replaces the request's header.
    /// `None` if the token came from elsewhere.
    pub websocket_protocols: Option<String>,
}

/// The authenticator that identified the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthenticationMethod {
    /// A front proxy, that is, a peer API server. Only its requests may carry the headers that peers set.
    FrontProxy,
    /// A client certificate.
    Certificate,
    /// A bearer token.
    Token,
    /// No credential.
    Anonymous,
}

/// No authenticator identified the user. The errors are for the log; the client gets a plain 401.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", join_distinct_messages(errors))]
pub struct Unauthenticated {
    /// One error per authenticator that rejected a credential; empty if the request had none.
    pub errors: Vec<AuthenticationError>,
}

/// Why one authenticator rejected a credential.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthenticationError {
    /// The certificate is not signed by the CA bundle, or is expired.
    #[error("verifying certificate failed: {0}")]
    UntrustedCertificate(String),
    /// The certificate is trusted but its subject has invalid fields.
    #[error("{0}")]
    InvalidSubject(String),
    /// The certificate is trusted but its common name is not in `--requestheader-allowed-names`.
    #[error("x509: subject with cn={0} is not in the allowed list")]
    CommonNameNotAllowed(String),
    /// An identity header, given by name, is not UTF-8.
    #[error("the header {0} is not UTF-8")]
    HeaderNotUtf8(String),
    /// No token authenticator knows the token.
    #[error("invalid bearer token")]
    UnknownToken,
    /// A token authenticator recognizes the token and rejects it.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// The token in a WebSocket subprotocol cannot be decoded.
    #[error(transparent)]
    Websocket(#[from] WebsocketTokenError),
}

impl Authenticator {
    /// Identifies the user of a request, or explains why no authenticator could.
    pub fn authenticate<'a, Headers>(
        &self,
        credentials: &PresentedCredentials<'a, Headers>,
        objects: &dyn BoundObjects,
        now: Timestamp,
    ) -> Result<RequestIdentity, Unauthenticated>
    where
        Headers: Iterator<Item = (&'a str, &'a [u8])> + Clone,
    {
        let mut errors = Vec::new();
        let mut warnings = Vec::new();
        let front_proxy = self.front_proxy.as_ref().map_or(Ok(None), |proxy| proxy.authenticate(credentials));
        if let Some(user) = ok_or_record(front_proxy, &mut errors) {
            return Ok(RequestIdentity::new(user, AuthenticationMethod::FrontProxy));
        }
        if let Some(user) = ok_or_record(credentials.client_certificate.user(self.certificate_fields), &mut errors) {
            return Ok(RequestIdentity::new(user, AuthenticationMethod::Certificate));
        }
        let bearer =
            self.token_authenticator.authenticate_header(credentials.headers.clone(), &mut warnings, objects, now);
        if let Some(identity) = ok_or_record(bearer, &mut errors) {
            return Ok(identity);
        }
        if let Some(identity) = ok_or_record(
            self.token_authenticator.authenticate_websocket(credentials.headers.clone(), objects, now),
            &mut errors,
        ) {
            return Ok(identity);
        }
        let allows_anonymous = match &self.anonymous {
            AnonymousAccess::Disabled => false,
            AnonymousAccess::Enabled => true,
            AnonymousAccess::OnlyPaths(paths) => paths.iter().any(|path| path == credentials.path),
        };
        if errors.is_empty() && allows_anonymous {
            return Ok(RequestIdentity {
                warnings,
                ..RequestIdentity::new(User::anonymous(), AuthenticationMethod::Anonymous)
            });
        }
        Err(Unauthenticated { errors })
    }

    /// Reports whether a header carries a credential or an identity claim, and must be removed before the request is
    /// forwarded.
    pub fn is_credential(&self, header: &str) -> bool {
        header.eq_ignore_ascii_case("authorization")
            || FrontProxyHeaderNames::is_standard(header)
            || self.front_proxy.as_ref().is_some_and(|proxy| proxy.headers.contains(header))
    }
}

impl RequestIdentity {
    fn new(user: impl Into<Arc<User>>, method: AuthenticationMethod) -> Self {
        let (notes, warnings, websocket_protocols) = (Vec::new(), Vec::new(), None);
        Self { user: user.into(), method, audit_annotations: notes, warnings, websocket_protocols }
    }
}

/// Returns the user, or records the error and returns `None` so that the next authenticator runs.
fn ok_or_record<T>(result: Result<Option<T>, AuthenticationError>, errors: &mut Vec<AuthenticationError>) -> Option<T> {
    result.unwrap_or_else(|error| {
        errors.push(error);
        None
    })
}

fn join_distinct_messages(errors: &[AuthenticationError]) -> String {
    let mut messages: Vec<String> = Vec::new();
    for error in errors {
        let message = error.to_string();
        if !messages.contains(&message) {
            messages.push(message);
        }
    }
    match messages.len() {
        0 => "no credentials were presented".to_owned(),
        1 => messages.remove(0),
        _ => format!("[{}]", messages.join(", ")),
    }
}

/// Returns the first value of a header that should occur once; Kubernetes ignores the others.
fn first_header_value<'a>(mut headers: impl Iterator<Item = (&'a str, &'a [u8])>, name: &str) -> Option<&'a [u8]> {
    headers.find(|(header, _)| header.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}

/// Decodes a header's value. Rejects non-UTF-8: a lossy conversion could map two user names to one.
fn utf8_header_value(name: &str, value: &[u8]) -> Result<String, AuthenticationError> {
    let text = std::str::from_utf8(value).map_err(|_| AuthenticationError::HeaderNotUtf8(name.to_owned()))?;
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests;
