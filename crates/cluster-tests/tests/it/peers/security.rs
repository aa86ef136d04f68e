//! Forged headers, leases and certificates, and the user of forwarded requests.

mod certificates;
mod egress;
mod forwarded_identity;

use std::time::Duration;

use cluster_tests::client::{ClientCredentials, FullResponse};
use cluster_tests::process::run_command;
use cluster_tests::scripted_members::{IDENTITY_LEASES, ScriptedMembers, identity_lease};
use cluster_tests::wait::{eventually, metric_value};
use cluster_tests::{Client, ControlPlane, tools};
use http::Method;
use transport::pki::{CertificateAuthority, CertificateUsage};
use transport::testing::ScriptedConnection;

use crate::*;

/// `storage.k8s.io/v1` serves it from 1.34 on, so the old server has it only through the new one.
const CLASSES_PATH: &str = "/apis/storage.k8s.io/v1/volumeattributesclasses";
const OLD_FLAGS: [&str; 2] = ["--emulated-version=1.33", "--peer-response-headers"];
const NEW_FLAGS: [&str; 2] = ["--emulated-version=1.36", "--peer-response-headers"];
/// Every user may read it.
const VERSION_PATH: &str = "/version";

/// Client with a certificate of the servers' CA for this user.
fn client_of_user(plane: &ControlPlane<'_>, server: &str, name: &str) -> Client {
    let server = plane.server(server);
    let authority = CertificateAuthority::open_or_create(&server.pki(), "ca").unwrap();
    let pair = authority.open_or_issue(name, name, None, &CertificateUsage::Client).unwrap();
    server.client_with(ClientCredentials::Certificate { certificate: pair.certificate, key: pair.key })
}

async fn get_with_headers(client: &Client, path: &str, headers: &[(&str, &str)]) -> FullResponse {
    let mut request = client.request_builder(Method::GET, path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    client.send(request, bytes::Bytes::new()).await
}

async fn expect_ok(client: &Client, path: &str) -> Result<(), String> {
    let found = client.get(path).await;
    if found.status == 200 { Ok(()) } else { Err(found.summary()) }
}

/// Binds a ClusterRole to a user.
async fn bind_cluster_role(admin: &Client, role: &str, user: &str) {
    let binding = json!({
        "metadata": {"name": format!("{user}-{}", role.replace(':', "-"))},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io"}],
    });
    let created = admin.create("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &binding).await;
    assert_eq!(created.status, 201, "{}", created.summary());
}

#[test]
fn client_cannot_forge_peer_or_identity_headers() {
    let mut plane = ControlPlane::new(TestStore::Sqlite);
    plane.start("old", &OLD_FLAGS);
    plane.start("new", &NEW_FLAGS);
    let (admin, jane) = (plane.admin("old"), client_of_user(&plane, "old", "jane"));
    block_on(async {
        eventually("the servers discover each other", async || expect_ok(&admin, CLASSES_PATH).await).await;
        for mark in ["x-kubernetes-peer-proxied", "X-Kubernetes-APIServer-Rerouted"] {
            let served = get_with_headers(&admin, CLASSES_PATH, &[(mark, "true")]).await;
            assert_eq!(served.status, 200, "{mark}: {}", served.summary());
            assert_eq!(served.headers["x-unskew-routing-rule"], "5", "{mark}: the request is still forwarded");
        }
        let claims = [
            ("X-Remote-User", "kubernetes-admin"),
            ("X-Remote-Group", "system:masters"),
            ("X-Remote-Uid", "0"),
            ("x-kubernetes-peer-proxied", "true"),
        ];
        let refused = get_with_headers(&jane, CLASSES_PATH, &claims).await;
        assert_eq!(refused.status, 403, "{}", refused.summary());
        assert!(refused.summary().contains("User \"jane\" cannot list"), "{}", refused.summary());
    });
}

#[test]
fn forged_identity_leases_do_not_redirect_requests() {
    let etcd = Etcd::start();
    for store in [TestStore::Sqlite, TestStore::Etcd(&etcd)] {
        check_forged_leases(store);
    }
}

fn check_forged_leases(store: TestStore<'_>) {
    let mut plane = ControlPlane::new(store);
    plane.start("old", &OLD_FLAGS);
    plane.start("new", &NEW_FLAGS);
    let old = plane.admin("old");
    block_on(async {
        eventually("the servers discover each other", async || expect_ok(&old, CLASSES_PATH).await).await;
        let members = async || old.get("/debug/peers").await.json();
        let count = |report: &Value| report["members"].as_array().map_or(0, Vec::len);
        let known = count(&members().await);
        let stage = ScriptedMembers::connect(&plane).await;
        let rogue = stage.start_peer(async |mut visit: ScriptedConnection| visit.wait_for_close().await).await;
        let lease = |identity: &str, change: &dyn Fn(&mut Value)| {
            let mut lease = identity_lease(identity);
            lease["metadata"]["annotations"]["kubernetes.io/peer-advertise-address"] = rogue.address.to_string().into();
            change(&mut lease);
            lease
        };
        let label = "apiserver.kubernetes.io/identity";
        let phantoms = [
            lease("apiserver-elsewhere", &|lease| lease["metadata"]["namespace"] = "default".into()),
            lease("apiserver-scheduler", &|lease| lease["metadata"]["labels"][label] = "kube-scheduler".into()),
            lease("apiserver-unlabelled", &|lease| lease["metadata"]["labels"] = json!({})),
            lease("apiserver-unheld", &|lease| lease["spec"]["holderIdentity"] = "another".into()),
            lease("apiserver-borrowed", &|lease| lease["spec"]["holderIdentity"] = "apiserver-other_1".into()),
            lease("kube-apiserver-a", &|_| {}),
        ];
        for phantom in &phantoms {
            let path = IDENTITY_LEASES.replace("kube-system", phantom["metadata"]["namespace"].as_str().unwrap());
            let created = old.create(&path, phantom).await;
            assert_eq!(created.status, 201, "{}", created.summary());
        }
        // 404 is returned only after the server has seen everything above.
        assert_eq!(
            old.get("/apis/future.k8s.io/v1/things").await.status,
            404,
            "none of the forged leases makes a member"
        );
        assert_eq!(count(&members().await), known);

        // A valid lease makes a member without an address; an Endpoints object that looks like an endpoint record adds
        // none.
        let created = old.create(IDENTITY_LEASES, &lease("apiserver-rogue", &|_| {})).await;
        assert_eq!(created.status, 201, "{}", created.summary());
        let endpoints = json!({
            "metadata": {"name": "apiserver-rogue", "labels": {"apiserverIdentity": "apiserver-rogue"}},
            "subsets": [{
                "addresses": [{"ip": "10.9.8.7"}],
                "ports": [{"name": "https", "port": rogue.address.port(), "protocol": "TCP"}],
            }],
        });
        assert_eq!(old.create("/api/v1/namespaces/kube-system/endpoints", &endpoints).await.status, 201);
        assert_eq!(old.get("/apis/future.k8s.io/v1/things").await.status, 503);
        let report = members().await;
        assert_eq!(count(&report), known + 1);
        let member = report["members"].as_array().unwrap().iter().find(|member| member["server"] == "apiserver-rogue");
        assert!(member.unwrap()["address"].is_null(), "{report:#}");
        assert_eq!(old.get(CLASSES_PATH).await.status, 200);
        assert_eq!(rogue.connection_count(), 0, "no server connects to the forged address");
    });
}

#[test]
fn second_server_with_the_same_identity_exits() {
    let mut plane = ControlPlane::new(TestStore::Sqlite);
    plane.start("one", &["--identity-lease-renew-interval-seconds=1", "--peer-endpoint-ttl=3s"]);
    let first = plane.admin("one");
    let lease = async || {
        let labelled = "labelSelector=apiserver.kubernetes.io/identity%3Dkube-apiserver";
        let leases = first.get(&format!("{IDENTITY_LEASES}?{labelled}")).await.json();
        leases["items"][0]["spec"]["holderIdentity"].as_str().unwrap().to_owned()
    };
    let holder = block_on(lease());
    let mut second = std::process::Command::new(tools::unskew_binary());
    second.current_dir(plane.folder()).args(["serve", "--secure-port=0", "--hostname-override=one"]);
    second.args(["--identity-lease-renew-interval-seconds=1", "--peer-endpoint-ttl=3s"]);
    let ended = run_command(second, Duration::from_secs(60));
    assert_eq!(ended.code, Some(69), "{ended:?}");
    let identity = holder.split('_').next().unwrap();
    assert!(
        ended.stderr.contains("another API server with the identity")
            && ended.stderr.contains(identity)
            && ended.stderr.contains("--hostname-override"),
        "{}",
        ended.stderr
    );
    block_on(async {
        assert_eq!(first.get("/readyz").await.status, 200);
        assert_eq!(lease().await, holder, "the lease is unchanged");
    });
}

#[test]
fn debug_peers_page_requires_permission() {
    let mut plane = ControlPlane::new(TestStore::Sqlite);
    plane.start("one", &[]);
    let (admin, jane) = (plane.admin("one"), client_of_user(&plane, "one", "jane"));
    block_on(async {
        assert_eq!(jane.get(VERSION_PATH).await.status, 200);
        let refused = jane.get("/debug/peers").await;
        assert_eq!(refused.summary(), "403 forbidden: User \"jane\" cannot get path \"/debug/peers\"");
        assert_eq!(jane.get("/metrics").await.status, 403);
        let anonymous = plane.server("one").client_with(ClientCredentials::Anonymous);
        assert_eq!(anonymous.get("/debug/peers").await.status, 403);
        bind_cluster_role(&admin, "unskew:viewer", "jane").await;
        eventually("jane may read /debug/peers", async || expect_ok(&jane, "/debug/peers").await).await;
        assert_eq!(jane.get("/metrics").await.status, 200);
        assert_eq!(jane.get("/api/v1/namespaces").await.status, 403, "jane has no other rights");
    });
}
