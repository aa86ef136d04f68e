//! The automatic APIServices, and what becomes of them while servers of several releases share a store.

use super::*;
use crate::custom_resource::{CRD_PATH, carts_crd};

const LABEL: &str = "kube-aggregator.kubernetes.io/automanaged";

/// Label, priorities and the condition `Available` of an APIService.
fn summary(api_service: &Value) -> Value {
    let condition = &api_service["status"]["conditions"][0];
    json!([
        api_service["metadata"]["labels"][LABEL],
        api_service["spec"]["groupPriorityMinimum"],
        api_service["spec"]["versionPriority"],
        condition["status"],
        condition["reason"],
        condition["message"],
    ])
}

#[track_caller]
fn expect_status(client: &Client, name: &str, expected: u16) {
    wait_within(LIMIT, &format!("{name} gets {expected}"), async || {
        let found = client.get(&api_service_path(name)).await;
        if found.status == expected { Ok(()) } else { Err(found.summary()) }
    });
}

#[test]
fn automatic_api_services_follow_built_in_versions_and_definitions() {
    ControlPlane::for_each_store(|mut plane| {
        plane.start("a", &["--emulated-version=1.36"]);
        let a = plane.admin("a");
        let local = "Local APIServices are always available";
        for (name, priorities) in [("v1.", [18000, 1]), ("v1.apps", [17800, 15]), ("v2.autoscaling", [17500, 30])] {
            expect_status(&a, name, 200);
            let found = block_on(a.get(&api_service_path(name))).json();
            assert_eq!(summary(&found), json!(["onstart", priorities[0], priorities[1], "True", "Local", local]));
        }
        expect_status(&a, "v1.apiregistration.k8s.io", 404);
        let carts = carts_crd();
        let (group, version) = (&carts["spec"]["group"], &carts["spec"]["versions"][0]["name"]);
        let name = format!("{}.{}", version.as_str().unwrap(), group.as_str().unwrap());
        let crd = format!("{CRD_PATH}/{}", carts["metadata"]["name"].as_str().unwrap());
        assert_eq!(block_on(a.create(CRD_PATH, &carts)).status, 201);
        expect_status(&a, &name, 200);
        let found = block_on(a.get(&api_service_path(&name))).json();
        assert_eq!(summary(&found), json!(["true", 1000, 100, "True", "Local", local]));
        assert_eq!(block_on(a.delete(&api_service_path(&name))).status, 200);
        expect_status(&a, &name, 200);
        assert_eq!(block_on(a.delete(&crd)).status, 200);
        expect_status(&a, &name, 404);
    });
}

#[test]
fn automatic_api_service_of_newer_server_outlives_the_start_of_an_older_one() {
    ControlPlane::for_each_store(|mut plane| {
        let linger = "--peer-linger=3s";
        plane.start("new", &["--emulated-version=1.36", linger]);
        let only_new = "v1.resource.k8s.io";
        expect_status(&plane.admin("new"), only_new, 200);
        let uid = |client: &Client| block_on(client.get(&api_service_path(only_new))).json()["metadata"]["uid"].clone();
        let first = uid(&plane.admin("new"));
        plane.start("old", &["--emulated-version=1.33", linger]);
        let old = plane.admin("old");
        // The old server has reconciled once it has replaced a built-in one that it serves.
        assert_eq!(block_on(old.delete(&api_service_path("v1.apps"))).status, 200);
        expect_status(&old, "v1.apps", 200);
        assert_eq!(uid(&old), first, "no server has removed or replaced it");
        plane.stop("new");
        expect_status(&old, only_new, 404);
    });
}

#[test]
fn users_api_service_is_never_touched() {
    let mut plane = ControlPlane::new(cluster_tests::TestStore::Sqlite);
    plane.start("a", &[]);
    let a = plane.admin("a");
    let own = json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": "v7.own.example"},
        "spec": {"group": "own.example", "version": "v7", "groupPriorityMinimum": 10, "versionPriority": 20}});
    assert_eq!(block_on(a.create(API_SERVICES, &own)).status, 201);
    wait_within(LIMIT, "the condition of a local APIService", async || {
        let found = a.get(&api_service_path("v7.own.example")).await.json();
        let expected = json!([null, 10, 20, "True", "Local", "Local APIServices are always available"]);
        if summary(&found) == expected { Ok(()) } else { Err(found.to_string()) }
    });
    // The controller passes over it again after a change of another one.
    assert_eq!(block_on(a.delete(&api_service_path("v1.apps"))).status, 200);
    expect_status(&a, "v1.apps", 200);
    assert_eq!(block_on(a.get(&api_service_path("v7.own.example"))).status, 200);
}
