//! Whom a connection's certificate was taken for.
//!
//! A connection carries many requests, and most of them show the same: the certificate alone, or a front proxy's headers for
//! the same user. What follows from these and nothing else is worked out once. Tokens are not among them: they depend on
//! objects and on the time, and have a memory of their own.

use std::sync::Arc;

use access::authentication::{AuthenticationMethod, Authenticator, RequestIdentity};
use http::header::{HeaderMap, HeaderName, HeaderValue};
use parking_lot::Mutex;

use super::AuthenticatedCaller;

/// Claims beyond this are worked out each time, so that no connection holds much.
const IDENTITY_HEADERS_BYTES_MAX: usize = 4 << 10;

/// The last that was found out. Belongs to one verdict on one certificate.
#[derive(Debug, Default)]
pub struct IdentityCache(Mutex<Option<CachedIdentity>>);

#[derive(Debug)]
struct CachedIdentity {
    authenticator: Arc<Authenticator>,
    identity_headers: Vec<(HeaderName, HeaderValue)>,
    caller: AuthenticatedCaller,
}

impl IdentityCache {
    /// Who it is, if the same was shown to the same authenticator before.
    pub(super) fn get(&self, authenticator: &Arc<Authenticator>, headers: &HeaderMap) -> Option<AuthenticatedCaller> {
        let cached = self.0.lock();
        let cached = cached.as_ref().filter(|cached| Arc::ptr_eq(&cached.authenticator, authenticator))?;
        let cached_headers = cached.identity_headers.iter().map(|(name, value)| (name, value));
        identity_headers(headers, authenticator).eq(cached_headers).then(|| cached.caller.clone())
    }

    /// Takes down who it is, if that follows from certificate and headers alone.
    pub(super) fn insert(
        &self,
        authenticator: &Arc<Authenticator>,
        headers: &HeaderMap,
        identity: &RequestIdentity,
    ) -> AuthenticatedCaller {
        let caller = AuthenticatedCaller::from(identity.clone());
        let is_cacheable = match identity.method {
            AuthenticationMethod::Certificate | AuthenticationMethod::FrontProxy => true,
            AuthenticationMethod::Token | AuthenticationMethod::Anonymous => false,
        };
        let size: usize =
            identity_headers(headers, authenticator).map(|(name, value)| name.as_str().len() + value.len()).sum();
        if is_cacheable && size <= IDENTITY_HEADERS_BYTES_MAX {
            let claims =
                identity_headers(headers, authenticator).map(|(name, value)| (name.clone(), value.clone())).collect();
            let cached = CachedIdentity {
                authenticator: authenticator.clone(),
                identity_headers: claims,
                caller: caller.clone(),
            };
            *self.0.lock() = Some(cached);
        }
        caller
    }
}

/// The lines that prove or claim an identity.
fn identity_headers<'a>(
    headers: &'a HeaderMap,
    authenticator: &Authenticator,
) -> impl Iterator<Item = (&'a HeaderName, &'a HeaderValue)> {
    headers.iter().filter(|(name, _)| authenticator.is_credential(name.as_str()))
}
