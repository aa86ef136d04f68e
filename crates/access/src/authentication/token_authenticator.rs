//! Bearer tokens, from the `Authorization` header or from a WebSocket subprotocol.

use std::sync::Arc;

use api::headers::BEARER_PROTOCOL_PREFIX;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;

use super::{AuthenticationError, AuthenticationMethod, RequestIdentity, first_header_value};
use crate::tokens::{AuthenticatedToken, BoundObjects, TokenError, TokenFile, TokenVerifier};
use crate::user::User;

/// Authenticates tokens from the static token file and service account tokens.
#[derive(Debug, Default)]
pub struct TokenAuthenticator {
    /// `--token-auth-file`.
    pub token_file: TokenFile,
    /// `None` without service account keys.
    pub token_verifier: Option<TokenVerifier>,
    /// `--api-audiences`: a token must be issued for at least one of these.
    pub audiences: Vec<String>,
}

/// A WebSocket subprotocol carries a malformed bearer token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WebsocketTokenError {
    /// More than one subprotocol carries a token.
    #[error("multiple base64.bearer.authorization tokens specified")]
    MultipleTokens,
    /// Not base64url.
    #[error("invalid base64.bearer.authorization token encoding")]
    InvalidEncoding,
    /// The decoded token is not UTF-8.
    #[error("invalid base64.bearer.authorization token")]
    NotUtf8,
    /// The token is the only offered subprotocol, so the server has none to select.
    #[error("missing additional subprotocol")]
    MissingSubprotocol,
}

impl TokenAuthenticator {
    /// Returns the owner of a token that is valid for one of the audiences; `None` if no authenticator knows the token.
    pub fn authenticate_token(
        &self,
        token: &str,
        audiences: &[String],
        objects: &dyn BoundObjects,
        now: Timestamp,
    ) -> Result<Option<AuthenticatedToken>, TokenError> {
        // Tokens of the file have no audience of their own: they are valid for this server's audiences.
        let common =
            || audiences.iter().filter(|audience| self.audiences.contains(audience)).cloned().collect::<Vec<_>>();
        if let Some(user) = self.token_file.find_user(token) {
            let audiences = common();
            if !audiences.is_empty() || self.audiences.is_empty() {
                return Ok(Some(AuthenticatedToken { user: user.clone(), audiences, audit_annotations: Vec::new() }));
            }
        }
        match &self.token_verifier {
            Some(accounts) => accounts.authenticate(token, audiences, objects, now),
            None => Ok(None),
        }
    }

    /// Authenticates the bearer token of the `Authorization` header; `None` if there is none.
    pub(super) fn authenticate_header<'a>(
        &self,
        headers: impl Iterator<Item = (&'a str, &'a [u8])>,
        warnings: &mut Vec<&'static str>,
        objects: &dyn BoundObjects,
        now: Timestamp,
    ) -> Result<Option<RequestIdentity>, AuthenticationError> {
        let Some(value) = first_header_value(headers, "authorization") else { return Ok(None) };
        let value =
            std::str::from_utf8(value).map_err(|_| AuthenticationError::HeaderNotUtf8("Authorization".to_owned()))?;
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
        self.identify_token(token, objects, now).map(Some)
    }

    /// Authenticates the bearer token in a WebSocket subprotocol; `None` if there is none.
    pub(super) fn authenticate_websocket<'a>(
        &self,
        headers: impl Iterator<Item = (&'a str, &'a [u8])> + Clone,
        objects: &dyn BoundObjects,
        now: Timestamp,
    ) -> Result<Option<RequestIdentity>, AuthenticationError> {
        if !is_websocket_upgrade(headers.clone()) {
            return Ok(None);
        }
        let mut token = None;
        let mut other_protocols = Vec::new();
        let protocol_headers = headers.filter(|(header, _)| header.eq_ignore_ascii_case("sec-websocket-protocol"));
        let protocol_headers = protocol_headers.filter_map(|(_, value)| std::str::from_utf8(value).ok());
        for protocol in protocol_headers.flat_map(|value| value.split(',')).map(str::trim) {
            match protocol.strip_prefix(BEARER_PROTOCOL_PREFIX) {
                None => other_protocols.push(protocol),
                Some(_) if token.is_some() => return Err(WebsocketTokenError::MultipleTokens.into()),
                Some(encoded) => {
                    let bytes = URL_SAFE_NO_PAD.decode(encoded).map_err(|_| WebsocketTokenError::InvalidEncoding)?;
                    token = Some(String::from_utf8(bytes).map_err(|_| WebsocketTokenError::NotUtf8)?);
                }
            }
        }
        let Some(token) = token.filter(|token| !token.is_empty()) else { return Ok(None) };
        if other_protocols.is_empty() {
            return Err(WebsocketTokenError::MissingSubprotocol.into());
        }
        let identity = self.identify_token(&token, objects, now)?;
        Ok(Some(RequestIdentity { websocket_protocols: Some(other_protocols.join(",")), ..identity }))
    }

    /// Authenticates a token for this server's audiences; an unknown token is an error.
    fn identify_token(
        &self,
        token: &str,
        objects: &dyn BoundObjects,
        now: Timestamp,
    ) -> Result<RequestIdentity, AuthenticationError> {
        let authenticated =
            self.authenticate_token(token, &self.audiences, objects, now)?.ok_or(AuthenticationError::UnknownToken)?;
        let user: Arc<User> = authenticated.user;
        let warnings = authenticated.audit_annotations.iter().filter_map(|note| note.client_warning()).collect();
        Ok(RequestIdentity {
            audit_annotations: authenticated.audit_annotations,
            warnings,
            ..RequestIdentity::new(user, AuthenticationMethod::Token)
        })
    }
}

fn is_websocket_upgrade<'a>(headers: impl Iterator<Item = (&'a str, &'a [u8])> + Clone) -> bool {
    let is_upgrade =
        first_header_value(headers.clone(), "upgrade").is_some_and(|value| value.eq_ignore_ascii_case(b"websocket"));
    let mut connection = headers.filter(|(header, _)| header.eq_ignore_ascii_case("connection"));
    is_upgrade
        && connection.any(|(_, value)| {
            value.split(|byte| *byte == b',').any(|token| token.trim_ascii().eq_ignore_ascii_case(b"upgrade"))
        })
}
