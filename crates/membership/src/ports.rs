//! What membership needs from outside, as small traits over values.
//!
//! Every membership reads [`MemberFeeds`]. A server makes them from its storage ([`LeaseStorage`], [`RecordStorage`],
//! [`DocumentStorage`]), a gateway from its inspectors of upstreams. Implementations give every call a deadline, and callers guard
//! theirs as well.

use std::sync::Arc;
use std::time::Duration;

use api::Address;
use api::objects::{Endpoints, Lease};
use api::{GroupVersionResource, PortError};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{HeaderMap, StatusCode};
use tokio::sync::watch;

use crate::identity::{IdentityLease, ServerId};
use crate::members::{MemberPresence, ObservedDocument};

/// The pending result of a port.
pub type PortFuture<'a, T, E = PortError> = BoxFuture<'a, Result<T, E>>;

/// The version of an entry, for preconditions of later writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryVersion(pub u64);

/// A table by server that is followed as it changes.
///
/// Everything that the source held when [`FeedProgress::catch_up`] was called can be taken when it returns.
pub trait Feed<T>: Send {
    /// Waits until [`Feed::take_update`] returns something. Cancel safe.
    fn ready(&mut self) -> BoxFuture<'_, ()>;

    /// Returns what is new, without waiting.
    fn take_update(&mut self) -> FeedUpdate<T>;
}

/// An update of a feed.
#[derive(Debug)]
pub enum FeedUpdate<T> {
    /// All entries; others do not exist. The first update, and again after missed changes.
    All(Vec<(ServerId, T)>),
    /// The changed entries, in order; `None` for a removed one.
    Changes(Vec<(ServerId, Option<T>)>),
}

/// Observations of the members: from storage in a server, from inspectors of upstreams in a gateway.
pub struct MemberFeeds {
    /// The servers that are present, each with its process.
    pub presence: Box<dyn Feed<MemberPresence>>,
    /// Where the servers listen to which requests may be sent.
    pub addresses: Box<dyn Feed<Address>>,
    /// What the servers serve, including those that left a short time ago.
    pub documents: Box<dyn Feed<ObservedDocument>>,
    /// How often the source could not list or watch the servers so far.
    pub failures: watch::Receiver<u64>,
}

/// The identity leases: labelled Leases in kube-system.
pub trait LeaseStorage: Send + Sync {
    /// Follows all leases. Leases whose names are no identities may be left out.
    fn watch(&self) -> Box<dyn Feed<Arc<Lease>>>;

    /// Reads the current one of a server.
    fn get(&self, server: &ServerId) -> PortFuture<'_, Option<Lease>>;

    /// Creates a lease; [`PortError::Conflict`] if it exists.
    fn create(&self, lease: Lease) -> PortFuture<'_, Lease>;

    /// Replaces a lease that still has the uid and resourceVersion of `lease`.
    fn update(&self, lease: Lease) -> PortFuture<'_, Lease>;

    /// Deletes a lease that still has the uid and resourceVersion of `expected`.
    fn delete(&self, expected: &IdentityLease) -> PortFuture<'_, ()>;

    /// How often listing or watching failed so far; `None` where it cannot fail.
    fn failures(&self) -> Option<watch::Receiver<u64>> {
        None
    }
}

/// The endpoint records, which the REST API cannot reach.
pub trait RecordStorage: Send + Sync {
    /// Follows all entries.
    fn watch(&self) -> Box<dyn Feed<Arc<Endpoints>>>;

    /// Reads the current one of a server.
    fn get(&self, server: &ServerId) -> PortFuture<'_, Option<Endpoints>>;

    /// Writes a record that expires after `ttl`.
    fn put(&self, server: &ServerId, record: Endpoints, ttl: Duration) -> PortFuture<'_, EntryVersion>;

    /// Deletes a record of this version.
    fn delete(&self, server: &ServerId, expected: EntryVersion) -> PortFuture<'_, ()>;
}

/// The stored documents: bytes, which the REST API cannot reach.
pub trait DocumentStorage: Send + Sync {
    /// Follows all entries.
    fn watch(&self) -> Box<dyn Feed<(EntryVersion, Bytes)>>;

    /// Writes a document whose stored version is still `expected` (`None`: absent), with or without a time to live.
    fn put(
        &self,
        server: &ServerId,
        document: Bytes,
        expected: Option<EntryVersion>,
        ttl: Option<Duration>,
    ) -> PortFuture<'_, EntryVersion>;

    /// Deletes a document of this version.
    fn delete(&self, server: &ServerId, expected: EntryVersion) -> PortFuture<'_, ()>;
}

/// How far the feeds have come.
pub trait FeedProgress: Send + Sync {
    /// Waits until everything the source holds now can be taken from the feeds, and until what this server itself serves,
    /// including custom resources, is up to date as well.
    fn catch_up(&self) -> PortFuture<'_, ()>;
}

/// The definitions of custom resources and of aggregated APIs that storage holds.
pub trait DefinitionStorage: Send + Sync {
    /// True if a definition brings a resource, as far as the cache knows. A definition that no server has established yet
    /// brings nothing.
    fn defines(&self, name: GroupVersionResource<&str>) -> bool;

    /// Follows changes from now on.
    fn watch(&self) -> Box<dyn ChangeNotifications>;
}

/// Notifications without content.
pub trait ChangeNotifications: Send {
    /// Waits for the next change. Cancel safe.
    fn wait_for_change(&mut self) -> BoxFuture<'_, ()>;
}

/// GET requests of this server itself to a peer, over mutual TLS.
pub trait Fetch: Send + Sync {
    /// Sends a GET and reads a response of at most `request.bytes_max`. Redirects are not followed.
    fn fetch(&self, request: FetchRequest) -> PortFuture<'_, FetchResponse, FetchError>;
}

/// A GET to a peer.
#[derive(Clone, Debug)]
pub struct FetchRequest {
    /// The id of the peer.
    pub server: ServerId,
    /// Where the peer listens.
    pub address: Address,
    /// The path, such as `/apis`.
    pub path: String,
    /// The headers, without the user, which the implementation adds.
    pub headers: HeaderMap,
    /// The longest body to read.
    pub bytes_max: usize,
}

/// The response of a peer.
#[derive(Clone, Debug)]
pub struct FetchResponse {
    /// The HTTP status, whatever it is.
    pub status: StatusCode,
    /// The response headers.
    pub headers: HeaderMap,
    /// The whole body, decoded from any content encoding.
    pub body: Bytes,
}

/// Why there is no response.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FetchError {
    /// No connection could be opened.
    #[error("it cannot be reached: {reason}")]
    Unreachable {
        /// For the log.
        reason: String,
    },
    /// A certificate was rejected, ours or the peer's.
    #[error("the TLS handshake failed: {reason}")]
    Tls {
        /// For the log.
        reason: String,
    },
    /// The deadline passed.
    #[error("it did not answer in time")]
    TimedOut,
    /// The body exceeds the limit.
    #[error("its answer is longer than {bytes_max} bytes")]
    TooLong {
        /// The limit.
        bytes_max: usize,
    },
    /// The connection ended, or carried something other than HTTP.
    #[error("its answer broke off: {reason}")]
    Broken {
        /// For the log.
        reason: String,
    },
}
