//! The health pages have kube-apiserver's checks, which tools that watch its start look for.

use cluster_tests::wait;

use crate::*;

/// What Kubernetes' end-to-end tests require of each page.
const REQUIRED: [&str; 21] = [
    "ping",
    "log",
    "etcd",
    "poststarthook/start-apiserver-admission-initializer",
    "poststarthook/generic-apiserver-start-informers",
    "poststarthook/start-apiextensions-informers",
    "poststarthook/start-apiextensions-controllers",
    "poststarthook/crd-informer-synced",
    "poststarthook/bootstrap-controller",
    "poststarthook/start-system-namespaces-controller",
    "poststarthook/start-service-ip-repair-controllers",
    "poststarthook/scheduling/bootstrap-system-priority-classes",
    "poststarthook/start-cluster-authentication-info-controller",
    "poststarthook/start-kube-aggregator-informers",
    "poststarthook/apiservice-registration-controller",
    "poststarthook/apiservice-status-local-available-controller",
    "poststarthook/apiservice-status-remote-available-controller",
    "poststarthook/kube-apiserver-autoregistration",
    "autoregister-completion",
    "poststarthook/apiservice-openapi-controller",
    "poststarthook/storage-readiness",
];

#[test]
fn health_pages_have_the_checks_of_kube_apiserver() {
    let folder = tempfile::tempdir().unwrap();
    let server = start_on_sqlite(folder.path(), &[]);
    block_on(async {
        let client = server.admin();
        for page in ["healthz", "livez", "readyz"] {
            wait::eventually("every check passes", async || {
                let response = client.get(&format!("/{page}?verbose")).await;
                let shown = String::from_utf8_lossy(&response.body);
                let is_missing = |check: &&str| !shown.lines().any(|line| line == format!("[+]{check} ok"));
                let missing: Vec<&str> = REQUIRED.into_iter().filter(is_missing).collect();
                if missing.is_empty() { Ok(()) } else { Err(format!("{page} lacks {missing:?}: {shown}")) }
            })
            .await;
        }
        let services = client.get("/apis/apiregistration.k8s.io/v1/apiservices/v1.apps").await;
        assert_eq!(services.status, 200, "{services:?}");
    });
}
