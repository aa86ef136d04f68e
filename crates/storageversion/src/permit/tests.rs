//! The barrier by itself: what it has seen decides, in the order of revisions.

use super::*;
use crate::edit::register;
use crate::members::Members;
use crate::testing::{registrations, write_of};

fn barrier() -> Barrier {
    let metrics = Metrics::new(&prometheus::Registry::new());
    let barrier = Barrier::new("a".into(), Duration::from_secs(30), &registrations("core.pods=v1"), metrics);
    barrier.keep_lease(watch::channel(Some(Instant::now())).1);
    barrier
}

/// An object with these entries, of this revision.
fn object(revision: u64, servers: &str) -> StorageVersion {
    let members: Members = servers.split_whitespace().collect();
    let registration = registrations("core.pods=v1").into_values().next().unwrap();
    let mut object = StorageVersion::default();
    for server in members.iter() {
        let now = "2026-11-15T10:00:00Z".parse().unwrap();
        object = register(Some(&object), "core.pods", &registration.entry(server), &members, now);
    }
    object.metadata.resource_version = revision.to_string();
    object
}

fn snapshot(through: u64, object: Option<StorageVersion>) -> Snapshot {
    let objects = object.map(|object| ("core.pods".into(), Arc::new(object)));
    Snapshot { through, objects: objects.into_iter().collect() }
}

#[track_caller]
fn check(barrier: &Barrier, expected: Option<u64>) {
    let permit = barrier.permit(&write_of("core.pods"));
    assert_eq!(permit.ok().map(|fence| fence.expect("pods are registered").revision), expected);
}

#[tokio::test(start_paused = true)]
async fn a_fence_is_of_the_objects_own_revision() {
    let barrier = barrier();
    check(&barrier, None);
    barrier.see_all(&snapshot(20, Some(object(10, "a"))));
    check(&barrier, Some(10));
    barrier.see_all(&snapshot(30, Some(object(25, "a b"))));
    check(&barrier, Some(25));
}

#[tokio::test(start_paused = true)]
async fn old_news_are_no_news() {
    let barrier = barrier();
    let slot = barrier.pending().pop().unwrap();
    // Our own write is known before the snapshots have it.
    barrier.see(&slot, Some(&object(50, "a")), 50);
    barrier.see_all(&snapshot(40, None));
    barrier.see_all(&snapshot(49, Some(object(45, "b"))));
    check(&barrier, Some(50));
    barrier.see_all(&snapshot(60, Some(object(55, "b"))));
    check(&barrier, None);
    barrier.see(&slot, Some(&object(50, "a")), 50);
    check(&barrier, None);
}

#[tokio::test(start_paused = true)]
async fn what_was_not_read_yet_says_nothing() {
    let barrier = barrier();
    barrier.see_all(&snapshot(10, Some(object(10, "a"))));
    barrier.see_all(&Snapshot::default());
    check(&barrier, Some(10));
}

#[tokio::test(start_paused = true)]
async fn a_permit_that_no_longer_holds_is_judged_by_what_is_there() {
    let barrier = barrier();
    barrier.see_all(&snapshot(10, Some(object(10, "a"))));
    let write = write_of("core.pods");
    barrier.correct(&write, Some(&object(12, "a b")), 13);
    check(&barrier, Some(12));
    barrier.correct(&write, Some(&object(14, "b")), 15);
    check(&barrier, None);
    barrier.correct(&write, Some(&object(16, "a b")), 16);
    check(&barrier, Some(16));
    barrier.correct(&write, None, 17);
    check(&barrier, None);
}

#[tokio::test(start_paused = true)]
async fn a_changed_registration_is_closed_and_the_same_one_is_not() {
    let barrier = barrier();
    barrier.see_all(&snapshot(10, Some(object(10, "a"))));
    barrier.require(registrations("core.pods=v1").values().next().unwrap());
    check(&barrier, Some(10));
    barrier.require(registrations("core.pods=v2").values().next().unwrap());
    check(&barrier, None);
    barrier.see_all(&snapshot(20, Some(object(10, "a"))));
    check(&barrier, None);
}

#[tokio::test(start_paused = true)]
async fn what_is_not_registered_or_exempt_depends_on_nothing() {
    let barrier = barrier();
    for name in ["apps.deployments", "internal.apiserver.k8s.io.storageversions"] {
        assert_eq!(barrier.permit(&write_of(name)), Ok(None), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_lease_nothing_is_permitted() {
    let metrics = Metrics::new(&prometheus::Registry::new());
    let barrier = Barrier::new("a".into(), Duration::from_secs(30), &registrations("core.pods=v1"), metrics.clone());
    barrier.see_all(&snapshot(10, Some(object(10, "a"))));
    let closed = barrier.permit(&write_of("core.pods")).unwrap_err();
    assert_eq!(closed.last_error.as_deref(), Some("the identity lease is not held yet"));
    assert_eq!(metrics.held.get(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_changed_between_snapshots_is_seen() {
    let barrier = barrier();
    let snapshots = [
        Snapshot::default(),
        snapshot(10, None),
        snapshot(20, Some(object(15, "a"))),
        snapshot(30, Some(object(25, "b"))),
        snapshot(40, Some(object(35, "a b"))),
        snapshot(50, None),
    ];
    let expected = [None, Some(15), None, Some(35), None];
    for (pair, expected) in snapshots.windows(2).zip(expected) {
        barrier.see_changes(&pair[0], &pair[1]);
        check(&barrier, expected);
    }
}
