//! Snapshot readers are consistent, share memory, and expire when the history has passed them.

use registry::{SnapshotReader, WatchExpired};
use store::{Key, Revision};

use super::*;

/// The limit of a history in bytes; further changes drop the oldest.
const HISTORY_BYTES: usize = 8 << 20;

async fn open_reader(server: &TestServer) -> SnapshotReader {
    server.registry.read_snapshot(&server.pod_cache(), "/registry/pods/".into(), ReadConsistency::Latest).await.unwrap()
}

fn remaining_names(reader: &mut SnapshotReader) -> Result<Vec<String>, WatchExpired> {
    let mut names = Vec::new();
    while let Some(cached) = reader.next_item()? {
        names.push(entry_name(&cached));
    }
    Ok(names)
}

#[tokio::test(flavor = "multi_thread")]
async fn reader_is_consistent_while_objects_change() {
    let cluster = Cluster::new();
    let server = cluster.start_server().await;
    for pod in ["a", "b", "c"] {
        server.put(pod, "1").await;
    }
    let mut reader = open_reader(&server).await;
    let revision = reader.revision();
    assert_eq!(entry_name(&reader.next_item().unwrap().unwrap()), "a");
    server.delete("b").await;
    let last = server.put("d", "1").await;
    assert!(server.registry.cache().wait_for_revision(Revision(last.revision), Duration::from_secs(30)).await.unwrap());
    assert_eq!(remaining_names(&mut reader).unwrap(), ["b", "c"]);
    assert_eq!(reader.revision(), revision);
    let of_other: Key = "/registry/pods/other/".into();
    let mut empty =
        server.registry.read_snapshot(&server.pod_cache(), of_other, ReadConsistency::Latest).await.unwrap();
    assert!(empty.next_item().unwrap().is_none());
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reader_expires_and_releases_snapshot_once_history_passes_it() {
    let cluster = Cluster::new();
    let server = cluster.start_server().await;
    server.put("a", "1").await;
    let mut slow = open_reader(&server).await;
    let seen = slow.next_item().unwrap().unwrap();
    let object = Arc::downgrade(&seen);
    drop(seen);
    let label = "x".repeat(1 << 20);
    let mut last = server.put("a", "2").await;
    for _ in 0..=2 * HISTORY_BYTES / label.len() {
        last = server.put("big", &label).await;
    }
    assert!(server.registry.cache().wait_for_revision(Revision(last.revision), Duration::from_secs(30)).await.unwrap());
    assert_eq!(slow.next_item().unwrap_err(), WatchExpired { requested: slow.revision() });
    assert!(object.upgrade().is_none(), "an expired reader keeps nothing in memory");
    let mut fresh = open_reader(&server).await;
    assert_eq!(remaining_names(&mut fresh).unwrap(), ["a", "big"]);
    server.stop().await;
}
