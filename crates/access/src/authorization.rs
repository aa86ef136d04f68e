//! The authorizer chain: `system:masters` first, then each mode in the order of `--authorization-mode`.
//!
//! The first mode that allows the request decides. No mode here denies explicitly: a request that no mode allows is
//! forbidden.

use std::fmt;

use api::GroupResource;
use api::quote::{Quoted, QuotedList};

use crate::attributes::{AccessTarget, Attributes};
use crate::rbac::{RbacGrant, RbacIndex, UnresolvedRole};
use crate::user::MASTERS_GROUP;

/// One entry of `--authorization-mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthorizationMode {
    /// Allows every request.
    AlwaysAllow,
    /// Allows no request, with the reason "Everything is forbidden."
    AlwaysDeny,
    /// Accepted for compatibility and never allows: nodes get their permissions by RBAC.
    Node,
    /// Allows what roles and bindings grant.
    Rbac,
}

/// The authorization modes of a server, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authorizer {
    modes: Vec<AuthorizationMode>,
}

/// `--authorization-mode` is invalid.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthorizationModeError {
    /// The list has no entry.
    #[error("--authorization-mode: at least one authorization-mode must be passed")]
    Empty,
    /// The name of a mode that does not exist.
    #[error("--authorization-mode: authorization-mode {} is not a valid mode", Quoted(.0))]
    Unknown(String),
    /// A mode of kube-apiserver that this server does not implement.
    #[error("--authorization-mode: {0} is not supported; use RBAC, or AlwaysAllow for tests")]
    Unsupported(&'static str),
    /// A mode is listed twice; holds the whole list.
    #[error("--authorization-mode: authorization-mode {} has mode specified more than once", QuotedList(.0))]
    Duplicate(Vec<String>),
}

/// The result of an authorization query.
#[derive(Clone, Debug)]
pub enum Decision<'a> {
    /// A mode allows the request.
    Allowed(AllowedBy<'a>),
    /// The reason is empty if no mode allowed the request and none has an explanation.
    NotAllowed {
        /// For example a bound role that does not exist.
        reason: String,
    },
}

/// What allowed the request. Displays as the reason in audit logs and reviews, empty except for RBAC.
#[derive(Clone, Copy, Debug)]
pub enum AllowedBy<'a> {
    /// Membership in `system:masters`.
    SystemMasters,
    /// The `AlwaysAllow` mode.
    AlwaysAllowMode,
    /// A role binding.
    Rbac(RbacGrant<'a>),
}

impl Authorizer {
    /// Parses the comma-separated list of `--authorization-mode`.
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

    /// Returns the warning to log at startup if `Node` is listed, which has no effect.
    pub fn startup_warning(&self) -> Option<&'static str> {
        self.modes.contains(&AuthorizationMode::Node).then_some(
            "--authorization-mode: Node is accepted and has no opinion; grant nodes what they need with RBAC",
        )
    }

    /// Reports whether anonymous requests may be accepted: not with `AlwaysAllow`, as in kube-apiserver.
    pub fn permits_anonymous(&self) -> bool {
        !self.modes.contains(&AuthorizationMode::AlwaysAllow)
    }

    /// Decides a query against the RBAC index. Does not allocate if the request is allowed.
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

    /// Reports whether the chain contains the mode.
    pub fn has_mode(&self, mode: AuthorizationMode) -> bool {
        self.modes.contains(&mode)
    }

    /// Joins the reasons of all modes that have one.
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
    /// Reports whether the request is allowed.
    pub fn is_allowed(&self) -> bool {
        matches!(self, Self::Allowed(_))
    }

    /// Returns the reason as audit logs and reviews show it; often empty.
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

/// An action that is not allowed; displays as kube-apiserver's message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct AccessDenied {
    /// The resource; both parts are empty for a path.
    pub resource: GroupResource,
    /// The name of the object; empty if there is none.
    pub name: String,
    message: String,
}

impl AccessDenied {
    /// The denial of attributes that were not allowed for a reason, which is often empty.
    pub fn new(attributes: &Attributes<'_>, reason: &str) -> Self {
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
        let resource = GroupResource { group: resource.group.into(), resource: resource.resource.into() };
        Self { resource, name: name.to_owned(), message }
    }
}

/// Joins errors as Kubernetes does: in brackets if there are several.
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
