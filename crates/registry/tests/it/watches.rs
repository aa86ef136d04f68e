//! Watches: nothing lost, nothing twice, and an error for who is too late.

use registry::Expired;
use store::{Key, Revision};

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_after_a_list_continues_it_without_a_gap() {
    let cluster = Cluster::new();
    let (a, b) = (cluster.server().await, cluster.server().await);
    a.put("before", "1").await;
    let listing = b.list(Freshness::Latest, None, Key::new()).await;
    let mut watcher = b.registry.watch(&b.pods(), listing.revision).unwrap();
    a.put("web", "1").await;
    a.put("web", "2").await;
    a.delete("web").await;
    let mut seen = Vec::new();
    while seen.len() < 3 {
        for change in watcher.next().await.unwrap() {
            seen.push((change.previous.as_deref().map(name), change.current.as_deref().map(name)));
        }
    }
    let web = || Some("web".to_owned());
    assert_eq!(seen, [(None, web()), (web(), web()), (web(), None)]);
    a.stop().await;
    b.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_from_a_revision_that_the_cache_has_not_reached_does_not_show_it() {
    let cluster = Cluster::new();
    let (a, b) = (cluster.server().await, cluster.server().await);
    for round in 0..50 {
        // Begun at once, so that b's cache is usually still behind.
        let seen = a.put("web", &round.to_string()).await;
        let mut watcher = b.registry.watch(&b.pods(), Revision(seen.revision)).unwrap();
        let next = a.put("web", "next").await;
        let changes = watcher.next().await.unwrap();
        let revisions: Vec<u64> = changes.iter().map(|change| change.revision.0).collect();
        assert_eq!(revisions, [next.revision], "round {round}");
    }
    a.stop().await;
    b.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn progress_is_claimed_only_for_what_was_delivered() {
    let cluster = Cluster::new();
    let server = cluster.server().await;
    let start = server.registry.cache().through();
    let mut watcher = server.registry.watch(&server.pods(), start).unwrap();
    let written = Revision(server.put("a", "1").await.revision);
    assert!(server.registry.cache().reached(written, Duration::from_secs(30)).await.unwrap());
    assert_eq!(watcher.through(), start, "the change lies there unread");
    watcher.next().await.unwrap();
    assert!(watcher.through() >= written);

    // Something else changes: this shelf's watchers have come further without an event of their own.
    put_raw(&server.store, "/registry/records/x", b"1").await;
    let newest = server.store.revision().await.unwrap();
    assert!(server.registry.cache().reached(newest, Duration::from_secs(30)).await.unwrap());
    assert_eq!(watcher.through(), newest);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watcher_that_falls_behind_the_kept_history_is_ended() {
    let cluster = Cluster::new();
    let server = cluster.server().await;
    let start = server.registry.cache().through();
    let mut slow = server.registry.watch(&server.pods(), start).unwrap();
    // Nine values of a megabyte: more than a shelf keeps of its past.
    let large = "x".repeat(1 << 20);
    let mut last = start;
    for _ in 0..9 {
        last = Revision(server.put("big", &large).await.revision);
    }
    assert!(server.registry.cache().reached(last, Duration::from_secs(30)).await.unwrap());
    assert_eq!(slow.next().await.unwrap_err(), Expired { requested: start });
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frame_is_made_once_for_all_watchers() {
    let cluster = Cluster::new();
    let server = cluster.server().await;
    let start = server.registry.cache().through();
    let mut watchers: Vec<_> = (0..3).map(|_| server.registry.watch(&server.pods(), start).unwrap()).collect();
    server.put("a", "1").await;
    let mut made = 0;
    for watcher in &mut watchers {
        let change = watcher.next().await.unwrap().remove(0);
        change.frame(|| {
            made += 1;
            Bytes::from_static(b"frame")
        });
    }
    assert_eq!(made, 1);
    server.stop().await;
}
