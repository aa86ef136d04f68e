//! Bearer tokens: the static token file, and JWTs of service accounts.
//!
//! A service account token's signature is verified once and cached by digest. The existence of its account and bound
//! objects is checked at every use.

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

/// The SHA-256 of a token, the key of the token caches.
type TokenDigest = [u8; 32];

fn token_digest(token: &str) -> TokenDigest {
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, token.as_bytes());
    digest.as_ref().try_into().expect("SHA-256 has 32 bytes")
}

#[cfg(test)]
mod tests;
