//! JSON Web Tokens in compact form: header, payload and signature, base64url-encoded and joined by dots.

use api::wire::{null_is_default, read};
use aws_lc_rs::error::Unspecified;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

use super::key::SigningKey;

/// A decoded token whose signature is not verified: none of its fields can be trusted.
#[derive(Debug)]
pub(super) struct ParsedJwt<'a> {
    /// The `alg` header.
    pub(super) algorithm: String,
    /// The `kid` header; may be empty.
    pub(super) key_id: String,
    /// The claims, as JSON.
    pub(super) payload: Vec<u8>,
    /// The bytes that the signature covers.
    pub(super) signing_input: &'a [u8],
    pub(super) signature: Vec<u8>,
}

#[derive(Serialize, Deserialize)]
struct JwtHeader {
    #[serde(default, deserialize_with = "null_is_default")]
    alg: String,
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "String::is_empty")]
    kid: String,
}

#[derive(Deserialize)]
struct JwtCriticalHeader {
    #[serde(default)]
    crit: Option<serde_json::Value>,
}

/// Decodes a token; `None` if it is not a signed JWT.
pub(super) fn parse(token: &str) -> Option<ParsedJwt<'_>> {
    let (message, signature) = token.rsplit_once('.')?;
    let (header, payload) = message.split_once('.')?;
    let decode = |part: &str| URL_SAFE_NO_PAD.decode(part).ok();
    let (header, payload, signature) = (decode(header)?, decode(payload)?, decode(signature)?);
    // `crit` lists extensions that must be understood; this parser understands none.
    if read::<JwtCriticalHeader>(&header).ok()?.crit.is_some() {
        return None;
    }
    let JwtHeader { alg, kid } = read(&header).ok()?;
    Some(ParsedJwt { algorithm: alg, key_id: kid, payload, signing_input: message.as_bytes(), signature })
}

/// Signs claims. Fields are sorted, as in Kubernetes' tokens.
pub(super) fn sign(key: &SigningKey, claims: &serde_json::Value) -> Result<String, Unspecified> {
    let header = JwtHeader { alg: key.public().algorithm().name().to_owned(), kid: key.public().id().to_owned() };
    let encode = |json: &[u8]| URL_SAFE_NO_PAD.encode(json);
    let message = format!("{}.{}", encode(&api::json::to_go_json(&header)), encode(&api::json::to_go_json(claims)));
    let signature = key.sign(message.as_bytes())?;
    Ok(format!("{message}.{}", encode(&signature)))
}
