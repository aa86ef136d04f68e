//! Servers that publish over storage in memory, in paused time.

use super::*;
use crate::registration::Registration;
use crate::testing::{LEASE, Memory, Mood, Server, registrations, wait};

const TWO: &str = "apps.deployments=apps/v1 core.pods=v1";

#[tokio::test(start_paused = true)]
async fn nothing_is_published_or_permitted_before_the_lease_is_held() {
    let storage = Memory::new();
    storage.set_members("a");
    let a = Server::start("a", &storage, TWO);
    wait(60_000).await;
    assert_eq!(storage.take_log(), "");
    assert_eq!(a.versions.check().unwrap_err(), "not finished: the identity lease is not held yet");
    assert_eq!(
        a.permit("apps.deployments").unwrap_err().to_string(),
        "wait for storage version registration to complete for resource: deployments.apps, last seen error: <nil>"
    );
    a.renew();
    a.versions.published().await;
    assert_eq!(storage.shown("apps.deployments"), "a=apps/v1 | apps/v1 | True True");
    assert_eq!(storage.shown("core.pods"), "a=v1 | v1 | True True");
    let fence = a.permit("core.pods").unwrap().unwrap();
    assert_eq!(fence.revision, revision_of(&storage.get("core.pods").unwrap()));
    assert_eq!(a.versions.check(), Ok(()));
}

#[tokio::test(start_paused = true)]
async fn each_object_is_one_write_and_an_unchanged_one_is_none() {
    let storage = Memory::new();
    storage.set_members("a");
    let a = Server::start("a", &storage, TWO);
    a.renew();
    a.versions.published().await;
    let mut log: Vec<_> = storage.take_log().split(", ").map(str::to_owned).collect();
    log.sort();
    assert_eq!(log, ["put apps.deployments", "put core.pods"]);
    a.stop().await;
    let again = Server::start("a", &storage, TWO);
    again.renew();
    again.versions.published().await;
    assert_eq!(storage.take_log(), "");
    assert!(again.permit("core.pods").unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn entries_of_those_who_left_go_in_the_same_write() {
    let storage = Memory::new().without_collector();
    storage.set_members("a");
    let a = Server::start("a", &storage, TWO);
    a.renew();
    a.versions.published().await;
    a.stop().await;
    storage.take_log();
    storage.set_members("b");
    let b = Server::start("b", &storage, "core.pods=v1");
    b.renew();
    b.versions.published().await;
    assert_eq!(storage.take_log(), "put core.pods");
    assert_eq!(storage.shown("core.pods"), "b=v1 | v1 | True True");
}

#[tokio::test(start_paused = true)]
async fn servers_that_start_together_all_get_their_entries() {
    let storage = Memory::new();
    let names: Vec<String> = (0..20).map(|number| format!("s{number:02}")).collect();
    storage.set_members(&names.join(" "));
    let servers: Vec<_> = names.iter().map(|name| Server::start(name, &storage, TWO)).collect();
    let began = Instant::now();
    for server in &servers {
        server.renew();
    }
    for server in &servers {
        server.versions.published().await;
        assert!(server.permit("core.pods").unwrap().is_some());
    }
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    assert_eq!(storage.get("core.pods").unwrap().status.storage_versions.len(), 20);
    assert!(storage.shown("apps.deployments").ends_with("| apps/v1 | True True"));
    assert_eq!(storage.take_log().matches("put").count(), 40, "one write per server and object");
}

#[tokio::test(start_paused = true)]
async fn a_tampered_entry_closes_the_barrier_until_it_is_repaired() {
    let storage = Memory::new();
    storage.set_members("a");
    let a = Server::start("a", &storage, TWO);
    a.renew();
    a.versions.published().await;
    for tamper in [
        (|object| object.status.storage_versions.clear()) as fn(&mut StorageVersion),
        |object| object.status.storage_versions[0].encoding_version = "v9".to_owned(),
        |object| {
            let twin = object.status.storage_versions[0].clone();
            object.status.storage_versions.push(twin);
        },
    ] {
        // As long as storage fails, it cannot be repaired.
        a.storage.set_mood(Mood::Failing);
        storage.tamper("core.pods", tamper);
        wait(1_000).await;
        let closed = a.permit("core.pods").unwrap_err();
        assert_eq!(closed.last_error.as_deref(), Some("on purpose"));
        assert_eq!(a.versions.check().unwrap_err(), "to be published again: core.pods");
        assert!(a.permit("apps.deployments").unwrap().is_some(), "each resource for itself");
        a.storage.set_mood(Mood::Well);
        wait(10_000).await;
        a.renew();
        assert_eq!(storage.shown("core.pods"), "a=v1 | v1 | True True");
        assert!(a.permit("core.pods").unwrap().is_some());
    }
    storage.remove("core.pods");
    wait(10).await;
    assert_eq!(storage.shown("core.pods"), "a=v1 | v1 | True True");
}

#[tokio::test(start_paused = true)]
async fn trouble_is_waited_out_and_named() {
    for (mood, error) in [
        (Mood::Failing, "on purpose"),
        (Mood::Hanging, "storage did not answer in time"),
        (Mood::Lost, "the servers of the cluster are not known at the moment"),
    ] {
        let storage = Memory::new();
        storage.set_members("a");
        let a = Server::start("a", &storage, TWO);
        a.storage.set_mood(mood);
        a.renew();
        wait(20_000).await;
        assert_eq!(a.permit("core.pods").unwrap_err().last_error.as_deref(), Some(error));
        a.storage.set_mood(Mood::Well);
        wait(9_000).await;
        assert!(a.permit("core.pods").unwrap().is_some(), "{mood:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_whose_answer_was_lost_is_found() {
    let storage = Memory::new();
    storage.set_members("a");
    let a = Server::start("a", &storage, TWO);
    a.storage.set_mood(Mood::Mumbling);
    a.renew();
    a.versions.published().await;
    assert_eq!(storage.take_log().matches("put").count(), 2);
}

#[tokio::test(start_paused = true)]
async fn the_fence_closes_with_the_lease_and_opens_when_it_is_renewed() {
    let storage = Memory::new();
    storage.set_members("a");
    let a = Server::start("a", &storage, TWO);
    a.renew();
    a.versions.published().await;
    tokio::time::advance(LEASE - Duration::from_millis(1)).await;
    assert!(a.permit("core.pods").is_ok());
    tokio::time::advance(Duration::from_millis(1)).await;
    let closed = a.permit("core.pods").unwrap_err();
    assert_eq!(
        closed.to_string(),
        "wait for storage version registration to complete for resource: pods, last seen error: the identity lease was \
         last renewed 30 s ago and has expired"
    );
    assert_eq!(a.versions.check().unwrap_err(), "the identity lease was last renewed 30 s ago and has expired");
    assert_eq!(a.versions.check_first(), Ok(()), "that is over");
    a.renew();
    assert!(a.permit("core.pods").is_ok());
}

#[tokio::test(start_paused = true)]
async fn resources_come_change_and_go_at_run_time() {
    let storage = Memory::new();
    storage.set_members("a");
    let a = Server::start("a", &storage, TWO);
    a.renew();
    a.versions.published().await;
    let custom = |version: &str| {
        let all = registrations(&format!("example.com.widgets={version}"));
        Registration::clone(all.values().next().unwrap())
    };
    assert_eq!(a.permit("example.com.widgets"), Ok(None), "not registered yet, so not held");
    a.versions.register(custom("example.com/v1")).await;
    assert_eq!(storage.shown("example.com.widgets"), "a=example.com/v1 | example.com/v1 | True True");
    let first = a.permit("example.com.widgets").unwrap().unwrap();
    a.storage.set_mood(Mood::Failing);
    let (versions, next) = (a.versions.clone(), custom("example.com/v2"));
    let changing = async { versions.register(next).await };
    tokio::select! {
        () = changing => panic!("it cannot be published"),
        () = wait(1_000) => {}
    }
    assert!(a.permit("example.com.widgets").is_err(), "the old version is not written any more, the new one not yet");
    a.storage.set_mood(Mood::Well);
    a.versions.register(custom("example.com/v2")).await;
    assert!(a.permit("example.com.widgets").unwrap().unwrap().revision > first.revision);
    a.versions.unregister(api::GroupResource { group: "example.com", resource: "widgets" });
    wait(100).await;
    assert_eq!(storage.shown("example.com.widgets"), "-");
}

#[tokio::test(start_paused = true)]
async fn what_a_former_process_kept_and_this_one_does_not_is_withdrawn() {
    let storage = Memory::new();
    storage.set_members("a b");
    let (a, b) = (Server::start("a", &storage, TWO), Server::start("b", &storage, TWO));
    a.renew();
    b.renew();
    a.versions.published().await;
    b.versions.published().await;
    a.stop().await;
    let downgraded = Server::start("a", &storage, "core.pods=v1");
    downgraded.renew();
    wait(100).await;
    assert_eq!(storage.shown("apps.deployments"), "b=apps/v1 | apps/v1 | True False");
    storage.take_log();
    wait(1_000).await;
    assert_eq!(storage.take_log(), "", "once is enough");
}
