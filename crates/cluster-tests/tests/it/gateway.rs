//! A gateway in front of servers that do not know each other: clients see one API.

mod access_log;
mod backends;
mod identity;
mod load_balancing;
mod many_watches;
mod outages;
mod queueing;
mod real;
pub(crate) mod streams;
mod upstream_discovery;
mod vouching;

use cluster_tests::gateway::PEER_PROXY_OFF;
use cluster_tests::tools::{is_skipped, kubectl};
use cluster_tests::{Client, ControlPlane, Etcd, RunningGateway, TestStore};
use http::{Method, StatusCode};
use serde_json::Value;

use crate::block_on;
use crate::peers::{
    CLASSES_PATH, DEPLOYMENTS_PATH, LOCAL_DISCOVERY_ACCEPT, MERGED_DISCOVERY_ACCEPT, NEW_FLAGS, OLD_FLAGS,
    check_all_verbs, deployment, volume_attributes_class,
};

/// Two stock servers, each with a resource that the other lacks.
fn start_two_stock_servers(store: TestStore<'_>) -> ControlPlane<'_> {
    let mut plane = ControlPlane::new(store);
    plane.start("old", &[OLD_FLAGS[0], PEER_PROXY_OFF]);
    plane.start("new", &[NEW_FLAGS[0], NEW_FLAGS[1], PEER_PROXY_OFF]);
    plane
}

async fn get_accepting(client: &Client, path: &str, accept: &str) -> cluster_tests::client::FullResponse {
    client.send(client.request_builder(Method::GET, path).header("accept", accept), "".into()).await
}

fn served_by(answer: &cluster_tests::client::FullResponse) -> String {
    answer.headers.get("x-unskew-served-by").and_then(|name| name.to_str().ok()).unwrap_or_default().to_owned()
}

#[test]
fn gateway_serves_resources_of_either_server() {
    let etcd = Etcd::start();
    for store in [TestStore::Sqlite, TestStore::Etcd(&etcd)] {
        let plane = start_two_stock_servers(store);
        let gateway = RunningGateway::start("gateway", &plane, &["old", "new"], &[]);
        let admin = gateway.admin();
        for (path, object) in [
            (CLASSES_PATH, volume_attributes_class as fn(&str) -> Value),
            (DEPLOYMENTS_PATH, deployment as fn(&str) -> Value),
        ] {
            block_on(check_all_verbs(&admin, path, object));
        }
        // Each server alone serves only one of them.
        block_on(async {
            assert_eq!(plane.admin("old").get(CLASSES_PATH).await.status, StatusCode::NOT_FOUND);
            assert_eq!(plane.admin("new").get(DEPLOYMENTS_PATH).await.status, StatusCode::NOT_FOUND);
        });
    }
}

#[test]
fn sidecar_gateways_serve_resources_of_either_server() {
    let plane = start_two_stock_servers(TestStore::Sqlite);
    let beside = |local: &str, other: &str| {
        RunningGateway::start(&format!("beside-{local}"), &plane, &[&format!("local={local}"), other], &[])
    };
    let gateways = [beside("old", "new"), beside("new", "old")];
    for (gateway, local) in gateways.iter().zip(["old", "new"]) {
        let admin = gateway.admin();
        block_on(async {
            check_all_verbs(&admin, CLASSES_PATH, volume_attributes_class).await;
            check_all_verbs(&admin, DEPLOYMENTS_PATH, deployment).await;
            // A sidecar prefers its local server for what that serves.
            let name = format!("apiserver-{}", plane.address(local));
            for _ in 0..10 {
                assert_eq!(served_by(&admin.get("/api/v1/namespaces/default").await), name);
            }
        });
    }
    let tags =
        gateways.each_ref().map(|gateway| block_on(get_accepting(&gateway.admin(), "/apis", MERGED_DISCOVERY_ACCEPT)));
    assert_eq!(tags[0].headers.get("etag"), tags[1].headers.get("etag"));
    assert_eq!(tags[0].body, tags[1].body);
}

#[test]
fn all_discovery_forms_list_resources_of_both_servers() {
    let plane = start_two_stock_servers(TestStore::Sqlite);
    let gateway = RunningGateway::start("gateway", &plane, &["old", "new"], &[]);
    let admin = gateway.admin();
    block_on(async {
        let merged = get_accepting(&admin, "/apis", MERGED_DISCOVERY_ACCEPT).await;
        let text = String::from_utf8_lossy(&merged.body).into_owned();
        assert!(text.contains("\"deployments\"") && text.contains("\"volumeattributesclasses\""), "{text}");
        let etag = merged.headers["etag"].to_str().unwrap().to_owned();
        let again = admin
            .request_builder(Method::GET, "/apis")
            .header("accept", MERGED_DISCOVERY_ACCEPT)
            .header("if-none-match", &etag);
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
        // A request for the unmerged document gets that of one upstream.
        let own = get_accepting(&admin, "/apis", LOCAL_DISCOVERY_ACCEPT).await;
        assert_ne!(own.body, merged.body);
    });
}

#[test]
fn unknown_resource_gets_the_404_of_an_upstream() {
    let plane = start_two_stock_servers(TestStore::Sqlite);
    let gateway = RunningGateway::start("gateway", &plane, &["old", "new"], &[]);
    block_on(async {
        for path in ["/apis/shop.example.com/v1/carts", "/apis/apps/v7/deployments", "/nothing"] {
            let (through, directly) = (gateway.admin().get(path).await, plane.admin("new").get(path).await);
            assert_eq!(through.status, StatusCode::NOT_FOUND, "{path}");
            assert_eq!(through.body, directly.body, "{path}");
        }
    });
}

#[test]
fn route_mismatch_gets_the_response_of_an_upstream() {
    let plane = start_two_stock_servers(TestStore::Sqlite);
    let gateway = RunningGateway::start("gateway", &plane, &["old", "new"], &[]);
    let admin = gateway.admin();
    block_on(async {
        let classes = "/apis/storage.k8s.io/v1/namespaces/a/volumeattributesclasses";
        for (method, path, server, status) in [
            (Method::GET, classes, "new", 404),
            (Method::DELETE, &format!("{classes}/x"), "new", 404),
            (Method::POST, "/apis/apps/v1/deployments", "old", 405),
            (Method::DELETE, "/apis/apps/v1/deployments", "old", 405),
            (Method::GET, "/apis/apps/v1/deployments/x", "old", 404),
            (Method::OPTIONS, DEPLOYMENTS_PATH, "old", 405),
            (Method::GET, "/api/v1/namespaces/a/nodes", "old", 404),
            (Method::POST, "/api/v1/pods", "new", 405),
        ] {
            let ask = async |client: &Client| {
                let request = client.request_builder(method.clone(), path).header("content-type", "application/json");
                client.send(request, "{}".into()).await
            };
            let (through, directly) = (ask(&admin).await, ask(&plane.admin(server)).await);
            assert_eq!(through.status, status, "{method} {path}: {}", through.summary());
            assert_eq!(through.body, directly.body, "{method} {path}");
        }
        // Anonymous requests reach the upstream, too: only it knows who may see what.
        let stranger = gateway.client_with(cluster_tests::client::ClientCredentials::Anonymous).get(classes).await;
        assert_eq!(stranger.status, StatusCode::FORBIDDEN, "{}", stranger.summary());
    });
}

#[test]
fn kubectl_works_through_a_gateway() {
    if is_skipped("kubectl") {
        return;
    }
    let plane = start_two_stock_servers(TestStore::Sqlite);
    let gateway = RunningGateway::start("gateway", &plane, &["old", "new"], &[]);
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
