//! Upstreams without `--upstream`: those of a kubeadm node, and those of the `kubernetes` service.

use cluster_tests::gateway::create_gateway_rbac;
use cluster_tests::process::run_command;
use cluster_tests::wait::eventually;
use serde_json::json;

use super::*;
use crate::storage_versions::{CONVERGENCE_TIMEOUT, open_store};

/// Request header flags in kubeadm's manifests.
const KUBEADM_HEADERS: &str = "    - --requestheader-extra-headers-prefix=X-Remote-Extra-\n    - \
                               --requestheader-group-headers=X-Remote-Group\n    - \
                               --requestheader-username-headers=X-Remote-User\n";

/// Creates a folder as kubeadm does beside a server of the plane.
fn create_kubeadm_folder(plane: &ControlPlane<'_>, server: &str) -> String {
    let folder = plane.folder().join("kubernetes");
    std::fs::create_dir_all(folder.join("manifests")).unwrap();
    std::fs::create_dir_all(folder.join("pki")).unwrap();
    for name in ["ca.crt", "front-proxy-client.crt", "front-proxy-client.key", "apiserver.crt", "apiserver.key"] {
        std::fs::copy(plane.folder().join("unskew-data/pki").join(name), folder.join("pki").join(name)).unwrap();
    }
    let address = plane.address(server);
    let (host, port) = address.split_once(':').unwrap();
    let manifest = format!(
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: kube-apiserver\nspec:\n  containers:\n  - command:\n    - \
         kube-apiserver\n    - --advertise-address={host}\n    - --secure-port={port}\n{KUBEADM_HEADERS}    name: kube-apiserver\n"
    );
    std::fs::write(folder.join("manifests/kube-apiserver.yaml"), manifest).unwrap();
    format!("--kubeadm-dir={}", folder.display())
}

/// Adds a server to the endpoints of the `kubernetes` service, as kube-apiservers do themselves. Below the REST API, which
/// refuses loopback addresses.
async fn add_to_kubernetes_service(plane: &ControlPlane<'_>, server: &str) {
    let port: u16 = plane.address(server).split_once(':').unwrap().1.parse().unwrap();
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": server, "namespace": "default", "uid": server, "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"kubernetes.io/service-name": "kubernetes"}},
        "endpoints": [{"addresses": ["127.0.0.1"], "conditions": {"ready": true}}],
        "ports": [{"name": "https", "port": port, "protocol": "TCP"}],
    });
    let key = store::Key::from(format!("/registry/endpointslices/default/{server}"));
    let put = store::Op::Put { key, value: slice.to_string().into(), ttl: None };
    let (store, tasks) = open_store(plane).await;
    store.commit(store::Transaction { compares: Vec::new(), ops: vec![put] }).await.unwrap();
    drop(store);
    tasks.stop(CONVERGENCE_TIMEOUT).await.unwrap();
}

async fn wait_until_live(client: &Client, plane: &ControlPlane<'_>, server: &str) {
    let name = format!("apiserver-{}", plane.address(server));
    eventually(&format!("{server} is a live upstream"), async || {
        let report = client.get("/debug/peers").await.json();
        let is_live = |member: &Value| member["server"] == *name && member["state"] == "live";
        if report["members"].as_array().unwrap().iter().any(is_live) { Ok(()) } else { Err(report.to_string()) }
    })
    .await;
}

#[test]
fn kubeadm_node_needs_no_flags_and_discovers_its_peers() {
    let plane = start_two_stock_servers(TestStore::Sqlite);
    let folder = create_kubeadm_folder(&plane, "old");
    let mut command = std::process::Command::new(cluster_tests::tools::unskew_binary());
    command.args(["gateway", "--print-config", &folder]);
    let page = run_command(command, std::time::Duration::from_secs(30)).expect_success();
    let local = format!("--upstream=local=https://{}  # found: ", plane.address("old"));
    assert!(page.contains(&local), "{page}");
    assert!(page.contains("--upstream-cidr=127.0.0.1/24  # found: "), "{page}");
    assert!(page.contains("/pki/front-proxy-client.key  # found: "), "{page}");

    let gateway =
        RunningGateway::launch_with_flags("gateway", &plane, &[&folder, "--bind-address=127.0.0.1", "--secure-port=0"]);
    gateway.wait_ready();
    let admin = gateway.admin();
    block_on(async {
        assert_eq!(admin.get(DEPLOYMENTS_PATH).await.status, StatusCode::OK);
        assert_eq!(
            admin.get(CLASSES_PATH).await.status,
            StatusCode::NOT_FOUND,
            "the other server is not discovered yet"
        );
        add_to_kubernetes_service(&plane, "new").await;
        create_gateway_rbac(&admin).await;
        wait_until_live(&admin, &plane, "new").await;
        assert_eq!(admin.get(CLASSES_PATH).await.status, StatusCode::OK);
    });
}

#[test]
fn endpoints_outside_the_upstream_cidr_are_ignored() {
    let plane = start_two_stock_servers(TestStore::Sqlite);
    let flags = ["--upstream-discovery=endpointslices", "--upstream-cidr=192.0.2.0/24"];
    let gateway = RunningGateway::start("gateway", &plane, &["old"], &flags);
    let inside = ["--upstream-discovery=endpointslices", "--upstream-cidr=127.0.0.0/8"];
    let believing = RunningGateway::start("believing", &plane, &["old"], &inside);
    block_on(async {
        add_to_kubernetes_service(&plane, "new").await;
        create_gateway_rbac(&gateway.admin()).await;
        wait_until_live(&believing.admin(), &plane, "new").await;
        // The gateway that looked as often has not added the endpoint.
        let report = gateway.admin().get("/debug/peers").await.json();
        assert_eq!(report["members"].as_array().map(Vec::len), Some(1), "{report}");
    });
}

#[test]
fn missing_upstreams_or_certificates_are_named_in_the_error() {
    let refused = |args: &[&str]| {
        let mut command = std::process::Command::new(cluster_tests::tools::unskew_binary());
        command.args(["gateway", "--kubeadm-dir=/nonexistent"]).args(args);
        let finished = run_command(command, std::time::Duration::from_secs(30));
        assert_eq!(finished.code, Some(64), "{finished:?}");
        finished.stderr.lines().next().unwrap_or_default().to_owned()
    };
    let keys = ["--proxy-client-cert-file=a", "--proxy-client-key-file=b", "--upstream-ca-file=c"];
    assert_eq!(
        refused(&["--upstream=10.0.0.1:6443"]),
        "unskew gateway: --proxy-client-cert-file is needed: it was not given, and kubeadm has none here"
    );
    assert_eq!(refused(&keys), "unskew gateway: --upstream is needed: it was not given, and kubeadm has none here");
    assert_eq!(
        refused(&["--upstream=http://10.0.0.1", keys[0], keys[1], keys[2]]),
        "unskew gateway: invalid argument \"http://10.0.0.1\" for \"--upstream\" flag: upstreams are reached over https only"
    );
}
