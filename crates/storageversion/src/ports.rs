//! What this crate needs of the world outside, as small traits over values.
//!
//! A server implements them on its registry and its view of the cluster; an aggregated API server would implement them on a
//! client; tests in memory. Whoever implements a call gives it a deadline, and callers guard theirs as well.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::objects::StorageVersion;
use futures_util::future::BoxFuture;
use tokio::sync::watch;

use crate::members::MemberSet;

/// The StorageVersion objects of the cluster.
///
/// A [`StorageVersion`] that crosses this trait carries its `resourceVersion`, the revision of the write that put it.
pub trait StorageVersionClient: Send + Sync {
    /// All objects, as they change.
    fn subscribe(&self) -> watch::Receiver<Arc<StorageVersionSnapshot>>;

    /// Replaces an object that still has the uid and resourceVersion it carries; creates it if it carries none. What a
    /// creation lacks (uid, creationTimestamp) is added. Gives back what is stored.
    fn put(&self, object: StorageVersion) -> BoxFuture<'_, Result<StorageVersion, StorageVersionWriteError>>;

    /// Removes an object that still has the uid and resourceVersion that were seen.
    fn delete(&self, expected: &StorageVersion) -> BoxFuture<'_, Result<(), StorageVersionWriteError>>;
}

/// All objects at one moment.
#[derive(Clone, Debug, Default)]
pub struct StorageVersionSnapshot {
    /// Every change up to this revision is in it; zero: nothing was read yet.
    pub revision: u64,
    /// By name. What cannot be read is left out, and a write to it says why.
    pub objects: BTreeMap<Arc<str>, Arc<StorageVersion>>,
}

/// Why a write did not happen, or may not have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StorageVersionWriteError {
    /// It is not as it was seen; this is what is there now.
    #[error("it was changed meanwhile")]
    Conflict(Option<Box<StorageVersion>>),
    /// Anything else; it may work later, and may have worked.
    #[error("{reason}")]
    Unavailable {
        /// For the log, and for whoever waits for the barrier.
        reason: String,
    },
}

/// Who takes part: the holders of valid identity leases, this server included as soon as it holds one.
pub trait MemberSource: Send + Sync {
    /// As it changes; `None` as long as it is not known.
    fn subscribe(&self) -> watch::Receiver<Option<Arc<MemberSet>>>;

    /// As it is now: at least everything that storage held when this was called.
    fn fetch_current(&self) -> BoxFuture<'_, Result<Arc<MemberSet>, MembersUnknown>>;
}

/// Storage could not be asked who takes part. Nobody is taken to be gone because of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the servers of the cluster are not known at the moment")]
pub struct MembersUnknown;

/// The revision that an object was put at; zero if it does not say.
pub(crate) fn revision_of(object: &StorageVersion) -> u64 {
    object.metadata.resource_version.parse().unwrap_or_default()
}
