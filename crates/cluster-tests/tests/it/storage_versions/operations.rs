//! Storage versions as operators meet them: in the audit log, under load, and without storage.

use cluster_tests::{Etcd, RunningServer, TestStore};

use super::*;

/// Kubernetes' objective for the 99th percentile of requests for one object.
const LATENCY_MAX: Duration = Duration::from_secs(1);
const REQUESTS: usize = 200;

#[test]
fn reads_and_writes_of_storage_versions_are_audited_and_fast() {
    let folder = tempfile::tempdir().unwrap();
    let (policy, log) = (folder.path().join("policy.yaml"), folder.path().join("audit.json"));
    std::fs::write(&policy, "{apiVersion: audit.k8s.io/v1, kind: Policy, rules: [{level: Metadata}]}").unwrap();
    let flags = [format!("--audit-policy-file={}", policy.display()), format!("--audit-log-path={}", log.display())];
    let server = RunningServer::start(folder.path(), TestStore::Sqlite, &[&flags[0], &flags[1]]);
    let admin = server.admin();
    let path = format!("{STORAGE_VERSIONS_PATH}/core.pods");
    let mut taken = Vec::new();
    block_on(async {
        for _ in 0..REQUESTS {
            let started = Instant::now();
            assert_eq!(admin.get(&path).await.status, 200);
            taken.push(started.elapsed());
        }
        assert_eq!(admin.delete(&format!("{STORAGE_VERSIONS_PATH}/core.nodes")).await.status, 200);
    });
    taken.sort_unstable();
    assert!(taken[REQUESTS * 99 / 100] < LATENCY_MAX, "{:?}", taken[REQUESTS * 99 / 100]);
    wait_within(CONVERGENCE_TIMEOUT, "both operations are in the audit log", async || {
        let events = std::fs::read_to_string(&log).unwrap_or_default();
        let has = |verb: &str, name: &str| {
            events.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()).any(|event| {
                let object = &event["objectRef"];
                event["verb"] == verb && object["resource"] == "storageversions" && object["name"] == name
            })
        };
        if has("get", "core.pods") && has("delete", "core.nodes") { Ok(()) } else { Err(events.clone()) }
    });
}

#[test]
fn storage_versions_are_unavailable_while_etcd_is_and_return_with_it() {
    let mut etcd = Etcd::start();
    let folder = tempfile::tempdir().unwrap();
    let server = RunningServer::start(folder.path(), TestStore::Etcd(&etcd), &["--request-timeout=5s"]);
    let admin = server.admin();
    let path = format!("{STORAGE_VERSIONS_PATH}/core.pods");
    assert_eq!(block_on(admin.get(&path)).status, 200);
    etcd.kill();
    let refused = block_on(admin.get(&path)).status.as_u16();
    assert!(matches!(refused, 500 | 503 | 504), "{refused}");
    etcd.restart();
    wait_within(CONVERGENCE_TIMEOUT, "storage versions are served again", async || {
        let answer = admin.get(&path).await;
        if answer.status == 200 { Ok(()) } else { Err(answer.summary()) }
    });
}
