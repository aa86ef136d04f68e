use super::*;
use crate::testing::cluster_fixture::{ClusterFixture, MemberServer, let_tasks_run, sleep_seconds};
use crate::testing::memory_network::PeerBehavior;
use crate::testing::server_id;

const JOBS: &str = "batch/v1 jobs:get,list";

/// A server beside a stock server with this behaviour.
async fn start_beside_stock_server(behavior: Option<PeerBehavior>) -> (ClusterFixture, MemberServer) {
    let fixture = ClusterFixture::new();
    if let Some(conduct) = behavior {
        fixture.network.set_behavior("s.example:6443", conduct);
    }
    fixture.put_stock_record("s").await;
    fixture.put_stock_lease("s", 1, 0);
    let server = fixture.server("a", "v1 pods:get");
    let_tasks_run().await;
    (fixture, server)
}

#[tokio::test(start_paused = true)]
async fn unreachable_member_is_fetched_with_capped_backoff() {
    let (fixture, a) = start_beside_stock_server(None).await;
    sleep_seconds(1800).await;
    fixture.network.take_requests();
    // The backoff has reached its cap of 5 s and is at least half of it.
    sleep_seconds(60).await;
    let asked = fixture.network.take_requests().len();
    assert!((12..=25).contains(&asked), "{asked}");
    fixture.network.set_behavior("s.example:6443", PeerBehavior::Serves(JOBS));
    sleep_seconds(6).await;
    assert_eq!(a.members(), "s live");
}

#[tokio::test(start_paused = true)]
async fn fetch_failures_are_counted_by_document_and_reason() {
    let (_world, a) = start_beside_stock_server(Some(PeerBehavior::Responds(401))).await;
    assert_eq!(
        a.metrics_text("apiserver_peer_discovery_sync_errors_total"),
        r#"apiserver_peer_discovery_sync_errors_total{type="fetch_discovery"} 2"#
    );
    assert_eq!(
        a.metrics_text("unskew_peer_transport_failures_total"),
        r#"unskew_peer_transport_failures_total{peer="apiserver-s",reason="unauthorized"} 2"#
    );
}

#[tokio::test(start_paused = true)]
async fn lease_list_failures_are_counted() {
    let (fixture, a) = start_beside_stock_server(Some(PeerBehavior::Serves(JOBS))).await;
    assert_eq!(a.metrics_text("apiserver_peer_discovery_sync_errors_total"), "");
    fixture.storage.fail_to_list_leases();
    fixture.storage.fail_to_list_leases();
    sleep_seconds(1).await;
    assert_eq!(
        a.metrics_text("apiserver_peer_discovery_sync_errors_total"),
        r#"apiserver_peer_discovery_sync_errors_total{type="lease_list"} 2"#
    );
}

#[tokio::test(start_paused = true)]
async fn hanging_member_does_not_delay_others() {
    let (fixture, a) = start_beside_stock_server(Some(PeerBehavior::Hangs)).await;
    fixture.network.set_behavior("t.example:6443", PeerBehavior::Serves(JOBS));
    fixture.put_stock_record("t").await;
    fixture.put_stock_lease("t", 1, 0);
    let_tasks_run().await;
    assert_eq!(a.members(), "s unknown?, t live");
}

#[tokio::test(start_paused = true)]
async fn document_is_revalidated_and_stored_only_if_changed() {
    let (fixture, a) = start_beside_stock_server(Some(PeerBehavior::Serves(JOBS))).await;
    assert_eq!(fixture.network.take_requests(), ["s.example:6443 200"]);
    fixture.storage.take_log();
    sleep_seconds(75).await;
    assert_eq!(fixture.network.take_requests(), ["s.example:6443 304"]);
    assert_eq!(fixture.storage.take_log(), "");
    fixture.network.set_behavior("s.example:6443", PeerBehavior::Serves("batch/v2 jobs:get"));
    sleep_seconds(75).await;
    assert_eq!(fixture.storage.take_log(), "put-document s");
    assert_eq!(a.route_get("/apis/batch/v2/namespaces/x/jobs/y").await, "s");
}

#[tokio::test(start_paused = true)]
async fn stale_document_is_refetched_once_per_interval() {
    let (fixture, a) = start_beside_stock_server(Some(PeerBehavior::Serves(JOBS))).await;
    fixture.network.take_requests();
    for _ in 0..10 {
        a.cluster.mark_stale(&server_id("s"));
        a.cluster.mark_stale(&server_id("missing"));
    }
    let_tasks_run().await;
    sleep_seconds(1).await;
    assert_eq!(fixture.network.take_requests(), ["s.example:6443 304"]);
    sleep_seconds(5).await;
    assert_eq!(fixture.network.take_requests(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn new_process_is_fetched_at_once_and_becomes_document_holder() {
    let (fixture, a) = start_beside_stock_server(Some(PeerBehavior::Serves(JOBS))).await;
    fixture.network.take_requests();
    fixture.put_stock_lease("s", 2, 1);
    let_tasks_run().await;
    assert_eq!(fixture.network.take_requests(), ["s.example:6443 304"]);
    assert_eq!(a.members(), "s live");
    let holder = fixture.storage.document(&server_id("s")).unwrap().holder;
    assert_eq!(holder, HolderIdentity::new(&server_id("s"), 2));
}

#[tokio::test(start_paused = true)]
async fn departed_or_publishing_member_is_not_fetched() {
    let (fixture, _a) = start_beside_stock_server(Some(PeerBehavior::Responds(500))).await;
    sleep_seconds(60).await;
    fixture.storage.remove_lease(&server_id("s"));
    let_tasks_run().await;
    fixture.network.take_requests();
    sleep_seconds(60).await;
    assert_eq!(fixture.network.take_requests(), [""; 0]);

    fixture.put_stock_lease("s", 2, 1);
    let_tasks_run().await;
    let stored = crate::documents::StoredDocument {
        holder: HolderIdentity::new(&server_id("s"), 2),
        source: crate::documents::DocumentSource::Published,
        retention: crate::documents::Retention::UntilReplaced,
        document: Arc::new(crate::testing::server_document_from_notation(JOBS)),
    };
    DocumentStorage::put(&fixture.storage, &server_id("s"), stored.encode(), None, None).await.unwrap();
    let_tasks_run().await;
    fixture.network.take_requests();
    sleep_seconds(60).await;
    assert_eq!(fixture.network.take_requests(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn new_definition_triggers_refetch_and_is_never_404() {
    let (fixture, a) = start_beside_stock_server(Some(PeerBehavior::Serves(JOBS))).await;
    let carts = "/apis/shop.example.com/v1/carts";
    assert_eq!(a.route_get(carts).await, "Local(ServedNowhere)");
    fixture.network.take_requests();
    fixture.definitions.define("shop.example.com/v1/carts");
    let_tasks_run().await;
    assert_eq!(a.route_get(carts).await, "Unavailable(DefinedButNotServed)");
    assert_eq!(a.route_get("/apis/shop.example.com/v1/baskets").await, "Local(ServedNowhere)");
    // The member serves it after a delay; no request is needed for that.
    fixture.network.set_behavior("s.example:6443", PeerBehavior::Serves("shop.example.com/v1 carts:get,list"));
    sleep_seconds(3).await;
    assert_eq!(a.route_get(carts).await, "s");
    let asked = fixture.network.take_requests();
    assert!((2..=4).contains(&asked.len()), "{asked:?}");
    // Nor is it 404 when all servers of it are gone.
    fixture.storage.remove_lease(&server_id("s"));
    sleep_seconds(3600).await;
    assert_eq!(a.members(), "");
    assert_eq!(a.route_get(carts).await, "Unavailable(DefinedButNotServed)");
}
