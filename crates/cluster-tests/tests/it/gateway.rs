//! A gateway before servers that know nothing of each other: they answer as one.

mod access_log;
mod backends;
mod balance;
mod crowds;
mod found;
mod identity;
mod outages;
mod queueing;
mod real;
mod streams;
mod vouching;

use cluster_tests::gateway::STOCK;
use cluster_tests::tools::{is_left_out, kubectl};
use cluster_tests::{Client, ControlPlane, Etcd, Gateway, Store};
use http::{Method, StatusCode};
use serde_json::Value;

use crate::block_on;
use crate::peers::{CLASSES, DEPLOYMENTS, LOCAL, MERGED, NEW, OLD, class, deployment, live_through};

/// Two stock servers, of which each has something that the other has not.
fn two(store: Store<'_>) -> ControlPlane<'_> {
    let mut plane = ControlPlane::new(store);
    plane.start("old", &[OLD[0], STOCK]);
    plane.start("new", &[NEW[0], NEW[1], STOCK]);
    plane
}

async fn accepting(client: &Client, path: &str, accept: &str) -> cluster_tests::client::Answer {
    client.send(client.request(Method::GET, path).header("accept", accept), "".into()).await
}

fn served_by(answer: &cluster_tests::client::Answer) -> String {
    answer.headers.get("x-unskew-served-by").and_then(|name| name.to_str().ok()).unwrap_or_default().to_owned()
}

#[test]
fn what_either_server_has_is_served_through_one_gateway() {
    let etcd = Etcd::start();
    for store in [Store::Sqlite, Store::Etcd(&etcd)] {
        let plane = two(store);
        let gateway = Gateway::start("gateway", &plane, &["old", "new"], &[]);
        let admin = gateway.admin();
        for (path, object) in [(CLASSES, class as fn(&str) -> Value), (DEPLOYMENTS, deployment as fn(&str) -> Value)] {
            block_on(live_through(&admin, path, object));
        }
        // Each server alone has only one of them.
        block_on(async {
            assert_eq!(plane.admin("old").get(CLASSES).await.status, StatusCode::NOT_FOUND);
            assert_eq!(plane.admin("new").get(DEPLOYMENTS).await.status, StatusCode::NOT_FOUND);
        });
    }
}

#[test]
fn a_gateway_beside_each_server_serves_what_either_has() {
    let plane = two(Store::Sqlite);
    let beside = |local: &str, other: &str| {
        Gateway::start(&format!("beside-{local}"), &plane, &[&format!("local={local}"), other], &[])
    };
    let gateways = [beside("old", "new"), beside("new", "old")];
    for (gateway, local) in gateways.iter().zip(["old", "new"]) {
        let admin = gateway.admin();
        block_on(async {
            live_through(&admin, CLASSES, class).await;
            live_through(&admin, DEPLOYMENTS, deployment).await;
            // What the local server has, it serves.
            let name = format!("apiserver-{}", plane.address(local));
            for _ in 0..10 {
                assert_eq!(served_by(&admin.get("/api/v1/namespaces/default").await), name);
            }
        });
    }
    let tags = gateways.each_ref().map(|gateway| block_on(accepting(&gateway.admin(), "/apis", MERGED)));
    assert_eq!(tags[0].headers.get("etag"), tags[1].headers.get("etag"));
    assert_eq!(tags[0].body, tags[1].body);
}

#[test]
fn every_form_of_discovery_speaks_for_both() {
    let plane = two(Store::Sqlite);
    let gateway = Gateway::start("gateway", &plane, &["old", "new"], &[]);
    let admin = gateway.admin();
    block_on(async {
        let merged = accepting(&admin, "/apis", MERGED).await;
        let text = String::from_utf8_lossy(&merged.body).into_owned();
        assert!(text.contains("\"deployments\"") && text.contains("\"volumeattributesclasses\""), "{text}");
        let etag = merged.headers["etag"].to_str().unwrap().to_owned();
        let again = admin.request(Method::GET, "/apis").header("accept", MERGED).header("if-none-match", &etag);
        assert_eq!(admin.send(again, "".into()).await.status, StatusCode::NOT_MODIFIED);
        for (path, name) in [
            ("/apis", "\"apps\""),
            ("/apis/apps", "\"v1\""),
            ("/apis/apps/v1", "\"deployments\""),
            ("/apis/storage.k8s.io/v1", "\"volumeattributesclasses\""),
            ("/api/v1", "\"configmaps\""),
        ] {
            let page = admin.get(path).await;
            let text = String::from_utf8_lossy(&page.body).into_owned();
            assert!(page.status == StatusCode::OK && text.contains(name), "{path}: {} {text}", page.status);
        }
        // Whoever asks for one server's own document gets one server's own.
        let own = accepting(&admin, "/apis", LOCAL).await;
        assert_ne!(own.body, merged.body);
    });
}

#[test]
fn what_nobody_has_is_not_found_in_an_upstreams_words() {
    let plane = two(Store::Sqlite);
    let gateway = Gateway::start("gateway", &plane, &["old", "new"], &[]);
    block_on(async {
        for path in ["/apis/shop.example.com/v1/carts", "/apis/apps/v7/deployments", "/nothing"] {
            let (through, directly) = (gateway.admin().get(path).await, plane.admin("new").get(path).await);
            assert_eq!(through.status, StatusCode::NOT_FOUND, "{path}");
            assert_eq!(through.body, directly.body, "{path}");
        }
    });
}

#[test]
fn path_that_does_not_fit_its_resource_is_refused_in_an_upstreams_words() {
    let plane = two(Store::Sqlite);
    let gateway = Gateway::start("gateway", &plane, &["old", "new"], &[]);
    let admin = gateway.admin();
    block_on(async {
        let classes = "/apis/storage.k8s.io/v1/namespaces/a/volumeattributesclasses";
        for (method, path, server, status) in [
            (Method::GET, classes, "new", 404),
            (Method::DELETE, &format!("{classes}/x"), "new", 404),
            (Method::POST, "/apis/apps/v1/deployments", "old", 405),
            (Method::DELETE, "/apis/apps/v1/deployments", "old", 405),
            (Method::GET, "/apis/apps/v1/deployments/x", "old", 404),
            (Method::OPTIONS, DEPLOYMENTS, "old", 405),
            (Method::GET, "/api/v1/namespaces/a/nodes", "old", 404),
            (Method::POST, "/api/v1/pods", "new", 405),
        ] {
            let ask = async |client: &Client| {
                let request = client.request(method.clone(), path).header("content-type", "application/json");
                client.send(request, "{}".into()).await
            };
            let (through, directly) = (ask(&admin).await, ask(&plane.admin(server)).await);
            assert_eq!(through.status, status, "{method} {path}: {}", through.brief());
            assert_eq!(through.body, directly.body, "{method} {path}");
        }
        // Only the upstream knows who may see what, so that it answers strangers too.
        let stranger = gateway.client(cluster_tests::client::Identity::Nobody).get(classes).await;
        assert_eq!(stranger.status, StatusCode::FORBIDDEN, "{}", stranger.brief());
    });
}

#[test]
fn kubectl_works_through_a_gateway() {
    if is_left_out("kubectl") {
        return;
    }
    let plane = two(Store::Sqlite);
    let gateway = Gateway::start("gateway", &plane, &["old", "new"], &[]);
    let kubeconfig = gateway.kubeconfig();
    let run = |args: &[&str]| kubectl(&kubeconfig, args).expect_success();
    run(&["create", "deployment", "shop", "--image=shop"]);
    run(&["scale", "deployment", "shop", "--replicas=3"]);
    assert_eq!(run(&["get", "deployment", "shop", "-o", "jsonpath={.spec.replicas}"]), "3");
    assert!(run(&["api-resources"]).contains("volumeattributesclasses"));
    assert!(run(&["get", "volumeattributesclasses"]).is_empty());
    assert!(run(&["auth", "whoami"]).contains("kubernetes-admin"));
    let missing = kubectl(&kubeconfig, &["get", "carts"]).expect_failure();
    assert!(missing.contains("the server doesn't have a resource type \"carts\""), "{missing}");
}
