//! Why a request about one object is refused.
//!
//! Messages are Kubernetes' own. No HTTP status is chosen here: each variant is one constructor of `api::Status`, and the handler
//! knows the resource, kind and name that go into it.

use api::FieldError;

/// Why a request about one object is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// The request itself makes no sense (400).
    #[error("{0}")]
    BadRequest(String),
    /// The operation is not allowed on this object (403).
    #[error("{0}")]
    Forbidden(String),
    /// The object breaks rules (422).
    #[error("{}", FieldError::aggregate(errors).unwrap_or_default())]
    Invalid {
        /// What the status names as invalid.
        subject: RejectionSubject,
        /// Every breach; never empty.
        errors: Vec<FieldError>,
    },
    /// The object is not as the request expects it (409).
    #[error("{reason}")]
    Conflict {
        /// What the status names as in conflict.
        subject: RejectionSubject,
        /// What does not match.
        reason: String,
    },
    /// The request exceeds a limit of work (413).
    #[error("{0}")]
    TooLarge(String),
    /// A patch that cannot be applied to this object (422, but not about a field). Kubernetes keeps the reason to itself.
    #[error("{0}")]
    Unprocessable(String),
    /// Kubernetes answers 500 without a reason.
    #[error("{0}")]
    Unclassified(String),
}

/// What a status is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RejectionSubject {
    /// The kind of the object, and its name.
    Kind,
    /// The resource, and the name of the object.
    Resource,
    /// Options of `meta.k8s.io`, such as `DeleteOptions`, without a name.
    Options(&'static str),
    /// A `Scale.autoscaling` and its name.
    Scale,
    /// Neither kind nor name: the result of a patch.
    Patch,
}

impl Rejection {
    /// Refuses an object whose fields break rules; `Ok` when there is no breach.
    pub fn ensure_no_errors(errors: Vec<FieldError>) -> Result<(), Self> {
        if errors.is_empty() { Ok(()) } else { Err(Self::Invalid { subject: RejectionSubject::Kind, errors }) }
    }

    pub(crate) fn conflict(reason: impl Into<String>) -> Self {
        Self::Conflict { subject: RejectionSubject::Resource, reason: reason.into() }
    }
}
