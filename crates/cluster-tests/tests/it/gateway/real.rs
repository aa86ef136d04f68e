//! A gateway in front of a real kube-apiserver and one of our servers, and in front of two real ones of different
//! releases.
//!
//! Skipped unless `KUBEBUILDER_ASSETS` names a folder with a `kube-apiserver` 1.35 or newer. `KUBEBUILDER_ASSETS_OLD`
//! may name a second one; without it the first emulates 1.33.

use cluster_tests::client::ClientCredentials;
use cluster_tests::kube_apiserver::{KubeApiserver, KubeApiserverRelease};
use cluster_tests::wait::eventually;
use serde_json::json;
use transport::pki::{CertificateAuthority, CertificateUsage};

use super::*;
use crate::access::{certificate_credentials, whoami};
use crate::custom_resource::{CARTS_PATH, CRD_PATH, carts_crd};
use crate::peers::real::{ROUTE_MISMATCHES, send_request};

/// `resource.k8s.io/v1` exists from 1.34 on, and no finalizer protects its objects from deletion.
const DEVICE_CLASSES_PATH: &str = "/apis/resource.k8s.io/v1/deviceclasses";

fn device_class(name: &str) -> Value {
    json!({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": name}, "spec": {}})
}

async fn wait_for_status(client: &Client, path: &str, status: StatusCode) {
    eventually(&format!("{path} is {status}"), async || {
        let answer = client.get(path).await;
        if answer.status == status { Ok(()) } else { Err(answer.summary()) }
    })
    .await;
}

#[test]
fn gateway_merges_kube_apiserver_and_older_server() {
    let etcd = Etcd::start();
    let mut plane = ControlPlane::new(TestStore::Etcd(&etcd));
    plane.start("old", &[OLD_FLAGS[0], PEER_PROXY_OFF]);
    let real = KubeApiserver::start(plane.folder(), &etcd, &["--runtime-config=apps/v1=false"]);
    let upstream = format!("--upstream=https://{}", real.admin().address());
    let gateway = RunningGateway::launch("gateway", &plane, &["old"], &[&upstream]);
    gateway.wait_ready();
    let admin = gateway.admin();
    block_on(async {
        wait_for_status(&admin, DEVICE_CLASSES_PATH, StatusCode::OK).await;
        check_all_verbs(&admin, DEVICE_CLASSES_PATH, device_class).await;
        check_all_verbs(&admin, DEPLOYMENTS_PATH, deployment).await;

        let own = CertificateAuthority::open_or_create(&plane.server("old").pki(), "ca").unwrap();
        let jane = gateway.client_with(certificate_credentials(
            &own.open_or_issue("jane", "jane", Some("devs"), &CertificateUsage::Client).unwrap(),
        ));
        for _ in 0..6 {
            assert_eq!(whoami(&jane, &[]).await, "jane [devs system:authenticated]");
        }
        let as_joe = [("impersonate-user", "joe")];
        for _ in 0..4 {
            assert_eq!(whoami(&admin, &as_joe).await, "joe [system:authenticated]");
        }
        let claims = [("x-remote-user", "root"), ("x-remote-group", "system:masters")];
        let anonymous = gateway.client_with(ClientCredentials::Anonymous);
        assert!(whoami(&anonymous, &claims).await.contains("system:anonymous"));

        // A custom resource is found as soon as a server serves it, and gone with its definition.
        assert_eq!(admin.get(CARTS_PATH).await.status, StatusCode::NOT_FOUND);
        let created = admin.create(CRD_PATH, &carts_crd()).await;
        assert_eq!(created.status, StatusCode::CREATED, "{}", created.summary());
        wait_for_status(&real.admin(), CARTS_PATH, StatusCode::OK).await;
        let found = admin.get(CARTS_PATH).await;
        assert_eq!(found.status, StatusCode::OK, "{}", found.summary());
        let text =
            String::from_utf8_lossy(&get_accepting(&admin, "/apis", MERGED_DISCOVERY_ACCEPT).await.body).into_owned();
        assert!(text.contains("\"carts\""), "{text}");
        let cart = json!({"apiVersion": "shop.example.com/v1", "kind": "Cart", "metadata": {"name": "a"}, "items": 3});
        assert_eq!(admin.create(CARTS_PATH, &cart).await.status, StatusCode::CREATED);
        assert_eq!(admin.get(&format!("{CARTS_PATH}/a")).await.json()["items"], 3);
        assert_eq!(admin.delete(&format!("{CRD_PATH}/carts.shop.example.com")).await.status, StatusCode::OK);
        wait_for_status(&real.admin(), CARTS_PATH, StatusCode::NOT_FOUND).await;
        wait_for_status(&admin, CARTS_PATH, StatusCode::NOT_FOUND).await;

        real.kill();
        let answer = admin.get(DEVICE_CLASSES_PATH).await;
        assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE, "{}", answer.summary());
        assert_eq!(admin.get(DEPLOYMENTS_PATH).await.status, StatusCode::OK);
    });
}

#[test]
fn route_mismatch_gets_the_response_of_kube_apiserver() {
    let etcd = Etcd::start();
    let mut plane = ControlPlane::new(TestStore::Etcd(&etcd));
    plane.start("old", &[OLD_FLAGS[0], PEER_PROXY_OFF]);
    let real = KubeApiserver::start(plane.folder(), &etcd, &["--runtime-config=batch/v1=false"]);
    let upstream = format!("--upstream=https://{}", real.admin().address());
    let gateway = RunningGateway::launch("gateway", &plane, &["old"], &[&upstream]);
    gateway.wait_ready();
    let admin = gateway.admin();
    block_on(async {
        wait_for_status(&admin, DEVICE_CLASSES_PATH, StatusCode::OK).await;
        for request in ROUTE_MISMATCHES {
            let serving = if request.contains("/batch/") { plane.admin("old") } else { real.admin() };
            let [through, directly] = [send_request(&admin, request).await, send_request(&serving, request).await];
            assert_eq!((through.status, through.body), (directly.status, directly.body), "{request}");
        }
    });
}

/// Creates a CustomResourceDefinition, waits until it is established, requests the resource repeatedly and deletes the
/// definition.
async fn create_use_and_delete_custom_resource(admin: &Client, name: &str) {
    let created = admin.create(CRD_PATH, &carts_crd()).await;
    assert_eq!(created.status, StatusCode::CREATED, "{}", created.summary());
    let one = format!("{CRD_PATH}/carts.shop.example.com");
    eventually("the definition is established", async || {
        let found = admin.get(&one).await.json()["status"]["conditions"].to_string();
        if found.contains(r#""status":"True","type":"Established""#) { Ok(()) } else { Err(found) }
    })
    .await;
    wait_for_status(admin, CARTS_PATH, StatusCode::OK).await;
    let cart = json!({"apiVersion": "shop.example.com/v1", "kind": "Cart", "metadata": {"name": name}, "price": 3});
    assert_eq!(admin.create(CARTS_PATH, &cart).await.status, StatusCode::CREATED);
    for _ in 0..20 {
        let found = admin.get(&format!("{CARTS_PATH}/{name}")).await;
        assert_eq!(found.status, StatusCode::OK, "{}", found.summary());
    }
    assert_eq!(admin.delete(&one).await.status, StatusCode::OK);
    wait_for_status(admin, CARTS_PATH, StatusCode::NOT_FOUND).await;
}

/// Checks that upstreams see certificate and token users as themselves.
async fn check_identities(plane: &ControlPlane<'_>, gateway: &RunningGateway) {
    let admin = gateway.admin();
    let own = CertificateAuthority::open_or_create(&plane.folder().join("unskew-data/pki"), "ca").unwrap();
    let jane = gateway.client_with(certificate_credentials(
        &own.open_or_issue("jane", "jane", Some("devs"), &CertificateUsage::Client).unwrap(),
    ));
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    admin.create(accounts, &json!({"metadata": {"name": "builder"}})).await;
    let token = admin.create(&format!("{accounts}/builder/token"), &json!({"spec": {}})).await.json();
    let token = token["status"]["token"].as_str().unwrap().to_owned();
    let builder = gateway.client_with(ClientCredentials::Token(token));
    let claims = [("x-remote-user", "root"), ("x-remote-group", "system:masters")];
    for _ in 0..4 {
        assert_eq!(whoami(&jane, &[]).await, "jane [devs system:authenticated]");
        assert_eq!(whoami(&admin, &[("impersonate-user", "joe")]).await, "joe [system:authenticated]");
        let account = whoami(&builder, &claims).await;
        assert!(account.starts_with("system:serviceaccount:default:builder ["), "{account}");
        assert!(whoami(&gateway.client_with(ClientCredentials::Anonymous), &claims).await.contains("system:anonymous"));
    }
}

/// Checks that server-side apply passes through unchanged.
async fn check_server_side_apply(admin: &Client) {
    let path = "/api/v1/namespaces/default/configmaps/applied?fieldManager=test";
    for (value, status) in [("1", StatusCode::CREATED), ("2", StatusCode::OK)] {
        let body =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "applied"}, "data": {"a": value}});
        let applied =
            admin.send_body(Method::PATCH, path, "application/apply-patch+yaml", body.to_string().into()).await;
        assert_eq!(
            (applied.status, applied.json()["data"]["a"].as_str()),
            (status, Some(value)),
            "{}",
            applied.summary()
        );
    }
    assert_eq!(admin.delete("/api/v1/namespaces/default/configmaps/applied").await.status, StatusCode::OK);
}

#[test]
fn gateway_merges_two_kube_apiservers_in_both_topologies() {
    let etcd = Etcd::start();
    let mut plane = ControlPlane::new(TestStore::Sqlite);
    // This server only creates the certificates; the real servers have their own storage.
    plane.start("maker", &[]);
    plane.stop("maker");
    let folder = plane.folder();
    let mut old = KubeApiserver::start_stock(KubeApiserverRelease::Old, folder, &etcd, &[]);
    let new = KubeApiserver::start_stock(KubeApiserverRelease::New, folder, &etcd, &["--runtime-config=apps/v1=false"]);
    let [old_at, new_at] = [&old, &new].map(|server| server.admin().address().to_owned());
    let other = format!("--upstream=https://{new_at}");
    let front = RunningGateway::launch("front", &plane, &[], &[&format!("--upstream=https://{old_at}"), &other]);
    let beside =
        RunningGateway::launch("beside", &plane, &[], &[&format!("--upstream=local=https://{old_at}"), &other]);
    for gateway in [&front, &beside] {
        gateway.wait_ready();
        let admin = gateway.admin();
        block_on(async {
            wait_for_status(&admin, DEVICE_CLASSES_PATH, StatusCode::OK).await;
            wait_for_status(&admin, DEPLOYMENTS_PATH, StatusCode::OK).await;
            check_all_verbs(&admin, DEVICE_CLASSES_PATH, device_class).await;
            check_all_verbs(&admin, DEPLOYMENTS_PATH, deployment).await;
            check_identities(&plane, gateway).await;
            check_server_side_apply(&admin).await;
            create_use_and_delete_custom_resource(&admin, "a").await;
        });
    }
    let clients = [front.admin(), beside.admin()];
    block_on(async {
        // A document may be a second old, and the servers drop a definition at different moments.
        eventually("both gateways return the same document", async || {
            let [first, second] =
                [&clients[0], &clients[1]].map(|client| get_accepting(client, "/apis", MERGED_DISCOVERY_ACCEPT));
            let tags = [first.await, second.await].map(|page| page.headers.get("etag").cloned());
            if tags[0] == tags[1] { Ok(()) } else { Err(format!("{tags:?}")) }
        })
        .await;
        old.kill_restartable();
        for admin in &clients {
            // The first request after the kill may use a connection that is not yet known to be broken.
            wait_for_status(admin, DEPLOYMENTS_PATH, StatusCode::SERVICE_UNAVAILABLE).await;
            for path in [DEVICE_CLASSES_PATH, "/api/v1/namespaces/default"] {
                let answer = admin.get(path).await;
                assert_eq!(answer.status, StatusCode::OK, "{path}: {}", answer.summary());
            }
            assert_eq!(admin.get("/apis/example.com/v1/widgets").await.status, StatusCode::NOT_FOUND);
        }
    });
    old.restart();
    for admin in &clients {
        block_on(wait_for_status(admin, DEPLOYMENTS_PATH, StatusCode::OK));
    }
}
