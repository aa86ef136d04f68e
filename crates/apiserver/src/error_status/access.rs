//! The Status of what `access` refuses.

use access::authorization::AccessDenied;
use access::impersonation::ImpersonationError;
use access::rbac::escalation::EscalationError;
use access::rbac::{RBAC_GROUP, RbacKind, UnresolvedRole};
use access::reviews::{AUTHENTICATION_GROUP, AUTHORIZATION_GROUP, ReviewError};
use access::tokens::TokenRequestError;
use api::{GroupKind, GroupResource, Status};

/// The 403 of an action that is not allowed.
pub(crate) fn status_for_denied(denied: &AccessDenied) -> Status {
    let GroupResource { group, resource } = &denied.resource;
    Status::forbidden(GroupResource { group: &**group, resource: &**resource }, &denied.name, denied)
}

/// 403, or 400 for malformed headers.
pub(crate) fn status_for_impersonation(error: &ImpersonationError) -> Status {
    match error {
        ImpersonationError::MissingUser(_)
        | ImpersonationError::InvalidHeader(_)
        | ImpersonationError::TooManyValues => Status::bad_request(error.to_string()),
        ImpersonationError::Forbidden(denied) => status_for_denied(denied),
    }
}

/// The Status of a refused write of a role or binding.
pub(crate) fn status_for_escalation(error: &EscalationError, kind: RbacKind, name: &str) -> Status {
    let rbac = |resource| GroupResource { group: RBAC_GROUP, resource };
    match error {
        EscalationError::MissingPermissions(_)
        | EscalationError::AggregationRuleForbidden
        | EscalationError::TooManyPermissions(_) => Status::forbidden(rbac(kind.resource()), name, error),
        EscalationError::UnresolvedRole(UnresolvedRole::NotFound { resource, name }) => {
            Status::not_found(rbac(resource), name)
        }
        EscalationError::UnresolvedRole(UnresolvedRole::UnsupportedKind { .. }) => Status::internal_error(error),
        EscalationError::InvalidObject(_) => Status::bad_request(error.to_string()),
    }
}

/// 422 for a review that is invalid, else 400.
pub(crate) fn status_for_review(error: &ReviewError) -> Status {
    match error {
        ReviewError::InvalidBody { .. } | ReviewError::BadRequest(_) => Status::bad_request(error.to_string()),
        ReviewError::Invalid { kind, errors } => {
            Status::invalid(GroupKind { group: AUTHORIZATION_GROUP, kind }, "", errors)
        }
    }
}

/// The Status of a token that is not issued.
pub(crate) fn status_for_token_request(error: &TokenRequestError) -> Status {
    let core = |resource| GroupResource { group: "", resource };
    let group = AUTHENTICATION_GROUP;
    match error {
        TokenRequestError::InvalidBody(_)
        | TokenRequestError::PodUsesOtherAccount(_)
        | TokenRequestError::UnsupportedKind(_) => Status::bad_request(error.to_string()),
        TokenRequestError::Invalid { name, errors } => {
            Status::invalid(GroupKind { group, kind: "TokenRequest" }, name, errors)
        }
        TokenRequestError::NotFound { kind, name } => Status::not_found(core(kind.resource()), name),
        TokenRequestError::AccountUidMismatch { name, .. } => {
            Status::conflict(GroupResource { group, resource: "TokenRequest" }, name, error)
        }
        TokenRequestError::BoundObjectUidMismatch { kind, name, .. } => Status::conflict(core(kind), name, error),
        TokenRequestError::SigningFailed => Status::internal_error(error),
    }
}

#[cfg(test)]
mod tests {
    use access::rbac::RbacKind;

    use super::*;

    #[test]
    fn refusals_of_tokens_and_reviews_keep_their_codes() {
        let unreadable = TokenRequestError::InvalidBody("x".to_owned());
        assert_eq!(status_for_token_request(&unreadable).code, 400);
        let other = TokenRequestError::PodUsesOtherAccount("builder".to_owned());
        assert_eq!(status_for_token_request(&other).code, 400);
        let invalid = TokenRequestError::Invalid { name: String::new(), errors: Vec::new() };
        assert_eq!(status_for_token_request(&invalid).code, 422);
        let kind = access::tokens::BoundObjectKind::ServiceAccount;
        let missing = status_for_token_request(&TokenRequestError::NotFound { kind, name: "ghost".to_owned() });
        assert_eq!((missing.code, missing.message.as_str()), (404, r#"serviceaccounts "ghost" not found"#));
        assert_eq!(status_for_token_request(&TokenRequestError::SigningFailed).code, 500);
        let invalid = ReviewError::Invalid { kind: "SubjectAccessReview", errors: Vec::new() };
        assert_eq!(status_for_review(&invalid).code, 422);
        assert_eq!(status_for_review(&ReviewError::BadRequest("no".to_owned())).code, 400);
    }

    #[test]
    fn refused_role_names_itself_and_a_missing_role_is_404() {
        let forbidden = EscalationError::AggregationRuleForbidden;
        let status = status_for_escalation(&forbidden, RbacKind::ClusterRole, "x");
        let prefix = r#"clusterroles.rbac.authorization.k8s.io "x" is forbidden: "#;
        assert_eq!((status.code, status.message.starts_with(prefix)), (403, true), "{status:?}");
        let missing = UnresolvedRole::NotFound { resource: "roles", name: "gone".to_owned() };
        let status = status_for_escalation(&EscalationError::UnresolvedRole(missing), RbacKind::RoleBinding, "x");
        let text = r#"roles.rbac.authorization.k8s.io "gone" not found"#;
        assert_eq!((status.code, status.message.as_str()), (404, text));
    }

    #[test]
    fn malformed_impersonation_is_400() {
        assert_eq!(status_for_impersonation(&ImpersonationError::TooManyValues).code, 400);
    }
}
