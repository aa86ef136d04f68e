//! Tests of the collector over storage in memory, in paused time.

use crate::testing::{ClusterBehavior, MemoryCluster, PublishingServer, parse_registrations, sleep_ms};

const PODS: &str = "core.pods=v1";

/// Starts a server and waits until it has published; the first one leads the collection.
async fn start_published_server(name: &str, storage: &MemoryCluster, registered: &str) -> PublishingServer {
    let server = PublishingServer::start(name, storage, registered);
    server.renew_lease();
    server.manager.wait_until_published().await;
    server
}

#[tokio::test(start_paused = true)]
async fn expired_lease_removes_entries_and_then_empty_objects() {
    let storage = MemoryCluster::new();
    storage.set_members("a b c");
    let _a = start_published_server("a", &storage, PODS).await;
    let b = start_published_server("b", &storage, "core.pods=v2 apps.deployments=apps/v1").await;
    assert_eq!(storage.describe("core.pods"), "a=v1 b=v2 | none | False False");
    b.stop().await;
    sleep_ms(60_000).await;
    assert_eq!(storage.describe("apps.deployments"), "b=apps/v1 | apps/v1 | True False", "its lease is still valid");
    storage.take_log();
    storage.set_members("a");
    sleep_ms(10).await;
    assert_eq!(storage.describe("core.pods"), "a=v1 | v1 | True True");
    assert_eq!(storage.describe("apps.deployments"), "-");
    let log = storage.take_log();
    let mut log: Vec<_> = log.split(", ").collect();
    log.sort_unstable();
    assert_eq!(log, ["delete apps.deployments", "put core.pods"]);
}

#[tokio::test(start_paused = true)]
async fn only_elected_collector_writes() {
    let storage = MemoryCluster::new();
    storage.set_members("a b c");
    let _a = start_published_server("a", &storage, PODS).await;
    let _b = start_published_server("b", &storage, PODS).await;
    let c = start_published_server("c", &storage, PODS).await;
    c.stop().await;
    sleep_ms(10_000).await;
    storage.take_log();
    storage.set_members("a b");
    sleep_ms(10_000).await;
    assert_eq!(storage.take_log(), "put core.pods");
    assert_eq!(storage.describe("core.pods"), "a=v1 b=v1 | v1 | True True");
}

#[tokio::test(start_paused = true)]
async fn non_reporting_member_is_marked_after_grace_period() {
    let storage = MemoryCluster::new();
    storage.set_members("a");
    let _a = start_published_server("a", &storage, PODS).await;
    sleep_ms(5_000).await;
    storage.take_log();
    storage.set_members("a stock");
    sleep_ms(1_900).await;
    assert_eq!(storage.describe("core.pods"), "a=v1 | v1 | True True");
    sleep_ms(200).await;
    assert_eq!(storage.describe("core.pods"), "a=v1 | v1 | True False");
    assert_eq!(storage.get("core.pods").unwrap().status.conditions[1].message, "No entry of stock");
    storage.set_members("a");
    sleep_ms(10).await;
    assert_eq!(storage.describe("core.pods"), "a=v1 | v1 | True True");
    assert_eq!(storage.take_log(), "put core.pods, put core.pods");
}

#[tokio::test(start_paused = true)]
async fn member_reporting_within_grace_causes_no_extra_write() {
    let storage = MemoryCluster::new();
    storage.set_members("a");
    let _a = start_published_server("a", &storage, PODS).await;
    sleep_ms(5_000).await;
    storage.take_log();
    storage.set_members("a b");
    sleep_ms(1_000).await;
    let _b = start_published_server("b", &storage, PODS).await;
    sleep_ms(10_000).await;
    assert_eq!(storage.take_log(), "put core.pods");
    assert_eq!(storage.describe("core.pods"), "a=v1 b=v1 | v1 | True True");
}

#[tokio::test(start_paused = true)]
async fn object_without_entries_is_deleted_after_grace_period() {
    let storage = MemoryCluster::new();
    storage.set_members("a");
    let _a = start_published_server("a", &storage, PODS).await;
    sleep_ms(5_000).await;
    storage.tamper("example.com.widgets", |_| {});
    sleep_ms(9_900).await;
    assert_ne!(storage.describe("example.com.widgets"), "-", "its server may be about to add the entry");
    sleep_ms(200).await;
    assert_eq!(storage.describe("example.com.widgets"), "-");
}

#[tokio::test(start_paused = true)]
async fn collector_keeps_entries_while_members_are_unknown() {
    let storage = MemoryCluster::new();
    storage.set_members("a b");
    let a = start_published_server("a", &storage, PODS).await;
    let b = start_published_server("b", &storage, PODS).await;
    b.stop().await;
    sleep_ms(20_000).await;
    a.storage.set_behavior(ClusterBehavior::MembersUnknown);
    storage.set_members("a");
    sleep_ms(60_000).await;
    assert_eq!(storage.describe("core.pods"), "a=v1 b=v1 | v1 | True True");
    a.storage.set_behavior(ClusterBehavior::Healthy);
    sleep_ms(10_000).await;
    assert_eq!(storage.describe("core.pods"), "a=v1 | v1 | True True");
}

#[tokio::test(start_paused = true)]
async fn collector_keeps_entry_of_member_missing_from_stale_view() {
    let storage = MemoryCluster::new();
    storage.set_members("a");
    let _a = start_published_server("a", &storage, PODS).await;
    sleep_ms(5_000).await;
    storage.take_log();
    // The collector sees the entry before the member; a new read of storage shows both.
    let entry = parse_registrations(PODS).values().next().unwrap().entry("b");
    storage.set_members("a b");
    storage.tamper("core.pods", |object| object.status.storage_versions.push(entry));
    sleep_ms(10).await;
    assert_eq!(storage.describe("core.pods"), "a=v1 b=v1 | v1 | True True");
}

#[tokio::test(start_paused = true)]
async fn collector_repairs_tampered_common_version() {
    let storage = MemoryCluster::new();
    storage.set_members("a b");
    let _a = start_published_server("a", &storage, PODS).await;
    let _b = start_published_server("b", &storage, "core.pods=v2").await;
    sleep_ms(5_000).await;
    storage.tamper("core.pods", |object| object.status.common_encoding_version = Some("v1".to_owned()));
    sleep_ms(10).await;
    assert_eq!(storage.describe("core.pods"), "a=v1 b=v2 | none | False True");
}
