use std::time::Duration;

use api::media::AggregatedVersion;

use super::*;
use crate::documents::{DocumentSource, Retention};
use crate::ports::DocumentStorage;
use crate::testing::cluster_fixture::{ClusterFixture, let_tasks_run, sleep_seconds};
use crate::testing::memory_network::PeerBehavior;
use crate::testing::memory_storage::StorageMode;
use crate::testing::server_id;
use crate::view::{FirstSync, Peering};

const PODS: &str = "v1 pods:get,list";
const JOBS: &str = "v1 pods:get,list | batch/v1 jobs:get,list";
const GET_JOBS: &str = "/apis/batch/v1/jobs";

#[tokio::test(start_paused = true)]
async fn servers_discover_each_other_from_storage_without_fetching() {
    let fixture = ClusterFixture::new();
    let (a, b) = (fixture.server("a", PODS), fixture.server("b", JOBS));
    let (_a, _b) = (a.join().await, b.join().await);
    let_tasks_run().await;
    assert_eq!((a.members(), b.members()), ("b live".to_owned(), "a live".to_owned()));
    assert_eq!(a.route_get(GET_JOBS).await, "b");
    assert_eq!(b.route_get(GET_JOBS).await, "Local(ServedHere)");
    assert_eq!(fixture.network.take_requests(), [""; 0]);
    let etag = |server: &crate::testing::cluster_fixture::MemberServer| {
        server.cluster.view().merged_documents().json(AggregatedVersion::V2).etag.clone()
    };
    assert_eq!(etag(&a), etag(&b));
}

#[tokio::test(start_paused = true)]
async fn change_of_served_resources_reaches_peers_at_once() {
    let fixture = ClusterFixture::new();
    let (a, b) = (fixture.server("a", PODS), fixture.server("b", PODS));
    let (_a, _b) = (a.join().await, b.join().await);
    assert_eq!(a.route_get(GET_JOBS).await, "Local(ServedNowhere)");
    b.local_groups.send_replace(crate::testing::groups_from_notation(JOBS));
    let_tasks_run().await;
    assert_eq!(a.route_get(GET_JOBS).await, "b");
    b.local_groups.send_replace(crate::testing::groups_from_notation(PODS));
    let_tasks_run().await;
    assert_eq!(a.route_get(GET_JOBS).await, "Local(ServedNowhere)");
}

#[tokio::test(start_paused = true)]
async fn departed_server_resources_are_503_until_linger_ends() {
    let fixture = ClusterFixture::new();
    let (a, b) = (fixture.server("a", PODS), fixture.server("b", JOBS));
    let (_a, presence) = (a.join().await, b.join().await);
    presence.leave().await;
    b.tasks.stop(Duration::from_secs(1)).await.unwrap();
    let_tasks_run().await;
    assert_eq!(a.members(), "b left");
    assert_eq!(a.route_get(GET_JOBS).await, "Unavailable(OnlyUnreachableMembers)");
    sleep_seconds(59).await;
    assert_eq!(a.route_get(GET_JOBS).await, "Unavailable(OnlyUnreachableMembers)");
    sleep_seconds(2).await;
    assert_eq!(a.members(), "");
    assert_eq!(a.route_get(GET_JOBS).await, "Local(ServedNowhere)");
}

#[tokio::test(start_paused = true)]
async fn clean_restart_never_yields_404() {
    let fixture = ClusterFixture::new();
    let (a, b) = (fixture.server("a", PODS), fixture.server("b", JOBS));
    let (_a, presence) = (a.join().await, b.join().await);
    presence.leave().await;
    b.tasks.stop(Duration::from_secs(1)).await.unwrap();
    sleep_seconds(30).await;
    assert_eq!(a.route_get(GET_JOBS).await, "Unavailable(OnlyUnreachableMembers)");
    let again = fixture.server_with("b", JOBS, |config| {
        config.presence.holder = crate::HolderIdentity::new(&server_id("b"), 2);
    });
    let _again = again.join().await;
    let_tasks_run().await;
    assert_eq!(a.route_get(GET_JOBS).await, "b");
    sleep_seconds(120).await;
    assert_eq!(a.members(), "b live");
}

#[tokio::test(start_paused = true)]
async fn resources_dropped_by_restart_are_503_until_linger_ends() {
    let fixture = ClusterFixture::new();
    let (a, b) = (fixture.server("a", PODS), fixture.server("b", JOBS));
    let (_a, _b) = (a.join().await, b.join().await);
    // Killed and restarted at another release.
    b.tasks.stop(Duration::from_secs(1)).await.unwrap();
    let again = fixture.server_with("b", PODS, |config| {
        config.presence.holder = crate::HolderIdentity::new(&server_id("b"), 2);
    });
    let _again = again.join().await;
    let_tasks_run().await;
    for server in [&a, &again] {
        assert_eq!(server.route_get(GET_JOBS).await, "Unavailable(OnlyUnreachableMembers)");
    }
    // A server that starts now knows the same.
    let late = fixture.server("late", PODS);
    let _late = late.join().await;
    assert_eq!(late.route_get(GET_JOBS).await, "Unavailable(OnlyUnreachableMembers)");
    sleep_seconds(61).await;
    for server in [&a, &again, &late] {
        assert_eq!(server.route_get(GET_JOBS).await, "Local(ServedNowhere)");
    }
    assert_eq!(a.members(), "b live, late live");
}

#[tokio::test(start_paused = true)]
async fn stock_server_document_is_fetched_once_and_shared_by_storage() {
    let fixture = ClusterFixture::new();
    fixture.network.set_behavior("s.example:6443", PeerBehavior::Serves(JOBS));
    fixture.put_stock_record("s").await;
    fixture.put_stock_lease("s", 1, 0);
    let a = fixture.server("a", PODS);
    let _a = a.join().await;
    let_tasks_run().await;
    assert_eq!(a.members(), "s live");
    assert_eq!(a.route_get(GET_JOBS).await, "s");
    assert_eq!(fixture.network.take_requests(), ["s.example:6443 200"]);
    let stored = fixture.storage.document(&server_id("s")).unwrap();
    assert!(matches!(stored.source, DocumentSource::Fetched { .. }));
    // The document is in storage, so it need not be fetched before the server is ready.
    let b = fixture.server("b", PODS);
    let _b = b.join().await;
    assert_eq!(b.route_get(GET_JOBS).await, "s");
    assert_eq!(fixture.network.take_requests(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn restarted_stock_server_is_refetched_and_never_404_meanwhile() {
    let fixture = ClusterFixture::new();
    fixture.network.set_behavior("s.example:6443", PeerBehavior::Serves(PODS));
    fixture.put_stock_record("s").await;
    fixture.put_stock_lease("s", 1, 0);
    let a = fixture.server("a", PODS);
    let _a = a.join().await;
    let_tasks_run().await;
    assert_eq!(a.route_get(GET_JOBS).await, "Local(ServedNowhere)");
    fixture.network.set_behavior("s.example:6443", PeerBehavior::Hangs);
    fixture.put_stock_lease("s", 2, 10);
    let_tasks_run().await;
    assert_eq!(a.members(), "s live?");
    assert_eq!(a.route_get(GET_JOBS).await, "Unavailable(ViewIncomplete(MemberUnknown))");
    fixture.network.set_behavior("s.example:6443", PeerBehavior::Serves(JOBS));
    sleep_seconds(6).await;
    assert_eq!(a.members(), "s live");
    assert_eq!(a.route_get(GET_JOBS).await, "s");
}

#[tokio::test(start_paused = true)]
async fn new_server_knows_resources_of_crashed_server() {
    let fixture = ClusterFixture::new();
    let b = fixture.server("b", JOBS);
    let _b = b.join().await;
    let_tasks_run().await;
    b.hang_storage();
    sleep_seconds(20).await;
    let a = fixture.server("a", PODS);
    let _a = a.join().await;
    assert_eq!(a.members(), "b suspect");
    assert_eq!(a.route_get(GET_JOBS).await, "Unavailable(OnlyUnreachableMembers)");
    assert_eq!(a.route_get("/apis/example.com/v1/xs").await, "Local(ServedNowhere)");
    // Its lease expires an hour later and is removed with the document.
    sleep_seconds(3700).await;
    assert_eq!(a.members(), "");
    assert!(fixture.storage.lease(&server_id("b")).is_none() && fixture.storage.document(&server_id("b")).is_none());
    assert_eq!(a.route_get(GET_JOBS).await, "Local(ServedNowhere)");
}

#[tokio::test(start_paused = true)]
async fn mute_member_makes_built_in_names_503_and_custom_names_404() {
    let fixture = ClusterFixture::new();
    fixture.put_stock_lease("s", 1, 0);
    let a = fixture.server("a", PODS);
    let _a = a.join().await;
    assert_eq!(a.members(), "s unknown?");
    sleep_seconds(61).await;
    assert_eq!(a.members(), "s mute?");
    assert_eq!(a.route_get(GET_JOBS).await, "Unavailable(ViewIncomplete(MemberMute))");
    assert_eq!(a.route_get("/apis/example.com/v1/xs").await, "Local(ServedNowhere)");
    assert_eq!(a.metrics_text("apiserver_peer_discovery_sync_errors_total").lines().count(), 1);
}

#[tokio::test(start_paused = true)]
async fn first_sync_waits_for_fetch_up_to_timeout() {
    for (conduct, seconds) in [
        (Some(PeerBehavior::Serves(JOBS)), 0),
        (Some(PeerBehavior::Responds(500)), 0),
        (None, 0),
        (Some(PeerBehavior::Hangs), 3),
    ] {
        let fixture = ClusterFixture::new();
        if let Some(conduct) = &conduct {
            fixture.network.set_behavior("s.example:6443", conduct.clone());
        }
        fixture.put_stock_record("s").await;
        fixture.put_stock_lease("s", 1, 0);
        let a = fixture.server("a", PODS);
        assert_eq!(a.cluster.view().first_sync(), FirstSync::Pending);
        assert_eq!(a.route_get(GET_JOBS).await, "Unavailable(ViewIncomplete(NotSynced))");
        let started = tokio::time::Instant::now();
        a.cluster.milestones().first_sync.wait_until_reached().await;
        assert_eq!(started.elapsed().as_secs(), seconds, "{conduct:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn route_sees_documents_published_before_the_request() {
    let fixture = ClusterFixture::new();
    let (a, b) = (fixture.server("a", PODS), fixture.server("b", PODS));
    let (_a, _b) = (a.join().await, b.join().await);
    let_tasks_run().await;
    // A new process published it, and no task has run since.
    b.hang_storage();
    let mut stored = fixture.storage.document(&server_id("b")).unwrap();
    stored.document = Arc::new(crate::testing::server_document_from_notation(JOBS));
    let seen = fixture.storage.document_version(&server_id("b"));
    DocumentStorage::put(&fixture.storage, &server_id("b"), stored.encode(), seen, None).await.unwrap();
    assert_eq!(a.route_get(GET_JOBS).await, "b");
}

#[tokio::test(start_paused = true)]
async fn route_is_503_not_404_while_storage_is_unavailable() {
    let fixture = ClusterFixture::new();
    let a = fixture.server("a", PODS);
    let _a = a.join().await;
    for mood in [StorageMode::Failing, StorageMode::Hanging] {
        a.storage.set_mode(mood);
        let started = tokio::time::Instant::now();
        assert_eq!(a.route_get("/apis/example.com/v1/xs").await, "Unavailable(AbsenceNotProven)");
        assert!(started.elapsed() <= crate::absence_proof::PROOF_TIMEOUT);
        assert_eq!(a.route_get("/api/v1/namespaces/x/pods/y").await, "Local(ServedHere)");
    }
}

#[tokio::test(start_paused = true)]
async fn disabled_peering_mutes_others_but_keeps_membership() {
    let fixture = ClusterFixture::new();
    let b = fixture.server("b", JOBS);
    let a = fixture.server_with("a", PODS, |config| config.membership.peering = Peering::Disabled);
    let (_a, _b) = (a.join().await, b.join().await);
    let_tasks_run().await;
    assert_eq!((a.members(), b.members()), ("b mute?".to_owned(), "a live".to_owned()));
    assert_eq!(a.route_get(GET_JOBS).await, "Unavailable(ViewIncomplete(MemberMute))");
    assert_eq!(fixture.network.take_requests(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn deleted_definition_stays_excluded_for_grace_period() {
    const XS: &str = "/apis/example.com/v1/xs";
    let fixture = ClusterFixture::new();
    let (a, b) = (fixture.server("a", PODS), fixture.server("b", "example.com/v1 xs:list"));
    let (_a, _b) = (a.join().await, b.join().await);
    let_tasks_run().await;
    assert_eq!(a.route_get(XS).await, "b");
    a.set_defined("example.com/v1/xs");
    let_tasks_run().await;
    assert_eq!(a.route_get(XS).await, "Local(SharedState)");
    a.set_defined("");
    let_tasks_run().await;
    assert_eq!(a.route_get(XS).await, "Local(ServedNowhere)");
    sleep_seconds(299).await;
    assert_eq!(a.route_get(XS).await, "Local(ServedNowhere)");
    sleep_seconds(1).await;
    assert_eq!(a.route_get(XS).await, "b");
}

#[tokio::test(start_paused = true)]
async fn lease_renewals_do_not_change_view() {
    let fixture = ClusterFixture::new();
    let (a, b) = (fixture.server("a", PODS), fixture.server("b", JOBS));
    let (_a, _b) = (a.join().await, b.join().await);
    let_tasks_run().await;
    let before = a.cluster.view();
    sleep_seconds(100).await;
    assert!(Arc::ptr_eq(&before, &a.cluster.view()));
}

#[tokio::test(start_paused = true)]
async fn unreadable_stored_document_is_removed_and_fetched() {
    let fixture = ClusterFixture::new();
    fixture.network.set_behavior("s.example:6443", PeerBehavior::Serves(JOBS));
    fixture.put_stock_record("s").await;
    fixture.put_stock_lease("s", 1, 0);
    let garbage = bytes::Bytes::from_static(b"not gzip");
    DocumentStorage::put(&fixture.storage, &server_id("s"), garbage, None, None).await.unwrap();
    let a = fixture.server("a", PODS);
    let _a = a.join().await;
    // The unreadable document is removed first, so that the fetched one can be stored.
    sleep_seconds(75).await;
    assert_eq!(a.members(), "s live");
}

#[tokio::test(start_paused = true)]
async fn lingering_document_is_kept_when_stock_server_returns() {
    let fixture = ClusterFixture::new();
    fixture.network.set_behavior("s.example:6443", PeerBehavior::Serves(JOBS));
    fixture.put_stock_record("s").await;
    fixture.put_stock_lease("s", 1, 0);
    let a = fixture.server("a", PODS);
    let _a = a.join().await;
    let_tasks_run().await;
    fixture.storage.remove_lease(&server_id("s"));
    fixture.storage.remove_record(&server_id("s"));
    sleep_seconds(10).await;
    assert_eq!(fixture.storage.document(&server_id("s")).unwrap().retention, Retention::Lingering);
    assert_eq!(a.route_get(GET_JOBS).await, "Unavailable(OnlyUnreachableMembers)");
    // The server is back but not reachable: what it served is not forgotten.
    fixture.network.set_behavior("s.example:6443", PeerBehavior::Responds(503));
    fixture.put_stock_lease("s", 2, 10);
    sleep_seconds(100).await;
    assert_eq!(fixture.storage.document(&server_id("s")).unwrap().retention, Retention::UntilReplaced);
    assert_eq!(a.members(), "s suspect?");
    assert_eq!(a.route_get(GET_JOBS).await, "Unavailable(OnlyUnreachableMembers)");
}
