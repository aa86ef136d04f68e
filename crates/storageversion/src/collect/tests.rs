//! Collectors over storage in memory, in paused time.

use crate::testing::{Memory, Mood, Server, registrations, wait};

const PODS: &str = "core.pods=v1";

/// A server that has published, and leads the collection if it is the first.
async fn published(name: &str, storage: &Memory, registered: &str) -> Server {
    let server = Server::start(name, storage, registered);
    server.renew();
    server.versions.published().await;
    server
}

#[tokio::test(start_paused = true)]
async fn entries_go_with_the_lease_and_the_object_with_the_last_entry() {
    let storage = Memory::new();
    storage.set_members("a b c");
    let _a = published("a", &storage, PODS).await;
    let b = published("b", &storage, "core.pods=v2 apps.deployments=apps/v1").await;
    assert_eq!(storage.shown("core.pods"), "a=v1 b=v2 | none | False False");
    b.stop().await;
    wait(60_000).await;
    assert_eq!(storage.shown("apps.deployments"), "b=apps/v1 | apps/v1 | True False", "its lease is still there");
    storage.take_log();
    storage.set_members("a");
    wait(10).await;
    assert_eq!(storage.shown("core.pods"), "a=v1 | v1 | True True");
    assert_eq!(storage.shown("apps.deployments"), "-");
    assert_eq!(storage.take_log(), "delete apps.deployments, put core.pods");
}

#[tokio::test(start_paused = true)]
async fn two_collectors_do_the_work_of_one() {
    let storage = Memory::new();
    storage.set_members("a b c");
    let _a = published("a", &storage, PODS).await;
    let _b = published("b", &storage, PODS).await;
    let c = published("c", &storage, PODS).await;
    c.stop().await;
    wait(10_000).await;
    storage.take_log();
    storage.set_members("a b");
    wait(10_000).await;
    assert_eq!(storage.take_log(), "put core.pods");
    assert_eq!(storage.shown("core.pods"), "a=v1 b=v1 | v1 | True True");
}

#[tokio::test(start_paused = true)]
async fn a_member_that_does_not_report_is_said_after_a_moment() {
    let storage = Memory::new();
    storage.set_members("a");
    let _a = published("a", &storage, PODS).await;
    wait(5_000).await;
    storage.take_log();
    storage.set_members("a stock");
    wait(1_900).await;
    assert_eq!(storage.shown("core.pods"), "a=v1 | v1 | True True");
    wait(200).await;
    assert_eq!(storage.shown("core.pods"), "a=v1 | v1 | True False");
    assert_eq!(storage.get("core.pods").unwrap().status.conditions[1].message, "No entry of stock");
    storage.set_members("a");
    wait(10).await;
    assert_eq!(storage.shown("core.pods"), "a=v1 | v1 | True True");
    assert_eq!(storage.take_log(), "put core.pods, put core.pods");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_joins_and_reports_in_time_changes_nothing_twice() {
    let storage = Memory::new();
    storage.set_members("a");
    let _a = published("a", &storage, PODS).await;
    wait(5_000).await;
    storage.take_log();
    storage.set_members("a b");
    wait(1_000).await;
    let _b = published("b", &storage, PODS).await;
    wait(10_000).await;
    assert_eq!(storage.take_log(), "put core.pods");
    assert_eq!(storage.shown("core.pods"), "a=v1 b=v1 | v1 | True True");
}

#[tokio::test(start_paused = true)]
async fn an_object_without_entries_is_given_time() {
    let storage = Memory::new();
    storage.set_members("a");
    let _a = published("a", &storage, PODS).await;
    wait(5_000).await;
    storage.tamper("example.com.widgets", |_| {});
    wait(9_900).await;
    assert_ne!(storage.shown("example.com.widgets"), "-", "its server may be about to fill it");
    wait(200).await;
    assert_eq!(storage.shown("example.com.widgets"), "-");
}

#[tokio::test(start_paused = true)]
async fn nobody_is_gone_because_storage_does_not_say() {
    let storage = Memory::new();
    storage.set_members("a b");
    let a = published("a", &storage, PODS).await;
    let b = published("b", &storage, PODS).await;
    b.stop().await;
    wait(20_000).await;
    a.storage.set_mood(Mood::Lost);
    storage.set_members("a");
    wait(60_000).await;
    assert_eq!(storage.shown("core.pods"), "a=v1 b=v1 | v1 | True True");
    a.storage.set_mood(Mood::Well);
    wait(10_000).await;
    assert_eq!(storage.shown("core.pods"), "a=v1 | v1 | True True");
}

#[tokio::test(start_paused = true)]
async fn a_view_that_is_behind_costs_nobody_an_entry() {
    let storage = Memory::new();
    storage.set_members("a");
    let _a = published("a", &storage, PODS).await;
    wait(5_000).await;
    storage.take_log();
    // The collector is told of the entry before it is told of the member; asked again, storage knows both.
    let entry = registrations(PODS).values().next().unwrap().entry("b");
    storage.set_members("a b");
    storage.tamper("core.pods", |object| object.status.storage_versions.push(entry));
    wait(10).await;
    assert_eq!(storage.shown("core.pods"), "a=v1 b=v1 | v1 | True True");
}

#[tokio::test(start_paused = true)]
async fn what_was_tampered_with_is_repaired() {
    let storage = Memory::new();
    storage.set_members("a b");
    let _a = published("a", &storage, PODS).await;
    let _b = published("b", &storage, "core.pods=v2").await;
    wait(5_000).await;
    storage.tamper("core.pods", |object| object.status.common_encoding_version = Some("v1".to_owned()));
    wait(10).await;
    assert_eq!(storage.shown("core.pods"), "a=v1 b=v2 | none | False True");
}
