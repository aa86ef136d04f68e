//! The compaction loop, in paused time on the store in memory.

use std::sync::Arc;
use std::time::Duration;

use store::compaction::{Compaction, INTERVAL, KEY};
use store::{Op, Revision, Store};
use tasks::Tasks;

use crate::conformance::stage::{IntoTransaction, get, put, put_op, revision};
use crate::memory::Memory;

/// A store on which so many servers compact.
struct Scene {
    memory: Memory,
    store: Arc<dyn Store>,
    tasks: Tasks,
}

impl Scene {
    fn new(servers: usize, interval: Duration) -> Self {
        let memory = Memory::new();
        let store: Arc<dyn Store> = Arc::new(memory.clone());
        let scene = Self { memory, store, tasks: Tasks::new() };
        for _ in 0..servers {
            let compaction = Compaction::new(scene.store.clone(), interval);
            scene.tasks.spawn("compaction", |shutdown| compaction.run(shutdown));
        }
        scene
    }

    /// Writes something and lets one interval pass, with all that happens at its end.
    async fn pass(&self) -> Revision {
        let written = put(&self.store, "a".into(), "1").await.unwrap();
        tokio::time::sleep(INTERVAL).await;
        // The loops, which sleep as long as we, are woken before us or right after.
        tokio::time::sleep(Duration::from_millis(1)).await;
        written
    }

    /// What the key says.
    async fn recorded(&self) -> Option<String> {
        let (entry, _) = get(&self.store, KEY).await.unwrap();
        entry.map(|entry| String::from_utf8(entry.value.to_vec()).unwrap())
    }
}

#[tokio::test(start_paused = true)]
async fn the_first_round_only_records() {
    let scene = Scene::new(1, INTERVAL);
    scene.pass().await;
    assert_eq!(scene.recorded().await.as_deref(), Some("0"));
    assert_eq!(scene.memory.compacted(), Revision(0));
}

#[tokio::test(start_paused = true)]
async fn between_one_and_two_intervals_are_kept() {
    let scene = Scene::new(1, INTERVAL);
    let mut written = Vec::new();
    for _ in 0..5 {
        written.push(scene.pass().await);
        let compacted = scene.memory.compacted();
        // What was written in the interval that just ended can still be read as it was.
        assert!(compacted < *written.last().unwrap(), "{compacted} leaves nothing of {written:?}");
        if let [.., before, _] = written[..] {
            assert!(compacted > before, "{compacted} leaves more than two intervals of {written:?}");
            assert_eq!(scene.recorded().await, Some(compacted.to_string()));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn several_servers_compact_as_one_does() {
    let scene = Scene::new(5, INTERVAL);
    scene.pass().await;
    let mut before = revision(&scene.store).await.unwrap();
    for _ in 0..4 {
        scene.pass().await;
        let now = revision(&scene.store).await.unwrap();
        // One write of ours and one of the round: the losers wrote nothing.
        assert_eq!(now.0 - before.0, 2, "writes in one interval");
        before = now;
    }
    assert!(scene.memory.compacted() > Revision(0));
}

#[tokio::test(start_paused = true)]
async fn a_round_that_another_kind_of_server_has_won_is_lost() {
    let scene = Scene::new(1, INTERVAL);
    scene.pass().await;
    scene.pass().await;
    let compacted = scene.memory.compacted();
    for _ in 0..3 {
        // As kube-apiserver writes it, and then compacts by itself.
        put(&scene.store, KEY, "7").await.unwrap();
        scene.pass().await;
        assert_eq!(scene.recorded().await.as_deref(), Some("7"));
        assert_eq!(scene.memory.compacted(), compacted);
    }
    scene.pass().await;
    assert!(scene.memory.compacted() > compacted, "it takes over once the other has gone");
}

#[tokio::test(start_paused = true)]
async fn a_removed_key_is_no_obstacle() {
    let scene = Scene::new(2, INTERVAL);
    scene.pass().await;
    scene.store.commit(Op::Delete { key: KEY }.into_transaction()).await.unwrap();
    for _ in 0..3 {
        scene.pass().await;
    }
    assert!(scene.memory.compacted() > Revision(0));
}

#[tokio::test(start_paused = true)]
async fn an_interval_of_zero_compacts_nothing_and_ends_when_told() {
    let scene = Scene::new(1, Duration::ZERO);
    scene.store.commit(vec![put_op("a".into(), "1")].into_transaction()).await.unwrap();
    tokio::time::sleep(INTERVAL * 100).await;
    assert_eq!(scene.recorded().await, None);
    assert_eq!(scene.tasks.stop(Duration::from_secs(1)).await, Ok(()));
}
