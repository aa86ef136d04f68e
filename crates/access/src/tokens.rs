//! Bearer tokens: the static file, and the JSON web tokens of service accounts.
//!
//! A service account's token is verified once per token and then known by its digest; whether its account and what it is
//! bound to still exist is asked at every use.

mod bound_objects;
mod claims;
mod csv;
mod jwt;
mod key;
pub mod openid;
mod token_cache;
mod token_file;
mod token_issuer;
mod token_verifier;

pub use bound_objects::{BoundObjectKind, BoundObjectState, BoundObjects};
pub use claims::{ClaimedObject, Claims, KubernetesClaims, TokenTimeError};
pub use csv::CsvError;
pub use key::{Algorithm, Jwk, KeyError, SigningKey, VerifyingKey};
pub use token_file::{TokenFile, TokenFileError};
pub use token_issuer::{IssuedToken, TokenIssuer, TokenRequest, TokenRequestError};
pub use token_verifier::{AuthenticatedToken, TokenAuditAnnotation, TokenError, TokenVerifier};

/// The SHA-256 of a token, by which it is known once it was seen.
type TokenDigest = [u8; 32];

fn token_digest(token: &str) -> TokenDigest {
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, token.as_bytes());
    digest.as_ref().try_into().expect("SHA-256 has 32 bytes")
}

#[cfg(test)]
mod tests;
