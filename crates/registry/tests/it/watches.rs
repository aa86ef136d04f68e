//! Watches lose and repeat nothing, and fail if their start is no longer in the history.

use registry::WatchExpired;
use store::{Key, Revision};

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn watch_from_list_revision_has_no_gap() {
    let cluster = Cluster::new();
    let (a, b) = (cluster.start_server().await, cluster.start_server().await);
    a.put("before", "1").await;
    let listing = b.list(ReadConsistency::Latest, None, Key::new()).await;
    let mut watcher = b.registry.watch(&b.pod_cache(), listing.revision).unwrap();
    a.put("web", "1").await;
    a.put("web", "2").await;
    a.delete("web").await;
    let mut seen = Vec::new();
    while seen.len() < 3 {
        for change in watcher.next_changes().await.unwrap() {
            seen.push((change.previous.as_deref().map(entry_name), change.current.as_deref().map(entry_name)));
        }
    }
    let web = || Some("web".to_owned());
    assert_eq!(seen, [(None, web()), (web(), web()), (web(), None)]);
    a.stop().await;
    b.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn watch_ahead_of_cache_omits_changes_up_to_its_start() {
    let cluster = Cluster::new();
    let (a, b) = (cluster.start_server().await, cluster.start_server().await);
    for round in 0..50 {
        // Started at once, so that b's cache usually still lags.
        let seen = a.put("web", &round.to_string()).await;
        let mut watcher = b.registry.watch(&b.pod_cache(), Revision(seen.revision)).unwrap();
        let next = a.put("web", "next").await;
        let changes = watcher.next_changes().await.unwrap();
        let revisions: Vec<u64> = changes.iter().map(|change| change.revision.0).collect();
        assert_eq!(revisions, [next.revision], "round {round}");
    }
    a.stop().await;
    b.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn delivered_revision_excludes_unread_changes() {
    let cluster = Cluster::new();
    let server = cluster.start_server().await;
    let start = server.registry.cache().applied_revision();
    let mut watcher = server.registry.watch(&server.pod_cache(), start).unwrap();
    let written = Revision(server.put("a", "1").await.revision);
    assert!(server.registry.cache().wait_for_revision(written, Duration::from_secs(30)).await.unwrap());
    assert_eq!(watcher.delivered_revision(), start, "the change is unread");
    watcher.next_changes().await.unwrap();
    assert!(watcher.delivered_revision() >= written);

    // Another resource changes: bookmarks of this resource advance without an event.
    put_raw(&server.store, "/registry/records/x", b"1").await;
    let newest = server.store.revision().await.unwrap();
    assert!(server.registry.cache().wait_for_revision(newest, Duration::from_secs(30)).await.unwrap());
    assert_eq!(watcher.delivered_revision(), newest);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_watcher_expires_when_history_is_trimmed() {
    let cluster = Cluster::new();
    let server = cluster.start_server().await;
    let start = server.registry.cache().applied_revision();
    let mut slow = server.registry.watch(&server.pod_cache(), start).unwrap();
    // Nine values of a megabyte: more than the history of a resource.
    let large = "x".repeat(1 << 20);
    let mut last = start;
    for _ in 0..9 {
        last = Revision(server.put("big", &large).await.revision);
    }
    assert!(server.registry.cache().wait_for_revision(last, Duration::from_secs(30)).await.unwrap());
    assert_eq!(slow.next_changes().await.unwrap_err(), WatchExpired { requested: start });
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn watch_frame_is_encoded_once_for_all_watchers() {
    let cluster = Cluster::new();
    let server = cluster.start_server().await;
    let start = server.registry.cache().applied_revision();
    let mut watchers: Vec<_> = (0..3).map(|_| server.registry.watch(&server.pod_cache(), start).unwrap()).collect();
    server.put("a", "1").await;
    let mut made = 0;
    for watcher in &mut watchers {
        let change = watcher.next_changes().await.unwrap().remove(0);
        change.get_or_encode_frame(|| {
            made += 1;
            Bytes::from_static(b"frame")
        });
    }
    assert_eq!(made, 1);
    server.stop().await;
}
