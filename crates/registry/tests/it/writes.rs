//! Writes are decided on the newest state, need a permit, and lose no update.

use registry::{
    BarrierClosed, CompanionWrite, DecidedWrite, Permit, PermitRequest, WriteAuthor, WriteConditions, WriteOnceOutcome,
};
use store::{Compare, Revision, StoreEntry};

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_writes_on_two_servers_lose_no_update() {
    let cluster = Cluster::new();
    let (a, b) = (Arc::new(cluster.start_server().await), Arc::new(cluster.start_server().await));
    a.put("counter", "0").await;
    let count = |server: Arc<TestServer>| async move {
        for _ in 0..50 {
            let decide = |current: Option<&StoredObject>| {
                // The cache may not have it yet; a refusal is decided again on the newest state.
                let count: u32 = current.ok_or("absent")?.label("l").unwrap().parse().unwrap();
                Ok::<_, &str>(WriteDecision::Put { value: pod_json("counter", &(count + 1).to_string()), ttl: None })
            };
            server.registry.write(PODS, &server.pod_cache(), &pod_key("counter"), decide).await.unwrap();
        }
    };
    tokio::join!(count(a.clone()), count(b.clone()));
    let found = a.registry.get(&a.pod_cache(), &pod_key("counter"), ReadConsistency::Latest).await.unwrap().unwrap();
    assert!(matches!(&found.value, CachedValue::Object(stored) if stored.label("l") == Some("100")), "{found:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn refusal_on_stale_cache_is_decided_again_on_newest_state() {
    let cluster = Cluster::new();
    let (a, b) = (cluster.start_server().await, cluster.start_server().await);
    a.put("web", "1").await;
    a.put("web", "2").await;
    // Whatever b's cache shows by now, the newest state counts.
    let decide = |current: Option<&StoredObject>| match current.and_then(|stored| stored.label("l")) {
        Some("2") => Ok(WriteDecision::Delete),
        other => Err(format!("stale: {other:?}")),
    };
    let written = b.registry.write(PODS, &b.pod_cache(), &pod_key("web"), decide).await.unwrap();
    assert!(matches!(written, WriteOutcome::Deleted(_)));
    let refused = b.registry.write(PODS, &b.pod_cache(), &pod_key("web"), decide).await.unwrap_err();
    assert_eq!(expect_refusal(refused), "stale: None");
    a.stop().await;
    b.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn keep_decision_writes_nothing() {
    let cluster = Cluster::new();
    let server = cluster.start_server().await;
    server.put("web", "1").await;
    let before = server.store.revision().await.unwrap();
    let decide = |_: Option<&StoredObject>| Ok::<_, ()>(WriteDecision::Keep);
    let written = server.registry.write(PODS, &server.pod_cache(), &pod_key("web"), decide).await.unwrap();
    assert!(matches!(written, WriteOutcome::Unchanged));
    assert_eq!(server.store.revision().await.unwrap(), before);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn closed_barrier_blocks_puts_and_allows_keep() {
    #[derive(Debug)]
    struct ClosedBarrier;
    impl WriteBarrier for ClosedBarrier {
        fn permit(&self, subject: &PermitRequest<'_>) -> Result<Permit, BarrierClosed> {
            Err(BarrierClosed { reason: format!("waiting for {}", subject.resource) })
        }

        fn handle_stale_permit(&self, _subject: &PermitRequest<'_>, _found: Option<&StoreEntry>, _as_of: Revision) {}
    }
    let cluster = Cluster::new();
    let server = cluster.start_server_with_barrier(Arc::new(ClosedBarrier)).await;
    let put = |_: Option<&StoredObject>| Ok::<_, ()>(WriteDecision::Put { value: pod_json("web", "1"), ttl: None });
    let held = server.registry.write(PODS, &server.pod_cache(), &pod_key("web"), put).await.unwrap_err();
    assert!(matches!(&held, WriteError::BarrierClosed(held) if held.reason == "waiting for pods"), "{held:?}");
    assert!(
        server.registry.get(&server.pod_cache(), &pod_key("web"), ReadConsistency::Latest).await.unwrap().is_none()
    );
    let keep = |_: Option<&StoredObject>| Ok::<_, ()>(WriteDecision::Keep);
    server.registry.write(PODS, &server.pod_cache(), &pod_key("web"), keep).await.unwrap();
    server.stop().await;
}

/// Permits writes while a key is at its last known revision.
#[derive(Debug)]
struct ConditionalBarrier {
    key: store::Key,
    expected_revision: parking_lot::Mutex<Option<Revision>>,
    corrections: parking_lot::Mutex<Vec<String>>,
}

impl ConditionalBarrier {
    fn new(known: Revision) -> Arc<Self> {
        let (known, corrections) = (parking_lot::Mutex::new(Some(known)), parking_lot::Mutex::default());
        Arc::new(Self { key: "/registry/ties/a".into(), expected_revision: known, corrections })
    }
}

impl WriteBarrier for ConditionalBarrier {
    fn permit(&self, subject: &PermitRequest<'_>) -> Result<Permit, BarrierClosed> {
        let path = String::from_utf8_lossy(subject.path);
        match *self.expected_revision.lock() {
            None => Err(BarrierClosed { reason: format!("{path} waits for the tie, asked by {:?}", subject.author) }),
            known => Ok(Permit::granted_if(Compare { key: self.key.clone(), revision: known })),
        }
    }

    fn handle_stale_permit(&self, _subject: &PermitRequest<'_>, found: Option<&StoreEntry>, as_of: Revision) {
        assert!(found.is_none_or(|found| found.revision <= as_of));
        *self.expected_revision.lock() = found.map(|entry| entry.revision);
        self.corrections.lock().push(found.map_or("gone".to_owned(), |_| "changed".to_owned()));
    }
}

async fn commit_op(server: &TestServer, op: store::Op) -> Revision {
    match server.store.commit(store::Transaction { compares: Vec::new(), ops: vec![op] }).await.unwrap() {
        store::TransactionOutcome::Committed(revision) => revision,
        store::TransactionOutcome::Conflict { .. } => unreachable!("the transaction has no comparisons"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn permit_condition_is_compared_in_the_write_transaction() {
    let cluster = Cluster::new();
    let barrier = ConditionalBarrier::new(Revision(0));
    let server = cluster.start_server_with_barrier(barrier.clone()).await;
    let key_of_tie = barrier.key.clone();
    let put_tie = || store::Op::Put { key: key_of_tie.clone(), value: "x".into(), ttl: None };
    *barrier.expected_revision.lock() = Some(commit_op(&server, put_tie()).await);
    let put = |label: &'static str| {
        move |_: Option<&StoredObject>| Ok::<_, ()>(WriteDecision::Put { value: pod_json("web", label), ttl: None })
    };
    server.registry.write(PODS, &server.pod_cache(), &pod_key("web"), put("1")).await.unwrap();
    assert!(barrier.corrections.lock().is_empty());
    // Changed without the barrier's knowledge but still present: the write succeeds.
    commit_op(&server, put_tie()).await;
    server.registry.write(PODS, &server.pod_cache(), &pod_key("web"), put("2")).await.unwrap();
    // Deleted without the barrier's knowledge: nothing is written.
    commit_op(&server, store::Op::Delete { key: key_of_tie.clone() }).await;
    let held = server
        .registry
        .with_server_author()
        .write(PODS, &server.pod_cache(), &pod_key("web"), put("3"))
        .await
        .unwrap_err();
    assert_eq!(held.to_string(), format!("default/web waits for the tie, asked by {:?}", WriteAuthor::Server));
    assert_eq!(*barrier.corrections.lock(), ["changed", "gone"]);
    let found =
        server.registry.get(&server.pod_cache(), &pod_key("web"), ReadConsistency::Latest).await.unwrap().unwrap();
    assert!(matches!(&found.value, CachedValue::Object(stored) if stored.label("l") == Some("2")), "{found:?}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn write_once_returns_current_object_on_conflict() {
    let cluster = Cluster::new();
    let server = cluster.start_server().await;
    let pods = server.pod_cache();
    let put = |label: &str| WriteDecision::Put { value: pod_json("web", label), ttl: None };
    let once =
        async |seen, decision| server.registry.write_once(PODS, &pods, &pod_key("web"), seen, decision).await.unwrap();
    let WriteOnceOutcome::Written(WriteOutcome::Put(first)) = once(None, put("1")).await else {
        panic!("the key must be absent")
    };
    let WriteOnceOutcome::Conflict(Some(found)) = once(None, put("2")).await else { panic!("the key must exist") };
    assert_eq!((found.revision, found.label("l")), (first.revision, Some("1")));
    let seen = Some(Revision(first.revision));
    assert!(matches!(once(seen, WriteDecision::Delete).await, WriteOnceOutcome::Written(WriteOutcome::Deleted(_))));
    assert!(matches!(once(seen, put("3")).await, WriteOnceOutcome::Conflict(None)));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn write_if_fails_when_condition_key_changed() {
    let cluster = Cluster::new();
    let (a, b) = (cluster.start_server().await, cluster.start_server().await);
    let seen = Revision(a.put("place", "1").await.revision);
    let beside = Compare { key: pod_key("place"), revision: Some(seen) };
    let put = |_: Option<&StoredObject>| Ok::<_, ()>(WriteDecision::Put { value: pod_json("web", "1"), ttl: None });
    let write = async |beside: &Compare| {
        let conditions = WriteConditions::unchanged(std::slice::from_ref(beside));
        a.registry.write_if(PODS, &a.pod_cache(), &pod_key("web"), conditions, put).await
    };
    assert!(matches!(write(&beside).await, Ok(WriteOutcome::Put(_))));
    let newer = Compare { key: pod_key("place"), revision: Some(Revision(b.put("place", "2").await.revision)) };
    assert!(matches!(write(&beside).await, Err(WriteError::ConditionChanged { .. })));
    assert!(matches!(write(&newer).await, Ok(WriteOutcome::Put(_))));
    b.delete("place").await;
    assert!(matches!(write(&newer).await, Err(WriteError::ConditionChanged { .. })));
    assert!(matches!(write(&Compare { key: pod_key("place"), revision: None }).await, Ok(WriteOutcome::Put(_))));
    a.stop().await;
    b.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn companions_are_written_with_the_object_or_not_at_all() {
    let cluster = Cluster::new();
    let (a, b) = (cluster.start_server().await, cluster.start_server().await);
    let place = a.put("place", "1").await.revision;
    let put = |name: &str, label: &str| WriteDecision::Put { value: pod_json(name, label), ttl: None };
    let companion = |name: &str, expected: Option<u64>, decision: WriteDecision| CompanionWrite {
        key: pod_key(name),
        expected_revision: expected.map(Revision),
        decision,
        resource: None,
    };
    let write = async |companions: Vec<CompanionWrite>| {
        let conditions = WriteConditions::default();
        let decide = |_: Option<&StoredObject>| {
            Ok::<_, ()>(DecidedWrite { decision: put("web", "1"), companions: companions.clone(), computed: None })
        };
        a.registry.write_with_companions(PODS, &a.pod_cache(), &pod_key("web"), conditions, decide).await
    };

    let charged = vec![companion("place", Some(place), put("place", "2")), companion("new", None, put("new", "1"))];
    let Ok(WriteOutcome::Put(written)) = write(charged.clone()).await else { panic!("nothing is in the way") };
    let (found, _) = a.registry.read_raw(&pod_key("place")).await.unwrap();
    assert_eq!(found.unwrap().revision.0, written.revision, "one transaction");

    let changed = b.put("place", "3").await.revision;
    let Err(WriteError::CompanionChanged { key, current, as_of }) =
        write(vec![companion("place", Some(written.revision), put("place", "4"))]).await
    else {
        panic!("the companion was changed")
    };
    assert_eq!((key, current.unwrap().revision.0), (pod_key("place"), changed));
    assert!(as_of.0 >= changed);
    let (web, _) = a.registry.read_raw(&pod_key("web")).await.unwrap();
    assert_eq!(web.unwrap().revision.0, written.revision, "nothing was written");

    let kept = vec![
        companion("place", Some(changed), WriteDecision::Keep),
        companion("new", Some(written.revision), WriteDecision::Delete),
    ];
    assert!(matches!(write(kept).await, Ok(WriteOutcome::Put(_))));
    assert_eq!(a.registry.read_raw(&pod_key("new")).await.unwrap().0, None);
    a.stop().await;
    b.stop().await;
}
