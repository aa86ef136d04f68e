//! Reads: consistent across servers, paged at one state, and never a guess.

use registry::ReadError;
use store::{Key, Revision};

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_write_acknowledged_by_one_server_is_read_by_another() {
    let cluster = Cluster::new();
    let (a, b) = (cluster.server().await, cluster.server().await);
    for round in 0..200 {
        let written = a.put("web", &round.to_string()).await;
        let read = b.registry.get(&b.pods(), &key("web"), Freshness::Latest).await.unwrap().expect("it is there");
        assert!(read.revision >= Revision(written.revision), "round {round}: {} < {}", read.revision, written.revision);
        let listing = b.list(Freshness::Latest, None, Key::new()).await;
        assert!(listing.revision >= Revision(written.revision), "round {round}");
    }
    a.stop().await;
    b.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_show_one_state_whatever_happens_in_between() {
    let cluster = Cluster::new();
    let server = cluster.server().await;
    for name in ["a", "b", "c", "d"] {
        server.put(name, "1").await;
    }
    let first = server.list(Freshness::Latest, Some(2), Key::new()).await;
    assert_eq!(names(&first), ["a", "b"]);
    let rest = first.rest.as_ref().expect("two are left");
    assert_eq!(rest.remaining, 2);

    server.delete("c").await;
    server.put("bb", "1").await;
    let second = server.list(Freshness::Exactly(first.revision), Some(2), rest.start.clone()).await;
    assert_eq!((names(&second), second.revision, second.rest), (vec!["c".into(), "d".into()], first.revision, None));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exact_state_that_is_still_the_present_needs_no_storage() {
    let cluster = Cluster::new();
    let server = cluster.server().await;
    server.put("a", "1").await;
    let now = server.list(Freshness::Latest, None, Key::new()).await;
    let exact = server.list(Freshness::Exactly(now.revision), None, Key::new()).await;
    assert_eq!((names(&exact), exact.revision), (vec!["a".to_owned()], now.revision));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forgotten_state_and_one_that_is_not_written_yet_are_errors() {
    let cluster = Cluster::new();
    let server = cluster.server().await;
    let old = server.put("a", "1").await.revision;
    let new = server.put("a", "2").await.revision;
    server.store.compact(Revision(new)).await.unwrap();
    let span = Span { within: "/registry/pods/".into(), start: Key::new(), limit: None, wants: &|_| true };
    let pods = server.pods();
    let forgotten = server.registry.list(&pods, &span, Freshness::Exactly(Revision(old))).await.unwrap_err();
    assert!(matches!(forgotten, ReadError::Store(store::Error::Compacted { .. })), "{forgotten:?}");
    let future = Revision(new + 1_000);
    let unwritten = server.registry.get(&pods, &key("a"), Freshness::AtLeast(future)).await.unwrap_err();
    assert_eq!(unwritten, ReadError::TooLarge { wanted: future, current: Revision(new) });
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_decoded_is_an_error_and_not_an_absence() {
    let cluster = Cluster::new();
    let server = cluster.server().await;
    put_raw(&server.store, "/registry/pods/default/odd", b"k8s\0protobuf").await;
    let pods = server.pods();
    let got = server.registry.get(&pods, &key("odd"), Freshness::Latest).await.unwrap_err();
    assert_eq!(
        got.to_string(),
        "the object at /registry/pods/default/odd cannot be read: it is stored as protobuf; run the servers that share \
         this storage with --storage-media-type=application/json"
    );
    let span = Span { within: "/registry/pods/".into(), start: Key::new(), limit: None, wants: &|_| true };
    let listed = server.registry.list(&pods, &span, Freshness::Latest).await.unwrap_err();
    assert_eq!(listed, got);
    let decide = |_: Option<&Stored>| Ok::<_, ()>(Decision::Delete);
    let written = server.registry.write(PODS, &pods, &key("odd"), decide).await.unwrap_err();
    assert!(matches!(written, WriteError::Read(ReadError::Undecodable { .. })), "{written:?}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_outside_every_shelf_are_passed_over_and_raw_ones_are_kept_as_they_are() {
    let cluster = Cluster::new();
    let server = cluster.server().await;
    put_raw(&server.store, "/registry/elsewhere/x", b"{}").await;
    put_raw(&server.store, "/registry/records/x", b"\x00\xff").await;
    let pods = server.list(Freshness::Latest, None, Key::new()).await;
    assert!(pods.items.is_empty());
    let records = server.registry.cache().shelf(b"/registry/records/").unwrap().clone();
    let record = server.registry.get(&records, &"/registry/records/x".into(), Freshness::Latest).await.unwrap();
    assert!(matches!(&record.expect("it is there").item, Item::Raw(bytes) if bytes.as_ref() == b"\x00\xff"));
    server.stop().await;
}
