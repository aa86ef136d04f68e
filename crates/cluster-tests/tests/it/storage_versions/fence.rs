//! A server that is stopped where it stands, taken for gone, and let go on in the middle of its writes.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::history::{check, history};
use super::storm::Load;
use super::*;
use crate::{CONFIG_MAPS, config_map};

/// Pauses a server at a moment when it does not hold what others need to write: on SQLite, a process that is stopped in the
/// middle of a commit stops all writers.
fn pause_between_commits(plane: &ControlPlane<'_>, name: &str, other: &Client) {
    for attempt in 0..200 {
        plane.server(name).pause();
        let probe = config_map(&format!("probe-{name}-{attempt}"));
        let creating = async { tokio::time::timeout(Duration::from_secs(1), other.create(CONFIG_MAPS, &probe)).await };
        if block_on(creating).is_ok_and(|answer| answer.status == 201) {
            return;
        }
        plane.server(name).resume();
        std::thread::park_timeout(Duration::from_millis(7));
    }
    panic!("{name} was always in the middle of a commit");
}

#[test]
fn nothing_that_a_stopped_server_writes_escapes_the_fence() {
    ControlPlane::on_both(|mut plane| {
        for name in ["a", "b"] {
            plane.start(name, &SHORT_LEASE.iter().chain(&R36).copied().collect::<Vec<_>>());
        }
        let (a, b) = (plane.admin("a"), plane.admin("b"));
        becomes(PATIENCE, &a, CLASSES, "a=v1 b=v1 | storage.k8s.io/v1 | True True");
        let load = Load::start("b", &b);
        let took_writes = |before: usize| {
            within(PATIENCE, "b takes writes", async || {
                let now = load.written.load(Ordering::Relaxed);
                if now > before + 50 { Ok(()) } else { Err(now.to_string()) }
            })
        };
        for _ in 0..3 {
            took_writes(load.written.load(Ordering::Relaxed));
            pause_between_commits(&plane, "b", &a);
            becomes(PATIENCE, &a, CLASSES, "a=v1 | storage.k8s.io/v1 | True True");
            plane.server("b").resume();
            becomes(PATIENCE, &a, CLASSES, "a=v1 b=v1 | storage.k8s.io/v1 | True True");
        }
        took_writes(load.written.load(Ordering::Relaxed));
        drop(load);
        let held = block_on(cluster_tests::wait::figure(&b, "unskew_storageversion_held_writes_total"));
        let findings = block_on(async { check(&a, &history(&plane).await).await });
        let wrong = &findings.wrong;
        assert!(wrong.is_empty(), "{} of {}: {:#?}", wrong.len(), findings.checked, &wrong[..wrong.len().min(5)]);
        println!("{:?}: {held} writes held, {findings:?}", plane.store());
    });
}
