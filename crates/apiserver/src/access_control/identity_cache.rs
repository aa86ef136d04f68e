//! Caches the authenticated caller of a connection.
//!
//! Most requests on a connection present the same credentials: only the certificate, or a front proxy's headers for the
//! same user. Their identity depends on nothing else and is computed once. Token identities depend on stored objects
//! and on the time; verified tokens have a cache of their own.

use std::sync::Arc;

use access::authentication::{AuthenticationMethod, Authenticator, RequestIdentity};
use http::header::{HeaderMap, HeaderName, HeaderValue};
use parking_lot::Mutex;

use super::AuthenticatedCaller;

/// Requests with more bytes of identity headers are not cached. Bounds the memory per connection.
const IDENTITY_HEADERS_BYTES_MAX: usize = 4 << 10;

/// The last identity of a connection. Part of one verification of its certificate.
#[derive(Debug, Default)]
pub struct IdentityCache(Mutex<Option<CachedIdentity>>);

#[derive(Debug)]
struct CachedIdentity {
    authenticator: Arc<Authenticator>,
    identity_headers: Vec<(HeaderName, HeaderValue)>,
    caller: AuthenticatedCaller,
}

impl IdentityCache {
    /// The cached caller, if authenticator and identity headers are the same as those of the cached request.
    pub(super) fn get(&self, authenticator: &Arc<Authenticator>, headers: &HeaderMap) -> Option<AuthenticatedCaller> {
        let cached = self.0.lock();
        let cached = cached.as_ref().filter(|cached| Arc::ptr_eq(&cached.authenticator, authenticator))?;
        let cached_headers = cached.identity_headers.iter().map(|(name, value)| (name, value));
        identity_headers(headers, authenticator).eq(cached_headers).then(|| cached.caller.clone())
    }

    /// Returns the caller of an identity, and caches it if it depends only on the certificate and headers.
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

/// The headers that carry credentials or name a user.
fn identity_headers<'a>(
    headers: &'a HeaderMap,
    authenticator: &Authenticator,
) -> impl Iterator<Item = (&'a HeaderName, &'a HeaderValue)> {
    headers.iter().filter(|(name, _)| authenticator.is_credential(name.as_str()))
}
