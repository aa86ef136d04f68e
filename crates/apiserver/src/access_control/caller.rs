//! Somebody who was let in, as handlers see them.

use std::sync::{Arc, OnceLock};

use access::User;
use access::authentication::{AuthenticationMethod, RequestIdentity};
use forward::UnsendableUser;

/// Who asks, and how we know. Clones share it.
#[derive(Clone, Debug)]
pub struct AuthenticatedCaller {
    /// Whom the request is judged and served for.
    pub user: Arc<User>,
    /// Who really asks, where that is somebody else who may act as the user.
    pub impersonator: Option<Arc<User>>,
    /// Who vouches for the one who really asks.
    pub method: AuthenticationMethod,
    /// What the client is to be warned of.
    pub warnings: Vec<&'static str>,
    /// The user as peers are told, once somebody asked.
    forward_identity: Arc<OnceLock<Result<forward::ForwardedUser, UnsendableUser>>>,
}

impl AuthenticatedCaller {
    pub(super) fn impersonate(self, user: User) -> Self {
        Self { user: Arc::new(user), impersonator: Some(self.user), forward_identity: Arc::default(), ..self }
    }

    /// The user as a peer is told.
    pub(super) fn forward_identity(&self) -> Result<forward::ForwardedUser, UnsendableUser> {
        self.forward_identity.get_or_init(|| edge::identity_headers::to_forwarded_user(&self.user)).clone()
    }
}

impl From<RequestIdentity> for AuthenticatedCaller {
    fn from(identity: RequestIdentity) -> Self {
        let RequestIdentity { user, method, warnings, .. } = identity;
        Self { user, impersonator: None, method, warnings, forward_identity: Arc::default() }
    }
}
