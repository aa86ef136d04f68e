//! The OpenID discovery documents, by which relying parties verify this server's tokens.

use serde::Serialize;

use super::key::{Jwk, VerifyingKey};

/// Path of the provider configuration.
pub const CONFIGURATION_PATH: &str = "/.well-known/openid-configuration";
/// Path of the public keys.
pub const JWKS_PATH: &str = "/openid/v1/jwks";
/// The media type of the keys; the configuration is `application/json`.
pub const JWKS_MEDIA_TYPE: &str = "application/jwk-set+json";
/// Cache lifetime of both documents; Kubernetes' value.
pub const MAX_AGE_SECONDS: u32 = 3600;

/// Why the documents cannot be served. Tokens work nonetheless.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenidError {
    /// The issuer is not an https URL.
    #[error("issuer URL must use https scheme, got: {0}")]
    IssuerScheme(String),
    /// The issuer URL has a query.
    #[error("issuer URL may not include a query, got: {0}")]
    IssuerQuery(String),
    /// The issuer URL has a fragment.
    #[error("issuer URL may not include a fragment, got: {0}")]
    IssuerFragment(String),
    /// `--service-account-jwks-uri` is not an https URL.
    #[error("jwksURI requires https scheme, parsed as: {0}")]
    JwksScheme(String),
    /// No public key is configured.
    #[error("no keys provided for validating keyset")]
    NoKeys,
}

/// Both documents, serialized.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenIdDocuments {
    /// Served at `/.well-known/openid-configuration`.
    pub configuration: Vec<u8>,
    /// Served at `/openid/v1/jwks`.
    pub jwks: Vec<u8>,
}

/// Where relying parties fetch the public keys.
#[derive(Clone, Copy, Debug)]
pub enum JwksLocation<'a> {
    /// The URL of `--service-account-jwks-uri`.
    Url(&'a str),
    /// This server, by its advertised host and port.
    ThisServer(&'a str),
}

impl OpenIdDocuments {
    /// Builds the documents for an issuer with these keys.
    pub fn new(issuer: &str, jwks_location: JwksLocation<'_>, keys: &[VerifyingKey]) -> Result<Self, OpenidError> {
        check_issuer(issuer)?;
        let jwks_uri = match jwks_location {
            JwksLocation::Url(url) if url.starts_with("https://") => url.to_owned(),
            JwksLocation::Url(url) => return Err(OpenidError::JwksScheme(url.to_owned())),
            JwksLocation::ThisServer(address) => format!("https://{address}{JWKS_PATH}"),
        };
        if keys.is_empty() {
            return Err(OpenidError::NoKeys);
        }
        let mut algorithms: Vec<&str> = keys.iter().map(|key| key.algorithm().name()).collect();
        algorithms.sort_unstable();
        algorithms.dedup();
        let configuration = OpenIdConfiguration {
            issuer,
            jwks_uri,
            response_types_supported: ["id_token"],
            subject_types_supported: ["public"],
            id_token_signing_alg_values_supported: algorithms,
        };
        let keys = JwkSet { keys: keys.iter().map(VerifyingKey::jwk).collect() };
        Ok(Self { configuration: api::json::to_go_json(&configuration), jwks: api::json::to_go_json(&keys) })
    }
}

#[derive(Serialize)]
struct OpenIdConfiguration<'a> {
    issuer: &'a str,
    jwks_uri: String,
    response_types_supported: [&'static str; 1],
    subject_types_supported: [&'static str; 1],
    id_token_signing_alg_values_supported: Vec<&'a str>,
}

#[derive(Serialize)]
struct JwkSet<'a> {
    keys: Vec<&'a Jwk>,
}

fn check_issuer(issuer: &str) -> Result<(), OpenidError> {
    if !issuer.starts_with("https://") {
        return Err(OpenidError::IssuerScheme(issuer.to_owned()));
    }
    let (before, fragment) = issuer.split_once('#').map_or((issuer, ""), |(before, fragment)| (before, fragment));
    if before.split_once('?').is_some_and(|(_, query)| !query.is_empty()) {
        return Err(OpenidError::IssuerQuery(issuer.to_owned()));
    }
    if fragment.is_empty() { Ok(()) } else { Err(OpenidError::IssuerFragment(issuer.to_owned())) }
}
