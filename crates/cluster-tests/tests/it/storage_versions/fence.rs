//! A server that is suspended, considered gone, and resumed in the middle of its writes.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::history::{check_history, read_store_history};
use super::restarts_under_load::WriteLoad;
use super::*;
use crate::{CONFIG_MAPS_PATH, config_map};

/// Suspends a server while it is not committing: on SQLite, a process suspended during a commit blocks all writers.
fn pause_between_commits(plane: &ControlPlane<'_>, name: &str, other: &Client) {
    for attempt in 0..200 {
        plane.server(name).pause();
        let probe = config_map(&format!("probe-{name}-{attempt}"));
        let creating =
            async { tokio::time::timeout(Duration::from_secs(1), other.create(CONFIG_MAPS_PATH, &probe)).await };
        if block_on(creating).is_ok_and(|answer| answer.status == 201) {
            return;
        }
        plane.server(name).resume();
        std::thread::park_timeout(Duration::from_millis(7));
    }
    panic!("{name} was always inside a commit");
}

#[test]
fn writes_of_a_paused_server_are_fenced() {
    ControlPlane::for_each_store(|mut plane| {
        for name in ["a", "b"] {
            plane.start(name, &SHORT_LEASE.iter().chain(&FLAGS_1_36).copied().collect::<Vec<_>>());
        }
        let (a, b) = (plane.admin("a"), plane.admin("b"));
        wait_for_storage_version(
            CONVERGENCE_TIMEOUT,
            &a,
            CLASSES_STORAGE_VERSION,
            "a=v1 b=v1 | storage.k8s.io/v1 | True True",
        );
        let load = WriteLoad::start("b", &b);
        let took_writes = |before: usize| {
            wait_within(CONVERGENCE_TIMEOUT, "b accepts writes", async || {
                let now = load.written.load(Ordering::Relaxed);
                if now > before + 50 { Ok(()) } else { Err(now.to_string()) }
            })
        };
        for _ in 0..3 {
            took_writes(load.written.load(Ordering::Relaxed));
            pause_between_commits(&plane, "b", &a);
            wait_for_storage_version(
                CONVERGENCE_TIMEOUT,
                &a,
                CLASSES_STORAGE_VERSION,
                "a=v1 | storage.k8s.io/v1 | True True",
            );
            plane.server("b").resume();
            wait_for_storage_version(
                CONVERGENCE_TIMEOUT,
                &a,
                CLASSES_STORAGE_VERSION,
                "a=v1 b=v1 | storage.k8s.io/v1 | True True",
            );
        }
        took_writes(load.written.load(Ordering::Relaxed));
        drop(load);
        let held = block_on(cluster_tests::wait::metric_value(&b, "unskew_storageversion_held_writes_total"));
        let findings = block_on(async { check_history(&a, &read_store_history(&plane).await).await });
        let wrong = &findings.wrong;
        assert!(wrong.is_empty(), "{} of {}: {:#?}", wrong.len(), findings.checked, &wrong[..wrong.len().min(5)]);
        println!("{:?}: {held} writes held, {findings:?}", plane.store());
    });
}
