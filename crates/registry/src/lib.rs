//! Objects over the store: reads and watches from memory, writes through one persist step.
//!
//! [`Cache`] follows the store by one watch on the whole prefix and keeps, per resource, an immutable snapshot and the recent
//! changes. [`Registry`] reads from it once it has caught up with the store, and writes by compare-and-set.
//!
//! Reading order: [`cache`], [`watch`], [`read`], [`reader`], [`mod@write`], [`barrier`].

pub mod barrier;
pub mod cache;
pub mod read;
pub mod reader;
pub mod watch;
pub mod write;

use std::sync::Arc;

use store::Store;

pub use barrier::{Author, Barrier, Held, Open, Permit, Subject};
pub use cache::{Cache, Cached, Change, Form, Item, Shelf};
pub use read::{Listing, ReadError, Span};
pub use reader::SnapshotReader;
pub use watch::{Expired, Watcher};
pub use write::{Attempt, Decision, WriteError, Written};

/// Objects over one store. Clones share it.
#[derive(Clone, Debug)]
pub struct Registry {
    store: Arc<dyn Store>,
    cache: Cache,
    barrier: Arc<dyn Barrier>,
    author: Author,
}

impl Registry {
    /// A registry that reads from `cache`, which must follow `store`, and writes what `barrier` permits.
    pub fn new(store: Arc<dyn Store>, cache: Cache, barrier: Arc<dyn Barrier>) -> Self {
        Self { store, cache, barrier, author: Author::Client }
    }

    /// The same registry, for what the server writes because it needs it.
    pub fn for_server(&self) -> Self {
        Self { author: Author::Server, ..self.clone() }
    }

    /// What is kept in memory.
    pub fn cache(&self) -> &Cache {
        &self.cache
    }
}
