//! Reads are consistent across servers and paged at one state.

use registry::ReadError;
use store::{Key, Revision};

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn latest_read_sees_write_acknowledged_by_another_server() {
    let cluster = Cluster::new();
    let (a, b) = (cluster.start_server().await, cluster.start_server().await);
    for round in 0..200 {
        let written = a.put("web", &round.to_string()).await;
        let read = b
            .registry
            .get(&b.pod_cache(), &pod_key("web"), ReadConsistency::Latest)
            .await
            .unwrap()
            .expect("the entry exists");
        assert!(read.revision >= Revision(written.revision), "round {round}: {} < {}", read.revision, written.revision);
        let listing = b.list(ReadConsistency::Latest, None, Key::new()).await;
        assert!(listing.revision >= Revision(written.revision), "round {round}");
    }
    a.stop().await;
    b.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn list_pages_show_one_revision_despite_later_writes() {
    let cluster = Cluster::new();
    let server = cluster.start_server().await;
    for name in ["a", "b", "c", "d"] {
        server.put(name, "1").await;
    }
    let first = server.list(ReadConsistency::Latest, Some(2), Key::new()).await;
    assert_eq!(entry_names(&first), ["a", "b"]);
    let rest = first.continuation.as_ref().expect("two are left");
    assert_eq!(rest.remaining, 2);

    server.delete("c").await;
    server.put("bb", "1").await;
    let second = server.list(ReadConsistency::Exact(first.revision), Some(2), rest.start_key.clone()).await;
    assert_eq!(
        (entry_names(&second), second.revision, second.continuation),
        (vec!["c".into(), "d".into()], first.revision, None)
    );
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn exact_list_at_current_revision_is_served_from_cache() {
    let cluster = Cluster::new();
    let server = cluster.start_server().await;
    server.put("a", "1").await;
    let now = server.list(ReadConsistency::Latest, None, Key::new()).await;
    let exact = server.list(ReadConsistency::Exact(now.revision), None, Key::new()).await;
    assert_eq!((entry_names(&exact), exact.revision), (vec!["a".to_owned()], now.revision));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn read_of_compacted_or_future_revision_is_an_error() {
    let cluster = Cluster::new();
    let server = cluster.start_server().await;
    let old = server.put("a", "1").await.revision;
    let new = server.put("a", "2").await.revision;
    server.store.compact(Revision(new)).await.unwrap();
    let span =
        ListSelection { prefix: "/registry/pods/".into(), start_key: Key::new(), limit: None, filter: &|_| true };
    let pods = server.pod_cache();
    let forgotten = server.registry.list(&pods, &span, ReadConsistency::Exact(Revision(old))).await.unwrap_err();
    assert!(matches!(forgotten, ReadError::Store(store::Error::Compacted { .. })), "{forgotten:?}");
    let future = Revision(new + 1_000);
    let unwritten = server.registry.get(&pods, &pod_key("a"), ReadConsistency::NotOlderThan(future)).await.unwrap_err();
    assert_eq!(unwritten, ReadError::RevisionTooLarge { requested: future, current: Revision(new) });
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn read_of_undecodable_object_is_an_error() {
    let cluster = Cluster::new();
    let server = cluster.start_server().await;
    put_raw(&server.store, "/registry/pods/default/odd", b"k8s\0protobuf").await;
    let pods = server.pod_cache();
    let got = server.registry.get(&pods, &pod_key("odd"), ReadConsistency::Latest).await.unwrap_err();
    assert_eq!(
        got.to_string(),
        "the object at /registry/pods/default/odd cannot be read: it is stored as protobuf; run the servers that share \
         this storage with --storage-media-type=application/json"
    );
    let span =
        ListSelection { prefix: "/registry/pods/".into(), start_key: Key::new(), limit: None, filter: &|_| true };
    let listed = server.registry.list(&pods, &span, ReadConsistency::Latest).await.unwrap_err();
    assert_eq!(listed, got);
    let decide = |_: Option<&StoredObject>| Ok::<_, ()>(WriteDecision::Delete);
    let written = server.registry.write(PODS, &pods, &pod_key("odd"), decide).await.unwrap_err();
    assert!(matches!(written, WriteError::Read(ReadError::Undecodable { .. })), "{written:?}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cache_ignores_unknown_prefixes_and_keeps_raw_values() {
    let cluster = Cluster::new();
    let server = cluster.start_server().await;
    put_raw(&server.store, "/registry/elsewhere/x", b"{}").await;
    put_raw(&server.store, "/registry/records/x", b"\x00\xff").await;
    let pods = server.list(ReadConsistency::Latest, None, Key::new()).await;
    assert!(pods.entries.is_empty());
    let records = server.registry.cache().resource_cache(b"/registry/records/").unwrap().clone();
    let record = server.registry.get(&records, &"/registry/records/x".into(), ReadConsistency::Latest).await.unwrap();
    assert!(
        matches!(&record.expect("the entry exists").value, CachedValue::Raw(bytes) if bytes.as_ref() == b"\x00\xff")
    );
    server.stop().await;
}
