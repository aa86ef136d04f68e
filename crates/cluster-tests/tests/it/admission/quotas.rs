//! Resource quotas: charged with the object, exact over several servers, lowered by the controller.

use std::time::{Duration, Instant};

use bytes::Bytes;
use cluster_tests::wait::eventually;
use cluster_tests::{Client, ControlPlane};
use futures_util::future::join_all;
use http::Method;
use serde_json::{Value, json};

use crate::custom_resource::{CARTS_PATH, CRD_PATH, carts_crd};
use crate::{block_on, for_each_store, for_each_store_async, start_on_sqlite};

const WRITERS: usize = 64;
const LIMIT: usize = 100;
const SECRETS: &str = "/api/v1/namespaces/default/secrets";
const QUOTAS: &str = "/api/v1/namespaces/default/resourcequotas";
const WAIT_MAX: Duration = Duration::from_secs(30);

fn quota(hard: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {"hard": hard}})
}

fn secret(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}})
}

/// Creates secrets until the quota is exhausted or the server is gone. Returns how many were created.
async fn fill(client: &Client, writer: usize) -> usize {
    for number in 0..=LIMIT {
        let body = Bytes::from(secret(&format!("s-{writer}-{number}")).to_string());
        let request = client.request_builder(Method::POST, SECRETS).header("content-type", "application/json");
        let Ok(response) = client.try_send(request, body).await else { return number };
        if response.status != 201 {
            let text = response.summary();
            let is_quota = text.contains(
                "is forbidden: exceeded quota: q, requested: secrets=1, used: secrets=100, limited: secrets=100",
            );
            assert!(response.status == 403 && is_quota, "{text}");
            return number;
        }
    }
    panic!("writer {writer} was not stopped by the quota")
}

async fn check_exact(client: &Client) {
    let exist = client.get(SECRETS).await.json()["items"].as_array().map_or(0, Vec::len);
    let used = client.get(&format!("{QUOTAS}/q")).await.json()["status"]["used"]["secrets"].clone();
    assert_eq!((exist, used), (LIMIT, json!(LIMIT.to_string())));
}

#[test]
fn writers_through_three_servers_fill_a_quota_exactly() {
    ControlPlane::for_each_store(|mut plane| {
        for name in ["a", "b", "c"] {
            plane.start(name, &[]);
        }
        let clients = ["a", "b", "c"].map(|name| plane.admin(name));
        block_on(async {
            let created = clients[0].create(QUOTAS, &quota(&json!({"secrets": "100"}))).await;
            assert_eq!(created.status, 201, "{}", created.summary());
            let writers = (0..WRITERS).map(|writer| fill(&clients[writer % 3], writer));
            let created: usize = join_all(writers).await.into_iter().sum();
            assert_eq!(created, LIMIT);
            check_exact(&clients[1]).await;
        });
    });
}

#[test]
fn quota_is_exact_after_a_server_is_killed() {
    ControlPlane::for_each_store(|mut plane| {
        for name in ["a", "b", "c"] {
            plane.start(name, &[]);
        }
        let clients = ["a", "b", "c"].map(|name| plane.admin(name));
        let plane = parking_lot::Mutex::new(plane);
        block_on(async {
            assert_eq!(clients[0].create(QUOTAS, &quota(&json!({"secrets": "100"}))).await.status, 201);
            let writers = join_all((0..WRITERS).map(|writer| fill(&clients[writer % 3], writer)));
            let killing = async {
                let mut exist = 0;
                let started = Instant::now();
                while exist < LIMIT / 5 && started.elapsed() < WAIT_MAX {
                    exist = clients[0].get(SECRETS).await.json()["items"].as_array().map_or(0, Vec::len);
                }
                plane.lock().kill("c");
            };
            futures_util::future::join(writers, killing).await;
            check_exact(&clients[0]).await;
        });
    });
}

#[test]
fn new_quota_counts_at_once_on_every_server() {
    ControlPlane::for_each_store(|mut plane| {
        for name in ["a", "b"] {
            plane.start(name, &[]);
        }
        let [first, second] = ["a", "b"].map(|name| plane.admin(name));
        block_on(async {
            for round in 0..20 {
                let name = format!("n-{round}");
                let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
                assert_eq!(first.create("/api/v1/namespaces", &namespace).await.status, 201);
                let path = |resource: &str| format!("/api/v1/namespaces/{name}/{resource}");
                // The second server has the namespace in its cache before there is a quota.
                assert_eq!(second.create(&path("secrets"), &secret("before")).await.status, 201);
                let created = first.create(&path("resourcequotas"), &quota(&json!({"secrets": "1"}))).await;
                assert_eq!(created.status, 201, "{}", created.summary());
                let refused = second.create(&path("secrets"), &secret("after")).await;
                assert_eq!(refused.status, 403, "round {round}: {}", refused.summary());
                let mut raised = quota(&json!({"secrets": "9", "configmaps": "0"}));
                raised["metadata"]["resourceVersion"] = created.json()["metadata"]["resourceVersion"].clone();
                let updated = first.update(&format!("{}/q", path("resourcequotas")), &raised).await;
                assert_eq!(updated.status, 200, "{}", updated.summary());
                let config_map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}});
                let refused = second.create(&path("configmaps"), &config_map).await;
                assert_eq!(refused.status, 403, "round {round}: {}", refused.summary());
            }
        });
    });
}

#[test]
fn each_resource_of_a_quota_is_counted_before_its_first_charge() {
    for_each_store_async(async |client| {
        assert_eq!(client.create(CRD_PATH, &carts_crd()).await.status, 201);
        let cart =
            |name: &str| json!({"apiVersion": "shop.example.com/v1", "kind": "Cart", "metadata": {"name": name}});
        eventually("the custom resource is served", async || match client.get(CARTS_PATH).await.status.as_u16() {
            200 => Ok(()),
            code => Err(code.to_string()),
        })
        .await;
        let created = client.create(CARTS_PATH, &cart("before")).await;
        assert_eq!(created.status, 201, "{}", created.summary());
        assert_eq!(client.create(SECRETS, &secret("before")).await.status, 201);
        let limits = json!({"count/carts.shop.example.com": "2", "secrets": "2"});
        assert_eq!(client.create(QUOTAS, &quota(&limits)).await.status, 201);
        // No controller runs: the server counts what exists, per resource.
        assert_eq!(client.create(SECRETS, &secret("second")).await.status, 201);
        assert_eq!(client.create(CARTS_PATH, &cart("second")).await.status, 201);
        let refused = client.create(CARTS_PATH, &cart("third")).await.summary();
        assert_eq!(
            refused,
            "403 carts.shop.example.com \"third\" is forbidden: exceeded quota: q, requested: count/carts.shop.example.com=1, used: count/carts.shop.example.com=2, limited: count/carts.shop.example.com=2"
        );
        assert_eq!(client.create(SECRETS, &secret("third")).await.status, 403);
        let status = client.get(&format!("{QUOTAS}/q")).await.json()["status"].clone();
        assert_eq!(status, json!({"hard": limits, "used": limits}));
    });
}

fn pod(name: &str, cpu: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"serviceAccountName": "default",
        "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}]}})
}

#[test]
fn pods_are_charged_by_scope_and_dry_run_charges_nothing() {
    for_each_store(|server| {
        let client = server.admin();
        let pods = "/api/v1/namespaces/default/pods";
        block_on(async {
            let mut scoped = quota(&json!({"pods": "2", "requests.cpu": "1"}));
            scoped["spec"]["scopes"] = json!(["NotTerminating"]);
            assert_eq!(client.create(QUOTAS, &scoped).await.status, 201);
            let refused = client.create(pods, &pod("big", "1500m")).await.summary();
            assert_eq!(
                refused,
                "403 pods \"big\" is forbidden: exceeded quota: q, requested: requests.cpu=1500m, used: requests.cpu=0, limited: requests.cpu=1"
            );
            let mut silent = pod("silent", "1");
            silent["spec"]["containers"][0].as_object_mut().unwrap().remove("resources");
            let refused = client.create(pods, &silent).await.summary();
            assert_eq!(refused, "403 pods \"silent\" is forbidden: failed quota: q: must specify requests.cpu for: c");
            let tried = client.create(&format!("{pods}?dryRun=All"), &pod("dry", "600m")).await;
            assert_eq!(tried.status, 201, "{}", tried.summary());
            let created = client.create(pods, &pod("one", "600m")).await;
            assert_eq!(created.status, 201, "{}", created.summary());
            let used = client.get(&format!("{QUOTAS}/q")).await.json()["status"]["used"].clone();
            assert_eq!(used, json!({"pods": "1", "requests.cpu": "600m"}));
            let mut ending = pod("ending", "2");
            ending["spec"]["activeDeadlineSeconds"] = json!(60);
            let created = client.create(pods, &ending).await;
            assert_eq!(created.status, 201, "outside of the scope: {}", created.summary());
        });
    });
}

#[test]
fn exhausted_quota_refuses_before_a_taken_name_does() {
    for_each_store_async(async |client| {
        assert_eq!(client.create(QUOTAS, &quota(&json!({"secrets": "1"}))).await.status, 201);
        assert_eq!(client.create(SECRETS, &secret("one")).await.status, 201);
        let refused = client.create(SECRETS, &secret("one")).await.summary();
        assert!(refused.starts_with("403 secrets \"one\" is forbidden: exceeded quota: q"), "{refused}");
        let raised = json!({"spec": {"hard": {"secrets": "2"}}}).to_string();
        let path = format!("{QUOTAS}/q");
        let merge = "application/merge-patch+json";
        assert_eq!(client.send_body(Method::PATCH, &path, merge, raised.into()).await.status, 200);
        assert_eq!(client.create(SECRETS, &secret("one")).await.status, 409);
        let used = client.get(&path).await.json()["status"]["used"].clone();
        assert_eq!(used, json!({"secrets": "1"}), "a create that fails is not charged");
    });
}

#[test]
fn usage_that_another_writer_lowers_is_counted_again() {
    for_each_store_async(async |client| {
        assert_eq!(client.create(QUOTAS, &quota(&json!({"secrets": "3"}))).await.status, 201);
        for name in ["one", "two"] {
            assert_eq!(client.create(SECRETS, &secret(name)).await.status, 201);
        }
        let path = format!("{QUOTAS}/q");
        let mut lowered = client.get(&path).await.json();
        lowered["status"]["used"]["secrets"] = json!("0");
        let updated = client.update(&format!("{path}/status"), &lowered).await;
        assert_eq!(updated.status, 200, "{}", updated.summary());
        assert_eq!(client.create(SECRETS, &secret("three")).await.status, 201);
        assert_eq!(client.get(&path).await.json()["status"]["used"], json!({"secrets": "3"}));
        assert_eq!(client.create(SECRETS, &secret("four")).await.status, 403);
    });
}

#[test]
fn controller_fills_status_and_frees_after_deletion() {
    let folder = tempfile::tempdir().unwrap();
    let server = start_on_sqlite(folder.path(), &["--controllers=*"]);
    let client = server.admin();
    block_on(async {
        assert_eq!(client.create(SECRETS, &secret("before")).await.status, 201);
        assert_eq!(client.create(QUOTAS, &quota(&json!({"secrets": "2", "count/secrets": "5"}))).await.status, 201);
        let used = async |expected: Value| {
            eventually("the quota is true", async || {
                let status = client.get(&format!("{QUOTAS}/q")).await.json()["status"].clone();
                if status["used"] == expected { Ok(()) } else { Err(status.to_string()) }
            })
            .await;
        };
        used(json!({"secrets": "1", "count/secrets": "1"})).await;
        assert_eq!(client.create(SECRETS, &secret("second")).await.status, 201);
        assert_eq!(client.create(SECRETS, &secret("third")).await.status, 403);
        assert_eq!(client.delete(&format!("{SECRETS}/before")).await.status, 200);
        used(json!({"secrets": "1", "count/secrets": "1"})).await;
        let created = client.create(SECRETS, &secret("third")).await;
        assert_eq!(created.status, 201, "{}", created.summary());
    });
}
