//! Tests of the compaction loop, in paused time on the memory store.

use std::sync::Arc;
use std::time::Duration;

use store::compaction::{COMPACT_REV_KEY, Compactor, DEFAULT_INTERVAL};
use store::{Op, Revision, Store};
use tasks::Tasks;

use crate::conformance::check_fixture::{IntoTransaction, get, put, put_op, revision};
use crate::memory_store::MemoryStore;

/// A store with several compactors.
struct CompactionFixture {
    memory: MemoryStore,
    store: Arc<dyn Store>,
    tasks: Tasks,
}

impl CompactionFixture {
    fn new(servers: usize, interval: Duration) -> Self {
        let memory = MemoryStore::new();
        let store: Arc<dyn Store> = Arc::new(memory.clone());
        let scene = Self { memory, store, tasks: Tasks::new() };
        for _ in 0..servers {
            let compaction = Compactor::new(scene.store.clone(), interval);
            scene.tasks.spawn("compaction", |shutdown| compaction.run(shutdown));
        }
        scene
    }

    /// Writes a key and lets one interval pass, including the round at its end.
    async fn run_interval(&self) -> Revision {
        let written = put(&self.store, "a".into(), "1").await.unwrap();
        tokio::time::sleep(DEFAULT_INTERVAL).await;
        // The compactors sleep as long and may be woken right after this task.
        tokio::time::sleep(Duration::from_millis(1)).await;
        written
    }

    /// The value of `compact_rev_key`.
    async fn recorded_revision(&self) -> Option<String> {
        let (entry, _) = get(&self.store, COMPACT_REV_KEY).await.unwrap();
        entry.map(|entry| String::from_utf8(entry.value.to_vec()).unwrap())
    }
}

#[tokio::test(start_paused = true)]
async fn first_round_records_without_compacting() {
    let scene = CompactionFixture::new(1, DEFAULT_INTERVAL);
    scene.run_interval().await;
    assert_eq!(scene.recorded_revision().await.as_deref(), Some("0"));
    assert_eq!(scene.memory.compacted_revision(), Revision(0));
}

#[tokio::test(start_paused = true)]
async fn compactor_keeps_one_to_two_intervals_of_history() {
    let scene = CompactionFixture::new(1, DEFAULT_INTERVAL);
    let mut written = Vec::new();
    for _ in 0..5 {
        written.push(scene.run_interval().await);
        let compacted = scene.memory.compacted_revision();
        // The state of the interval that just ended is still readable.
        assert!(compacted < *written.last().unwrap(), "compaction to {compacted} keeps nothing of {written:?}");
        if let [.., before, _] = written[..] {
            assert!(compacted > before, "compaction to {compacted} keeps more than two intervals of {written:?}");
            assert_eq!(scene.recorded_revision().await, Some(compacted.to_string()));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn several_compactors_write_once_per_interval() {
    let scene = CompactionFixture::new(5, DEFAULT_INTERVAL);
    scene.run_interval().await;
    let mut before = revision(&scene.store).await.unwrap();
    for _ in 0..4 {
        scene.run_interval().await;
        let now = revision(&scene.store).await.unwrap();
        // One write of the test and one of the round: the losers write nothing.
        assert_eq!(now.0 - before.0, 2, "writes in one interval");
        before = now;
    }
    assert!(scene.memory.compacted_revision() > Revision(0));
}

#[tokio::test(start_paused = true)]
async fn compactor_yields_round_won_by_kube_apiserver() {
    let scene = CompactionFixture::new(1, DEFAULT_INTERVAL);
    scene.run_interval().await;
    scene.run_interval().await;
    let compacted = scene.memory.compacted_revision();
    for _ in 0..3 {
        // As kube-apiserver writes it before it compacts.
        put(&scene.store, COMPACT_REV_KEY, "7").await.unwrap();
        scene.run_interval().await;
        assert_eq!(scene.recorded_revision().await.as_deref(), Some("7"));
        assert_eq!(scene.memory.compacted_revision(), compacted);
    }
    scene.run_interval().await;
    assert!(scene.memory.compacted_revision() > compacted, "the compactor takes over once the other server is gone");
}

#[tokio::test(start_paused = true)]
async fn compactor_recovers_from_deleted_compact_rev_key() {
    let scene = CompactionFixture::new(2, DEFAULT_INTERVAL);
    scene.run_interval().await;
    scene.store.commit(Op::Delete { key: COMPACT_REV_KEY }.into_transaction()).await.unwrap();
    for _ in 0..3 {
        scene.run_interval().await;
    }
    assert!(scene.memory.compacted_revision() > Revision(0));
}

#[tokio::test(start_paused = true)]
async fn zero_interval_disables_compaction() {
    let scene = CompactionFixture::new(1, Duration::ZERO);
    scene.store.commit(vec![put_op("a".into(), "1")].into_transaction()).await.unwrap();
    tokio::time::sleep(DEFAULT_INTERVAL * 100).await;
    assert_eq!(scene.recorded_revision().await, None);
    assert_eq!(scene.tasks.stop(Duration::from_secs(1)).await, Ok(()));
}
