//! Objects over the store: reads and watches from an in-memory cache, writes through a single persist step.
//!
//! [`WatchCache`] follows the store with one watch on the whole prefix and keeps, per resource, an immutable snapshot
//! and the recent changes. [`Registry`] reads from it once it has caught up with the store, and writes by
//! compare-and-set.
//!
//! Reading order: [`cache`], [`watch`], [`read`], [`snapshot_reader`], [`mod@write`], [`barrier`].

pub mod barrier;
pub mod cache;
pub mod read;
pub mod snapshot_reader;
pub mod watch;
pub mod write;

use std::sync::Arc;

use store::Store;

pub use barrier::{AlwaysOpenBarrier, BarrierClosed, Permit, PermitRequest, WriteAuthor, WriteBarrier};
pub use cache::{CachedEntry, CachedValue, KeyChange, ResourceCache, ResourceSnapshot, ValueFormat, WatchCache};
pub use read::{ListPage, ListSelection, ReadError};
pub use snapshot_reader::SnapshotReader;
pub use watch::{CacheWatcher, WatchExpired};
pub use write::{
    CompanionResource, CompanionWrite, ComputedWrites, DecidedWrite, RawWriteOutcome, WriteConditions, WriteDecision,
    WriteError, WriteOnceOutcome, WriteOutcome,
};

/// The objects of one store. Clones share the cache and the barrier.
#[derive(Clone, Debug)]
pub struct Registry {
    store: Arc<dyn Store>,
    cache: WatchCache,
    barrier: Arc<dyn WriteBarrier>,
    author: WriteAuthor,
}

impl Registry {
    /// Creates a registry that reads from `cache`, which must follow `store`, and writes what `barrier` permits.
    pub fn new(store: Arc<dyn Store>, cache: WatchCache, barrier: Arc<dyn WriteBarrier>) -> Self {
        Self { store, cache, barrier, author: WriteAuthor::Client }
    }

    /// A clone whose writes count as the server's own, which a barrier may exempt.
    pub fn with_server_author(&self) -> Self {
        Self { author: WriteAuthor::Server, ..self.clone() }
    }

    /// The watch cache that reads are served from.
    pub fn cache(&self) -> &WatchCache {
        &self.cache
    }
}
