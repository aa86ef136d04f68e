//! A gateway before a real kube-apiserver and one of ours, and before two real ones, of different versions.
//!
//! Run if `KUBEBUILDER_ASSETS` names a folder with a `kube-apiserver`, 1.35 or newer. `KUBEBUILDER_ASSETS_OLD` may name one with
//! another; without it the same program stands in for 1.33.

use cluster_tests::client::Identity;
use cluster_tests::kube_apiserver::{KubeApiserver, Release};
use cluster_tests::wait::eventually;
use serde_json::json;
use transport::pki::{Authority, Purpose};

use super::*;
use crate::access::{certificate, whoami};
use crate::carts::{CARTS, DEFINITIONS, definition};
use crate::peers_interop::{MISFITS, ask};

/// `resource.k8s.io/v1` is there from 1.34 on, and nothing protects its objects from being deleted.
const DEVICES: &str = "/apis/resource.k8s.io/v1/deviceclasses";

fn device(name: &str) -> Value {
    json!({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": name}, "spec": {}})
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

#[test]
fn path_that_does_not_fit_its_resource_is_refused_in_a_real_servers_words() {
    let etcd = Etcd::start();
    let mut plane = ControlPlane::new(Store::Etcd(&etcd));
    plane.start("old", &[OLD[0], STOCK]);
    let Some(real) = KubeApiserver::start(plane.folder(), &etcd, &["--runtime-config=batch/v1=false"]) else { return };
    let upstream = format!("--upstream=https://{}", real.admin().address());
    let gateway = Gateway::launch("gateway", &plane, &["old"], &[&upstream]);
    gateway.wait_ready();
    let admin = gateway.admin();
    block_on(async {
        becomes(&admin, DEVICES, StatusCode::OK).await;
        for request in MISFITS {
            let serving = if request.contains("/batch/") { plane.admin("old") } else { real.admin() };
            let [through, directly] = [ask(&admin, request).await, ask(&serving, request).await];
            assert_eq!((through.status, through.body), (directly.status, directly.body), "{request}");
        }
    });
}

/// Waits until a custom resource is taken up, then has it asked for again and again: whoever is asked, it is there.
async fn use_custom_resource(admin: &Client, name: &str) {
    let created = admin.create(DEFINITIONS, &definition()).await;
    assert_eq!(created.status, StatusCode::CREATED, "{}", created.brief());
    let one = format!("{DEFINITIONS}/carts.shop.example.com");
    eventually("the definition is taken up", async || {
        let found = admin.get(&one).await.json()["status"]["conditions"].to_string();
        if found.contains(r#""status":"True","type":"Established""#) { Ok(()) } else { Err(found) }
    })
    .await;
    becomes(admin, CARTS, StatusCode::OK).await;
    let cart = json!({"apiVersion": "shop.example.com/v1", "kind": "Cart", "metadata": {"name": name}, "price": 3});
    assert_eq!(admin.create(CARTS, &cart).await.status, StatusCode::CREATED);
    for _ in 0..20 {
        let found = admin.get(&format!("{CARTS}/{name}")).await;
        assert_eq!(found.status, StatusCode::OK, "{}", found.brief());
    }
    assert_eq!(admin.delete(&one).await.status, StatusCode::OK);
    becomes(admin, CARTS, StatusCode::NOT_FOUND).await;
}

/// Everybody arrives as who they are.
async fn check_identities(plane: &ControlPlane<'_>, gateway: &Gateway) {
    let admin = gateway.admin();
    let own = Authority::open(&plane.folder().join("unskew-data/pki"), "ca").unwrap();
    let jane = gateway.client(certificate(&own.issue("jane", "jane", Some("devs"), &Purpose::Client).unwrap()));
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    admin.create(accounts, &json!({"metadata": {"name": "builder"}})).await;
    let token = admin.create(&format!("{accounts}/builder/token"), &json!({"spec": {}})).await.json();
    let token = token["status"]["token"].as_str().unwrap().to_owned();
    let builder = gateway.client(Identity::Token(token));
    let claims = [("x-remote-user", "root"), ("x-remote-group", "system:masters")];
    for _ in 0..4 {
        assert_eq!(whoami(&jane, &[]).await, "jane [devs system:authenticated]");
        assert_eq!(whoami(&admin, &[("impersonate-user", "joe")]).await, "joe [system:authenticated]");
        let account = whoami(&builder, &claims).await;
        assert!(account.starts_with("system:serviceaccount:default:builder ["), "{account}");
        assert!(whoami(&gateway.client(Identity::Nobody), &claims).await.contains("system:anonymous"));
    }
}

/// What only a server of today can do arrives as it was sent.
async fn apply_on_the_server(admin: &Client) {
    let path = "/api/v1/namespaces/default/configmaps/applied?fieldManager=test";
    for (value, status) in [("1", StatusCode::CREATED), ("2", StatusCode::OK)] {
        let body =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "applied"}, "data": {"a": value}});
        let applied = admin.write(Method::PATCH, path, "application/apply-patch+yaml", body.to_string().into()).await;
        assert_eq!(
            (applied.status, applied.json()["data"]["a"].as_str()),
            (status, Some(value)),
            "{}",
            applied.brief()
        );
    }
    assert_eq!(admin.delete("/api/v1/namespaces/default/configmaps/applied").await.status, StatusCode::OK);
}

#[test]
fn two_real_kube_apiservers_answer_as_one_in_both_topologies() {
    let etcd = Etcd::start();
    let mut plane = ControlPlane::new(Store::Sqlite);
    // It makes the certificates, and nothing else: the real servers have a storage of their own.
    plane.start("maker", &[]);
    plane.stop("maker");
    let folder = plane.folder();
    let Some(mut old) = KubeApiserver::stock(Release::Old, folder, &etcd, &[]) else { return };
    let new = KubeApiserver::stock(Release::New, folder, &etcd, &["--runtime-config=apps/v1=false"]).unwrap();
    let [old_at, new_at] = [&old, &new].map(|server| server.admin().address().to_owned());
    let other = format!("--upstream=https://{new_at}");
    let front = Gateway::launch("front", &plane, &[], &[&format!("--upstream=https://{old_at}"), &other]);
    let beside = Gateway::launch("beside", &plane, &[], &[&format!("--upstream=local=https://{old_at}"), &other]);
    for gateway in [&front, &beside] {
        gateway.wait_ready();
        let admin = gateway.admin();
        block_on(async {
            becomes(&admin, DEVICES, StatusCode::OK).await;
            becomes(&admin, DEPLOYMENTS, StatusCode::OK).await;
            live_through(&admin, DEVICES, device).await;
            live_through(&admin, DEPLOYMENTS, deployment).await;
            check_identities(&plane, gateway).await;
            apply_on_the_server(&admin).await;
            use_custom_resource(&admin, "a").await;
        });
    }
    let clients = [front.admin(), beside.admin()];
    block_on(async {
        // A page may be a second old, and servers forget a definition each at its own moment.
        eventually("both gateways list the same", async || {
            let [first, second] = [&clients[0], &clients[1]].map(|client| accepting(client, "/apis", MERGED));
            let tags = [first.await, second.await].map(|page| page.headers.get("etag").cloned());
            if tags[0] == tags[1] { Ok(()) } else { Err(format!("{tags:?}")) }
        })
        .await;
        old.crash();
        for admin in &clients {
            // The first request after the end may meet a connection that is not known to be broken.
            becomes(admin, DEPLOYMENTS, StatusCode::SERVICE_UNAVAILABLE).await;
            for path in [DEVICES, "/api/v1/namespaces/default"] {
                let answer = admin.get(path).await;
                assert_eq!(answer.status, StatusCode::OK, "{path}: {}", answer.brief());
            }
            assert_eq!(admin.get("/apis/example.com/v1/widgets").await.status, StatusCode::NOT_FOUND);
        }
    });
    old.restart();
    for admin in &clients {
        block_on(becomes(admin, DEPLOYMENTS, StatusCode::OK));
    }
}
