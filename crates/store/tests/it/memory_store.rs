//! A store in memory: the model behind a lock. It shows that the suite can be passed, carries the faults of
//! `faulty_store.rs`, and uses tokio's clock, which tests can pause.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use store::{
    ComputedValues, Error, Key, KeyRange, KeyState, Op, RangePage, Revision, Store, StoreEntry, StoreFuture,
    Transaction, TransactionOutcome, Watch, WatchBatch, prefix_end,
};
use tasks::Tasks;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use crate::conformance::model::StoreModel;
use crate::conformance::{Harness, conformance_tests};

/// More than any other test puts.
const VALUE_BYTES_MAX: usize = 4 << 20;

conformance_tests!(MemoryStore::new());

/// Clones are clients of one store.
#[derive(Clone, Debug)]
pub(crate) struct MemoryStore {
    state: Arc<Mutex<State>>,
    current: Arc<watch::Sender<Revision>>,
    tasks: Tasks,
}

#[derive(Debug)]
struct State {
    model: StoreModel,
    current: Revision,
    compacted: Revision,
    deadlines: BTreeMap<Key, Instant>,
    /// The revision of the last computed put of a key, and since when only computations put it.
    computed: BTreeMap<Key, (Revision, Revision)>,
}

impl MemoryStore {
    pub(crate) fn new() -> Self {
        let first = Revision(1);
        let state = State {
            model: StoreModel::default(),
            current: first,
            compacted: Revision(0),
            deadlines: BTreeMap::new(),
            computed: BTreeMap::new(),
        };
        Self { state: Arc::new(Mutex::new(state)), current: Arc::new(watch::Sender::new(first)), tasks: Tasks::new() }
    }

    pub(crate) fn compacted_revision(&self) -> Revision {
        self.state.lock().compacted
    }

    fn apply_ops(&self, state: &mut State, ops: &[Op]) -> Revision {
        if state.model.changes(ops) > 0 {
            state.current = state.current.next();
            state.model.apply(state.current, ops);
            self.current.send_replace(state.current);
        }
        for op in ops {
            state.deadlines.remove(op.key());
            if let Op::Put { key, ttl: Some(ttl), .. } = op {
                let whole = std::time::Duration::from_secs(ttl.as_secs() + u64::from(ttl.subsec_nanos() > 0));
                let deadline = Instant::now() + whole;
                state.deadlines.insert(key.clone(), deadline);
                self.tasks.spawn_once("expiry", self.clone().expire(key.clone(), deadline));
            }
        }
        state.current
    }

    async fn expire(self, key: Key, deadline: Instant) {
        tokio::time::sleep_until(deadline).await;
        let mut state = self.state.lock();
        if state.deadlines.get(&key) == Some(&deadline) {
            self.apply_ops(&mut state, &[Op::Delete { key }]);
        }
    }

    fn read(&self, range: &KeyRange) -> Result<RangePage, Error> {
        let state = self.state.lock();
        let at = range.at_revision.unwrap_or(state.current);
        if at < state.compacted {
            return Err(Error::Compacted { requested: at, oldest: state.compacted });
        }
        if at > state.current {
            return Err(Error::FutureRevision { requested: at, current: state.current });
        }
        Ok(state.model.range(range, at))
    }

    fn write(&self, transaction: &Transaction) -> Result<TransactionOutcome, Error> {
        transaction.validate()?;
        let is_too_large = |op: &Op| matches!(op, Op::Put { value, .. } if value.len() > VALUE_BYTES_MAX);
        if transaction.ops.iter().any(is_too_large) {
            return Err(Error::TooLarge { reason: format!("a value of more than {VALUE_BYTES_MAX} bytes") });
        }
        let mut state = self.state.lock();
        let revision = state.current;
        if !state.model.holds(&transaction.compares, revision) {
            let current =
                transaction.compares.iter().map(|compare| state.model.entry(&compare.key, revision)).collect();
            return Ok(TransactionOutcome::Conflict { current, revision });
        }
        Ok(TransactionOutcome::Committed(self.apply_ops(&mut state, &transaction.ops)))
    }

    fn write_computed(
        &self,
        mut transaction: Transaction,
        computed: &dyn ComputedValues,
    ) -> Result<TransactionOutcome, Error> {
        let mut state = self.state.lock();
        let revision = state.current;
        let entries: Vec<_> = computed.keys().iter().map(|key| state.model.entry(key, revision)).collect();
        let states = entries.into_iter().map(|entry| {
            let entry = entry?;
            let own = state.computed.get(&entry.key).filter(|(at, _)| *at == entry.revision);
            Some(KeyState { since: own.map_or(entry.revision, |(_, since)| *since), value: entry.value })
        });
        let states: Vec<Option<KeyState>> = states.collect();
        let values = match state.model.holds(&transaction.compares, revision).then(|| computed.compute(&states)) {
            Some(Some(values)) => values,
            Some(None) | None => {
                let current = transaction.compares.iter().map(|compare| state.model.entry(&compare.key, revision));
                return Ok(TransactionOutcome::Conflict { current: current.collect(), revision });
            }
        };
        for ((key, before), value) in computed.keys().iter().zip(states).zip(values) {
            let Some(value) = value else { continue };
            let Some(before) = before else {
                return Err(Error::Malformed { reason: "a computed value for an absent key".to_owned() });
            };
            state.computed.insert(key.clone(), (revision.next(), before.since));
            transaction.ops.push(Op::Put { key: key.clone(), value, ttl: None });
        }
        Ok(TransactionOutcome::Committed(self.apply_ops(&mut state, &transaction.ops)))
    }

    fn batch(&self, prefix: &Key, from: Revision) -> Result<WatchBatch, Error> {
        let state = self.state.lock();
        if from <= state.compacted {
            return Err(Error::Compacted { requested: from, oldest: state.compacted });
        }
        Ok(WatchBatch { events: state.model.events(prefix, from, state.current), complete_through: state.current })
    }

    async fn feed_watch(
        self,
        prefix: Key,
        mut from: Revision,
        batches: mpsc::Sender<Result<WatchBatch, Error>>,
        mut requests: mpsc::Receiver<()>,
    ) {
        let mut current = self.current.subscribe();
        let mut is_asked = false;
        loop {
            current.borrow_and_update();
            let batch = match self.batch(&prefix, from) {
                Ok(batch) => batch,
                Err(error) => return drop(batches.send(Err(error)).await),
            };
            let is_reached = batch.complete_through.next() >= from;
            from = from.max(batch.complete_through.next());
            let is_news = is_reached && (is_asked || !batch.events.is_empty());
            if is_news && batches.send(Ok(batch)).await.is_err() {
                return;
            }
            is_asked = tokio::select! {
                _ = current.changed() => false,
                request = requests.recv() => request.is_some(),
                () = batches.closed() => return,
            };
        }
    }
}

impl Store for MemoryStore {
    fn get(&self, key: Key) -> StoreFuture<'_, (Option<StoreEntry>, Revision)> {
        let read = || {
            if key.is_empty() {
                return Err(Error::Malformed { reason: "an empty key".to_owned() });
            }
            let state = self.state.lock();
            Ok((state.model.entry(&key, state.current), state.current))
        };
        std::future::ready(read()).boxed()
    }

    fn range(&self, range: KeyRange) -> StoreFuture<'_, RangePage> {
        debug_assert!(prefix_end(&range.prefix).is_none_or(|end| end > range.prefix));
        std::future::ready(self.read(&range)).boxed()
    }

    fn commit(&self, transaction: Transaction) -> StoreFuture<'_, TransactionOutcome> {
        // Yields, so that clients on one thread interleave.
        async move {
            tokio::task::yield_now().await;
            self.write(&transaction)
        }
        .boxed()
    }

    fn commit_computed(
        &self,
        transaction: Transaction,
        computed: Arc<dyn ComputedValues>,
    ) -> StoreFuture<'_, TransactionOutcome> {
        async move {
            tokio::task::yield_now().await;
            self.write_computed(transaction, &*computed)
        }
        .boxed()
    }

    fn watch(&self, prefix: Key, from: Revision) -> StoreFuture<'_, Watch> {
        let (batches, delivered) = mpsc::channel(16);
        let (asking, requests) = mpsc::channel(1);
        self.tasks.spawn_once("watch", self.clone().feed_watch(prefix, from, batches, requests));
        std::future::ready(Ok(Watch::new(delivered, asking))).boxed()
    }

    fn revision(&self) -> StoreFuture<'_, Revision> {
        std::future::ready(Ok(self.state.lock().current)).boxed()
    }

    fn supports_progress_requests(&self) -> bool {
        true
    }

    fn compact(&self, revision: Revision) -> StoreFuture<'_, ()> {
        let mut state = self.state.lock();
        let result = if revision > state.current {
            Err(Error::FutureRevision { requested: revision, current: state.current })
        } else {
            state.compacted = state.compacted.max(revision);
            Ok(())
        };
        std::future::ready(result).boxed()
    }
}

impl Harness for MemoryStore {
    fn open(&self) -> BoxFuture<'_, Arc<dyn Store>> {
        let client: Arc<dyn Store> = Arc::new(self.clone());
        std::future::ready(client).boxed()
    }

    fn oversized_value_bytes(&self) -> usize {
        VALUE_BYTES_MAX + 1
    }
}
