//! The chain of authorizers: `system:masters` first, then each mode in the order of `--authorization-mode`.
//!
//! The first that allows decides. None of the modes here forbids: what nobody allows is not allowed.

use std::fmt;

use api::quote::{Quoted, QuotedList};
use api::{GroupResource, Status};

use crate::attributes::{AccessTarget, Attributes};
use crate::rbac::{RbacGrant, RbacIndex, UnresolvedRole};
use crate::user::MASTERS_GROUP;

/// One entry of `--authorization-mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthorizationMode {
    /// Allows everything.
    AlwaysAllow,
    /// Allows nothing.
    AlwaysDeny,
    /// Has no opinion: there are no kubelets to hold to their own node.
    Node,
    /// Allows what roles and bindings grant.
    Rbac,
}

/// The authorizers of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authorizer {
    modes: Vec<AuthorizationMode>,
}

/// `--authorization-mode` cannot be followed.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthorizationModeError {
    /// The list is empty.
    #[error("--authorization-mode: at least one authorization-mode must be passed")]
    Empty,
    /// A word that names no mode.
    #[error("--authorization-mode: authorization-mode {} is not a valid mode", Quoted(.0))]
    Unknown(String),
    /// A mode of kube-apiserver that does not exist here.
    #[error("--authorization-mode: {0} is not supported; use RBAC, or AlwaysAllow for tests")]
    Unsupported(&'static str),
    /// A mode twice.
    #[error("--authorization-mode: authorization-mode {} has mode specified more than once", QuotedList(.0))]
    Duplicate(Vec<String>),
}

/// Whether something may be done.
#[derive(Clone, Debug)]
pub enum Decision<'a> {
    /// Yes.
    Allowed(AllowedBy<'a>),
    /// No. The reason is often empty: nobody allowed it, and there is no more to say.
    NotAllowed {
        /// What stood in the way, such as a role that does not exist.
        reason: String,
    },
}

/// Who allowed it. Prints as the reason in audit logs and reviews, which is often empty.
#[derive(Clone, Copy, Debug)]
pub enum AllowedBy<'a> {
    /// Membership in `system:masters`.
    SystemMasters,
    /// The mode that allows everything.
    AlwaysAllowMode,
    /// A binding.
    Rbac(RbacGrant<'a>),
}

impl Authorizer {
    /// Reads the comma-separated list of `--authorization-mode`.
    pub fn parse(list: &str) -> Result<Self, AuthorizationModeError> {
        if list.is_empty() {
            return Err(AuthorizationModeError::Empty);
        }
        let words: Vec<&str> = list.split(',').collect();
        let modes = words.iter().map(|word| AuthorizationMode::parse(word)).collect::<Result<Vec<_>, _>>()?;
        if modes.iter().enumerate().any(|(index, mode)| modes[..index].contains(mode)) {
            return Err(AuthorizationModeError::Duplicate(words.into_iter().map(str::to_owned).collect()));
        }
        Ok(Self { modes })
    }

    /// What should be said once at the start about modes that are accepted and do nothing.
    pub fn startup_warning(&self) -> Option<&'static str> {
        self.modes.contains(&AuthorizationMode::Node).then_some(
            "--authorization-mode: Node is accepted and has no opinion; grant nodes what they need with RBAC",
        )
    }

    /// Whether anonymous requests may be let in at all: not where everything is allowed, as in kube-apiserver.
    pub fn permits_anonymous(&self) -> bool {
        !self.modes.contains(&AuthorizationMode::AlwaysAllow)
    }

    /// Decides by the snapshot. A yes allocates nothing.
    pub fn decide<'a>(&self, index: &'a RbacIndex, attributes: &Attributes<'a>) -> Decision<'a> {
        if attributes.user.is_in_group(MASTERS_GROUP) {
            return Decision::Allowed(AllowedBy::SystemMasters);
        }
        for mode in &self.modes {
            match mode {
                AuthorizationMode::AlwaysAllow => return Decision::Allowed(AllowedBy::AlwaysAllowMode),
                AuthorizationMode::AlwaysDeny | AuthorizationMode::Node => {}
                AuthorizationMode::Rbac => {
                    if let Some(grant) = index.decide(attributes) {
                        return Decision::Allowed(AllowedBy::Rbac(grant));
                    }
                }
            }
        }
        Decision::NotAllowed { reason: self.denial_reason(index, attributes) }
    }

    /// Whether the mode is in the chain.
    pub fn has_mode(&self, mode: AuthorizationMode) -> bool {
        self.modes.contains(&mode)
    }

    fn denial_reason(&self, index: &RbacIndex, attributes: &Attributes<'_>) -> String {
        let reasons = self.modes.iter().filter_map(|mode| match mode {
            AuthorizationMode::AlwaysAllow | AuthorizationMode::Node => None,
            AuthorizationMode::AlwaysDeny => Some("Everything is forbidden.".to_owned()),
            AuthorizationMode::Rbac => {
                let unresolved = index.unresolved_roles_for(attributes.user, attributes.namespace());
                aggregate_messages(&unresolved).map(|errors| format!("RBAC: {errors}"))
            }
        });
        reasons.collect::<Vec<_>>().join("\n")
    }
}

impl AuthorizationMode {
    fn parse(word: &str) -> Result<Self, AuthorizationModeError> {
        match word {
            "AlwaysAllow" => Ok(Self::AlwaysAllow),
            "AlwaysDeny" => Ok(Self::AlwaysDeny),
            "Node" => Ok(Self::Node),
            "RBAC" => Ok(Self::Rbac),
            "ABAC" => Err(AuthorizationModeError::Unsupported("ABAC")),
            "Webhook" => Err(AuthorizationModeError::Unsupported("Webhook")),
            _ => Err(AuthorizationModeError::Unknown(word.to_owned())),
        }
    }
}

impl Decision<'_> {
    /// Whether it is a yes.
    pub fn is_allowed(&self) -> bool {
        matches!(self, Self::Allowed(_))
    }

    /// The reason as audit logs and reviews show it; often empty.
    pub fn reason(&self) -> String {
        match self {
            Self::Allowed(allowed) => allowed.to_string(),
            Self::NotAllowed { reason } => reason.clone(),
        }
    }
}

impl fmt::Display for AllowedBy<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SystemMasters | Self::AlwaysAllowMode => Ok(()),
            Self::Rbac(grant) => write!(f, "RBAC: allowed by {grant}"),
        }
    }
}

/// The 403 for a question that was answered with no.
pub fn forbidden_status(attributes: &Attributes<'_>, reason: &str) -> Status {
    let mut message = attributes.denial_message();
    if !reason.is_empty() {
        message = format!("{message}: {reason}");
    }
    let (resource, name) = match attributes.access_target {
        AccessTarget::Path(_) => (GroupResource { group: "", resource: "" }, ""),
        AccessTarget::Resource(resource) => {
            (GroupResource { group: resource.group, resource: resource.resource }, resource.name)
        }
    };
    Status::forbidden(resource, name, message)
}

/// Several errors as Kubernetes joins them: in brackets if more than one.
pub(crate) fn aggregate_messages(errors: &[UnresolvedRole]) -> Option<String> {
    match errors {
        [] => None,
        [one] => Some(one.to_string()),
        several => {
            let messages: Vec<String> = several.iter().map(ToString::to_string).collect();
            Some(format!("[{}]", messages.join(", ")))
        }
    }
}
