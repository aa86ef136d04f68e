//! Somebody who was let in, as handlers see them.

use std::sync::Arc;

use access::User;
use access::authenticate::{Identity, Method};

/// Who asks, and how we know. Clones share it.
#[derive(Clone, Debug)]
pub struct Caller {
    /// Whom the request is judged and served for.
    pub user: Arc<User>,
    /// Who really asks, where that is somebody else who may act as the user.
    pub impersonator: Option<Arc<User>>,
    /// Who vouches for the one who really asks.
    pub method: Method,
    /// What the client is to be warned of.
    pub warnings: Vec<&'static str>,
}

impl Caller {
    pub(super) fn acting_as(self, user: User) -> Self {
        Self { user: Arc::new(user), impersonator: Some(self.user), ..self }
    }
}

impl From<Identity> for Caller {
    fn from(identity: Identity) -> Self {
        let Identity { user, method, warnings, .. } = identity;
        Self { user, impersonator: None, method, warnings }
    }
}
