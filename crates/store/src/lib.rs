//! A revisioned key-value store: the part of etcd v3 that kube-apiserver uses.
//!
//! The store holds bytes and knows nothing of kinds. Two backends implement one contract: [`sqlite`], a file shared by
//! the server processes of one machine, and [`etcd`], for servers on several machines. Every acknowledged write has a
//! [`Revision`], and revisions order all writes of all servers.
//!
//! Reading order: [`contract`] (the values and the trait), [`compaction`] (the loop that removes old history), then the
//! backends.

pub mod compaction;
pub mod contract;
pub mod etcd;
pub mod sqlite;

pub use contract::{
    Compare, ComputedValues, Error, Key, KeyRange, KeyState, Op, ProgressRequest, RangePage, Revision, Store,
    StoreEntry, StoreEvent, StoreFuture, Transaction, TransactionOutcome, Watch, WatchBatch, prefix_end,
};
