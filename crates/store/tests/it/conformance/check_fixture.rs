//! The fixture and the helper functions of the conformance checks.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use bytes::Bytes;
use store::{
    Error, Key, KeyRange, Op, RangePage, Revision, Store, StoreEntry, StoreEvent, Transaction, TransactionOutcome,
    Watch, WatchBatch,
};

use super::Harness;

/// Longer than any operation takes, even on a busy machine.
const CHECK_TIMEOUT: Duration = Duration::from_secs(60);

/// Two clients of one store and a prefix that no other check uses.
pub(crate) struct CheckFixture {
    /// The client that most checks write through.
    pub(crate) client: Arc<dyn Store>,
    /// A second client, as another server would be.
    pub(crate) other_client: Arc<dyn Store>,
    /// The size of a value that exceeds every limit of the store.
    pub(crate) oversized_value_bytes: usize,
    prefix: Vec<u8>,
}

impl CheckFixture {
    pub(crate) async fn new(harness: &dyn Harness, name: &str) -> Self {
        Self {
            client: harness.open().await,
            other_client: harness.open().await,
            oversized_value_bytes: harness.oversized_value_bytes(),
            prefix: format!("/{name}/").into_bytes(),
        }
    }

    pub(crate) fn key(&self, name: impl AsRef<[u8]>) -> Key {
        [self.prefix.as_slice(), name.as_ref()].concat().into()
    }

    /// The prefix of all keys of this check.
    pub(crate) fn prefix(&self) -> Key {
        self.key("")
    }

    /// Watches all changes of this check from now on.
    pub(crate) async fn watch_from_now(&self) -> anyhow::Result<Watch> {
        let from = revision(&self.other_client).await?.next();
        watch(&self.other_client, self.prefix(), from).await
    }
}

/// Awaits an operation, failing after [`CHECK_TIMEOUT`].
pub(crate) async fn with_timeout<T>(what: &str, operation: impl Future<Output = T>) -> anyhow::Result<T> {
    tokio::time::timeout(CHECK_TIMEOUT, operation)
        .await
        .with_context(|| format!("{what}: no result within {CHECK_TIMEOUT:?}"))
}

pub(crate) async fn commit(store: &Arc<dyn Store>, transaction: Transaction) -> anyhow::Result<TransactionOutcome> {
    with_timeout("commit", store.commit(transaction)).await?.context("commit")
}

/// Commits a transaction that must not conflict.
pub(crate) async fn commit_ok(store: &Arc<dyn Store>, transaction: Transaction) -> anyhow::Result<Revision> {
    match commit(store, transaction.clone()).await? {
        TransactionOutcome::Committed(revision) => Ok(revision),
        TransactionOutcome::Conflict { current, .. } => bail!("{transaction:?} found {current:?}"),
    }
}

/// Commits a transaction that must conflict, and returns the current entries.
pub(crate) async fn commit_conflict(
    store: &Arc<dyn Store>,
    transaction: Transaction,
) -> anyhow::Result<(Vec<Option<StoreEntry>>, Revision)> {
    match commit(store, transaction.clone()).await? {
        TransactionOutcome::Committed(revision) => bail!("{transaction:?} was committed at {revision}"),
        TransactionOutcome::Conflict { current, revision } => Ok((current, revision)),
    }
}

pub(crate) async fn put(store: &Arc<dyn Store>, key: Key, value: impl Into<Bytes>) -> anyhow::Result<Revision> {
    commit_ok(store, put_op(key, value).into_transaction()).await
}

pub(crate) async fn remove(store: &Arc<dyn Store>, key: Key) -> anyhow::Result<Revision> {
    commit_ok(store, Op::Delete { key }.into_transaction()).await
}

pub(crate) fn put_op(key: Key, value: impl Into<Bytes>) -> Op {
    Op::Put { key, value: value.into(), ttl: None }
}

/// Converts operations into a transaction without comparisons.
pub(crate) trait IntoTransaction {
    fn into_transaction(self) -> Transaction;
}

impl IntoTransaction for Op {
    fn into_transaction(self) -> Transaction {
        vec![self].into_transaction()
    }
}

impl IntoTransaction for Vec<Op> {
    fn into_transaction(self) -> Transaction {
        Transaction { compares: Vec::new(), ops: self }
    }
}

pub(crate) async fn get(store: &Arc<dyn Store>, key: Key) -> anyhow::Result<(Option<StoreEntry>, Revision)> {
    with_timeout("get", store.get(key)).await?.context("get")
}

pub(crate) async fn range(store: &Arc<dyn Store>, range: KeyRange) -> anyhow::Result<RangePage> {
    let page = with_timeout("range", store.range(range.clone())).await?.with_context(|| format!("{range:?}"))?;
    let sorted = page.entries.windows(2).all(|pair| pair[0].key < pair[1].key);
    ensure!(sorted, "{range:?} is not in strictly ascending order");
    Ok(page)
}

/// Returns the error of a range that must fail.
pub(crate) async fn range_error(store: &Arc<dyn Store>, range: KeyRange) -> anyhow::Result<Error> {
    match with_timeout("range", store.range(range.clone())).await? {
        Ok(page) => bail!("{range:?} was read, at {}", page.revision),
        Err(error) => Ok(error),
    }
}

pub(crate) async fn revision(store: &Arc<dyn Store>) -> anyhow::Result<Revision> {
    with_timeout("revision", store.revision()).await?.context("revision")
}

pub(crate) async fn compact(store: &Arc<dyn Store>, revision: Revision) -> anyhow::Result<()> {
    with_timeout("compact", store.compact(revision)).await?.context("compact")
}

pub(crate) async fn watch(store: &Arc<dyn Store>, prefix: Key, from: Revision) -> anyhow::Result<Watch> {
    with_timeout("watch", store.watch(prefix, from)).await?.context("watch")
}

/// Awaits the next batch of a watch that must continue, and checks the batch's order.
pub(crate) async fn next_batch(watch: &mut Watch) -> anyhow::Result<WatchBatch> {
    let batch = with_timeout("next batch", watch.next_batch()).await?.context("the watch ended")??;
    let ordered = batch.events.windows(2).all(|pair| pair[0].revision() <= pair[1].revision());
    ensure!(ordered, "a batch out of order: {batch:?}");
    let reaches = batch.events.last().is_none_or(|last| last.revision() <= batch.complete_through);
    ensure!(reaches, "a batch that does not reach its own events: {batch:?}");
    Ok(batch)
}

/// Collects every event up to `last`, with the events of one revision in order of keys.
pub(crate) async fn events_through(watch: &mut Watch, last: Revision) -> anyhow::Result<Vec<StoreEvent>> {
    let mut events = Vec::new();
    let mut through = Revision(0);
    while through < last {
        let batch = next_batch(watch).await.with_context(|| format!("waiting for {last}, have {events:?}"))?;
        ensure!(batch.complete_through >= through, "progress went back from {through} to {}", batch.complete_through);
        let early = batch.events.iter().find(|event| event.revision() <= through);
        ensure!(early.is_none(), "{early:?} came after everything through {through} was delivered");
        through = batch.complete_through;
        events.extend(batch.events);
    }
    Ok(sort_events(events))
}

/// Sorts the events of each revision by key, since a transaction has no inner order.
pub(crate) fn sort_events(mut events: Vec<StoreEvent>) -> Vec<StoreEvent> {
    events.sort_by(|a, b| (a.revision(), a.key()).cmp(&(b.revision(), b.key())));
    events
}

pub(crate) fn put_event(key: Key, value: impl Into<Bytes>, revision: Revision) -> StoreEvent {
    StoreEvent::Put(StoreEntry { key, value: value.into(), revision })
}

pub(crate) fn delete_event(key: Key, revision: Revision) -> StoreEvent {
    StoreEvent::Delete { key, revision }
}

/// Fails with both values unless they are equal.
macro_rules! ensure_equal {
    ($found:expr, $expected:expr, $($what:tt)+) => {
        match (&$found, &$expected) {
            (found, expected) => {
                anyhow::ensure!(found == expected, "{}: found {found:?}, expected {expected:?}", format!($($what)+));
            }
        }
    };
}
pub(crate) use ensure_equal;
