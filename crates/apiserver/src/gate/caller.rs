//! Somebody who was let in, as handlers see them.

use std::sync::{Arc, OnceLock};

use access::User;
use access::authenticate::{Identity, Method};
use peering::forward::{self, UnsendableUser};

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
    /// The user as peers are told, once somebody asked.
    named: Arc<OnceLock<Result<forward::Identity, UnsendableUser>>>,
}

impl Caller {
    pub(super) fn acting_as(self, user: User) -> Self {
        Self { user: Arc::new(user), impersonator: Some(self.user), named: Arc::default(), ..self }
    }

    /// The user as a peer is told.
    pub(super) fn named(&self) -> Result<forward::Identity, UnsendableUser> {
        self.named.get_or_init(|| edge::claims::named(&self.user)).clone()
    }
}

impl From<Identity> for Caller {
    fn from(identity: Identity) -> Self {
        let Identity { user, method, warnings, .. } = identity;
        Self { user, impersonator: None, method, warnings, named: Arc::default() }
    }
}
