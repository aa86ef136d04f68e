//! Stores with one fault each, which the suite must find: a suite that passes everything proves nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use store::{Batch, Entry, Error, Event, Key, Outcome, Page, Pending, Range, Revision, Store, Transaction, Watch};
use tasks::Tasks;
use tokio::sync::mpsc;

use crate::conformance::Harness;
use crate::conformance::history::Weather;
use crate::conformance::workload::{self, Plan};
use crate::memory::Memory;

/// What a broken store does wrong, every now and then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    DropsAnEvent,
    RepeatsABatch,
    SwapsBatches,
    TearsABatch,
    TellsProgressTooEarly,
    HidesADelete,
    HalfCommits,
    CommitsTwice,
    IgnoresComparisons,
    LosesAnAcknowledgedWrite,
    ReadsThePast,
    TellsAnOldRevision,
    CutsARange,
}

#[tokio::test(start_paused = true)]
async fn a_sound_store_passes() {
    assert_eq!(found(Fault::None).await, None);
}

// Paused, because a fault in the last batch leaves a watcher waiting for all of its patience.
#[tokio::test(start_paused = true)]
async fn every_fault_is_found_and_named() {
    const LATE: &[&str] = &["came after"];
    // What such a fault leaves behind may first show in any later answer.
    const ANYWHERE: &[&str] = &[""];
    for (fault, named) in [
        (Fault::DropsAnEvent, &["event"] as &[&str]),
        (Fault::RepeatsABatch, LATE),
        (Fault::SwapsBatches, &["came after", "the run did not end"]),
        (Fault::TearsABatch, LATE),
        (Fault::TellsProgressTooEarly, LATE),
        (Fault::HidesADelete, &["event"]),
        (Fault::HalfCommits, ANYWHERE),
        (Fault::CommitsTwice, &["nobody wrote that", "against"]),
        (Fault::IgnoresComparisons, &["against"]),
        (Fault::LosesAnAcknowledgedWrite, ANYWHERE),
        (Fault::ReadsThePast, &["had been seen"]),
        (Fault::TellsAnOldRevision, &["had been seen"]),
        (Fault::CutsARange, &["it is"]),
    ] {
        let violation = found(fault).await.unwrap_or_else(|| panic!("{fault:?} was not found"));
        let is_named = named.iter().any(|name| violation.contains(name));
        assert!(is_named, "{fault:?} was found as: {violation}");
    }
}

/// What the model check says about a store with this fault.
async fn found(fault: Fault) -> Option<String> {
    let harness = Broken { inner: Memory::new(), fault, calls: Arc::default(), tasks: Tasks::new() };
    let plan = Plan {
        seed: 7,
        prefix: "/broken/".to_owned(),
        clients: 3,
        calls_per_client: 150,
        weather: Weather::Calm,
        compacts: false,
    };
    workload::check(&harness, &plan).await.err().map(|violation| format!("{violation:#}"))
}

/// A sound store behind a fault. Clones are clients of one store.
#[derive(Clone, Debug)]
struct Broken {
    inner: Memory,
    fault: Fault,
    calls: Arc<AtomicUsize>,
    tasks: Tasks,
}

impl Broken {
    /// Whether it is time for the fault: in every tenth call.
    fn strikes(&self, fault: Fault) -> bool {
        self.fault == fault && self.calls.fetch_add(1, Ordering::Relaxed) % 10 == 9
    }

    async fn write(&self, mut transaction: Transaction) -> Result<Outcome, Error> {
        if self.strikes(Fault::IgnoresComparisons) {
            transaction.compares.clear();
        }
        if transaction.ops.len() > 1 && self.strikes(Fault::HalfCommits) {
            transaction.ops.truncate(1);
        }
        let is_twice = self.strikes(Fault::CommitsTwice);
        if self.strikes(Fault::LosesAnAcknowledgedWrite) {
            return Ok(Outcome::Committed(self.inner.revision().await?.next()));
        }
        let outcome = self.inner.commit(transaction.clone()).await?;
        if is_twice {
            let again = Transaction { compares: Vec::new(), ops: transaction.ops };
            self.inner.commit(again).await?;
        }
        Ok(outcome)
    }

    async fn read(&self, range: Range) -> Result<Page, Error> {
        let mut page = self.inner.range(range.clone()).await?;
        if range.at.is_none() && self.strikes(Fault::ReadsThePast) {
            let past = Revision(page.revision.0.saturating_sub(3).max(1));
            page = self.inner.range(range.at(past)).await?;
        }
        if self.strikes(Fault::CutsARange) {
            page.entries.pop();
        }
        Ok(page)
    }

    /// What becomes of a batch, which may be several.
    fn distort(&self, batch: Batch) -> Vec<Batch> {
        let Batch { events, through } = batch.clone();
        let first = events.first().map(Event::revision);
        if events.is_empty() {
            return vec![batch];
        }
        if self.strikes(Fault::DropsAnEvent) {
            return vec![Batch { events: events[1..].to_vec(), through }];
        }
        if self.strikes(Fault::RepeatsABatch) {
            return vec![batch.clone(), batch];
        }
        if self.strikes(Fault::TellsProgressTooEarly) {
            return vec![Batch { events: Vec::new(), through }, batch];
        }
        if events.len() > 1 && events[1].revision() == events[0].revision() && self.strikes(Fault::TearsABatch) {
            let half = Batch { events: events[..1].to_vec(), through: first.unwrap_or_default() };
            return vec![half, Batch { events: events[1..].to_vec(), through }];
        }
        if self.fault == Fault::HidesADelete {
            let events = events.into_iter().filter(|event| matches!(event, Event::Put(_))).collect();
            return vec![Batch { events, through }];
        }
        vec![batch]
    }

    async fn pass_on(
        self,
        mut inner: Watch,
        batches: mpsc::Sender<Result<Batch, Error>>,
        mut asked: mpsc::Receiver<()>,
    ) {
        let mut held: Option<Batch> = None;
        let progress = inner.progress();
        loop {
            let batch = tokio::select! {
                batch = inner.next() => batch,
                request = asked.recv() => { if request.is_some() { progress.send(); } continue; }
                () = batches.closed() => return,
            };
            let Some(batch) = batch else { return };
            let mut outgoing = match batch {
                Ok(batch) if held.is_none() && self.strikes(Fault::SwapsBatches) => {
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

impl Store for Broken {
    fn get(&self, key: Key) -> Pending<'_, (Option<Entry>, Revision)> {
        self.inner.get(key)
    }

    fn range(&self, range: Range) -> Pending<'_, Page> {
        self.read(range).boxed()
    }

    fn commit(&self, transaction: Transaction) -> Pending<'_, Outcome> {
        self.write(transaction).boxed()
    }

    fn watch(&self, prefix: Key, from: Revision) -> Pending<'_, Watch> {
        async move {
            let inner = self.inner.watch(prefix, from).await?;
            let (batches, delivered) = mpsc::channel(16);
            let (asking, asked) = mpsc::channel(1);
            self.tasks.spawn_once("broken watch", self.clone().pass_on(inner, batches, asked));
            Ok(Watch::new(delivered, asking))
        }
        .boxed()
    }

    fn revision(&self) -> Pending<'_, Revision> {
        async move {
            let revision = self.inner.revision().await?;
            let is_old = self.fault == Fault::TellsAnOldRevision;
            Ok(if is_old { Revision(revision.0.saturating_sub(5).max(1)) } else { revision })
        }
        .boxed()
    }

    fn answers_progress(&self) -> bool {
        true
    }

    fn compact(&self, revision: Revision) -> Pending<'_, ()> {
        self.inner.compact(revision)
    }
}

impl Harness for Broken {
    fn open(&self) -> BoxFuture<'_, Arc<dyn Store>> {
        let client: Arc<dyn Store> = Arc::new(self.clone());
        std::future::ready(client).boxed()
    }

    fn oversized(&self) -> usize {
        self.inner.oversized()
    }
}
