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

#[test]
fn requests_fail_over_between_endpoints() {
    let mut plane = ControlPlane::new(TestStore::Sqlite);
    plane.start("a", &["--enable-aggregator-routing=true"]);
    let a = plane.admin("a");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let extension = runtime.block_on(ExtensionServer::start());
    let replica = runtime.block_on(extension.start_replica());
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "ext"},
        "spec": {"clusterIP": "None", "ports": [{"name": "https", "port": 443}]}});
    assert_eq!(block_on(a.create("/api/v1/namespaces/default/services", &service)).status, 201);
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
