//! Writes: decided on the newest state, permitted or held, never lost to another.

use registry::{Attempt, Author, Held, Permit, Subject};
use store::{Compare, Entry, Revision};

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_writers_on_two_servers_lose_no_update() {
    let cluster = Cluster::new();
    let (a, b) = (Arc::new(cluster.server().await), Arc::new(cluster.server().await));
    a.put("counter", "0").await;
    let count = |server: Arc<Server>| async move {
        for _ in 0..50 {
            let decide = |current: Option<&Stored>| {
                // The cache may not have it yet; a refusal is judged again on the newest state.
                let count: u32 = current.ok_or("absent")?.label("l").unwrap().parse().unwrap();
                Ok::<_, &str>(Decision::Put { value: pod("counter", &(count + 1).to_string()), ttl: None })
            };
            server.registry.write(PODS, &server.pods(), &key("counter"), decide).await.unwrap();
        }
    };
    tokio::join!(count(a.clone()), count(b.clone()));
    let found = a.registry.get(&a.pods(), &key("counter"), Freshness::Latest).await.unwrap().unwrap();
    assert!(matches!(&found.item, Item::Object(stored) if stored.label("l") == Some("100")), "{found:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_on_stale_state_is_judged_again_on_the_newest() {
    let cluster = Cluster::new();
    let (a, b) = (cluster.server().await, cluster.server().await);
    a.put("web", "1").await;
    a.put("web", "2").await;
    // Whatever b's cache shows by now, what counts is the newest.
    let decide = |current: Option<&Stored>| match current.and_then(|stored| stored.label("l")) {
        Some("2") => Ok(Decision::Delete),
        other => Err(format!("stale: {other:?}")),
    };
    let written = b.registry.write(PODS, &b.pods(), &key("web"), decide).await.unwrap();
    assert!(matches!(written, Written::Deleted(_)));
    let refused = b.registry.write(PODS, &b.pods(), &key("web"), decide).await.unwrap_err();
    assert_eq!(refusal(refused), "stale: None");
    a.stop().await;
    b.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn keeping_an_object_writes_nothing() {
    let cluster = Cluster::new();
    let server = cluster.server().await;
    server.put("web", "1").await;
    let before = server.store.revision().await.unwrap();
    let decide = |_: Option<&Stored>| Ok::<_, ()>(Decision::Keep);
    let written = server.registry.write(PODS, &server.pods(), &key("web"), decide).await.unwrap();
    assert!(matches!(written, Written::Kept));
    assert_eq!(server.store.revision().await.unwrap(), before);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closed_barrier_holds_the_write_and_lets_a_decision_to_keep_pass() {
    #[derive(Debug)]
    struct Closed;
    impl Barrier for Closed {
        fn permit(&self, subject: &Subject<'_>) -> Result<Permit, Held> {
            Err(Held { reason: format!("waiting for {}", subject.resource) })
        }

        fn correct(&self, _subject: &Subject<'_>, _found: Option<&Entry>, _as_of: Revision) {}
    }
    let cluster = Cluster::new();
    let server = cluster.server_behind(Arc::new(Closed)).await;
    let put = |_: Option<&Stored>| Ok::<_, ()>(Decision::Put { value: pod("web", "1"), ttl: None });
    let held = server.registry.write(PODS, &server.pods(), &key("web"), put).await.unwrap_err();
    assert!(matches!(&held, WriteError::Held(held) if held.reason == "waiting for pods"), "{held:?}");
    assert!(server.registry.get(&server.pods(), &key("web"), Freshness::Latest).await.unwrap().is_none());
    let keep = |_: Option<&Stored>| Ok::<_, ()>(Decision::Keep);
    server.registry.write(PODS, &server.pods(), &key("web"), keep).await.unwrap();
    server.stop().await;
}

/// Permits writes while a key is as it was last told.
#[derive(Debug)]
struct Tied {
    key: store::Key,
    known: parking_lot::Mutex<Option<Revision>>,
    corrections: parking_lot::Mutex<Vec<String>>,
}

impl Tied {
    fn new(known: Revision) -> Arc<Self> {
        let (known, corrections) = (parking_lot::Mutex::new(Some(known)), parking_lot::Mutex::default());
        Arc::new(Self { key: "/registry/ties/a".into(), known, corrections })
    }
}

impl Barrier for Tied {
    fn permit(&self, subject: &Subject<'_>) -> Result<Permit, Held> {
        let path = String::from_utf8_lossy(subject.path);
        match *self.known.lock() {
            None => Err(Held { reason: format!("{path} waits for the tie, asked by {:?}", subject.author) }),
            known => Ok(Permit::granted_while(Compare { key: self.key.clone(), revision: known })),
        }
    }

    fn correct(&self, _subject: &Subject<'_>, found: Option<&Entry>, as_of: Revision) {
        assert!(found.is_none_or(|found| found.revision <= as_of));
        *self.known.lock() = found.map(|entry| entry.revision);
        self.corrections.lock().push(found.map_or("gone".to_owned(), |_| "changed".to_owned()));
    }
}

async fn tie(server: &Server, op: store::Op) -> Revision {
    match server.store.commit(store::Transaction { compares: Vec::new(), ops: vec![op] }).await.unwrap() {
        store::Outcome::Committed(revision) => revision,
        store::Outcome::Conflict { .. } => unreachable!("nothing is compared"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_permit_depends_on_is_checked_by_the_write_itself() {
    let cluster = Cluster::new();
    let barrier = Tied::new(Revision(0));
    let server = cluster.server_behind(barrier.clone()).await;
    let key_of_tie = barrier.key.clone();
    let put_tie = || store::Op::Put { key: key_of_tie.clone(), value: "x".into(), ttl: None };
    *barrier.known.lock() = Some(tie(&server, put_tie()).await);
    let put = |label: &'static str| {
        move |_: Option<&Stored>| Ok::<_, ()>(Decision::Put { value: pod("web", label), ttl: None })
    };
    server.registry.write(PODS, &server.pods(), &key("web"), put("1")).await.unwrap();
    assert!(barrier.corrections.lock().is_empty());
    // Changed behind the barrier's back, and still there: the write goes on.
    tie(&server, put_tie()).await;
    server.registry.write(PODS, &server.pods(), &key("web"), put("2")).await.unwrap();
    // Gone behind the barrier's back: nothing is written.
    tie(&server, store::Op::Delete { key: key_of_tie.clone() }).await;
    let held = server.registry.for_server().write(PODS, &server.pods(), &key("web"), put("3")).await.unwrap_err();
    assert_eq!(held.to_string(), format!("default/web waits for the tie, asked by {:?}", Author::Server));
    assert_eq!(*barrier.corrections.lock(), ["changed", "gone"]);
    let found = server.registry.get(&server.pods(), &key("web"), Freshness::Latest).await.unwrap().unwrap();
    assert!(matches!(&found.item, Item::Object(stored) if stored.label("l") == Some("2")), "{found:?}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_that_is_tried_once_says_what_is_there_instead() {
    let cluster = Cluster::new();
    let server = cluster.server().await;
    let pods = server.pods();
    let put = |label: &str| Decision::Put { value: pod("web", label), ttl: None };
    let once =
        async |seen, decision| server.registry.write_once(PODS, &pods, &key("web"), seen, decision).await.unwrap();
    let Attempt::Written(Written::Put(first)) = once(None, put("1")).await else { panic!("there was nothing") };
    let Attempt::Changed(Some(found)) = once(None, put("2")).await else { panic!("there is something") };
    assert_eq!((found.revision, found.label("l")), (first.revision, Some("1")));
    let seen = Some(Revision(first.revision));
    assert!(matches!(once(seen, Decision::Delete).await, Attempt::Written(Written::Deleted(_))));
    assert!(matches!(once(seen, put("3")).await, Attempt::Changed(None)));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_beside_another_key_happens_only_while_that_is_as_it_was_seen() {
    let cluster = Cluster::new();
    let (a, b) = (cluster.server().await, cluster.server().await);
    let seen = Revision(a.put("place", "1").await.revision);
    let beside = Compare { key: key("place"), revision: Some(seen) };
    let put = |_: Option<&Stored>| Ok::<_, ()>(Decision::Put { value: pod("web", "1"), ttl: None });
    let write = async |beside: &Compare| a.registry.write_beside(PODS, &a.pods(), &key("web"), Some(beside), put).await;
    assert!(matches!(write(&beside).await, Ok(Written::Put(_))));
    let newer = Compare { key: key("place"), revision: Some(Revision(b.put("place", "2").await.revision)) };
    assert!(matches!(write(&beside).await, Err(WriteError::Moved)));
    assert!(matches!(write(&newer).await, Ok(Written::Put(_))));
    b.delete("place").await;
    assert!(matches!(write(&newer).await, Err(WriteError::Moved)));
    assert!(matches!(write(&Compare { key: key("place"), revision: None }).await, Ok(Written::Put(_))));
    a.stop().await;
    b.stop().await;
}
