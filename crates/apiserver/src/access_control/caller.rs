//! The authenticated caller of a request.

use std::sync::{Arc, OnceLock};

use access::User;
use access::authentication::{AuthenticationMethod, RequestIdentity};
use forward::UnsendableUser;

/// The authenticated user of a request and how it was authenticated. Clones share the user.
#[derive(Clone, Debug)]
pub struct AuthenticatedCaller {
    /// The user that requests are authorized for: the impersonated one, if any.
    pub user: Arc<User>,
    /// The authenticated user, if it impersonates `user`.
    pub impersonator: Option<Arc<User>>,
    /// The method that authenticated the impersonator or, without impersonation, the user.
    pub method: AuthenticationMethod,
    /// Sent to the client as `Warning` headers.
    pub warnings: Vec<&'static str>,
    /// The identity for peers, computed on the first forwarded request.
    forward_identity: Arc<OnceLock<Result<forward::ForwardedUser, UnsendableUser>>>,
}

impl AuthenticatedCaller {
    pub(super) fn impersonate(self, user: User) -> Self {
        Self { user: Arc::new(user), impersonator: Some(self.user), forward_identity: Arc::default(), ..self }
    }

    /// The identity that the forwarder sends to peers and extension API servers; fails if header values cannot represent it.
    pub(crate) fn forward_identity(&self) -> Result<forward::ForwardedUser, UnsendableUser> {
        self.forward_identity.get_or_init(|| edge::identity_headers::to_forwarded_user(&self.user)).clone()
    }
}

impl From<RequestIdentity> for AuthenticatedCaller {
    fn from(identity: RequestIdentity) -> Self {
        let RequestIdentity { user, method, warnings, .. } = identity;
        Self { user, impersonator: None, method, warnings, forward_identity: Arc::default() }
    }
}
