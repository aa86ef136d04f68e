//! The outcomes of a storage call that callers tell apart, the same for every port over storage.

/// Why storage did not do what it was asked to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PortError {
    /// The entry has changed since the caller read it, or exists already.
    #[error("it was changed meanwhile")]
    Conflict,
    /// The entry does not exist.
    #[error("it does not exist")]
    NotFound,
    /// Any other failure. The call may work later, and may have taken effect.
    #[error("storage does not answer: {reason}")]
    Unavailable {
        /// For the log.
        reason: String,
    },
}
