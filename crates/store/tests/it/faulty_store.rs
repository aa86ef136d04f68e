//! Stores with one fault each, all of which the conformance suite must find.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use store::{
    Error, Key, KeyRange, RangePage, Revision, Store, StoreEntry, StoreEvent, StoreFuture, Transaction,
    TransactionOutcome, Watch, WatchBatch,
};
use tasks::Tasks;
use tokio::sync::mpsc;

use crate::conformance::Harness;
use crate::conformance::history::FaultMode;
use crate::conformance::workload::{self, WorkloadPlan};
use crate::memory_store::MemoryStore;

/// What a faulty store does wrong in every tenth call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StoreFault {
    None,
    DropsEvent,
    RepeatsBatch,
    SwapsBatches,
    SplitsTransaction,
    ReportsProgressTooEarly,
    HidesDelete,
    HalfCommits,
    CommitsTwice,
    IgnoresComparisons,
    LosesAcknowledgedWrite,
    ReadsStaleState,
    ReportsOldRevision,
    TruncatesRange,
}

#[tokio::test(start_paused = true)]
async fn model_check_passes_correct_store() {
    assert_eq!(check_with_fault(StoreFault::None).await, None);
}

// Paused, because a fault in the last batch leaves a watcher waiting for its whole timeout.
#[tokio::test(start_paused = true)]
async fn model_check_finds_every_fault() {
    const LATE: &[&str] = &["came after"];
    // The effect of such a fault may first show in any later response.
    const ANYWHERE: &[&str] = &[""];
    for (fault, named) in [
        (StoreFault::DropsEvent, &["event"] as &[&str]),
        (StoreFault::RepeatsBatch, LATE),
        (StoreFault::SwapsBatches, &["came after", "the run did not end"]),
        (StoreFault::SplitsTransaction, LATE),
        (StoreFault::ReportsProgressTooEarly, LATE),
        (StoreFault::HidesDelete, &["event"]),
        (StoreFault::HalfCommits, ANYWHERE),
        (StoreFault::CommitsTwice, &["which no client wrote", "did not hold"]),
        (StoreFault::IgnoresComparisons, &["did not hold"]),
        (StoreFault::LosesAcknowledgedWrite, ANYWHERE),
        (StoreFault::ReadsStaleState, &["had been seen"]),
        (StoreFault::ReportsOldRevision, &["had been seen"]),
        (StoreFault::TruncatesRange, &["the page is"]),
    ] {
        let violation = check_with_fault(fault).await.unwrap_or_else(|| panic!("{fault:?} was not found"));
        let is_named = named.iter().any(|name| violation.contains(name));
        assert!(is_named, "{fault:?} was found as: {violation}");
    }
}

/// The violation that the model check finds in a store with this fault.
async fn check_with_fault(fault: StoreFault) -> Option<String> {
    let harness = FaultyStore { inner: MemoryStore::new(), fault, calls: Arc::default(), tasks: Tasks::new() };
    let plan = WorkloadPlan {
        seed: 7,
        prefix: "/broken/".to_owned(),
        clients: 3,
        calls_per_client: 150,
        fault_mode: FaultMode::NoFaults,
        compacts: false,
    };
    workload::check_plan(&harness, &plan).await.err().map(|violation| format!("{violation:#}"))
}

/// A correct store behind a fault. Clones are clients of one store.
#[derive(Clone, Debug)]
struct FaultyStore {
    inner: MemoryStore,
    fault: StoreFault,
    calls: Arc<AtomicUsize>,
    tasks: Tasks,
}

impl FaultyStore {
    /// True in every tenth call.
    fn should_fail(&self, fault: StoreFault) -> bool {
        self.fault == fault && self.calls.fetch_add(1, Ordering::Relaxed) % 10 == 9
    }

    async fn write(&self, mut transaction: Transaction) -> Result<TransactionOutcome, Error> {
        if self.should_fail(StoreFault::IgnoresComparisons) {
            transaction.compares.clear();
        }
        if transaction.ops.len() > 1 && self.should_fail(StoreFault::HalfCommits) {
            transaction.ops.truncate(1);
        }
        let is_twice = self.should_fail(StoreFault::CommitsTwice);
        if self.should_fail(StoreFault::LosesAcknowledgedWrite) {
            return Ok(TransactionOutcome::Committed(self.inner.revision().await?.next()));
        }
        let outcome = self.inner.commit(transaction.clone()).await?;
        if is_twice {
            let again = Transaction { compares: Vec::new(), ops: transaction.ops };
            self.inner.commit(again).await?;
        }
        Ok(outcome)
    }

    async fn read(&self, range: KeyRange) -> Result<RangePage, Error> {
        let mut page = self.inner.range(range.clone()).await?;
        if range.at_revision.is_none() && self.should_fail(StoreFault::ReadsStaleState) {
            let past = Revision(page.revision.0.saturating_sub(3).max(1));
            page = self.inner.range(range.at_revision(past)).await?;
        }
        if self.should_fail(StoreFault::TruncatesRange) {
            page.entries.pop();
        }
        Ok(page)
    }

    /// Distorts a batch into zero or more batches.
    fn distort(&self, batch: WatchBatch) -> Vec<WatchBatch> {
        let WatchBatch { events, complete_through } = batch.clone();
        let first = events.first().map(StoreEvent::revision);
        if events.is_empty() {
            return vec![batch];
        }
        if self.should_fail(StoreFault::DropsEvent) {
            return vec![WatchBatch { events: events[1..].to_vec(), complete_through }];
        }
        if self.should_fail(StoreFault::RepeatsBatch) {
            return vec![batch.clone(), batch];
        }
        if self.should_fail(StoreFault::ReportsProgressTooEarly) {
            return vec![WatchBatch { events: Vec::new(), complete_through }, batch];
        }
        if events.len() > 1
            && events[1].revision() == events[0].revision()
            && self.should_fail(StoreFault::SplitsTransaction)
        {
            let half = WatchBatch { events: events[..1].to_vec(), complete_through: first.unwrap_or_default() };
            return vec![half, WatchBatch { events: events[1..].to_vec(), complete_through }];
        }
        if self.fault == StoreFault::HidesDelete {
            let events = events.into_iter().filter(|event| matches!(event, StoreEvent::Put(_))).collect();
            return vec![WatchBatch { events, complete_through }];
        }
        vec![batch]
    }

    async fn forward_batches(
        self,
        mut inner: Watch,
        batches: mpsc::Sender<Result<WatchBatch, Error>>,
        mut asked: mpsc::Receiver<()>,
    ) {
        let mut held: Option<WatchBatch> = None;
        let progress = inner.progress_request();
        loop {
            let batch = tokio::select! {
                batch = inner.next_batch() => batch,
                request = asked.recv() => { if request.is_some() { progress.send(); } continue; }
                () = batches.closed() => return,
            };
            let Some(batch) = batch else { return };
            let mut outgoing = match batch {
                Ok(batch) if held.is_none() && self.should_fail(StoreFault::SwapsBatches) => {
                    held = Some(batch);
                    continue;
                }
                Ok(batch) => self.distort(batch).into_iter().map(Ok).collect::<Vec<_>>(),
                Err(error) => vec![Err(error)],
            };
            outgoing.extend(held.take().map(Ok));
            for batch in outgoing {
                if batches.send(batch).await.is_err() {
                    return;
                }
            }
        }
    }
}

impl Store for FaultyStore {
    fn get(&self, key: Key) -> StoreFuture<'_, (Option<StoreEntry>, Revision)> {
        self.inner.get(key)
    }

    fn range(&self, range: KeyRange) -> StoreFuture<'_, RangePage> {
        self.read(range).boxed()
    }

    fn commit(&self, transaction: Transaction) -> StoreFuture<'_, TransactionOutcome> {
        self.write(transaction).boxed()
    }

    fn watch(&self, prefix: Key, from: Revision) -> StoreFuture<'_, Watch> {
        async move {
            let inner = self.inner.watch(prefix, from).await?;
            let (batches, delivered) = mpsc::channel(16);
            let (asking, asked) = mpsc::channel(1);
            self.tasks.spawn_once("broken watch", self.clone().forward_batches(inner, batches, asked));
            Ok(Watch::new(delivered, asking))
        }
        .boxed()
    }

    fn revision(&self) -> StoreFuture<'_, Revision> {
        async move {
            let revision = self.inner.revision().await?;
            let is_old = self.fault == StoreFault::ReportsOldRevision;
            Ok(if is_old { Revision(revision.0.saturating_sub(5).max(1)) } else { revision })
        }
        .boxed()
    }

    fn supports_progress_requests(&self) -> bool {
        true
    }

    fn compact(&self, revision: Revision) -> StoreFuture<'_, ()> {
        self.inner.compact(revision)
    }
}

impl Harness for FaultyStore {
    fn open(&self) -> BoxFuture<'_, Arc<dyn Store>> {
        let client: Arc<dyn Store> = Arc::new(self.clone());
        std::future::ready(client).boxed()
    }

    fn oversized_value_bytes(&self) -> usize {
        self.inner.oversized_value_bytes()
    }
}
