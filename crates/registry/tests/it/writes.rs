//! Writes: decided on the newest state, permitted or held, never lost to another.

use registry::{Held, Permit};

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
        fn permit(&self, resource: GroupResource<&str>) -> Result<Permit, Held> {
            Err(Held { reason: format!("waiting for {resource}") })
        }
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
