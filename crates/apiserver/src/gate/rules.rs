//! By which rules people are known and let in: what the gate and the handlers of reviews and tokens share.

use std::sync::Arc;

use access::authenticate::Authenticator;
use access::rbac::Index;
use access::reviews::Judge;
use access::tokens::Issuer;
use access::tokens::openid::Documents;
use access::{Attributes, Authorizer, Decision};
use api::Status;
use arc_swap::ArcSwap;
use transport::Watched;

/// The rules of one server.
#[derive(Debug)]
pub struct Rules {
    /// Who is who: the flags of authentication, and the files that they name.
    pub authenticator: Watched<Authenticator>,
    /// How tokens of service accounts are made.
    pub signing: Watched<Signing>,
    /// `--authorization-mode`.
    pub authorizer: Authorizer,
    /// What bindings grant, as of now.
    pub index: Arc<ArcSwap<Index>>,
}

/// The making of tokens, and how others verify them.
#[derive(Debug)]
pub struct Signing {
    /// Makes tokens.
    pub issuer: Issuer,
    /// The pages by which others verify them; `None` if the issuer is not one that they could.
    pub documents: Option<Documents>,
}

impl Rules {
    /// Asks whether a user may do something that the request line does not show. The refusal is Kubernetes' 403.
    pub(crate) fn authorize(&self, attributes: &Attributes<'_>) -> Result<(), Status> {
        match self.authorizer.decide(&self.index.load(), attributes) {
            Decision::Allowed(_) => Ok(()),
            Decision::NotAllowed { reason } => Err(access::authorize::forbidden(attributes, &reason)),
        }
    }

    /// The rules of access, with what bindings grant now.
    pub(crate) fn judge<'a>(&'a self, index: &'a Index) -> Judge<'a> {
        Judge { authorizer: &self.authorizer, index }
    }
}
