//! `unskew rollout`, and the probe that judges it.

use cluster_tests::{Etcd, RunningLab};

/// The number in one line of the report.
#[track_caller]
fn report_count(report: &str, line: &str) -> u64 {
    let line = report.lines().find(|candidate| candidate.trim_start().starts_with(line));
    let line = line.unwrap_or_else(|| panic!("{report}"));
    let figure = line.trim_start().split("  ").last().unwrap_or_default();
    figure.split_whitespace().next().and_then(|figure| figure.parse().ok()).unwrap_or_else(|| panic!("{line}"))
}

#[track_caller]
fn check_clean(report: &str) {
    for line in ["wrong 404", "lost events", "discovery shrunk"] {
        assert_eq!(report_count(report, line), 0, "{report}");
    }
    for line in ["requests", "writes"] {
        assert!(report_count(report, line) > 0, "{report}");
    }
}

#[track_caller]
fn check_rollout_and_back(flags: &[&str]) {
    let home = tempfile::tempdir().unwrap();
    let lab = RunningLab::start(home.path(), flags);
    let releases = || -> Vec<String> {
        let status = lab.status();
        status["servers"]
            .as_array()
            .unwrap()
            .iter()
            .map(|server| server["release"].as_str().unwrap().to_owned())
            .collect()
    };
    let there = lab.run_command(&["rollout", "--to", "1.37"]).expect_success();
    check_clean(&there);
    assert_eq!(releases(), ["1.37"; 3]);
    let back = lab.run_command(&["rollout", "--back"]).expect_success();
    check_clean(&back);
    assert_eq!(releases(), ["1.33", "1.34", "1.36"]);
    for server in ["a", "b", "c"] {
        // The probe's watches, including forwarded ones, are open on each server.
        let log = lab.folder().join(format!("logs/{server}.previous.log"));
        let log = std::fs::read_to_string(log).unwrap();
        assert!(!log.contains("not everything ended in time"), "{server} did not stop cleanly: {log}");
    }
    let uneven = lab.run_command(&["rollout", "--to", "1.37,1.37"]).expect_failure();
    assert!(uneven.contains("2 releases for 3 servers"), "{uneven}");
}

#[test]
fn rollout_and_back_is_clean_on_sqlite() {
    check_rollout_and_back(&[]);
}

#[test]
fn rollout_and_back_is_clean_on_etcd() {
    let etcd = Etcd::start();
    check_rollout_and_back(&[&format!("--etcd-servers={}", etcd.url())]);
}

#[test]
fn probe_counts_wrong_404s_without_peering() {
    let home = tempfile::tempdir().unwrap();
    let lab = RunningLab::start(home.path(), &["--feature-gates=UnknownVersionInteroperabilityProxy=false"]);
    let rollout = lab.run_command(&["rollout", "--to", "1.37"]);
    assert_eq!(rollout.code, Some(1), "{rollout:?}");
    assert!(report_count(&rollout.stdout, "wrong 404") > 0, "{}", rollout.stdout);
}
