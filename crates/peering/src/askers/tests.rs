use super::*;
use crate::testing::peers::Conduct;
use crate::testing::server;
use crate::testing::servers::{Server, World, settle, wait};

const JOBS: &str = "batch/v1 jobs:get,list";

/// A server of ours beside a stock server that behaves like this.
async fn beside(conduct: Option<Conduct>) -> (World, Server) {
    let world = World::new();
    if let Some(conduct) = conduct {
        world.network.set("s.example:6443", conduct);
    }
    world.stock_record("s").await;
    world.stock_lease("s", 1, 0);
    let server = world.server("a", "v1 pods:get");
    settle().await;
    (world, server)
}

#[tokio::test(start_paused = true)]
async fn a_member_that_cannot_be_had_is_asked_for_ever_every_few_seconds() {
    let (world, a) = beside(None).await;
    wait(1800).await;
    world.network.take_asked();
    // The waits have long reached their cap of 5 s, and are no less than half of it.
    wait(60).await;
    let asked = world.network.take_asked().len();
    assert!((12..=25).contains(&asked), "{asked}");
    world.network.set("s.example:6443", Conduct::Serves(JOBS));
    wait(6).await;
    assert_eq!(a.members(), "s live");
}

#[tokio::test(start_paused = true)]
async fn failures_are_counted_by_document_and_by_reason() {
    let (_world, a) = beside(Some(Conduct::Says(401))).await;
    assert_eq!(
        a.figures("apiserver_peer_discovery_sync_errors_total"),
        r#"apiserver_peer_discovery_sync_errors_total{type="fetch_discovery"} 2"#
    );
    assert_eq!(
        a.figures("unskew_peer_transport_failures_total"),
        r#"unskew_peer_transport_failures_total{peer="apiserver-s",reason="unauthorized"} 2"#
    );
}

#[tokio::test(start_paused = true)]
async fn leases_that_cannot_be_listed_are_counted() {
    let (world, a) = beside(Some(Conduct::Serves(JOBS))).await;
    assert_eq!(a.figures("apiserver_peer_discovery_sync_errors_total"), "");
    world.memory.fail_to_list_leases();
    world.memory.fail_to_list_leases();
    wait(1).await;
    assert_eq!(
        a.figures("apiserver_peer_discovery_sync_errors_total"),
        r#"apiserver_peer_discovery_sync_errors_total{type="lease_list"} 2"#
    );
}

#[tokio::test(start_paused = true)]
async fn one_member_that_hangs_does_not_hold_up_another() {
    let (world, a) = beside(Some(Conduct::Hangs)).await;
    world.network.set("t.example:6443", Conduct::Serves(JOBS));
    world.stock_record("t").await;
    world.stock_lease("t", 1, 0);
    settle().await;
    assert_eq!(a.members(), "s unknown?, t live");
}

#[tokio::test(start_paused = true)]
async fn an_answer_is_confirmed_from_time_to_time_and_stored_only_if_it_changed() {
    let (world, a) = beside(Some(Conduct::Serves(JOBS))).await;
    assert_eq!(world.network.take_asked(), ["s.example:6443 200"]);
    world.memory.take_log();
    wait(75).await;
    assert_eq!(world.network.take_asked(), ["s.example:6443 304"]);
    assert_eq!(world.memory.take_log(), "");
    world.network.set("s.example:6443", Conduct::Serves("batch/v2 jobs:get"));
    wait(75).await;
    assert_eq!(world.memory.take_log(), "put-document s");
    assert_eq!(a.get("/apis/batch/v2/namespaces/x/jobs/y").await, "s");
}

#[tokio::test(start_paused = true)]
async fn a_doubted_answer_is_asked_for_again_soon_and_not_in_a_storm() {
    let (world, a) = beside(Some(Conduct::Serves(JOBS))).await;
    world.network.take_asked();
    for _ in 0..10 {
        a.cluster.doubt(&server("s"));
        a.cluster.doubt(&server("nobody"));
    }
    settle().await;
    wait(1).await;
    assert_eq!(world.network.take_asked(), ["s.example:6443 304"]);
    wait(5).await;
    assert_eq!(world.network.take_asked(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn another_process_is_asked_at_once_and_what_it_confirms_is_its_own() {
    let (world, a) = beside(Some(Conduct::Serves(JOBS))).await;
    world.network.take_asked();
    world.stock_lease("s", 2, 1);
    settle().await;
    assert_eq!(world.network.take_asked(), ["s.example:6443 304"]);
    assert_eq!(a.members(), "s live");
    let holder = world.memory.document(&server("s")).unwrap().holder;
    assert_eq!(holder, HolderIdentity::new(&server("s"), 2));
}

#[tokio::test(start_paused = true)]
async fn a_member_that_left_or_publishes_is_not_asked_any_more() {
    let (world, _a) = beside(Some(Conduct::Says(500))).await;
    wait(60).await;
    world.memory.remove_lease(&server("s"));
    settle().await;
    world.network.take_asked();
    wait(60).await;
    assert_eq!(world.network.take_asked(), [""; 0]);

    world.stock_lease("s", 2, 1);
    settle().await;
    let stored = crate::documents::StoredDocument {
        holder: HolderIdentity::new(&server("s"), 2),
        source: crate::documents::Source::Published,
        tenure: crate::documents::Tenure::Staying,
        document: Arc::new(crate::testing::server_document(JOBS)),
    };
    Documents::put(&world.memory, &server("s"), stored.encode(), None, None).await.unwrap();
    settle().await;
    world.network.take_asked();
    wait(60).await;
    assert_eq!(world.network.take_asked(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_definition_in_storage_has_members_asked_at_once_and_its_resource_is_never_404() {
    let (world, a) = beside(Some(Conduct::Serves(JOBS))).await;
    let carts = "/apis/shop.example.com/v1/carts";
    assert_eq!(a.get(carts).await, "Here(ServedNowhere)");
    world.network.take_asked();
    world.definitions.define("shop.example.com/v1/carts");
    settle().await;
    assert_eq!(a.get(carts).await, "Unavailable(OnlyDefined)");
    assert_eq!(a.get("/apis/shop.example.com/v1/baskets").await, "Here(ServedNowhere)");
    // It takes a moment until the member serves it; nobody need ask for that.
    world.network.set("s.example:6443", Conduct::Serves("shop.example.com/v1 carts:get,list"));
    wait(3).await;
    assert_eq!(a.get(carts).await, "s");
    let asked = world.network.take_asked();
    assert!((2..=4).contains(&asked.len()), "{asked:?}");
    // Nor is it 404 when everybody who served it is gone.
    world.memory.remove_lease(&server("s"));
    wait(3600).await;
    assert_eq!(a.members(), "");
    assert_eq!(a.get(carts).await, "Unavailable(OnlyDefined)");
}
