//! Tests of the barrier alone: the newest observation decides, by revision.

use super::*;
use crate::edit::add_entry;
use crate::members::MemberSet;
use crate::testing::{parse_registrations, update_of};

fn barrier_with_lease() -> PublicationBarrier {
    barrier_of("core.pods=v1")
}

fn barrier_without_built_ins() -> PublicationBarrier {
    barrier_of("")
}

fn barrier_of(built_in: &str) -> PublicationBarrier {
    let metrics = Metrics::new(&prometheus::Registry::new());
    let barrier = PublicationBarrier::new("a".into(), Duration::from_secs(30), &parse_registrations(built_in), metrics);
    barrier.set_lease_renewals(watch::channel(Some(Instant::now())).1);
    barrier
}

fn object_with_entries(revision: u64, servers: &str) -> StorageVersion {
    let members: MemberSet = servers.split_whitespace().collect();
    let registration = parse_registrations("core.pods=v1").into_values().next().unwrap();
    let mut object = StorageVersion::default();
    for server in servers.split_whitespace() {
        let now = "2026-11-15T10:00:00Z".parse().unwrap();
        object = add_entry(Some(&object), "core.pods", &registration.entry(server), &members, now);
    }
    object.metadata.resource_version = revision.to_string();
    object
}

fn snapshot(through: u64, object: Option<StorageVersion>) -> StorageVersionSnapshot {
    let objects = object.map(|object| ("core.pods".into(), Arc::new(object)));
    StorageVersionSnapshot { revision: through, objects: objects.into_iter().collect() }
}

#[track_caller]
fn check_fence_revision(barrier: &PublicationBarrier, expected: Option<u64>) {
    let permit = barrier.permit(&update_of("core.pods"));
    assert_eq!(permit.ok().map(|fence| fence.expect("pods are registered").revision), expected);
}

#[tokio::test(start_paused = true)]
async fn fence_has_revision_of_storage_version_object() {
    let barrier = barrier_with_lease();
    check_fence_revision(&barrier, None);
    barrier.observe_all(&snapshot(20, Some(object_with_entries(10, "a"))));
    check_fence_revision(&barrier, Some(10));
    barrier.observe_all(&snapshot(30, Some(object_with_entries(25, "a b"))));
    check_fence_revision(&barrier, Some(25));
}

#[tokio::test(start_paused = true)]
async fn observe_ignores_older_revisions() {
    let barrier = barrier_with_lease();
    let slot = barrier.unpublished(ResourceClass::BuiltIn).pop().unwrap();
    // The publisher's write is known before the snapshots contain it.
    barrier.observe(&slot, Some(&object_with_entries(50, "a")), 50);
    barrier.observe_all(&snapshot(40, None));
    barrier.observe_all(&snapshot(49, Some(object_with_entries(45, "b"))));
    check_fence_revision(&barrier, Some(50));
    barrier.observe_all(&snapshot(60, Some(object_with_entries(55, "b"))));
    check_fence_revision(&barrier, None);
    barrier.observe(&slot, Some(&object_with_entries(50, "a")), 50);
    check_fence_revision(&barrier, None);
}

#[tokio::test(start_paused = true)]
async fn observe_ignores_unread_snapshot() {
    let barrier = barrier_with_lease();
    barrier.observe_all(&snapshot(10, Some(object_with_entries(10, "a"))));
    barrier.observe_all(&StorageVersionSnapshot::default());
    check_fence_revision(&barrier, Some(10));
}

#[tokio::test(start_paused = true)]
async fn stale_permit_is_reevaluated_on_current_object() {
    let barrier = barrier_with_lease();
    barrier.observe_all(&snapshot(10, Some(object_with_entries(10, "a"))));
    let write = update_of("core.pods");
    barrier.handle_stale_permit(&write, Some(&object_with_entries(12, "a b")), 13);
    check_fence_revision(&barrier, Some(12));
    barrier.handle_stale_permit(&write, Some(&object_with_entries(14, "b")), 15);
    check_fence_revision(&barrier, None);
    barrier.handle_stale_permit(&write, Some(&object_with_entries(16, "a b")), 16);
    check_fence_revision(&barrier, Some(16));
    barrier.handle_stale_permit(&write, None, 17);
    check_fence_revision(&barrier, None);
}

#[tokio::test(start_paused = true)]
async fn only_a_changed_custom_registration_is_closed() {
    let barrier = barrier_without_built_ins();
    let register =
        |text| barrier.replace_custom_registrations(&parse_registrations(text).into_values().collect::<Vec<_>>());
    register("core.pods=v1");
    barrier.observe_all(&snapshot(10, Some(object_with_entries(10, "a"))));
    register("core.pods=v1 example.com.widgets=v1");
    check_fence_revision(&barrier, Some(10));
    register("core.pods=v2");
    check_fence_revision(&barrier, None);
    barrier.observe_all(&snapshot(20, Some(object_with_entries(10, "a"))));
    check_fence_revision(&barrier, None);
}

#[tokio::test(start_paused = true)]
async fn unregistered_and_exempt_writes_need_no_fence() {
    let barrier = barrier_with_lease();
    for name in ["apps.deployments", "internal.apiserver.k8s.io.storageversions"] {
        assert_eq!(barrier.permit(&update_of(name)), Ok(None), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn permit_without_lease_is_denied() {
    let metrics = Metrics::new(&prometheus::Registry::new());
    let barrier = PublicationBarrier::new(
        "a".into(),
        Duration::from_secs(30),
        &parse_registrations("core.pods=v1"),
        metrics.clone(),
    );
    barrier.observe_all(&snapshot(10, Some(object_with_entries(10, "a"))));
    let closed = barrier.permit(&update_of("core.pods")).unwrap_err();
    assert_eq!(closed.last_error.as_deref(), Some("the identity lease is not held yet"));
    assert_eq!(metrics.held_writes.get(), 1);
}

#[tokio::test(start_paused = true)]
async fn observe_changes_applies_differences_between_snapshots() {
    let barrier = barrier_with_lease();
    let snapshots = [
        StorageVersionSnapshot::default(),
        snapshot(10, None),
        snapshot(20, Some(object_with_entries(15, "a"))),
        snapshot(30, Some(object_with_entries(25, "b"))),
        snapshot(40, Some(object_with_entries(35, "a b"))),
        snapshot(50, None),
    ];
    let expected = [None, Some(15), None, Some(35), None];
    for (pair, expected) in snapshots.windows(2).zip(expected) {
        barrier.observe_changes(&pair[0], &pair[1]);
        check_fence_revision(&barrier, expected);
    }
}
