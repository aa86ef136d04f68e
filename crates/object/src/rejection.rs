//! Rejections of requests for a single object.
//!
//! Messages equal Kubernetes' own. The handler maps each variant to a constructor of `api::Status` and adds resource,
//! kind and name.

use api::FieldError;

/// Why a request for a single object is rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// The request is malformed (400).
    #[error("{0}")]
    BadRequest(String),
    /// The operation is not allowed on this object (403).
    #[error("{0}")]
    Forbidden(String),
    /// The object is invalid (422).
    #[error("{}", FieldError::aggregate(errors).unwrap_or_default())]
    Invalid {
        /// Subject of the status.
        subject: RejectionSubject,
        /// Errors by field; never empty.
        errors: Vec<FieldError>,
    },
    /// A precondition of the request does not hold (409).
    #[error("{reason}")]
    Conflict {
        /// Subject of the status.
        subject: RejectionSubject,
        /// Which precondition failed, with both values.
        reason: String,
    },
    /// The request exceeds a size limit (413).
    #[error("{0}")]
    TooLarge(String),
    /// The patch does not apply to this object (422 without field errors). Kubernetes does not send the reason to the
    /// client.
    #[error("{0}")]
    Unprocessable(String),
    /// An error that Kubernetes does not classify: 500 without a status reason.
    #[error("{0}")]
    Unclassified(String),
}

/// Subject of a status: the kind and name in its details.
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
    /// [`Rejection::Invalid`] for the kind of the object if there are errors.
    pub fn ensure_no_errors(errors: Vec<FieldError>) -> Result<(), Self> {
        if errors.is_empty() { Ok(()) } else { Err(Self::Invalid { subject: RejectionSubject::Kind, errors }) }
    }

    pub(crate) fn conflict(reason: impl Into<String>) -> Self {
        Self::Conflict { subject: RejectionSubject::Resource, reason: reason.into() }
    }
}
