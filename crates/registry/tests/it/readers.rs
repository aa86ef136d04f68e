//! Snapshots read piece by piece: consistent, shared, and given up when the history has passed them.

use registry::{Expired, SnapshotReader};
use store::{Key, Revision};

use super::*;

/// What a history holds at most; the changes of more bytes push out the oldest.
const HISTORY_BYTES: usize = 8 << 20;

async fn reader(server: &Server) -> SnapshotReader {
    server.registry.read_snapshot(&server.pods(), "/registry/pods/".into(), Freshness::Latest).await.unwrap()
}

fn rest(reader: &mut SnapshotReader) -> Result<Vec<String>, Expired> {
    let mut names = Vec::new();
    while let Some(cached) = reader.next_item()? {
        names.push(name(&cached));
    }
    Ok(names)
}

#[tokio::test(flavor = "multi_thread")]
async fn reader_shows_one_state_whatever_changes_meanwhile() {
    let cluster = Cluster::new();
    let server = cluster.server().await;
    for pod in ["a", "b", "c"] {
        server.put(pod, "1").await;
    }
    let mut reader = reader(&server).await;
    let revision = reader.revision();
    assert_eq!(name(&reader.next_item().unwrap().unwrap()), "a");
    server.delete("b").await;
    let last = server.put("d", "1").await;
    assert!(server.registry.cache().reached(Revision(last.revision), Duration::from_secs(30)).await.unwrap());
    assert_eq!(rest(&mut reader).unwrap(), ["b", "c"]);
    assert_eq!(reader.revision(), revision);
    let of_other: Key = "/registry/pods/other/".into();
    let mut empty = server.registry.read_snapshot(&server.pods(), of_other, Freshness::Latest).await.unwrap();
    assert!(empty.next_item().unwrap().is_none());
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reader_that_the_history_has_passed_expires_and_releases_its_snapshot() {
    let cluster = Cluster::new();
    let server = cluster.server().await;
    server.put("a", "1").await;
    let mut slow = reader(&server).await;
    let seen = slow.next_item().unwrap().unwrap();
    let object = Arc::downgrade(&seen);
    drop(seen);
    let label = "x".repeat(1 << 20);
    let mut last = server.put("a", "2").await;
    for _ in 0..=2 * HISTORY_BYTES / label.len() {
        last = server.put("big", &label).await;
    }
    assert!(server.registry.cache().reached(Revision(last.revision), Duration::from_secs(30)).await.unwrap());
    assert_eq!(slow.next_item().unwrap_err(), Expired { requested: slow.revision() });
    assert!(object.upgrade().is_none(), "an expired reader keeps nothing in memory");
    let mut fresh = reader(&server).await;
    assert_eq!(rest(&mut fresh).unwrap(), ["a", "big"]);
    server.stop().await;
}
