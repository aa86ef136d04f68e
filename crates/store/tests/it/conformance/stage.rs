//! Where a check plays: two clients of one store, a prefix of its own, and the words that checks are written in.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use bytes::Bytes;
use store::{Batch, Entry, Error, Event, Key, Op, Outcome, Page, Range, Revision, Store, Transaction, Watch};

use super::Harness;

/// Longer than anything takes that happens at all, also on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Two clients of one store and a prefix that no other check uses.
pub(crate) struct Stage {
    /// The client that most checks write through.
    pub(crate) here: Arc<dyn Store>,
    /// Another client, as another server would be.
    pub(crate) there: Arc<dyn Store>,
    /// The size of a value that is too large.
    pub(crate) oversized: usize,
    prefix: Vec<u8>,
}

impl Stage {
    pub(crate) async fn new(harness: &dyn Harness, name: &str) -> Self {
        Self {
            here: harness.open().await,
            there: harness.open().await,
            oversized: harness.oversized(),
            prefix: format!("/{name}/").into_bytes(),
        }
    }

    /// A key of this check.
    pub(crate) fn key(&self, name: impl AsRef<[u8]>) -> Key {
        [self.prefix.as_slice(), name.as_ref()].concat().into()
    }

    /// Every key of this check.
    pub(crate) fn prefix(&self) -> Key {
        self.key("")
    }

    /// A watch of everything that this check does from now on.
    pub(crate) async fn watch_from_now(&self) -> anyhow::Result<Watch> {
        let from = revision(&self.there).await?.next();
        watch(&self.there, self.prefix(), from).await
    }
}

/// The outcome of an operation that must come at all.
pub(crate) async fn within<T>(what: &str, operation: impl Future<Output = T>) -> anyhow::Result<T> {
    tokio::time::timeout(PATIENCE, operation).await.with_context(|| format!("{what}: nothing for {PATIENCE:?}"))
}

pub(crate) async fn commit(store: &Arc<dyn Store>, transaction: Transaction) -> anyhow::Result<Outcome> {
    within("commit", store.commit(transaction)).await?.context("commit")
}

/// Commits what must not conflict.
pub(crate) async fn write(store: &Arc<dyn Store>, transaction: Transaction) -> anyhow::Result<Revision> {
    match commit(store, transaction.clone()).await? {
        Outcome::Committed(revision) => Ok(revision),
        Outcome::Conflict { current, .. } => bail!("{transaction:?} found {current:?}"),
    }
}

/// Commits what must conflict, and returns what it found.
pub(crate) async fn conflict(
    store: &Arc<dyn Store>,
    transaction: Transaction,
) -> anyhow::Result<(Vec<Option<Entry>>, Revision)> {
    match commit(store, transaction.clone()).await? {
        Outcome::Committed(revision) => bail!("{transaction:?} happened, at {revision}"),
        Outcome::Conflict { current, revision } => Ok((current, revision)),
    }
}

/// Puts a key whatever it holds.
pub(crate) async fn put(store: &Arc<dyn Store>, key: Key, value: impl Into<Bytes>) -> anyhow::Result<Revision> {
    write(store, put_op(key, value).into_transaction()).await
}

/// Removes a key whatever it holds.
pub(crate) async fn remove(store: &Arc<dyn Store>, key: Key) -> anyhow::Result<Revision> {
    write(store, Op::Delete { key }.into_transaction()).await
}

pub(crate) fn put_op(key: Key, value: impl Into<Bytes>) -> Op {
    Op::Put { key, value: value.into(), ttl: None }
}

/// Operations on their own, without comparisons.
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

pub(crate) async fn get(store: &Arc<dyn Store>, key: Key) -> anyhow::Result<(Option<Entry>, Revision)> {
    within("get", store.get(key)).await?.context("get")
}

pub(crate) async fn range(store: &Arc<dyn Store>, range: Range) -> anyhow::Result<Page> {
    let page = within("range", store.range(range.clone())).await?.with_context(|| format!("{range:?}"))?;
    let sorted = page.entries.windows(2).all(|pair| pair[0].key < pair[1].key);
    ensure!(sorted, "{range:?} is not in ascending order without doubles");
    Ok(page)
}

/// The error of a range that must fail.
pub(crate) async fn range_error(store: &Arc<dyn Store>, range: Range) -> anyhow::Result<Error> {
    match within("range", store.range(range.clone())).await? {
        Ok(page) => bail!("{range:?} was read, at {}", page.revision),
        Err(error) => Ok(error),
    }
}

pub(crate) async fn revision(store: &Arc<dyn Store>) -> anyhow::Result<Revision> {
    within("revision", store.revision()).await?.context("revision")
}

pub(crate) async fn compact(store: &Arc<dyn Store>, revision: Revision) -> anyhow::Result<()> {
    within("compact", store.compact(revision)).await?.context("compact")
}

pub(crate) async fn watch(store: &Arc<dyn Store>, prefix: Key, from: Revision) -> anyhow::Result<Watch> {
    within("watch", store.watch(prefix, from)).await?.context("watch")
}

/// The next batch of a watch that must go on, checked in itself.
pub(crate) async fn next_batch(watch: &mut Watch) -> anyhow::Result<Batch> {
    let batch = within("next batch", watch.next()).await?.context("the watch ended")??;
    let ordered = batch.events.windows(2).all(|pair| pair[0].revision() <= pair[1].revision());
    ensure!(ordered, "a batch out of order: {batch:?}");
    let reaches = batch.events.last().is_none_or(|last| last.revision() <= batch.through);
    ensure!(reaches, "a batch that does not reach its own events: {batch:?}");
    Ok(batch)
}

/// Every event up to `last`, with the events of one revision in the order of their keys.
pub(crate) async fn events_through(watch: &mut Watch, last: Revision) -> anyhow::Result<Vec<Event>> {
    let mut events = Vec::new();
    let mut through = Revision(0);
    while through < last {
        let batch = next_batch(watch).await.with_context(|| format!("waiting for {last}, have {events:?}"))?;
        ensure!(batch.through >= through, "progress went back from {through} to {}", batch.through);
        let early = batch.events.iter().find(|event| event.revision() <= through);
        ensure!(early.is_none(), "{early:?} came after everything through {through} was delivered");
        through = batch.through;
        events.extend(batch.events);
    }
    Ok(in_order(events))
}

/// Sorts the events of each revision by key: a transaction has no order inside.
pub(crate) fn in_order(mut events: Vec<Event>) -> Vec<Event> {
    events.sort_by(|a, b| (a.revision(), a.key()).cmp(&(b.revision(), b.key())));
    events
}

pub(crate) fn put_event(key: Key, value: impl Into<Bytes>, revision: Revision) -> Event {
    Event::Put(Entry { key, value: value.into(), revision })
}

pub(crate) fn delete_event(key: Key, revision: Revision) -> Event {
    Event::Delete { key, revision }
}

/// Fails with both sides unless they are equal.
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
