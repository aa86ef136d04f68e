//! Whom a connection's certificate was taken for.
//!
//! A connection carries many requests, and most of them show the same: the certificate alone, or a front proxy's headers for
//! the same user. What follows from these and nothing else is worked out once. Tokens are not among them: they depend on
//! objects and on the time, and have a memory of their own.

use std::sync::Arc;

use access::authenticate::{Authenticator, Identity, Method};
use http::header::{HeaderMap, HeaderName, HeaderValue};
use parking_lot::Mutex;

use super::Caller;

/// Claims beyond this are worked out each time, so that no connection holds much.
const CLAIMS_BYTES_MAX: usize = 4 << 10;

/// The last that was found out. Belongs to one verdict on one certificate.
#[derive(Debug, Default)]
pub(super) struct Memory(Mutex<Option<Found>>);

#[derive(Debug)]
struct Found {
    by: Arc<Authenticator>,
    claims: Vec<(HeaderName, HeaderValue)>,
    caller: Caller,
}

impl Memory {
    /// Who it is, if the same was shown to the same authenticator before.
    pub(super) fn recall(&self, authenticator: &Arc<Authenticator>, headers: &HeaderMap) -> Option<Caller> {
        let found = self.0.lock();
        let found = found.as_ref().filter(|found| Arc::ptr_eq(&found.by, authenticator))?;
        let known = found.claims.iter().map(|(name, value)| (name, value));
        claims(headers, authenticator).eq(known).then(|| found.caller.clone())
    }

    /// Takes down who it is, if that follows from certificate and headers alone.
    pub(super) fn note(&self, authenticator: &Arc<Authenticator>, headers: &HeaderMap, identity: &Identity) -> Caller {
        let caller = Caller::from(identity.clone());
        let is_lasting = match identity.method {
            Method::Certificate | Method::FrontProxy => true,
            Method::Token | Method::Anonymous => false,
        };
        let size: usize = claims(headers, authenticator).map(|(name, value)| name.as_str().len() + value.len()).sum();
        if is_lasting && size <= CLAIMS_BYTES_MAX {
            let claims = claims(headers, authenticator).map(|(name, value)| (name.clone(), value.clone())).collect();
            let found = Found { by: authenticator.clone(), claims, caller: caller.clone() };
            *self.0.lock() = Some(found);
        }
        caller
    }
}

/// The lines that prove or claim an identity.
fn claims<'a>(
    headers: &'a HeaderMap,
    authenticator: &Authenticator,
) -> impl Iterator<Item = (&'a HeaderName, &'a HeaderValue)> {
    headers.iter().filter(|(name, _)| authenticator.is_credential(name.as_str()))
}
