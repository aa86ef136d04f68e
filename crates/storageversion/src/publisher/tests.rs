//! Tests of the publisher over storage in memory, in paused time.

use super::*;
use crate::registration::Registration;
use crate::testing::{ClusterBehavior, LEASE_DURATION, MemoryCluster, PublishingServer, parse_registrations, sleep_ms};

const TWO_RESOURCES: &str = "apps.deployments=apps/v1 core.pods=v1";

#[tokio::test(start_paused = true)]
async fn publisher_waits_for_identity_lease() {
    let storage = MemoryCluster::new();
    storage.set_members("a");
    let a = PublishingServer::start("a", &storage, TWO_RESOURCES);
    sleep_ms(60_000).await;
    assert_eq!(storage.take_log(), "");
    assert_eq!(a.manager.check_writable().unwrap_err(), "not finished: the identity lease is not held yet");
    assert_eq!(
        a.permit("apps.deployments").unwrap_err().to_string(),
        "wait for storage version registration to complete for resource: deployments.apps, last seen error: <nil>"
    );
    a.renew_lease();
    a.manager.wait_until_published().await;
    assert_eq!(storage.describe("apps.deployments"), "a=apps/v1 | apps/v1 | True True");
    assert_eq!(storage.describe("core.pods"), "a=v1 | v1 | True True");
    let fence = a.permit("core.pods").unwrap().unwrap();
    assert_eq!(fence.revision, revision_of(&storage.get("core.pods").unwrap()));
    assert_eq!(a.manager.check_writable(), Ok(()));
}

#[tokio::test(start_paused = true)]
async fn publisher_writes_each_object_once_and_skips_unchanged() {
    let storage = MemoryCluster::new();
    storage.set_members("a");
    let a = PublishingServer::start("a", &storage, TWO_RESOURCES);
    a.renew_lease();
    a.manager.wait_until_published().await;
    let mut log: Vec<_> = storage.take_log().split(", ").map(str::to_owned).collect();
    log.sort();
    assert_eq!(log, ["put apps.deployments", "put core.pods"]);
    a.stop().await;
    let again = PublishingServer::start("a", &storage, TWO_RESOURCES);
    again.renew_lease();
    again.manager.wait_until_published().await;
    assert_eq!(storage.take_log(), "");
    assert!(again.permit("core.pods").unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn publisher_drops_entries_of_non_members_in_its_write() {
    let storage = MemoryCluster::new().without_collector();
    storage.set_members("a");
    let a = PublishingServer::start("a", &storage, TWO_RESOURCES);
    a.renew_lease();
    a.manager.wait_until_published().await;
    a.stop().await;
    storage.take_log();
    storage.set_members("b");
    let b = PublishingServer::start("b", &storage, "core.pods=v1");
    b.renew_lease();
    b.manager.wait_until_published().await;
    assert_eq!(storage.take_log(), "put core.pods");
    assert_eq!(storage.describe("core.pods"), "b=v1 | v1 | True True");
}

#[tokio::test(start_paused = true)]
async fn servers_starting_together_all_publish_their_entries() {
    let storage = MemoryCluster::new();
    let names: Vec<String> = (0..20).map(|number| format!("s{number:02}")).collect();
    storage.set_members(&names.join(" "));
    let servers: Vec<_> = names.iter().map(|name| PublishingServer::start(name, &storage, TWO_RESOURCES)).collect();
    let began = Instant::now();
    for server in &servers {
        server.renew_lease();
    }
    for server in &servers {
        server.manager.wait_until_published().await;
        assert!(server.permit("core.pods").unwrap().is_some());
    }
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    assert_eq!(storage.get("core.pods").unwrap().status.storage_versions.len(), 20);
    assert!(storage.describe("apps.deployments").ends_with("| apps/v1 | True True"));
    assert_eq!(storage.take_log().matches("put").count(), 40, "one write per server and object");
}

#[tokio::test(start_paused = true)]
async fn tampered_entry_closes_barrier_until_republished() {
    let storage = MemoryCluster::new();
    storage.set_members("a");
    let a = PublishingServer::start("a", &storage, TWO_RESOURCES);
    a.renew_lease();
    a.manager.wait_until_published().await;
    for tamper in [
        (|object| object.status.storage_versions.clear()) as fn(&mut StorageVersion),
        |object| object.status.storage_versions[0].encoding_version = "v9".to_owned(),
        |object| {
            let twin = object.status.storage_versions[0].clone();
            object.status.storage_versions.push(twin);
        },
    ] {
        // The publisher cannot repair the entry while storage fails.
        a.storage.set_behavior(ClusterBehavior::Failing);
        storage.tamper("core.pods", tamper);
        sleep_ms(1_000).await;
        let closed = a.permit("core.pods").unwrap_err();
        assert_eq!(closed.last_error.as_deref(), Some("on purpose"));
        assert_eq!(a.manager.check_writable().unwrap_err(), "to be published again: core.pods");
        assert!(a.permit("apps.deployments").unwrap().is_some(), "each resource has its own state");
        a.storage.set_behavior(ClusterBehavior::Healthy);
        sleep_ms(10_000).await;
        a.renew_lease();
        assert_eq!(storage.describe("core.pods"), "a=v1 | v1 | True True");
        assert!(a.permit("core.pods").unwrap().is_some());
    }
    storage.remove("core.pods");
    sleep_ms(10).await;
    assert_eq!(storage.describe("core.pods"), "a=v1 | v1 | True True");
}

#[tokio::test(start_paused = true)]
async fn publisher_retries_and_reports_last_error() {
    for (mood, error) in [
        (ClusterBehavior::Failing, "on purpose"),
        (ClusterBehavior::Hanging, "storage did not respond in time"),
        (ClusterBehavior::MembersUnknown, "the servers of the cluster are not known at the moment"),
    ] {
        let storage = MemoryCluster::new();
        storage.set_members("a");
        let a = PublishingServer::start("a", &storage, TWO_RESOURCES);
        a.storage.set_behavior(mood);
        a.renew_lease();
        sleep_ms(20_000).await;
        assert_eq!(a.permit("core.pods").unwrap_err().last_error.as_deref(), Some(error));
        a.storage.set_behavior(ClusterBehavior::Healthy);
        sleep_ms(9_000).await;
        assert!(a.permit("core.pods").unwrap().is_some(), "{mood:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn publisher_finds_write_whose_response_was_lost() {
    let storage = MemoryCluster::new();
    storage.set_members("a");
    let a = PublishingServer::start("a", &storage, TWO_RESOURCES);
    a.storage.set_behavior(ClusterBehavior::LosingResponses);
    a.renew_lease();
    a.manager.wait_until_published().await;
    assert_eq!(storage.take_log().matches("put").count(), 2);
}

#[tokio::test(start_paused = true)]
async fn barrier_closes_with_expired_lease_and_reopens_on_renewal() {
    let storage = MemoryCluster::new();
    storage.set_members("a");
    let a = PublishingServer::start("a", &storage, TWO_RESOURCES);
    a.renew_lease();
    a.manager.wait_until_published().await;
    tokio::time::advance(LEASE_DURATION - Duration::from_millis(1)).await;
    assert!(a.permit("core.pods").is_ok());
    tokio::time::advance(Duration::from_millis(1)).await;
    let closed = a.permit("core.pods").unwrap_err();
    assert_eq!(
        closed.to_string(),
        "wait for storage version registration to complete for resource: pods, last seen error: the identity lease was \
         last renewed 30 s ago and has expired"
    );
    assert_eq!(a.manager.check_writable().unwrap_err(), "the identity lease was last renewed 30 s ago and has expired");
    assert_eq!(a.manager.check_first_publication(), Ok(()), "the first publication stays finished");
    a.renew_lease();
    assert!(a.permit("core.pods").is_ok());
}

fn custom(text: &str) -> Vec<Arc<Registration>> {
    parse_registrations(text).into_values().collect()
}

const WIDGETS: api::GroupResource<&str> = api::GroupResource { group: "example.com", resource: "widgets" };

#[tokio::test(start_paused = true)]
async fn custom_resources_register_change_and_unregister_at_run_time() {
    let storage = MemoryCluster::new();
    storage.set_members("a");
    let a = PublishingServer::start("a", &storage, TWO_RESOURCES);
    a.renew_lease();
    a.manager.wait_until_published().await;
    assert_eq!(a.permit("example.com.widgets"), Ok(None), "not registered yet, so not held");
    a.barrier.replace_custom_registrations(&custom("example.com.widgets=example.com/v1"));
    assert!(a.permit("example.com.widgets").is_err());
    a.barrier.wait_until_permitted(WIDGETS).await;
    assert_eq!(storage.describe("example.com.widgets"), "a=example.com/v1 | example.com/v1 | True True");
    let first = a.permit("example.com.widgets").unwrap().unwrap();
    a.storage.set_behavior(ClusterBehavior::Failing);
    a.barrier.replace_custom_registrations(&custom("example.com.widgets=example.com/v2"));
    tokio::select! {
        () = a.barrier.wait_until_permitted(WIDGETS) => panic!("nothing can be published while storage fails"),
        () = sleep_ms(1_000) => {}
    }
    assert!(a.permit("example.com.widgets").is_err(), "neither version may be written");
    a.storage.set_behavior(ClusterBehavior::Healthy);
    a.barrier.wait_until_permitted(WIDGETS).await;
    assert!(a.permit("example.com.widgets").unwrap().unwrap().revision > first.revision);
    a.barrier.replace_custom_registrations(&[]);
    sleep_ms(100).await;
    assert_eq!(storage.describe("example.com.widgets"), "-");
}

#[tokio::test(start_paused = true)]
async fn failing_custom_entry_delays_neither_readiness_nor_other_entries() {
    let storage = MemoryCluster::new();
    storage.set_members("a");
    storage.make_unwritable("example.com.widgets");
    let a = PublishingServer::start("a", &storage, TWO_RESOURCES);
    a.barrier
        .replace_custom_registrations(&custom("example.com.gadgets=example.com/v1 example.com.widgets=example.com/v1"));
    a.renew_lease();
    a.manager.wait_until_published().await;
    sleep_ms(10).await;
    assert_eq!(a.manager.check_writable(), Ok(()), "custom resources do not count");
    assert_eq!(storage.describe("example.com.gadgets"), "a=example.com/v1 | example.com/v1 | True True");
    let held = a.permit("example.com.widgets").unwrap_err();
    assert_eq!(held.last_error.as_deref(), Some("unwritable"));
}

#[tokio::test(start_paused = true)]
async fn custom_registration_does_not_replace_a_built_in_one() {
    let storage = MemoryCluster::new();
    storage.set_members("a");
    let a = PublishingServer::start("a", &storage, TWO_RESOURCES);
    a.renew_lease();
    a.manager.wait_until_published().await;
    a.barrier.replace_custom_registrations(&custom("apps.deployments=apps/v9"));
    sleep_ms(100).await;
    assert_eq!(storage.describe("apps.deployments"), "a=apps/v1 | apps/v1 | True True");
    assert_eq!(a.manager.check_writable(), Ok(()));
}

#[tokio::test(start_paused = true)]
async fn restart_keeps_custom_entries_until_definitions_are_known() {
    let storage = MemoryCluster::new();
    storage.set_members("a");
    let a = PublishingServer::start("a", &storage, TWO_RESOURCES);
    a.barrier
        .replace_custom_registrations(&custom("example.com.gone=example.com/v1 example.com.widgets=example.com/v1"));
    a.renew_lease();
    a.barrier.wait_until_permitted(WIDGETS).await;
    sleep_ms(10).await;
    a.stop().await;
    storage.take_log();
    let again = PublishingServer::start("a", &storage, TWO_RESOURCES);
    again.barrier.expect_custom_registrations();
    again.renew_lease();
    again.manager.wait_until_published().await;
    sleep_ms(1_000).await;
    assert_eq!(storage.take_log(), "", "the definitions are not known yet");
    again.barrier.replace_custom_registrations(&custom("example.com.widgets=example.com/v1"));
    again.barrier.wait_until_permitted(WIDGETS).await;
    sleep_ms(1_000).await;
    assert_eq!(storage.take_log(), "delete example.com.gone", "an unchanged entry is not written");
}

#[tokio::test(start_paused = true)]
async fn resource_with_a_waiting_write_is_published_before_others() {
    let storage = MemoryCluster::new();
    storage.set_members("a");
    let a = PublishingServer::start("a", &storage, TWO_RESOURCES);
    let many: Vec<String> = (0..1_000).map(|number| format!("example.com.r{number:03}=example.com/v1")).collect();
    a.barrier.replace_custom_registrations(&custom(&many.join(" ")));
    let last = api::GroupResource { group: "example.com", resource: "r777" };
    tokio::join!(a.barrier.wait_until_permitted(last), async {
        tokio::task::yield_now().await;
        a.renew_lease();
    });
    let published = storage.take_log().matches("put example.com").count();
    assert!(published <= 3 * CONCURRENT_CUSTOM_WRITES, "{published} were published first");
    sleep_ms(60_000).await;
    assert_eq!(published + storage.take_log().matches("put example.com").count(), 1_000, "each once");
}

#[tokio::test(start_paused = true)]
async fn publisher_withdraws_entries_of_former_process() {
    let storage = MemoryCluster::new();
    storage.set_members("a b");
    let (a, b) =
        (PublishingServer::start("a", &storage, TWO_RESOURCES), PublishingServer::start("b", &storage, TWO_RESOURCES));
    a.renew_lease();
    b.renew_lease();
    a.manager.wait_until_published().await;
    b.manager.wait_until_published().await;
    a.stop().await;
    let downgraded = PublishingServer::start("a", &storage, "core.pods=v1");
    downgraded.renew_lease();
    sleep_ms(100).await;
    assert_eq!(storage.describe("apps.deployments"), "b=apps/v1 | apps/v1 | True False");
    storage.take_log();
    sleep_ms(1_000).await;
    assert_eq!(storage.take_log(), "", "the entry is withdrawn once");
}
