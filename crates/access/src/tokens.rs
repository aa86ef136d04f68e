//! Bearer tokens: the static file, and the JSON web tokens of service accounts.
//!
//! A service account's token is verified once per token and then known by its digest; whether its account and what it is
//! bound to still exist is asked at every use.

mod cache;
mod claims;
mod csv;
mod file;
mod issuer;
mod jwt;
mod key;
mod objects;
pub mod openid;
mod verifier;

pub use claims::{Claims, KubernetesClaims, OutOfTime, Reference};
pub use csv::CsvError;
pub use file::{TokenFile, TokenFileError};
pub use issuer::{Issued, Issuer, TokenRequest, TokenRequestError};
pub use key::{Algorithm, Jwk, KeyError, SigningKey, VerifyingKey};
pub use objects::{Existing, Kind, Objects};
pub use verifier::{Authenticated, Note, TokenError, Verifier};

/// The SHA-256 of a token, by which it is known once it was seen.
type Digest = [u8; 32];

fn digest(token: &str) -> Digest {
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, token.as_bytes());
    digest.as_ref().try_into().expect("SHA-256 has 32 bytes")
}

#[cfg(test)]
mod tests;
