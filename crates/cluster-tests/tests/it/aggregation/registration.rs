//! Registering, changing and removing an extension API server.

use super::extension_server::{GADGETS, GROUP, NAME};
use super::*;
use crate::custom_resource::{CARTS_PATH, CRD_PATH, carts_crd};

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

async fn update_spec(client: &Client, name: &str, change: impl Fn(&mut Value)) {
    cluster_tests::wait::eventually("the APIService is updated", async || {
        let mut stored = client.get(&api_service_path(name)).await.json();
        change(&mut stored["spec"]);
        let updated = client.update(&api_service_path(name), &stored).await;
        if updated.status == 200 { Ok(()) } else { Err(updated.summary()) }
    })
    .await;
}

#[test]
fn condition_follows_service_endpoints_and_certificate() {
    let mut plane = ControlPlane::new(TestStore::Sqlite);
    plane.start("a", &[]);
    let (a, runtime) = (plane.admin("a"), runtime());
    let extension = runtime.block_on(ExtensionServer::start());
    let services = "/api/v1/namespaces/default/services";
    let gadgets = || block_on(a.get(GADGETS));
    let api_service = extension.api_service("v1");
    assert_eq!(block_on(a.create(API_SERVICES, &api_service)).status, 201);
    wait_until_available(&a, NAME, "False", "ServiceNotFound");
    assert_eq!(shown(&gadgets()), "503 service unavailable");
    let port = extension.peer.address.port();
    let mut service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "ext"},
        "spec": {"type": "ClusterIP", "clusterIP": "None", "ports": [{"name": "https", "port": 1}]}});
    assert_eq!(block_on(a.create(services, &service)).status, 201);
    wait_until_available(&a, NAME, "False", "ServicePortError");
    assert_eq!(block_on(a.delete(&format!("{services}/ext"))).status, 200);
    service["spec"]["ports"][0]["port"] = port.into();
    assert_eq!(block_on(a.create(services, &service)).status, 201);
    wait_until_available(&a, NAME, "False", "EndpointsNotFound");
    let slice = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": "ext-1", "labels": {"kubernetes.io/service-name": "ext"}},
        "endpoints": [{"addresses": ["192.0.2.1"]}], "ports": [{"name": "other", "port": port}]});
    assert_eq!(block_on(a.create("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", &slice)).status, 201);
    wait_until_available(&a, NAME, "False", "MissingEndpoints");
    assert_eq!(block_on(a.delete(&format!("{services}/ext"))).status, 200);
    service["spec"] = json!({"type": "ExternalName", "externalName": "localhost"});
    assert_eq!(block_on(a.create(services, &service)).status, 201);
    wait_until_available(&a, NAME, "True", "Passed");
    assert_eq!(gadgets().status, 200);
    // A certificate of another CA.
    let stranger = runtime.block_on(ExtensionServer::start());
    block_on(update_spec(&a, NAME, |spec| spec["caBundle"] = stranger.ca_bundle().into()));
    wait_until_available(&a, NAME, "False", "FailedDiscoveryCheck");
    let (_, _, message) = block_on(available(&a, NAME));
    let url = format!("https://localhost:{port}/apis/ext.example.com/v1");
    assert_eq!(
        message,
        format!(
            "failing or missing response from {url}: Get \"{url}\": tls: failed to verify certificate: x509: certificate \
             signed by unknown authority"
        )
    );
    assert_eq!(shown(&gadgets()), "503 service unavailable");
    block_on(update_spec(&a, NAME, |spec| {
        spec.as_object_mut().unwrap().remove("caBundle");
        spec["insecureSkipTLSVerify"] = true.into();
    }));
    wait_until_available(&a, NAME, "True", "Passed");
    assert_eq!(gadgets().status, 200);
    assert_eq!(block_on(a.delete(&api_service_path(NAME))).status, 200);
    // Until this server has seen the deletion, requests are still proxied.
    wait_within(LIMIT, "the group-version is gone", async || match a.get(GADGETS).await {
        found if found.status == 404 => Ok(()),
        found => Err(found.summary()),
    });
    wait_until_listed(&a, GROUP, &[]);
}

#[test]
fn server_without_aggregated_discovery_is_listed_by_its_legacy_documents() {
    let mut plane = ControlPlane::new(TestStore::Sqlite);
    plane.start("a", &[]);
    let (a, runtime) = (plane.admin("a"), runtime());
    let extension = runtime.block_on(ExtensionServer::start());
    extension.set_mode(Mode::LegacyDiscovery);
    block_on(extension.register(&a));
    wait_until_listed(&a, GROUP, &["v1 Current gadgets"]);
}

#[test]
fn priorities_and_sources_order_discovery_as_in_kube_apiserver() {
    let mut plane = ControlPlane::new(TestStore::Sqlite);
    plane.start("a", &[]);
    let (a, runtime) = (plane.admin("a"), runtime());
    let extension = runtime.block_on(ExtensionServer::start());
    block_on(extension.register(&a));
    assert_eq!(block_on(a.create(CRD_PATH, &carts_crd())).status, 201);
    let mut later = extension.api_service("v2");
    later["spec"]["versionPriority"] = 300.into();
    assert_eq!(block_on(a.create(API_SERVICES, &later)).status, 201);
    // The server does not list v2: it has no resources, and its check fails.
    wait_until_listed(&a, GROUP, &["v2 Current ", "v1 Current gadgets"]);
    wait_until_listed(&a, "shop.example.com", &["v1 Current carts"]);
    wait_until_available(&a, "v2.ext.example.com", "False", "FailedDiscoveryCheck");
    let position = |groups: &[String], name: &str| groups.iter().position(|group| group == name).unwrap();
    let names = |list: &Value, pointer: &str| -> Vec<String> {
        let groups = list.as_array().unwrap().iter();
        groups.map(|group| group.pointer(pointer).unwrap().as_str().unwrap().to_owned()).collect()
    };
    let nopeer = format!("{DISCOVERY_ACCEPT};profile=nopeer");
    // In the merged, the local and the legacy document.
    let wait_for_order = |expected: &[&str]| {
        wait_within(LIMIT, &format!("groups are in the order {expected:?}"), async || {
            let merged = names(&get_accepting(&a, "/apis", DISCOVERY_ACCEPT).await["items"], "/metadata/name");
            let local = names(&get_accepting(&a, "/apis", &nopeer).await["items"], "/metadata/name");
            let legacy = names(&get_accepting(&a, "/apis", "application/json").await["groups"], "/name");
            let is_sorted = |groups: &Vec<String>| expected.iter().map(|name| position(groups, name)).is_sorted();
            let documents = [merged, local, legacy];
            if documents.iter().all(is_sorted) { Ok(()) } else { Err(format!("{documents:?}")) }
        });
    };
    wait_for_order(&["apps", "batch", "resource.k8s.io", GROUP, "shop.example.com"]);
    let group = block_on(a.get(&format!("/apis/{GROUP}"))).json();
    assert_eq!(group["preferredVersion"]["version"], "v2");
    // Between the built-in groups apps (17800) and batch (17400): the highest priority of a version counts.
    for (priority, order) in [(17500, ["apps", GROUP, "batch"]), (19000, [GROUP, "apps", "batch"])] {
        let path = api_service_path(NAME);
        let mut changed = block_on(a.get(&path)).json();
        changed["spec"]["groupPriorityMinimum"] = priority.into();
        assert_eq!(block_on(a.update(&path, &changed)).status, 200);
        wait_for_order(&[&order[..], &["shop.example.com"]].concat());
    }
}

#[test]
fn api_service_with_a_service_hides_a_definition_of_its_version() {
    let mut plane = ControlPlane::new(TestStore::Sqlite);
    plane.start("a", &[]);
    let (a, runtime) = (plane.admin("a"), runtime());
    let extension = runtime.block_on(ExtensionServer::start());
    block_on(extension.register(&a));
    let mut taken = extension.api_service("v1");
    taken["metadata"]["name"] = "v1.shop.example.com".into();
    taken["spec"]["group"] = "shop.example.com".into();
    assert_eq!(block_on(a.create(API_SERVICES, &taken)).status, 201);
    assert_eq!(block_on(a.create(CRD_PATH, &carts_crd())).status, 201);
    // The extension server does not serve the group.
    wait_until_available(&a, "v1.shop.example.com", "False", "FailedDiscoveryCheck");
    assert_eq!(shown(&block_on(a.get(CARTS_PATH))), "503 service unavailable");
    wait_until_listed(&a, "shop.example.com", &["v1 Current "]);
    assert_eq!(block_on(a.delete(&api_service_path("v1.shop.example.com"))).status, 200);
    wait_until_listed(&a, "shop.example.com", &["v1 Current carts"]);
    assert_eq!(block_on(a.get(CARTS_PATH)).status, 200);
    wait_until_available(&a, "v1.shop.example.com", "True", "Local");
}
