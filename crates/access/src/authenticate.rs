//! Who is asking: front proxy, client certificate, bearer token, or nobody.
//!
//! Each is tried in this order, and the first that vouches for somebody wins. If one found something wrong and none vouched,
//! the request is refused, even where anonymous requests are let in: whoever shows a bad credential is not nobody.

mod bearer;
mod certificate;
mod front_proxy;

use std::sync::Arc;

use api::Status;
use jiff::Timestamp;

pub(crate) use front_proxy::{extra_values, strip_prefix};

pub use bearer::{BearerTokens, WebsocketError};
pub use certificate::{Certificate, CertificateParts, CertificateSubject};
pub use front_proxy::{Bundles, FrontProxy, FrontProxyError, HeaderNames};

use crate::tokens::{Note, Objects, TokenError};
use crate::user::User;

/// How a server learns who is asking.
#[derive(Debug)]
pub struct Authenticator {
    /// Whom others may vouch for; `None` without `--requestheader-client-ca-file`.
    pub front_proxy: Option<FrontProxy>,
    /// What certificates of users are read for.
    pub certificates: CertificateParts,
    /// Whose tokens are known.
    pub tokens: BearerTokens,
    /// Whether nobody may come in.
    pub anonymous: Anonymous,
}

/// Whether requests without credentials are let in, as `system:anonymous`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Anonymous {
    /// Nowhere.
    No,
    /// Everywhere; what they may is up to authorization.
    Yes,
    /// On these paths only.
    OnPaths(Vec<String>),
}

/// What a request shows, and what became of it so far.
#[derive(Clone, Debug)]
pub struct Shown<'a, Headers> {
    /// The certificate of the connection, judged by `--client-ca-file`.
    pub client: Certificate<'a>,
    /// The same certificate, judged by `--requestheader-client-ca-file`.
    pub front_proxy: Certificate<'a>,
    /// Names and values of all headers, in their order.
    pub headers: Headers,
    /// The decoded path.
    pub path: &'a str,
}

/// Who is asking, and how we know.
#[derive(Clone, Debug, PartialEq)]
pub struct Identity {
    /// Who.
    pub user: Arc<User>,
    /// Who vouches for them.
    pub method: Method,
    /// What belongs into the audit log about the token.
    pub notes: Vec<Note>,
    /// What the client is to be warned of.
    pub warnings: Vec<&'static str>,
    /// The websocket protocols without the one that carried the token, if one did: the request must go on with these.
    pub websocket_protocols: Option<String>,
}

/// Who vouches for a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
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
#[error("{}", describe(errors))]
pub struct Unauthenticated {
    /// What each of those asked found wrong; empty if nothing was shown.
    pub errors: Vec<AuthenticationError>,
}

/// What one of those asked found wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthenticationError {
    /// The certificate is not trusted by a bundle.
    #[error("verifying certificate failed: {0}")]
    Certificate(String),
    /// The certificate is trusted and its subject makes no sense.
    #[error("{0}")]
    Subject(String),
    /// The certificate is trusted and yet may not speak for others.
    #[error("x509: subject with cn={0} is not in the allowed list")]
    NotAllowed(String),
    /// A header that names somebody is not text.
    #[error("the header {0} is not UTF-8")]
    Header(String),
    /// Nobody knows the token.
    #[error("invalid bearer token")]
    UnknownToken,
    /// The token is known and not good.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// The token in a websocket protocol cannot be read.
    #[error(transparent)]
    Websocket(#[from] WebsocketError),
}

impl Authenticator {
    /// Finds out who is asking.
    pub fn authenticate<'a, Headers>(
        &self,
        shown: &Shown<'a, Headers>,
        objects: &dyn Objects,
        now: Timestamp,
    ) -> Result<Identity, Unauthenticated>
    where
        Headers: Iterator<Item = (&'a str, &'a [u8])> + Clone,
    {
        let mut errors = Vec::new();
        let mut warnings = Vec::new();
        let front_proxy = self.front_proxy.as_ref().map_or(Ok(None), |proxy| proxy.user(shown));
        if let Some(user) = keep(front_proxy, &mut errors) {
            return Ok(Identity::new(user, Method::FrontProxy));
        }
        if let Some(user) = keep(shown.client.user(self.certificates), &mut errors) {
            return Ok(Identity::new(user, Method::Certificate));
        }
        let bearer = self.tokens.of_authorization(shown.headers.clone(), &mut warnings, objects, now);
        if let Some(identity) = keep(bearer, &mut errors) {
            return Ok(identity);
        }
        if let Some(identity) = keep(self.tokens.of_websocket(shown.headers.clone(), objects, now), &mut errors) {
            return Ok(identity);
        }
        let is_open = match &self.anonymous {
            Anonymous::No => false,
            Anonymous::Yes => true,
            Anonymous::OnPaths(paths) => paths.iter().any(|path| path == shown.path),
        };
        if errors.is_empty() && is_open {
            return Ok(Identity { warnings, ..Identity::new(User::anonymous(), Method::Anonymous) });
        }
        Err(Unauthenticated { errors })
    }

    /// Whether a header must not travel on: it proves or claims an identity, and from now on the identity speaks for itself.
    pub fn is_credential(&self, header: &str) -> bool {
        header.eq_ignore_ascii_case("authorization")
            || HeaderNames::is_standard(header)
            || self.front_proxy.as_ref().is_some_and(|proxy| proxy.headers.contains(header))
    }
}

impl Identity {
    fn new(user: impl Into<Arc<User>>, method: Method) -> Self {
        let (notes, warnings, websocket_protocols) = (Vec::new(), Vec::new(), None);
        Self { user: user.into(), method, notes, warnings, websocket_protocols }
    }
}

impl Unauthenticated {
    /// The answer to the client, which learns nothing from it.
    pub fn to_status(&self) -> Status {
        Status::unauthorized("Unauthorized")
    }
}

fn keep<T>(found: Result<Option<T>, AuthenticationError>, errors: &mut Vec<AuthenticationError>) -> Option<T> {
    found.unwrap_or_else(|error| {
        errors.push(error);
        None
    })
}

fn describe(errors: &[AuthenticationError]) -> String {
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
fn first<'a>(mut headers: impl Iterator<Item = (&'a str, &'a [u8])>, name: &str) -> Option<&'a [u8]> {
    headers.find(|(header, _)| header.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}

/// A header's value as text. Anything else is refused, since two names must never become one.
fn text(name: &str, value: &[u8]) -> Result<String, AuthenticationError> {
    let text = std::str::from_utf8(value).map_err(|_| AuthenticationError::Header(name.to_owned()))?;
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests;
