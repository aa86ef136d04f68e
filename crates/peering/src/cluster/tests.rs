use std::time::Duration;

use api::media::AggregatedVersion;

use super::*;
use crate::documents::{Source, Tenure};
use crate::testing::memory::Mood;
use crate::testing::peers::Conduct;
use crate::testing::server;
use crate::testing::servers::{World, settle, wait};
use crate::view::{FirstSync, Peering};

const PODS: &str = "v1 pods:get,list";
const JOBS: &str = "v1 pods:get,list | batch/v1 jobs:get,list";
const GET_JOBS: &str = "/apis/batch/v1/jobs";

#[tokio::test(start_paused = true)]
async fn servers_learn_of_each_other_from_storage_and_nobody_asks_anybody() {
    let world = World::new();
    let (a, b) = (world.server("a", PODS), world.server("b", JOBS));
    let (_a, _b) = (a.join().await, b.join().await);
    settle().await;
    assert_eq!((a.members(), b.members()), ("b live".to_owned(), "a live".to_owned()));
    assert_eq!(a.get(GET_JOBS).await, "b");
    assert_eq!(b.get(GET_JOBS).await, "Here(ServedHere)");
    assert_eq!(world.network.take_asked(), [""; 0]);
    let etag = |server: &crate::testing::servers::Server| {
        server.cluster.view().merged().json(AggregatedVersion::V2).etag.clone()
    };
    assert_eq!(etag(&a), etag(&b));
}

#[tokio::test(start_paused = true)]
async fn what_a_server_begins_to_serve_is_known_to_others_at_once() {
    let world = World::new();
    let (a, b) = (world.server("a", PODS), world.server("b", PODS));
    let (_a, _b) = (a.join().await, b.join().await);
    assert_eq!(a.get(GET_JOBS).await, "Here(ServedNowhere)");
    b.local.send_replace(crate::testing::document(JOBS));
    settle().await;
    assert_eq!(a.get(GET_JOBS).await, "b");
    b.local.send_replace(crate::testing::document(PODS));
    settle().await;
    assert_eq!(a.get(GET_JOBS).await, "Here(ServedNowhere)");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_left_is_answered_for_until_the_linger_is_over() {
    let world = World::new();
    let (a, b) = (world.server("a", PODS), world.server("b", JOBS));
    let (_a, presence) = (a.join().await, b.join().await);
    presence.leave().await;
    b.tasks.stop(Duration::from_secs(1)).await.unwrap();
    settle().await;
    assert_eq!(a.members(), "b left");
    assert_eq!(a.get(GET_JOBS).await, "Unavailable(OnlySuspects)");
    wait(59).await;
    assert_eq!(a.get(GET_JOBS).await, "Unavailable(OnlySuspects)");
    wait(2).await;
    assert_eq!(a.members(), "");
    assert_eq!(a.get(GET_JOBS).await, "Here(ServedNowhere)");
}

#[tokio::test(start_paused = true)]
async fn a_clean_restart_is_never_absence() {
    let world = World::new();
    let (a, b) = (world.server("a", PODS), world.server("b", JOBS));
    let (_a, presence) = (a.join().await, b.join().await);
    presence.leave().await;
    b.tasks.stop(Duration::from_secs(1)).await.unwrap();
    wait(30).await;
    assert_eq!(a.get(GET_JOBS).await, "Unavailable(OnlySuspects)");
    let again = world.server_with("b", JOBS, |config| {
        config.presence.holder = crate::HolderIdentity::new(&server("b"), 2);
    });
    let _again = again.join().await;
    settle().await;
    assert_eq!(a.get(GET_JOBS).await, "b");
    wait(120).await;
    assert_eq!(a.members(), "b live");
}

#[tokio::test(start_paused = true)]
async fn what_a_server_served_before_a_restart_is_answered_for_until_the_linger_is_over() {
    let world = World::new();
    let (a, b) = (world.server("a", PODS), world.server("b", JOBS));
    let (_a, _b) = (a.join().await, b.join().await);
    // Killed, and back at another release.
    b.tasks.stop(Duration::from_secs(1)).await.unwrap();
    let again = world.server_with("b", PODS, |config| {
        config.presence.holder = crate::HolderIdentity::new(&server("b"), 2);
    });
    let _again = again.join().await;
    settle().await;
    for server in [&a, &again] {
        assert_eq!(server.get(GET_JOBS).await, "Unavailable(OnlySuspects)");
    }
    // A server that starts now knows as much.
    let late = world.server("late", PODS);
    let _late = late.join().await;
    assert_eq!(late.get(GET_JOBS).await, "Unavailable(OnlySuspects)");
    wait(61).await;
    for server in [&a, &again, &late] {
        assert_eq!(server.get(GET_JOBS).await, "Here(ServedNowhere)");
    }
    assert_eq!(a.members(), "b live, late live");
}

#[tokio::test(start_paused = true)]
async fn a_stock_server_is_asked_and_the_answer_is_everybodys() {
    let world = World::new();
    world.network.set("s.example:6443", Conduct::Serves(JOBS));
    world.stock_record("s").await;
    world.stock_lease("s", 1, 0);
    let a = world.server("a", PODS);
    let _a = a.join().await;
    settle().await;
    assert_eq!(a.members(), "s live");
    assert_eq!(a.get(GET_JOBS).await, "s");
    assert_eq!(world.network.take_asked(), ["s.example:6443 200"]);
    let stored = world.memory.document(&server("s")).unwrap();
    assert!(matches!(stored.source, Source::Asked { .. }));
    // Found in storage, so that nobody needs to ask before being ready.
    let b = world.server("b", PODS);
    let _b = b.join().await;
    assert_eq!(b.get(GET_JOBS).await, "s");
    assert_eq!(world.network.take_asked(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_stock_server_that_restarted_is_asked_anew_and_not_denied_meanwhile() {
    let world = World::new();
    world.network.set("s.example:6443", Conduct::Serves(PODS));
    world.stock_record("s").await;
    world.stock_lease("s", 1, 0);
    let a = world.server("a", PODS);
    let _a = a.join().await;
    settle().await;
    assert_eq!(a.get(GET_JOBS).await, "Here(ServedNowhere)");
    world.network.set("s.example:6443", Conduct::Hangs);
    world.stock_lease("s", 2, 10);
    settle().await;
    assert_eq!(a.members(), "s live?");
    assert_eq!(a.get(GET_JOBS).await, "Unavailable(Unheard(MemberUnknown))");
    world.network.set("s.example:6443", Conduct::Serves(JOBS));
    wait(6).await;
    assert_eq!(a.members(), "s live");
    assert_eq!(a.get(GET_JOBS).await, "s");
}

#[tokio::test(start_paused = true)]
async fn a_server_started_beside_a_dead_one_knows_what_it_served() {
    let world = World::new();
    let b = world.server("b", JOBS);
    let _b = b.join().await;
    settle().await;
    b.kill();
    wait(20).await;
    let a = world.server("a", PODS);
    let _a = a.join().await;
    assert_eq!(a.members(), "b suspect");
    assert_eq!(a.get(GET_JOBS).await, "Unavailable(OnlySuspects)");
    assert_eq!(a.get("/apis/example.com/v1/xs").await, "Here(ServedNowhere)");
    // Its lease expires an hour later and is swept, with the document.
    wait(3700).await;
    assert_eq!(a.members(), "");
    assert!(world.memory.lease(&server("b")).is_none() && world.memory.document(&server("b")).is_none());
    assert_eq!(a.get(GET_JOBS).await, "Here(ServedNowhere)");
}

#[tokio::test(start_paused = true)]
async fn beside_a_mute_server_custom_names_are_absent_and_built_in_ones_are_not() {
    let world = World::new();
    world.stock_lease("s", 1, 0);
    let a = world.server("a", PODS);
    let _a = a.join().await;
    assert_eq!(a.members(), "s unknown?");
    wait(61).await;
    assert_eq!(a.members(), "s mute?");
    assert_eq!(a.get(GET_JOBS).await, "Unavailable(Unheard(MemberMute))");
    assert_eq!(a.get("/apis/example.com/v1/xs").await, "Here(ServedNowhere)");
    assert_eq!(a.figures("apiserver_peer_discovery_sync_errors_total").lines().count(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_first_sync_waits_for_an_answer_but_not_for_ever() {
    for (conduct, seconds) in
        [(Some(Conduct::Serves(JOBS)), 0), (Some(Conduct::Says(500)), 0), (None, 0), (Some(Conduct::Hangs), 3)]
    {
        let world = World::new();
        if let Some(conduct) = &conduct {
            world.network.set("s.example:6443", conduct.clone());
        }
        world.stock_record("s").await;
        world.stock_lease("s", 1, 0);
        let a = world.server("a", PODS);
        assert_eq!(a.cluster.view().first_sync(), FirstSync::Pending);
        assert_eq!(a.get(GET_JOBS).await, "Unavailable(Unheard(NotSynced))");
        let started = tokio::time::Instant::now();
        a.cluster.milestones().first_sync.reached().await;
        assert_eq!(started.elapsed().as_secs(), seconds, "{conduct:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn absence_is_said_only_of_what_nobody_published_before() {
    let world = World::new();
    let (a, b) = (world.server("a", PODS), world.server("b", PODS));
    let (_a, _b) = (a.join().await, b.join().await);
    settle().await;
    // Published by a new process of it, and not seen by anybody yet: no task has run since.
    b.kill();
    let mut stored = world.memory.document(&server("b")).unwrap();
    stored.document = Arc::new(crate::testing::server_document(JOBS));
    let seen = world.memory.document_version(&server("b"));
    Documents::put(&world.memory, &server("b"), stored.encode(), seen, None).await.unwrap();
    assert_eq!(a.get(GET_JOBS).await, "b");
}

#[tokio::test(start_paused = true)]
async fn without_storage_nothing_is_absent() {
    let world = World::new();
    let a = world.server("a", PODS);
    let _a = a.join().await;
    for mood in [Mood::Failing, Mood::Hanging] {
        a.memory.set_mood(mood);
        let started = tokio::time::Instant::now();
        assert_eq!(a.get("/apis/example.com/v1/xs").await, "Unavailable(NotProven)");
        assert!(started.elapsed() <= crate::prove::PATIENCE);
        assert_eq!(a.get("/api/v1/namespaces/x/pods/y").await, "Here(ServedHere)");
    }
}

#[tokio::test(start_paused = true)]
async fn without_certificates_others_are_mute_and_we_are_a_member_nevertheless() {
    let world = World::new();
    let b = world.server("b", JOBS);
    let a = world.server_with("a", PODS, |config| config.membership.peering = Peering::Disabled);
    let (_a, _b) = (a.join().await, b.join().await);
    settle().await;
    assert_eq!((a.members(), b.members()), ("b mute?".to_owned(), "a live".to_owned()));
    assert_eq!(a.get(GET_JOBS).await, "Unavailable(Unheard(MemberMute))");
    assert_eq!(world.network.take_asked(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_deleted_definition_stays_struck_for_five_minutes() {
    const XS: &str = "/apis/example.com/v1/xs";
    let world = World::new();
    let (a, b) = (world.server("a", PODS), world.server("b", "example.com/v1 xs:list"));
    let (_a, _b) = (a.join().await, b.join().await);
    settle().await;
    assert_eq!(a.get(XS).await, "b");
    a.define("example.com/v1/xs");
    settle().await;
    assert_eq!(a.get(XS).await, "Here(SharedState)");
    a.define("");
    settle().await;
    assert_eq!(a.get(XS).await, "Here(ServedNowhere)");
    wait(299).await;
    assert_eq!(a.get(XS).await, "Here(ServedNowhere)");
    wait(1).await;
    assert_eq!(a.get(XS).await, "b");
}

#[tokio::test(start_paused = true)]
async fn renewals_alone_make_no_new_view() {
    let world = World::new();
    let (a, b) = (world.server("a", PODS), world.server("b", JOBS));
    let (_a, _b) = (a.join().await, b.join().await);
    settle().await;
    let before = a.cluster.view();
    wait(100).await;
    assert!(Arc::ptr_eq(&before, &a.cluster.view()));
}

#[tokio::test(start_paused = true)]
async fn a_document_that_cannot_be_read_is_asked_for() {
    let world = World::new();
    world.network.set("s.example:6443", Conduct::Serves(JOBS));
    world.stock_record("s").await;
    world.stock_lease("s", 1, 0);
    let garbage = bytes::Bytes::from_static(b"not gzip");
    Documents::put(&world.memory, &server("s"), garbage, None, None).await.unwrap();
    let a = world.server("a", PODS);
    let _a = a.join().await;
    // It is removed first, so that the answer can take its place.
    wait(75).await;
    assert_eq!(a.members(), "s live");
}

#[tokio::test(start_paused = true)]
async fn a_lingering_document_is_kept_when_its_stock_server_returns() {
    let world = World::new();
    world.network.set("s.example:6443", Conduct::Serves(JOBS));
    world.stock_record("s").await;
    world.stock_lease("s", 1, 0);
    let a = world.server("a", PODS);
    let _a = a.join().await;
    settle().await;
    world.memory.remove_lease(&server("s"));
    world.memory.remove_record(&server("s"));
    wait(10).await;
    assert_eq!(world.memory.document(&server("s")).unwrap().tenure, Tenure::Leaving);
    assert_eq!(a.get(GET_JOBS).await, "Unavailable(OnlySuspects)");
    // Back, but not to be reached: what it served is not forgotten.
    world.network.set("s.example:6443", Conduct::Says(503));
    world.stock_lease("s", 2, 10);
    wait(100).await;
    assert_eq!(world.memory.document(&server("s")).unwrap().tenure, Tenure::Staying);
    assert_eq!(a.members(), "s suspect?");
    assert_eq!(a.get(GET_JOBS).await, "Unavailable(OnlySuspects)");
}
