//! Bearer tokens, from the `Authorization` header or from a websocket protocol.

use std::sync::Arc;

use api::headers::BEARER_PROTOCOL_PREFIX;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;

use super::{AuthenticationError, Identity, Method, first};
use crate::tokens::{Authenticated, Objects, TokenError, TokenFile, Verifier};
use crate::user::User;

/// Those whose tokens are known: of the file, and of service accounts.
#[derive(Debug, Default)]
pub struct BearerTokens {
    /// `--token-auth-file`.
    pub file: TokenFile,
    /// Service accounts; `None` without keys.
    pub accounts: Option<Verifier>,
    /// `--api-audiences`: whom tokens must be for to be good here.
    pub audiences: Vec<String>,
}

/// A websocket protocol that should be a token and is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WebsocketError {
    /// Which one counts?
    #[error("multiple base64.bearer.authorization tokens specified")]
    Several,
    /// It is not base64url.
    #[error("invalid base64.bearer.authorization token encoding")]
    Encoding,
    /// It is not text.
    #[error("invalid base64.bearer.authorization token")]
    NotText,
    /// The server must answer with a protocol, and the token is none.
    #[error("missing additional subprotocol")]
    Alone,
}

impl BearerTokens {
    /// Whose token it is, for one of the audiences. `None` if nobody knows it.
    pub fn find(
        &self,
        token: &str,
        audiences: &[String],
        objects: &dyn Objects,
        now: Timestamp,
    ) -> Result<Option<Authenticated>, TokenError> {
        // A token of the file says nothing of audiences, so it is good for those of this server.
        let common =
            || audiences.iter().filter(|audience| self.audiences.contains(audience)).cloned().collect::<Vec<_>>();
        if let Some(user) = self.file.user(token) {
            let audiences = common();
            if !audiences.is_empty() || self.audiences.is_empty() {
                return Ok(Some(Authenticated { user: user.clone(), audiences, notes: Vec::new() }));
            }
        }
        match &self.accounts {
            Some(accounts) => accounts.authenticate(token, audiences, objects, now),
            None => Ok(None),
        }
    }

    pub(super) fn of_authorization<'a>(
        &self,
        headers: impl Iterator<Item = (&'a str, &'a [u8])>,
        warnings: &mut Vec<&'static str>,
        objects: &dyn Objects,
        now: Timestamp,
    ) -> Result<Option<Identity>, AuthenticationError> {
        let Some(value) = first(headers, "authorization") else { return Ok(None) };
        let value = std::str::from_utf8(value).map_err(|_| AuthenticationError::Header("Authorization".to_owned()))?;
        let mut parts = value.trim().splitn(3, ' ');
        let is_bearer = parts.next().is_some_and(|scheme| scheme.eq_ignore_ascii_case("bearer"));
        let Some(token) = parts.next().filter(|_| is_bearer) else { return Ok(None) };
        if token.is_empty() {
            if parts.next().is_some() {
                warnings.push(
                    "the provided Authorization header contains extra space before the bearer token, and is ignored",
                );
            }
            return Ok(None);
        }
        self.identify(token, objects, now).map(Some)
    }

    pub(super) fn of_websocket<'a>(
        &self,
        headers: impl Iterator<Item = (&'a str, &'a [u8])> + Clone,
        objects: &dyn Objects,
        now: Timestamp,
    ) -> Result<Option<Identity>, AuthenticationError> {
        if !is_websocket(headers.clone()) {
            return Ok(None);
        }
        let mut token = None;
        let mut others = Vec::new();
        let offered = headers.filter(|(header, _)| header.eq_ignore_ascii_case("sec-websocket-protocol"));
        let offered = offered.filter_map(|(_, value)| std::str::from_utf8(value).ok());
        for protocol in offered.flat_map(|value| value.split(',')).map(str::trim) {
            match protocol.strip_prefix(BEARER_PROTOCOL_PREFIX) {
                None => others.push(protocol),
                Some(_) if token.is_some() => return Err(WebsocketError::Several.into()),
                Some(encoded) => {
                    let bytes = URL_SAFE_NO_PAD.decode(encoded).map_err(|_| WebsocketError::Encoding)?;
                    token = Some(String::from_utf8(bytes).map_err(|_| WebsocketError::NotText)?);
                }
            }
        }
        let Some(token) = token.filter(|token| !token.is_empty()) else { return Ok(None) };
        if others.is_empty() {
            return Err(WebsocketError::Alone.into());
        }
        let identity = self.identify(&token, objects, now)?;
        Ok(Some(Identity { websocket_protocols: Some(others.join(",")), ..identity }))
    }

    fn identify(&self, token: &str, objects: &dyn Objects, now: Timestamp) -> Result<Identity, AuthenticationError> {
        let found = self.find(token, &self.audiences, objects, now)?.ok_or(AuthenticationError::UnknownToken)?;
        let user: Arc<User> = found.user;
        let warnings = found.notes.iter().filter_map(|note| note.warning()).collect();
        Ok(Identity { notes: found.notes, warnings, ..Identity::new(user, Method::Token) })
    }
}

fn is_websocket<'a>(headers: impl Iterator<Item = (&'a str, &'a [u8])> + Clone) -> bool {
    let is_upgrade = first(headers.clone(), "upgrade").is_some_and(|value| value.eq_ignore_ascii_case(b"websocket"));
    let mut connection = headers.filter(|(header, _)| header.eq_ignore_ascii_case("connection"));
    is_upgrade
        && connection.any(|(_, value)| {
            value.split(|byte| *byte == b',').any(|token| token.trim_ascii().eq_ignore_ascii_case(b"upgrade"))
        })
}
