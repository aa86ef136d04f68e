//! Several endpoints of one extension API server.

use super::extension_server::{GADGETS, NAME, gadget};
use super::*;
use crate::storage_versions::{CONVERGENCE_TIMEOUT, open_store};

/// Adds an endpoint to the service. Below the REST API, which refuses loopback addresses.
async fn add_endpoint(plane: &ControlPlane<'_>, name: &str, port: u16) {
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": name, "namespace": "default", "uid": name, "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"kubernetes.io/service-name": "ext"}},
        "endpoints": [{"addresses": ["127.0.0.1"], "conditions": {"ready": true}}],
        "ports": [{"name": "https", "port": port, "protocol": "TCP"}],
    });
    let key = store::Key::from(format!("/registry/endpointslices/default/{name}"));
    let put = store::Op::Put { key, value: slice.to_string().into(), ttl: None };
    let (store, tasks) = open_store(plane).await;
    store.commit(store::Transaction { compares: Vec::new(), ops: vec![put] }).await.unwrap();
    drop(store);
    tasks.stop(CONVERGENCE_TIMEOUT).await.unwrap();
}

async fn create_headless_service(client: &Client) {
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "ext"},
        "spec": {"clusterIP": "None", "ports": [{"name": "https", "port": 443}]}});
    assert_eq!(client.create("/api/v1/namespaces/default/services", &service).await.status, 201);
}

/// Only the second server has a route to the service. It proxies; the condition is the first one's and does not change.
#[test]
fn servers_that_judge_differently_do_not_overwrite_each_other() {
    let mut plane = ControlPlane::new(TestStore::Sqlite);
    plane.start("a", &[]);
    plane.start("b", &["--enable-aggregator-routing=true"]);
    let [a, b] = ["a", "b"].map(|name| plane.admin(name));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let extension = runtime.block_on(ExtensionServer::start());
    block_on(create_headless_service(&b));
    block_on(add_endpoint(&plane, "ext-1", extension.peer.address.port()));
    let mut api_service = extension.api_service("v1");
    api_service["spec"]["service"]["port"] = 443.into();
    assert_eq!(block_on(b.create(API_SERVICES, &api_service)).status, 201);
    assert_eq!(block_on(b.get(GADGETS)).status, 200);
    wait_until_available(&b, NAME, "False", "FailedDiscoveryCheck");
    let first = block_on(a.get(&api_service_path(NAME))).json();
    assert_eq!(first["status"]["conditions"][0]["message"], "cannot route to service with ClusterIP \"None\"");
    // Both have checked again since.
    block_on(extension.peer.take_requests());
    for _ in 0..2 {
        block_on(add_endpoint(&plane, "ext-1", extension.peer.address.port()));
        wait_within(LIMIT, "b checks again", async || {
            let requests = extension.peer.take_requests().await;
            if requests.is_empty() { Err("no check".to_owned()) } else { Ok(()) }
        });
        assert_eq!(block_on(b.get(GADGETS)).status, 200);
        assert_eq!(shown(&block_on(a.get(GADGETS))), "503 service unavailable");
    }
    assert_eq!(block_on(a.get(&api_service_path(NAME))).json()["metadata"], first["metadata"]);
    let unavailable = |client: &Client| {
        let series = "aggregator_unavailable_apiservice{name=\"v1.ext.example.com\"}";
        block_on(cluster_tests::wait::metric_value(client, series))
    };
    assert_eq!((unavailable(&a), unavailable(&b)), (1, 0));
}

#[test]
fn requests_fail_over_between_endpoints() {
    let mut plane = ControlPlane::new(TestStore::Sqlite);
    plane.start("a", &["--enable-aggregator-routing=true"]);
    let a = plane.admin("a");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let extension = runtime.block_on(ExtensionServer::start());
    let replica = runtime.block_on(extension.start_replica());
    block_on(create_headless_service(&a));
    let mut api_service = extension.api_service("v1");
    api_service["spec"]["service"]["port"] = 443.into();
    assert_eq!(block_on(a.create(API_SERVICES, &api_service)).status, 201);
    wait_until_available(&a, NAME, "False", "EndpointsNotFound");
    block_on(add_endpoint(&plane, "ext-1", extension.peer.address.port()));
    block_on(add_endpoint(&plane, "ext-2", replica.address.port()));
    wait_until_available(&a, NAME, "True", "Passed");
    for number in 0..8 {
        assert_eq!(block_on(a.create(GADGETS, &gadget(&format!("g{number}")))).status, 201);
    }
    let seen = (block_on(extension.take_proxied()).len(), block_on(replica.take_requests()).len());
    assert!(seen.0 > 0 && seen.1 > 0, "both endpoints get requests: {seen:?}");
    extension.set_mode(Mode::Down);
    for _ in 0..8 {
        let found = block_on(a.get(GADGETS));
        assert_eq!(found.status, 200, "{}", found.summary());
        assert_eq!(found.json()["items"].as_array().unwrap().len(), 8);
    }
    let created = block_on(a.create(GADGETS, &gadget("later")));
    assert_eq!((created.status.as_u16(), extension.creates()), (201, 9), "{}", created.summary());
    assert_eq!(block_on(available(&a, NAME)).0, "True", "one endpoint suffices");
}
