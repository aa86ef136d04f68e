//! The authenticator, authorizer and token issuer, shared by access control and the handlers of reviews and tokens.

use std::sync::Arc;

use crate::error_status;
use access::authentication::Authenticator;
use access::authorization::AccessDenied;
use access::rbac::RbacIndex;
use access::reviews::AuthorizerSnapshot;
use access::tokens::TokenIssuer;
use access::tokens::openid::OpenIdDocuments;
use access::{Attributes, Authorizer, Decision};
use api::Status;
use arc_swap::ArcSwap;
use transport::Reloading;

/// The authentication and authorization rules of one server.
#[derive(Debug)]
pub struct AccessRules {
    /// The authentication flags; reloaded when the files that they name change.
    pub authenticator: Reloading<Authenticator>,
    /// Signs service account tokens.
    pub signing: Reloading<TokenSigning>,
    /// `--authorization-mode`.
    pub authorizer: Authorizer,
    /// The current RBAC index. The RBAC index updater replaces it.
    pub index: Arc<ArcSwap<RbacIndex>>,
}

/// Signs service account tokens and publishes how to verify them.
#[derive(Debug)]
pub struct TokenSigning {
    /// Signs tokens.
    pub issuer: TokenIssuer,
    /// The OpenID discovery documents; `None` if the issuer is not a URL that verifiers could fetch them from.
    pub openid_documents: Option<OpenIdDocuments>,
}

impl AccessRules {
    /// Authorizes an action other than that of the request itself. The error is kube-apiserver's 403.
    pub(crate) fn authorize(&self, attributes: &Attributes<'_>) -> Result<(), Status> {
        match self.authorizer.decide(&self.index.load(), attributes) {
            Decision::Allowed(_) => Ok(()),
            Decision::NotAllowed { reason } => {
                Err(error_status::status_for_denied(&AccessDenied::new(attributes, &reason)))
            }
        }
    }

    /// The authorizer with one state of the RBAC index.
    pub(crate) fn authorizer_snapshot<'a>(&'a self, index: &'a RbacIndex) -> AuthorizerSnapshot<'a> {
        AuthorizerSnapshot { authorizer: &self.authorizer, index }
    }
}
