//! The chain of authorizers: `system:masters` first, then each mode in the order of `--authorization-mode`.
//!
//! The first that allows decides. None of the modes here forbids: what nobody allows is not allowed.

use std::fmt;

use api::quote::{Quoted, QuotedList};
use api::{GroupResource, Status};

use crate::attributes::{Asked, Attributes};
use crate::rbac::{Grant, Index, Unresolved};
use crate::user::MASTERS;

/// One entry of `--authorization-mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
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
    modes: Vec<Mode>,
}

/// `--authorization-mode` cannot be followed.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ModeError {
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
    Repeated(Vec<String>),
}

/// Whether something may be done.
#[derive(Clone, Debug)]
pub enum Decision<'a> {
    /// Yes.
    Allowed(Allowed<'a>),
    /// No. The reason is often empty: nobody allowed it, and there is no more to say.
    NotAllowed {
        /// What stood in the way, such as a role that does not exist.
        reason: String,
    },
}

/// Who allowed it. Prints as the reason in audit logs and reviews, which is often empty.
#[derive(Clone, Copy, Debug)]
pub enum Allowed<'a> {
    /// Membership in `system:masters`.
    Masters,
    /// The mode that allows everything.
    Always,
    /// A binding.
    Rbac(Grant<'a>),
}

impl Authorizer {
    /// Reads the comma-separated list of `--authorization-mode`.
    pub fn parse(list: &str) -> Result<Self, ModeError> {
        if list.is_empty() {
            return Err(ModeError::Empty);
        }
        let words: Vec<&str> = list.split(',').collect();
        let modes = words.iter().map(|word| Mode::parse(word)).collect::<Result<Vec<_>, _>>()?;
        if modes.iter().enumerate().any(|(index, mode)| modes[..index].contains(mode)) {
            return Err(ModeError::Repeated(words.into_iter().map(str::to_owned).collect()));
        }
        Ok(Self { modes })
    }

    /// What should be said once at the start about modes that are accepted and do nothing.
    pub fn notice(&self) -> Option<&'static str> {
        self.modes.contains(&Mode::Node).then_some(
            "--authorization-mode: Node is accepted and has no opinion; grant nodes what they need with RBAC",
        )
    }

    /// Whether anonymous requests may be let in at all: not where everything is allowed, as in kube-apiserver.
    pub fn permits_anonymous(&self) -> bool {
        !self.modes.contains(&Mode::AlwaysAllow)
    }

    /// Decides by the snapshot. A yes allocates nothing.
    pub fn decide<'a>(&self, index: &'a Index, asked: &Attributes<'a>) -> Decision<'a> {
        if asked.user.is_in(MASTERS) {
            return Decision::Allowed(Allowed::Masters);
        }
        for mode in &self.modes {
            match mode {
                Mode::AlwaysAllow => return Decision::Allowed(Allowed::Always),
                Mode::AlwaysDeny | Mode::Node => {}
                Mode::Rbac => {
                    if let Some(grant) = index.decide(asked) {
                        return Decision::Allowed(Allowed::Rbac(grant));
                    }
                }
            }
        }
        Decision::NotAllowed { reason: self.reasons(index, asked) }
    }

    /// Whether the mode is in the chain.
    pub fn has(&self, mode: Mode) -> bool {
        self.modes.contains(&mode)
    }

    fn reasons(&self, index: &Index, asked: &Attributes<'_>) -> String {
        let reasons = self.modes.iter().filter_map(|mode| match mode {
            Mode::AlwaysAllow | Mode::Node => None,
            Mode::AlwaysDeny => Some("Everything is forbidden.".to_owned()),
            Mode::Rbac => {
                let unresolved = index.unresolved_for(asked.user, asked.namespace());
                aggregate(&unresolved).map(|errors| format!("RBAC: {errors}"))
            }
        });
        reasons.collect::<Vec<_>>().join("\n")
    }
}

impl Mode {
    fn parse(word: &str) -> Result<Self, ModeError> {
        match word {
            "AlwaysAllow" => Ok(Self::AlwaysAllow),
            "AlwaysDeny" => Ok(Self::AlwaysDeny),
            "Node" => Ok(Self::Node),
            "RBAC" => Ok(Self::Rbac),
            "ABAC" => Err(ModeError::Unsupported("ABAC")),
            "Webhook" => Err(ModeError::Unsupported("Webhook")),
            _ => Err(ModeError::Unknown(word.to_owned())),
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

impl fmt::Display for Allowed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Masters | Self::Always => Ok(()),
            Self::Rbac(grant) => write!(f, "RBAC: allowed by {grant}"),
        }
    }
}

/// The 403 for a question that was answered with no.
pub fn forbidden(asked: &Attributes<'_>, reason: &str) -> Status {
    let mut why = asked.refusal();
    if !reason.is_empty() {
        why = format!("{why}: {reason}");
    }
    let (resource, name) = match asked.object {
        Asked::Path(_) => (GroupResource { group: "", resource: "" }, ""),
        Asked::Resource(resource) => {
            (GroupResource { group: resource.group, resource: resource.resource }, resource.name)
        }
    };
    Status::forbidden(resource, name, why)
}

/// Several errors as Kubernetes joins them: in brackets if more than one.
pub(crate) fn aggregate(errors: &[Unresolved]) -> Option<String> {
    match errors {
        [] => None,
        [one] => Some(one.to_string()),
        several => {
            let messages: Vec<String> = several.iter().map(ToString::to_string).collect();
            Some(format!("[{}]", messages.join(", ")))
        }
    }
}
