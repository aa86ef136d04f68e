//! The error of storage calls that all storage ports share.

/// Why a storage call failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PortError {
    /// The entry was changed since the caller read it, or already exists.
    #[error("the entry was modified concurrently")]
    Conflict,
    /// The entry does not exist.
    #[error("the entry does not exist")]
    NotFound,
    /// Any other failure. A retry may succeed, and the call may have taken effect.
    #[error("storage is unavailable: {reason}")]
    Unavailable {
        /// For the log.
        reason: String,
    },
}
