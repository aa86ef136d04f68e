//! What peering needs of the world outside, as small traits over values.
//!
//! A server implements them on its storage and its connections, a gateway on its list of upstreams, tests in memory. Nothing
//! here waits without bound: whoever implements a call gives it a deadline, and callers guard theirs as well.

use std::sync::Arc;
use std::time::Duration;

use api::objects::{Endpoints, Lease};
use api::{GroupVersionResource, PortError};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{HeaderMap, StatusCode};
use tokio::sync::watch;

use crate::endpoint_record::Address;
use crate::identity::{IdentityLease, ServerId};

/// The answer of a port that is still under way.
pub type PortFuture<'a, T, E = PortError> = BoxFuture<'a, Result<T, E>>;

/// One write of one entry: what a later write can be made conditional on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryVersion(pub u64);

/// A table in storage that is followed by a watch.
///
/// Whatever the store held when [`StorageProgress::catch_up`] was called can be taken when it returns.
pub trait Feed<T>: Send {
    /// Waits until [`Feed::take_update`] has something to give. May be dropped at any time without losing anything.
    fn ready(&mut self) -> BoxFuture<'_, ()>;

    /// What is new, without waiting.
    fn take_update(&mut self) -> FeedUpdate<T>;
}

/// What a feed gives.
#[derive(Debug)]
pub enum FeedUpdate<T> {
    /// Everything there is: what is not in it is not there. The first gift, and again whenever changes were missed.
    All(Vec<(ServerId, T)>),
    /// Only what changed, in order; `None` if it is gone.
    Changes(Vec<(ServerId, Option<T>)>),
}

/// The identity leases: labelled Leases in kube-system.
pub trait LeaseStorage: Send + Sync {
    /// All of them. Names that are no identity may be left out.
    fn watch(&self) -> Box<dyn Feed<Arc<Lease>>>;

    /// One of them, as it is now.
    fn get(&self, server: &ServerId) -> PortFuture<'_, Option<Lease>>;

    /// Creates one; [`PortError::Conflict`] if it exists.
    fn create(&self, lease: Lease) -> PortFuture<'_, Lease>;

    /// Replaces one that still has the uid and resourceVersion it carries.
    fn update(&self, lease: Lease) -> PortFuture<'_, Lease>;

    /// Removes one that still has the uid and resourceVersion that were seen.
    fn delete(&self, expected: &IdentityLease) -> PortFuture<'_, ()>;

    /// How often they could not be listed or followed so far; `None` where that cannot be.
    fn failures(&self) -> Option<watch::Receiver<u64>> {
        None
    }
}

/// The endpoint records: out of reach of the REST API.
pub trait RecordStorage: Send + Sync {
    /// All of them.
    fn watch(&self) -> Box<dyn Feed<Arc<Endpoints>>>;

    /// One of them, as it is now.
    fn get(&self, server: &ServerId) -> PortFuture<'_, Option<Endpoints>>;

    /// Puts one that goes by itself after `ttl`.
    fn put(&self, server: &ServerId, record: Endpoints, ttl: Duration) -> PortFuture<'_, EntryVersion>;

    /// Removes one if it is still what was put.
    fn delete(&self, server: &ServerId, expected: EntryVersion) -> PortFuture<'_, ()>;
}

/// The stored documents: bytes, out of reach of the REST API.
pub trait DocumentStorage: Send + Sync {
    /// All of them.
    fn watch(&self) -> Box<dyn Feed<(EntryVersion, Bytes)>>;

    /// Puts one that must still be what was seen (absent for `None`), for good or for a time.
    fn put(
        &self,
        server: &ServerId,
        document: Bytes,
        expected: Option<EntryVersion>,
        ttl: Option<Duration>,
    ) -> PortFuture<'_, EntryVersion>;

    /// Removes one that is still what was seen.
    fn delete(&self, server: &ServerId, expected: EntryVersion) -> PortFuture<'_, ()>;
}

/// How far our views have come.
pub trait StorageProgress: Send + Sync {
    /// Waits until everything the store holds now can be taken from the feeds, and until what this server itself serves (its
    /// CustomResourceDefinitions, say) is up to date as well.
    fn catch_up(&self) -> PortFuture<'_, ()>;
}

/// The definitions of custom resources and of aggregated APIs that storage holds.
pub trait DefinitionStorage: Send + Sync {
    /// Whether one of them brings a resource, as far as our views have come. A definition that no server has taken up yet
    /// brings nothing.
    fn defines(&self, name: GroupVersionResource<&str>) -> bool;

    /// Their changes, from now on.
    fn watch(&self) -> Box<dyn ChangeNotifications>;
}

/// That something has changed, but not what.
pub trait ChangeNotifications: Send {
    /// Waits for the next change. May be dropped at any time without losing one.
    fn wait_for_change(&mut self) -> BoxFuture<'_, ()>;
}

/// One GET to a peer, over mutual TLS.
pub trait Fetch: Send + Sync {
    /// Sends it, and reads an answer of at most `request.bytes_max`. Redirects are not followed.
    fn fetch(&self, request: FetchRequest) -> PortFuture<'_, FetchResponse, FetchError>;
}

/// A GET to a peer.
#[derive(Clone, Debug)]
pub struct FetchRequest {
    /// Whom to ask.
    pub server: ServerId,
    /// Where it listens.
    pub address: Address,
    /// The path, such as `/apis`.
    pub path: String,
    /// Everything that must be sent: what is accepted, who asks, and that a peer asks.
    pub headers: HeaderMap,
    /// The longest body to read.
    pub bytes_max: usize,
}

/// What a peer answered.
#[derive(Clone, Debug)]
pub struct FetchResponse {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The whole body, decoded from any content encoding.
    pub body: Bytes,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FetchError {
    /// No connection.
    #[error("it cannot be reached: {reason}")]
    Unreachable {
        /// For the log.
        reason: String,
    },
    /// The connection is not the peer's, or ours is not accepted.
    #[error("the TLS handshake failed: {reason}")]
    Tls {
        /// For the log.
        reason: String,
    },
    /// It took too long.
    #[error("it did not answer in time")]
    TimedOut,
    /// More than we read.
    #[error("its answer is longer than {bytes_max} bytes")]
    TooLong {
        /// What we read at most.
        bytes_max: usize,
    },
    /// The connection broke, or what came over it was not HTTP.
    #[error("its answer broke off: {reason}")]
    Broken {
        /// For the log.
        reason: String,
    },
}
