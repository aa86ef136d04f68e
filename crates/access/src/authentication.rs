//! Who is asking: front proxy, client certificate, bearer token, or nobody.
//!
//! Each is tried in this order, and the first that vouches for somebody wins. If one found something wrong and none vouched,
//! the request is refused, even where anonymous requests are let in: whoever shows a bad credential is not nobody.

mod client_certificate;
mod front_proxy;
mod token_authenticator;

use std::sync::Arc;

use api::Status;
use jiff::Timestamp;

pub(crate) use front_proxy::{parse_extra_headers, strip_header_prefix};

pub use client_certificate::{CertificateFieldSet, CertificateSubject, ClientCertificate};
pub use front_proxy::{CaBundleOverlap, FrontProxy, FrontProxyError, FrontProxyHeaderNames};
pub use token_authenticator::{TokenAuthenticator, WebsocketTokenError};

use crate::tokens::{BoundObjects, TokenAuditAnnotation, TokenError};
use crate::user::User;

/// How a server learns who is asking.
#[derive(Debug)]
pub struct Authenticator {
    /// Whom others may vouch for; `None` without `--requestheader-client-ca-file`.
    pub front_proxy: Option<FrontProxy>,
    /// What certificates of users are read for.
    pub certificate_fields: CertificateFieldSet,
    /// Whose tokens are known.
    pub token_authenticator: TokenAuthenticator,
    /// Whether nobody may come in.
    pub anonymous: AnonymousAccess,
}

/// Whether requests without credentials are let in, as `system:anonymous`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnonymousAccess {
    /// Nowhere.
    Disabled,
    /// Everywhere; what they may is up to authorization.
    Enabled,
    /// On these paths only.
    OnlyPaths(Vec<String>),
}

/// What a request shows, and what became of it so far.
#[derive(Clone, Debug)]
pub struct PresentedCredentials<'a, Headers> {
    /// The certificate of the connection, judged by `--client-ca-file`.
    pub client_certificate: ClientCertificate<'a>,
    /// The same certificate, judged by `--requestheader-client-ca-file`.
    pub front_proxy_certificate: ClientCertificate<'a>,
    /// Names and values of all headers, in their order.
    pub headers: Headers,
    /// The decoded path.
    pub path: &'a str,
}

/// Who is asking, and how we know.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestIdentity {
    /// Who.
    pub user: Arc<User>,
    /// Who vouches for them.
    pub method: AuthenticationMethod,
    /// What belongs into the audit log about the token.
    pub audit_annotations: Vec<TokenAuditAnnotation>,
    /// What the client is to be warned of.
    pub warnings: Vec<&'static str>,
    /// The websocket protocols without the one that carried the token, if one did: the request must go on with these.
    pub websocket_protocols: Option<String>,
}

/// Who vouches for a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthenticationMethod {
    /// A front proxy, that is, another API server. Only then are its marks on the request believed.
    FrontProxy,
    /// A certificate of the user's own.
    Certificate,
    /// A token.
    Token,
    /// Nobody.
    Anonymous,
}

/// Nobody vouched for the user. Tells the log what was wrong; the client only hears that it was.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", join_distinct_messages(errors))]
pub struct Unauthenticated {
    /// What each of those asked found wrong; empty if nothing was shown.
    pub errors: Vec<AuthenticationError>,
}

/// What one of those asked found wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthenticationError {
    /// The certificate is not trusted by a bundle.
    #[error("verifying certificate failed: {0}")]
    UntrustedCertificate(String),
    /// The certificate is trusted and its subject makes no sense.
    #[error("{0}")]
    InvalidSubject(String),
    /// The certificate is trusted and yet may not speak for others.
    #[error("x509: subject with cn={0} is not in the allowed list")]
    CommonNameNotAllowed(String),
    /// A header that names somebody is not text.
    #[error("the header {0} is not UTF-8")]
    HeaderNotUtf8(String),
    /// Nobody knows the token.
    #[error("invalid bearer token")]
    UnknownToken,
    /// The token is known and not good.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// The token in a websocket protocol cannot be read.
    #[error(transparent)]
    Websocket(#[from] WebsocketTokenError),
}

impl Authenticator {
    /// Finds out who is asking.
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

    /// Whether a header must not travel on: it proves or claims an identity, and from now on the identity speaks for itself.
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

impl Unauthenticated {
    /// The answer to the client, which learns nothing from it.
    pub fn to_status(&self) -> Status {
        Status::unauthorized("Unauthorized")
    }
}

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
        0 => "no credentials were shown".to_owned(),
        1 => messages.remove(0),
        _ => format!("[{}]", messages.join(", ")),
    }
}

/// The first value of a header, which alone counts where one is expected.
fn first_header_value<'a>(mut headers: impl Iterator<Item = (&'a str, &'a [u8])>, name: &str) -> Option<&'a [u8]> {
    headers.find(|(header, _)| header.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}

/// A header's value as text. Anything else is refused, since two names must never become one.
fn utf8_header_value(name: &str, value: &[u8]) -> Result<String, AuthenticationError> {
    let text = std::str::from_utf8(value).map_err(|_| AuthenticationError::HeaderNotUtf8(name.to_owned()))?;
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests;
