//! The traits through which this crate accesses the cluster.
//!
//! A server implements them on its registry and its view of the members, an aggregated API server on a client, tests in
//! memory. Implementations bound every call by a deadline, and callers do so as well.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::objects::StorageVersion;
use futures_util::future::BoxFuture;
use tokio::sync::watch;

use crate::members::MemberSet;

/// The StorageVersion objects of the cluster.
///
/// Every [`StorageVersion`] in this trait carries its `resourceVersion`, the revision of its last write.
pub trait StorageVersionClient: Send + Sync {
    /// A channel with all objects, updated on every change.
    fn subscribe(&self) -> watch::Receiver<Arc<StorageVersionSnapshot>>;

    /// Replaces an object that still has the given uid and resourceVersion, or creates it if it has none, adding uid
    /// and creationTimestamp. Returns the stored object.
    fn put(&self, object: StorageVersion) -> BoxFuture<'_, Result<StorageVersion, StorageVersionWriteError>>;

    /// Deletes an object that still has the uid and resourceVersion of `expected`.
    fn delete(&self, expected: &StorageVersion) -> BoxFuture<'_, Result<(), StorageVersionWriteError>>;
}

/// All StorageVersion objects at one revision.
#[derive(Clone, Debug, Default)]
pub struct StorageVersionSnapshot {
    /// Every change up to this revision is included; zero: nothing was read yet.
    pub revision: u64,
    /// By name. Undecodable objects are left out; a write to one fails with the reason.
    pub objects: BTreeMap<Arc<str>, Arc<StorageVersion>>,
}

/// A failed write of a StorageVersion.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StorageVersionWriteError {
    /// The object was changed; this is the current one, `None` if it is absent.
    #[error("the object was changed concurrently")]
    Conflict(Option<Box<StorageVersion>>),
    /// Any other failure. It may be temporary, and the write may have happened.
    #[error("{reason}")]
    Unavailable {
        /// Text for the log and for the error of held writes.
        reason: String,
    },
}

/// The members of the cluster: the holders of valid identity leases, including this server once it holds one.
pub trait MemberSource: Send + Sync {
    /// A channel with the members; `None` until they are known.
    fn subscribe(&self) -> watch::Receiver<Option<Arc<MemberSet>>>;

    /// Reads the members from storage: at least every lease that was stored when this was called.
    fn fetch_current(&self) -> BoxFuture<'_, Result<Arc<MemberSet>, MembersUnknown>>;
}

/// The members could not be read. No server counts as gone because of this.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the servers of the cluster are not known at the moment")]
pub struct MembersUnknown;

/// The revision of an object; zero if its resourceVersion is no number.
pub(crate) fn revision_of(object: &StorageVersion) -> u64 {
    object.metadata.resource_version.parse().unwrap_or_default()
}
