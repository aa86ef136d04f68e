//! A gateway before a real kube-apiserver and one of ours, of another version.
//!
//! Run if `KUBEBUILDER_ASSETS` names a folder with a `kube-apiserver`, 1.35 or newer.

use cluster_tests::client::Identity;
use cluster_tests::kube_apiserver::KubeApiserver;
use cluster_tests::wait::eventually;
use serde_json::json;
use transport::pki::{Authority, Purpose};

use super::*;
use crate::access::{certificate, whoami};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const CARTS: &str = "/apis/shop.example.com/v1/namespaces/default/carts";

/// `resource.k8s.io/v1` is there from 1.34 on, and nothing protects its objects from being deleted.
const DEVICES: &str = "/apis/resource.k8s.io/v1/deviceclasses";

fn device(name: &str) -> Value {
    json!({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": name}, "spec": {}})
}

fn definition() -> Value {
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "carts.shop.example.com"},
        "spec": {
            "group": "shop.example.com", "scope": "Namespaced",
            "names": {"plural": "carts", "singular": "cart", "kind": "Cart", "listKind": "CartList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}],
        },
    })
}

async fn becomes(client: &Client, path: &str, status: StatusCode) {
    eventually(&format!("{path} is {status}"), async || {
        let answer = client.get(path).await;
        if answer.status == status { Ok(()) } else { Err(answer.brief()) }
    })
    .await;
}

#[test]
fn a_real_kube_apiserver_and_an_older_server_answer_as_one() {
    let etcd = Etcd::start();
    let mut plane = ControlPlane::new(Store::Etcd(&etcd));
    plane.start("old", &[OLD[0], STOCK]);
    let Some(real) = KubeApiserver::start(plane.folder(), &etcd, &["--runtime-config=apps/v1=false"]) else { return };
    let upstream = format!("--upstream=https://{}", real.admin().address());
    let gateway = Gateway::launch("gateway", &plane, &["old"], &[&upstream]);
    gateway.wait_ready();
    let admin = gateway.admin();
    block_on(async {
        becomes(&admin, DEVICES, StatusCode::OK).await;
        live_through(&admin, DEVICES, device).await;
        live_through(&admin, DEPLOYMENTS, deployment).await;

        let own = Authority::open(&plane.server("old").pki(), "ca").unwrap();
        let jane = gateway.client(certificate(&own.issue("jane", "jane", Some("devs"), &Purpose::Client).unwrap()));
        for _ in 0..6 {
            assert_eq!(whoami(&jane, &[]).await, "jane [devs system:authenticated]");
        }
        let as_joe = [("impersonate-user", "joe")];
        for _ in 0..4 {
            assert_eq!(whoami(&admin, &as_joe).await, "joe [system:authenticated]");
        }
        let claims = [("x-remote-user", "root"), ("x-remote-group", "system:masters")];
        let nobody = gateway.client(Identity::Nobody);
        assert!(whoami(&nobody, &claims).await.contains("system:anonymous"));

        // A custom resource is found as soon as the server that defines it serves it, and is gone with its definition.
        assert_eq!(admin.get(CARTS).await.status, StatusCode::NOT_FOUND);
        let created = admin.create(DEFINITIONS, &definition()).await;
        assert_eq!(created.status, StatusCode::CREATED, "{}", created.brief());
        becomes(&real.admin(), CARTS, StatusCode::OK).await;
        let found = admin.get(CARTS).await;
        assert_eq!(found.status, StatusCode::OK, "{}", found.brief());
        let text = String::from_utf8_lossy(&accepting(&admin, "/apis", MERGED).await.body).into_owned();
        assert!(text.contains("\"carts\""), "{text}");
        let cart = json!({"apiVersion": "shop.example.com/v1", "kind": "Cart", "metadata": {"name": "a"}, "items": 3});
        assert_eq!(admin.create(CARTS, &cart).await.status, StatusCode::CREATED);
        assert_eq!(admin.get(&format!("{CARTS}/a")).await.json()["items"], 3);
        assert_eq!(admin.delete(&format!("{DEFINITIONS}/carts.shop.example.com")).await.status, StatusCode::OK);
        becomes(&real.admin(), CARTS, StatusCode::NOT_FOUND).await;
        becomes(&admin, CARTS, StatusCode::NOT_FOUND).await;

        real.kill();
        let answer = admin.get(DEVICES).await;
        assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE, "{}", answer.brief());
        assert_eq!(admin.get(DEPLOYMENTS).await.status, StatusCode::OK);
    });
}
