//! A revisioned key-value store: what kube-apiserver needs of etcd v3, and no more.
//!
//! The store knows bytes, not kinds. Two backends keep one contract: [`sqlite`], where several server processes of one
//! machine share a file, and [`etcd`], for servers on many machines. Every acknowledged write has a [`Revision`], and
//! revisions order all writes of all servers.
//!
//! Reading order: [`contract`] (the values and the trait), [`compaction`] (the loop that forgets history), then the backends.

pub mod compaction;
pub mod contract;
pub mod etcd;
pub mod sqlite;

pub use contract::{
    Compare, Error, Key, KeyRange, Op, ProgressRequest, RangePage, Revision, Store, StoreEntry, StoreEvent,
    StoreFuture, Transaction, TransactionOutcome, Watch, WatchBatch, prefix_end,
};
