//! By which rules people are known and let in: what the gate and the handlers of reviews and tokens share.

use std::sync::Arc;

use access::authentication::Authenticator;
use access::rbac::RbacIndex;
use access::reviews::AuthorizerSnapshot;
use access::tokens::TokenIssuer;
use access::tokens::openid::OpenIdDocuments;
use access::{Attributes, Authorizer, Decision};
use api::Status;
use arc_swap::ArcSwap;
use transport::Reloading;

/// The rules of one server.
#[derive(Debug)]
pub struct AccessRules {
    /// Who is who: the flags of authentication, and the files that they name.
    pub authenticator: Reloading<Authenticator>,
    /// How tokens of service accounts are made.
    pub signing: Reloading<TokenSigning>,
    /// `--authorization-mode`.
    pub authorizer: Authorizer,
    /// What bindings grant, as of now.
    pub index: Arc<ArcSwap<RbacIndex>>,
}

/// The making of tokens, and how others verify them.
#[derive(Debug)]
pub struct TokenSigning {
    /// Makes tokens.
    pub issuer: TokenIssuer,
    /// The pages by which others verify them; `None` if the issuer is not one that they could.
    pub openid_documents: Option<OpenIdDocuments>,
}

impl AccessRules {
    /// Asks whether a user may do something that the request line does not show. The refusal is Kubernetes' 403.
    pub(crate) fn authorize(&self, attributes: &Attributes<'_>) -> Result<(), Status> {
        match self.authorizer.decide(&self.index.load(), attributes) {
            Decision::Allowed(_) => Ok(()),
            Decision::NotAllowed { reason } => Err(access::authorization::forbidden_status(attributes, &reason)),
        }
    }

    /// The rules of access, with what bindings grant now.
    pub(crate) fn authorizer_snapshot<'a>(&'a self, index: &'a RbacIndex) -> AuthorizerSnapshot<'a> {
        AuthorizerSnapshot { authorizer: &self.authorizer, index }
    }
}
