//! Who may come in: front proxies, certificates, tokens and nobody, then impersonation, then what rules allow.

mod caller;
mod memory;
mod rules;

use std::sync::Arc;

use access::authenticate::{AuthenticationError, Authenticator, Identity, Method, Shown, Unauthenticated};
use access::impersonate::{Impersonation, ImpersonationError};
use access::tokens::{Note, TokenError};
use access::{Attributes, Decision};
use api::Target;
use edge::audit::{Actors, Trail};
use edge::{Connection, Error, Gate, Request};
use http::header::{HeaderMap, HeaderValue, SEC_WEBSOCKET_PROTOCOL};
use jiff::Timestamp;
use peering::forward::{self, UnsendableUser};
use peering::hop::Sender;
use smallvec::SmallVec;

pub use caller::Caller;
pub use edge::certificates::Bundles;
use edge::certificates::Judged;
use edge::claims::remove;
pub use rules::{Rules, Signing};

use crate::accounts::Accounts;
use memory::Memory;

/// Authentication and authorization of one server.
#[derive(Debug)]
pub struct AccessGate {
    /// By which authorities certificates are judged.
    pub bundles: Bundles,
    /// By which rules people are known and let in.
    pub rules: Arc<Rules>,
    /// What tokens depend on.
    pub accounts: Accounts,
}

impl AccessGate {
    fn authenticate(
        &self,
        authenticator: &Authenticator,
        judged: &Judged,
        request: &Request,
    ) -> Result<Identity, Unauthenticated> {
        let path = request.uri().path();
        let lines = lines(request.headers());
        let headers = lines.iter().copied();
        let shown = Shown { client: judged.client(), front_proxy: judged.front_proxy(), headers, path };
        authenticator.authenticate(&shown, &self.accounts, Timestamp::now())
    }
}

impl Gate for AccessGate {
    type Caller = Caller;

    async fn identify(&self, connection: &Connection, request: &mut Request) -> Result<Caller, Error> {
        let authenticator = self.rules.authenticator.get();
        let judged = self.bundles.judge(connection);
        let memory = judged.derived(|_| Memory::default());
        if let Some(caller) = memory.recall(&authenticator, request.headers()) {
            remove(request.headers_mut(), |name| authenticator.is_credential(name));
            return Ok(caller);
        }
        let mut found = self.authenticate(&authenticator, &judged, request);
        // An account that was made a moment ago through another server is not in the cache yet.
        if found.as_ref().is_err_and(is_early) && self.accounts.catch_up().await {
            found = self.authenticate(&authenticator, &judged, request);
        }
        let identity = found.map_err(|refused| Error::Unauthorized { reason: refused.to_string() })?;
        if let Some(trail) = Trail::of(request) {
            for (key, value) in identity.notes.iter().map(Note::annotation) {
                trail.annotate(key, value);
            }
        }
        let caller = memory.note(&authenticator, request.headers(), &identity);
        strip(request.headers_mut(), &authenticator, &identity);
        Ok(caller)
    }

    fn act_as(&self, caller: Caller, request: &mut Request) -> Result<Caller, Error> {
        if !request.headers().keys().any(|name| Impersonation::is_header(name.as_str())) {
            return Ok(caller);
        }
        let refuse = |error: ImpersonationError| Error::from(error.to_status());
        let wanted = Impersonation::from_headers(&lines(request.headers()).iter().copied()).map_err(refuse)?;
        remove(request.headers_mut(), Impersonation::is_header);
        let Some(wanted) = wanted else { return Ok(caller) };
        let index = self.rules.index.load();
        let user = wanted.authorize(&self.rules.authorizer, &index, &caller.user).map_err(refuse)?;
        Ok(caller.acting_as(user))
    }

    fn authorize(&self, caller: &Caller, target: &Target<'_>, trail: Option<&Trail>) -> Result<(), Error> {
        let index = self.rules.index.load();
        let attributes = Attributes::of(&caller.user, target);
        let decision = self.rules.authorizer.decide(&index, &attributes);
        if let Some(trail) = trail {
            let word = if decision.is_allowed() { "allow" } else { "forbid" };
            trail.annotate("authorization.k8s.io/decision", word);
            trail.annotate("authorization.k8s.io/reason", decision.reason());
        }
        match decision {
            Decision::Allowed(_) => Ok(()),
            Decision::NotAllowed { reason } => Err(access::authorize::forbidden(&attributes, &reason).into()),
        }
    }

    fn actors(&self, caller: &Caller) -> Actors {
        match &caller.impersonator {
            None => Actors { user: Some(caller.user.clone()), impersonated: None },
            Some(asking) => Actors { user: Some(asking.clone()), impersonated: Some(caller.user.clone()) },
        }
    }

    fn sender(&self, caller: &Caller) -> Sender {
        match caller.method {
            Method::FrontProxy => Sender::FrontProxy,
            Method::Certificate | Method::Token | Method::Anonymous => Sender::Other,
        }
    }

    fn identity(&self, caller: &Caller) -> Result<forward::Identity, UnsendableUser> {
        caller.named()
    }
}

/// Whether a token depends on an object that may exist although it is not seen here yet.
fn is_early(refused: &Unauthenticated) -> bool {
    use TokenError::{Invalidated, LegacyInvalidated, NoAccount, Replaced};
    refused.errors.iter().any(|error| match error {
        AuthenticationError::Token(error) => {
            matches!(error, NoAccount(_) | Replaced { .. } | Invalidated | LegacyInvalidated)
        }
        AuthenticationError::Certificate(_)
        | AuthenticationError::Subject(_)
        | AuthenticationError::NotAllowed(_)
        | AuthenticationError::Header(_)
        | AuthenticationError::UnknownToken
        | AuthenticationError::Websocket(_) => false,
    })
}

/// The headers as authentication reads them: more than once, so that they are gathered first.
fn lines(headers: &HeaderMap) -> SmallVec<[(&str, &[u8]); 16]> {
    headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect()
}

/// Removes what proves or claims an identity: from now on the caller speaks for itself.
fn strip(headers: &mut HeaderMap, authenticator: &Authenticator, identity: &Identity) {
    remove(headers, |name| authenticator.is_credential(name));
    if let Some(protocols) = &identity.websocket_protocols {
        // They came in a header, so they fit into one.
        let value = HeaderValue::try_from(protocols).unwrap_or(HeaderValue::from_static(""));
        headers.insert(SEC_WEBSOCKET_PROTOCOL, value);
    }
}

#[cfg(test)]
mod tests;
