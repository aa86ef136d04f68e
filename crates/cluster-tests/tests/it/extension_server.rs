//! The example extension server: access is delegated to the main cluster, and storage versions are published there.

use std::collections::BTreeMap;
use std::path::Path;

use cluster_tests::client::ClientCredentials;
use cluster_tests::extension_server::RunningExtensionServer;
use cluster_tests::wait::wait_within;
use cluster_tests::{Client, ControlPlane};
use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::block_on;
use crate::storage_versions::{CONVERGENCE_TIMEOUT, STORAGE_VERSIONS_PATH, summarize_storage_version};

const GADGETS_V1: &str = "/apis/gadgets.example.com/v1/gadgets";
const GADGETS_V1ALPHA1: &str = "/apis/gadgets.example.com/v1alpha1/gadgets";
const GADGET_LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases?\
     labelSelector=apiserver.kubernetes.io/identity=gadget-apiserver";
const RBAC_PATH: &str = "/apis/rbac.authorization.k8s.io/v1";
const BINDING_PATH: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
/// Grants what publication needs.
const PUBLISHER: &str = "gadgets-publisher";

fn gadget(name: &str, size: u32) -> Value {
    json!({"apiVersion": "gadgets.example.com/v1", "kind": "Gadget", "metadata": {"name": name}, "spec": {"size": size}})
}

async fn create(client: &Client, path: &str, object: &Value) -> Value {
    let answer = client.create(path, object).await;
    assert_eq!(answer.status, StatusCode::CREATED, "{path}: {}", answer.summary());
    answer.json()
}

fn cluster_role_binding(name: &str, role: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": "gadgets", "namespace": "kube-system"}],
    })
}

/// Creates a service account in kube-system; returns a token for it.
async fn create_account(admin: &Client, name: &str) -> String {
    let accounts = "/api/v1/namespaces/kube-system/serviceaccounts";
    create(admin, accounts, &json!({"metadata": {"name": name}})).await;
    let request = create(admin, &format!("{accounts}/{name}/token"), &json!({"spec": {}})).await;
    request["status"]["token"].as_str().unwrap().to_owned()
}

/// The account of the extension server, with what docs name: reviews, the published trust, leases and storage versions.
async fn prepare_main_cluster(admin: &Client, folder: &Path) {
    std::fs::write(folder.join("token"), create_account(admin, "gadgets").await).unwrap();
    create(admin, BINDING_PATH, &cluster_role_binding("gadgets-delegator", "system:auth-delegator")).await;
    let rules = json!([
        {"apiGroups": ["internal.apiserver.k8s.io"], "resources": ["storageversions", "storageversions/status"],
         "verbs": ["get", "list", "watch", "create", "update", "delete"]},
    ]);
    create(admin, &format!("{RBAC_PATH}/clusterroles"), &json!({"metadata": {"name": PUBLISHER}, "rules": rules}))
        .await;
    let rules = json!([
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"],
         "verbs": ["get", "list", "create", "update", "delete"]},
        {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["extension-apiserver-authentication"],
         "verbs": ["get"]},
    ]);
    let roles = format!("{RBAC_PATH}/namespaces/kube-system");
    create(admin, &format!("{roles}/roles"), &json!({"metadata": {"name": "gadgets"}, "rules": rules})).await;
    let mut binding = cluster_role_binding("gadgets", "gadgets");
    binding["roleRef"]["kind"] = "Role".into();
    create(admin, &format!("{roles}/rolebindings"), &binding).await;
}

/// The entries by hostname, the common version and the conditions: `x=v1 y=v1alpha1 | none | False True`.
async fn summary(main: &Client) -> String {
    let answer = main.get(&format!("{STORAGE_VERSIONS_PATH}/gadgets.example.com.gadgets")).await;
    if answer.status != StatusCode::OK {
        return answer.status.as_u16().to_string();
    }
    let leases = main.get(GADGET_LEASES).await.json();
    let names: BTreeMap<&str, &str> = leases["items"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|lease| {
            let metadata = &lease["metadata"];
            Some((metadata["name"].as_str()?, metadata["labels"]["kubernetes.io/hostname"].as_str()?))
        })
        .collect();
    let object = answer.json();
    let status = &object["status"];
    let mut entries: Vec<String> = status["storageVersions"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|entry| {
            let server = names.get(entry["apiServerID"].as_str().unwrap()).unwrap_or(&"?");
            format!("{server}={}", entry["encodingVersion"].as_str().unwrap().rsplit('/').next().unwrap())
        })
        .collect();
    entries.sort();
    let common = status["commonEncodingVersion"].as_str().unwrap_or("none");
    let conditions = ["AllEncodingVersionsEqual", "AllServersReporting"].map(|wanted| {
        let mut conditions = status["conditions"].as_array().into_iter().flatten();
        let found = conditions.find(|condition| condition["type"] == wanted);
        found.and_then(|condition| condition["status"].as_str()).unwrap_or("-")
    });
    format!("{} | {common} | {}", entries.join(" "), conditions.join(" "))
}

#[track_caller]
fn wait_for_summary(main: &Client, expected: &str) {
    wait_within(CONVERGENCE_TIMEOUT, "the storage version of gadgets", async || {
        let found = summary(main).await;
        if found == expected { Ok(()) } else { Err(found) }
    });
}

#[test]
fn extension_servers_agree_on_storage_versions_in_the_main_cluster() {
    ControlPlane::for_each_store(|mut plane| {
        for name in ["a", "b", "c"] {
            plane.start(name, &[]);
        }
        let main = plane.admin("a");
        let built_in = |expected: &str| {
            let found = block_on(summarize_storage_version(&main, "core.pods"));
            assert_eq!(found, expected);
        };
        block_on(prepare_main_cluster(&main, plane.folder()));
        block_on(create(&main, BINDING_PATH, &cluster_role_binding(PUBLISHER, PUBLISHER)));
        let start = |hostname: &str, version: &str| RunningExtensionServer::launch(&plane, "a", hostname, version);
        let (x, y, z) = (start("x", "v1alpha1"), start("y", "v1alpha1"), start("z", "v1"));
        wait_for_summary(&main, "x=v1alpha1 y=v1alpha1 z=v1 | none | False True");
        // The API servers are judged without the extension servers, and nothing is routed to those.
        built_in("a=v1 b=v1 c=v1 | v1 | True True");
        let report = block_on(main.get("/debug/peers")).json();
        assert_eq!(report["members"].as_array().unwrap().len(), 2, "{report}");

        block_on(async {
            let created = create(&x.admin(), GADGETS_V1, &gadget("one", 1)).await;
            assert_eq!(created["spec"]["size"], 1);
            let read = z.admin().get(&format!("{GADGETS_V1ALPHA1}/one")).await.json();
            assert_eq!((&read["size"], &read["metadata"]["uid"]), (&json!(1), &created["metadata"]["uid"]));
            let updated = z.admin().update(&format!("{GADGETS_V1}/one"), &gadget("one", 2)).await;
            assert_eq!(updated.status, StatusCode::OK, "{}", updated.summary());
            let list = y.admin().get(GADGETS_V1).await.json();
            assert_eq!(list["items"][0]["spec"]["size"], 2);
        });

        assert_eq!(x.stop(), Some(0));
        let x = start("x", "v1");
        wait_for_summary(&main, "x=v1 y=v1alpha1 z=v1 | none | False True");
        assert_eq!(y.stop(), Some(0));
        let y = start("y", "v1");
        wait_for_summary(&main, "x=v1 y=v1 z=v1 | gadgets.example.com/v1 | True True");
        z.kill();
        wait_for_summary(&main, "x=v1 y=v1 | gadgets.example.com/v1 | True True");
        built_in("a=v1 b=v1 c=v1 | v1 | True True");
        block_on(async {
            let deleted = x.admin().delete(&format!("{GADGETS_V1}/one")).await;
            assert_eq!(deleted.status, StatusCode::OK, "{}", deleted.summary());
        });
        assert_eq!((x.stop(), y.stop()), (Some(0), Some(0)));
        wait_for_summary(&main, "404");
    });
}

#[test]
fn extension_server_writes_nothing_before_its_storage_version_is_published() {
    ControlPlane::for_each_store(|mut plane| {
        plane.start("a", &[]);
        let main = plane.admin("a");
        block_on(prepare_main_cluster(&main, plane.folder()));
        let server = RunningExtensionServer::launch(&plane, "a", "x", "v1");
        let admin = server.admin();
        block_on(async {
            let held = admin.create(GADGETS_V1, &gadget("one", 1)).await;
            assert_eq!(held.status, StatusCode::SERVICE_UNAVAILABLE, "{}", held.summary());
            assert!(held.summary().contains("wait for storage version registration to complete"), "{}", held.summary());
            assert_eq!(admin.get(GADGETS_V1).await.json()["items"], json!([]), "reads do not wait");
            assert_eq!(summary(&main).await, "404");
            create(&main, BINDING_PATH, &cluster_role_binding(PUBLISHER, PUBLISHER)).await;
        });
        wait_for_summary(&main, "x=v1 | gadgets.example.com/v1 | True True");
        wait_within(CONVERGENCE_TIMEOUT, "the write is permitted", async || {
            let answer = admin.create(GADGETS_V1, &gadget("one", 1)).await;
            if answer.status == StatusCode::CREATED { Ok(()) } else { Err(answer.summary()) }
        });
    });
}

#[test]
fn extension_server_delegates_access_to_the_main_cluster() {
    ControlPlane::for_each_store(|mut plane| {
        plane.start("a", &[]);
        let main = plane.admin("a");
        block_on(async {
            prepare_main_cluster(&main, plane.folder()).await;
            let rules = json!([{"apiGroups": ["gadgets.example.com"], "resources": ["gadgets"], "verbs": ["list"]}]);
            let roles = format!("{RBAC_PATH}/clusterroles");
            create(&main, &roles, &json!({"metadata": {"name": "gadget-reader"}, "rules": rules})).await;
            let mut binding = cluster_role_binding("gadget-reader", "gadget-reader");
            binding["subjects"] = json!([
                {"kind": "ServiceAccount", "name": "reader", "namespace": "kube-system"},
                {"kind": "User", "name": "jane", "apiGroup": "rbac.authorization.k8s.io"},
            ]);
            create(&main, BINDING_PATH, &binding).await;
        });
        let [reader, other] = ["reader", "other"].map(|name| block_on(create_account(&main, name)));
        let server = RunningExtensionServer::launch(&plane, "a", "x", "v1");
        let by_token = |token: &str| server.client_with(ClientCredentials::Token(token.to_owned()));
        let pki = plane.server("a").pki();
        let pair = |name: &str| ClientCredentials::Certificate {
            certificate: pki.join(format!("{name}.crt")),
            key: pki.join(format!("{name}.key")),
        };
        let list_as = async |client: Client, user: &str| {
            let request = client.request_builder(Method::GET, GADGETS_V1).header("x-remote-user", user);
            client.send(request, "".into()).await.status
        };
        block_on(async {
            assert_eq!(by_token(&reader).get(GADGETS_V1).await.status, StatusCode::OK);
            let denied = by_token(&reader).create(GADGETS_V1, &gadget("one", 1)).await;
            assert_eq!(denied.status, StatusCode::FORBIDDEN, "{}", denied.summary());
            assert_eq!(by_token(&other).get(GADGETS_V1).await.status, StatusCode::FORBIDDEN);
            assert_eq!(by_token("nonsense").get(GADGETS_V1).await.status, StatusCode::UNAUTHORIZED);
            let anonymous = server.client_with(ClientCredentials::Anonymous);
            assert_eq!(anonymous.get(GADGETS_V1).await.status, StatusCode::FORBIDDEN);
            // A user is named by the front proxy of the main cluster, and by nothing else.
            assert_eq!(list_as(server.client_with(pair("front-proxy-client")), "jane").await, StatusCode::OK);
            assert_eq!(list_as(server.client_with(pair("front-proxy-client")), "joe").await, StatusCode::FORBIDDEN);
            assert_eq!(list_as(anonymous, "jane").await, StatusCode::FORBIDDEN);
            assert_eq!(list_as(by_token(&other), "jane").await, StatusCode::FORBIDDEN);
        });
    });
}
