//! Our server beside a real kube-apiserver on one etcd: each forwards to the other and reads what the other wrote.
//!
//! Skipped unless `KUBEBUILDER_ASSETS` names a folder with a `kube-apiserver` 1.35 or newer.

use std::collections::BTreeSet;

use cluster_tests::kube_apiserver::KubeApiserver;
use cluster_tests::wait::{eventually, metric_value};
use cluster_tests::{Client, ControlPlane, WatchReader};
use http::Method;

use crate::custom_resource::{CARTS_PATH, CRD_PATH, carts_crd};
use crate::*;

/// `storage.k8s.io/v1` serves it from 1.34 on.
const CLASSES_PATH: &str = "/apis/storage.k8s.io/v1/volumeattributesclasses";
const JOBS_PATH: &str = "/apis/batch/v1/namespaces/default/jobs";
/// Our server is older, and the real one has batch/v1 disabled, which ours serves.
const OUR_FLAGS: [&str; 2] = ["--emulated-version=1.33", "--peer-response-headers"];
const KUBE_APISERVER_FLAGS: [&str; 1] = ["--runtime-config=batch/v1=false"];

fn volume_attributes_class(name: &str) -> Value {
    json!({
        "kind": "VolumeAttributesClass", "apiVersion": "storage.k8s.io/v1", "metadata": {"name": name},
        "driverName": "disks.example.com", "parameters": {"iops": "100"},
    })
}

fn job(name: &str) -> Value {
    let spec = json!({"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]});
    json!({
        "kind": "Job", "apiVersion": "batch/v1", "metadata": {"name": name}, "spec": {"template": {"spec": spec}},
    })
}

async fn expect_ok(client: &Client, path: &str) -> Result<(), String> {
    let found = client.get(path).await;
    if found.status == 200 { Ok(()) } else { Err(found.summary()) }
}

/// Number of requests for a resource that a server has forwarded successfully.
async fn forwarded_count(client: &Client, group: &str, resource: &str) -> u64 {
    let series = |code: &str| {
        format!(
            "apiserver_rerouted_request_total{{code=\"{code}\",group=\"{group}\",resource=\"{resource}\",version=\"v1\"}}"
        )
    };
    metric_value(client, &series("200")).await + metric_value(client, &series("201")).await
}

/// Exercises all verbs of a kind through `client`, with `other` seeing the result. Returns the number of requests.
async fn check_all_verbs(client: &Client, other: &Client, collection: &str, object: &Value) -> u64 {
    let mut watch = WatchReader::open(client, &format!("{collection}?watch=true&resourceVersion=0")).await;
    let name = object["metadata"]["name"].as_str().unwrap();
    let one = format!("{collection}/{name}");
    let created = client.create(collection, object).await;
    assert_eq!(created.status, 201, "{}", created.summary());
    let [got, seen] = [client.get(&one).await.json(), other.get(&one).await.json()];
    assert_eq!(got["metadata"]["uid"], seen["metadata"]["uid"]);
    assert_eq!(got["metadata"]["resourceVersion"], seen["metadata"]["resourceVersion"]);
    let patch = json!({"metadata": {"labels": {"step": "patched"}, "finalizers": null}}).to_string();
    let patched = client.send_body(Method::PATCH, &one, "application/merge-patch+json", patch.into()).await;
    assert_eq!(patched.status, 200, "{}", patched.summary());
    let mut wanted = other.get(&one).await.json();
    wanted["metadata"]["labels"]["step"] = "updated".into();
    // The serving server writes, and the other's watch reports it.
    let updated = other.update(&one, &wanted).await;
    assert_eq!(updated.status, 200, "{}", updated.summary());
    assert_eq!(client.get(collection).await.json()["items"][0]["metadata"]["labels"]["step"], "updated");
    let deleted = client
        .send_body(Method::DELETE, &one, "application/json", r#"{"propagationPolicy":"Background"}"#.into())
        .await;
    assert_eq!(deleted.status, 200, "{}", deleted.summary());
    let gone = client.get(&one).await;
    assert_eq!((gone.status.as_u16(), gone.json()["details"]["name"].as_str()), (404, Some(name)));
    let mut events = Vec::new();
    for _ in 0..4 {
        events.push(watch.next_event_summary().await);
    }
    let expected = ["ADDED", "MODIFIED", "MODIFIED", "DELETED"].map(|kind| format!("{kind} {name}"));
    assert_eq!(events, expected);
    5
}

/// Requests whose path or method fits no route of the resource, for resources of either server.
pub(crate) const ROUTE_MISMATCHES: [&str; 10] = [
    "GET /apis/storage.k8s.io/v1/namespaces/default/volumeattributesclasses",
    "GET /apis/storage.k8s.io/v1/watch/namespaces/default/volumeattributesclasses",
    "DELETE /apis/storage.k8s.io/v1/namespaces/default/volumeattributesclasses/one",
    "PUT /apis/storage.k8s.io/v1/volumeattributesclasses",
    "OPTIONS /apis/storage.k8s.io/v1/volumeattributesclasses",
    "GET /apis/resource.k8s.io/v1/resourceclaims/x",
    "POST /apis/resource.k8s.io/v1/resourceclaims",
    "GET /apis/batch/v1/jobs/x",
    "POST /apis/batch/v1/jobs",
    "DELETE /apis/batch/v1/jobs",
];

pub(crate) async fn send_request(client: &Client, request: &str) -> cluster_tests::client::FullResponse {
    let (method, path) = request.split_once(' ').unwrap();
    let method: Method = method.parse().unwrap();
    client.send(client.request_builder(method, path).header("content-type", "application/json"), "{}".into()).await
}

#[test]
fn route_mismatch_is_rejected_alike_by_kube_apiserver_and_unskew() {
    let etcd = Etcd::start();
    let mut plane = ControlPlane::new(TestStore::Etcd(&etcd));
    plane.start("ours", &OUR_FLAGS);
    let server = KubeApiserver::start(plane.folder(), &etcd, &KUBE_APISERVER_FLAGS);
    let (ours, real) = (plane.admin("ours"), server.admin());
    block_on(async {
        eventually("our server discovers kube-apiserver", async || expect_ok(&ours, CLASSES_PATH).await).await;
        eventually("kube-apiserver discovers our server", async || expect_ok(&real, JOBS_PATH).await).await;
        for request in ROUTE_MISMATCHES {
            let [by_ours, by_real] = [send_request(&ours, request).await, send_request(&real, request).await];
            assert!(by_real.status == 404 || by_real.status == 405, "{request}: {}", by_real.summary());
            assert_eq!(by_ours.summary(), by_real.summary(), "{request}");
        }
        // Custom resources have routes of their own.
        assert_eq!(real.create(CRD_PATH, &carts_crd()).await.status, 201);
        for (server, client) in [("our server", &ours), ("kube-apiserver", &real)] {
            let served = format!("{server} serves the custom resource");
            eventually(&served, async || expect_ok(client, CARTS_PATH).await).await;
        }
        for request in ["GET /apis/shop.example.com/v1/carts/a".to_owned(), format!("HEAD {CARTS_PATH}")] {
            let [by_ours, by_real] = [send_request(&ours, &request).await, send_request(&real, &request).await];
            assert_eq!((by_ours.status, by_ours.body), (by_real.status, by_real.body), "{request}");
        }
    });
}

#[test]
fn kube_apiserver_and_unskew_serve_each_others_resources() {
    let etcd = Etcd::start();
    let mut plane = ControlPlane::new(TestStore::Etcd(&etcd));
    plane.start("ours", &OUR_FLAGS);
    let server = KubeApiserver::start(plane.folder(), &etcd, &KUBE_APISERVER_FLAGS);
    let (ours, real) = (plane.admin("ours"), server.admin());
    block_on(async {
        eventually("our server discovers kube-apiserver", async || expect_ok(&ours, CLASSES_PATH).await).await;
        eventually("kube-apiserver discovers our server", async || expect_ok(&real, JOBS_PATH).await).await;
        let sent = check_all_verbs(&ours, &real, CLASSES_PATH, &volume_attributes_class("one")).await;
        let count = forwarded_count(&ours, "storage.k8s.io", "volumeattributesclasses").await;
        assert!(count >= sent, "our server forwarded {count} of {sent}");
        let sent = check_all_verbs(&real, &ours, JOBS_PATH, &job("one")).await;
        let count = forwarded_count(&real, "batch", "jobs").await;
        assert!(count >= sent, "kube-apiserver forwarded {count} of {sent}");
        let [of_ours, of_real] = [list_merged_resources(&ours).await, list_merged_resources(&real).await];
        assert_eq!(of_ours.symmetric_difference(&of_real).collect::<Vec<_>>(), Vec::<&String>::new());
        let has = |name: &str| of_ours.iter().any(|listed| listed.contains(name));
        assert!(has("\"volumeattributesclasses\"") && has("\"jobs\"") && of_ours.len() > 50, "{of_ours:?}");
        check_objects_are_read_by_both(&ours, &real).await;
        // exec reaches kube-apiserver as the authenticated user: it returns 404 for the pod, not 401.
        let shell = ours.get("/api/v1/namespaces/default/pods/none/exec?command=sh").await;
        assert_eq!(shell.summary(), "404 pods \"none\" not found");
    });
}

/// Resources and subresources with their verbs from the merged discovery document.
async fn list_merged_resources(client: &Client) -> BTreeSet<String> {
    let merged = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let request = client.request_builder(Method::GET, "/apis").header("accept", merged);
    let document = client.send(request, bytes::Bytes::new()).await.json();
    let mut listed = BTreeSet::new();
    for group in items(&document, "items") {
        for version in items(group, "versions") {
            for resource in items(version, "resources") {
                let [group, version] = [&group["metadata"]["name"], &version["version"]];
                let name = format!("{group}/{version}/{}", resource["resource"]);
                listed.insert(format!("{name} {} {} {}", resource["scope"], resource["responseKind"], verbs(resource)));
                for part in items(resource, "subresources") {
                    listed.insert(format!("{name}/{} {}", part["subresource"], verbs(part)));
                }
            }
        }
    }
    listed
}

fn items<'a>(value: &'a Value, field: &str) -> &'a [Value] {
    value[field].as_array().map_or(&[], Vec::as_slice)
}

fn verbs(value: &Value) -> String {
    let verbs: BTreeSet<&str> = items(value, "verbs").iter().filter_map(Value::as_str).collect();
    verbs.into_iter().collect::<Vec<_>>().join(",")
}

/// Writes objects of many kinds through each server and reads them through both.
async fn check_objects_are_read_by_both(ours: &Client, real: &Client) {
    let pod = json!({"containers": [{"name": "c", "image": "i"}]});
    let labels = json!({"a": "b"});
    let template = json!({"metadata": {"labels": labels}, "spec": pod});
    let workload = json!({"selector": {"matchLabels": labels}, "template": template});
    let target = json!({"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"});
    let scaler = json!({"maxReplicas": 3, "scaleTargetRef": target});
    let rules = json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]);
    let namespaced = |group: &str, resource: &str| format!("{group}/namespaces/default/{resource}");
    for (collection, content) in [
        (namespaced("/api/v1", "configmaps"), json!({"data": {"a": "1"}})),
        (namespaced("/api/v1", "secrets"), json!({"data": {"a": "MQ=="}, "type": "Opaque"})),
        (namespaced("/api/v1", "pods"), json!({"spec": pod})),
        (namespaced("/api/v1", "services"), json!({"spec": {"clusterIP": "None", "ports": [{"port": 80}]}})),
        (namespaced("/apis/apps/v1", "deployments"), json!({"spec": workload})),
        (namespaced("/apis/apps/v1", "daemonsets"), json!({"spec": workload})),
        (namespaced("/apis/autoscaling/v1", "horizontalpodautoscalers"), json!({"spec": scaler})),
        (namespaced("/apis/autoscaling/v2", "horizontalpodautoscalers"), json!({"spec": scaler})),
        (namespaced("/apis/policy/v1", "poddisruptionbudgets"), json!({"spec": {"minAvailable": "50%"}})),
        (namespaced("/apis/rbac.authorization.k8s.io/v1", "roles"), json!({"rules": rules})),
        ("/apis/scheduling.k8s.io/v1/priorityclasses".to_owned(), json!({"value": 7})),
        ("/apis/storage.k8s.io/v1/storageclasses".to_owned(), json!({"provisioner": "p.example.com"})),
    ] {
        let version = collection.split('/').nth(3).unwrap_or_default();
        for (writer, name) in [(ours, format!("ours-{version}")), (real, format!("real-{version}"))] {
            let mut object = content.clone();
            object["metadata"]["name"] = name.clone().into();
            let created = writer.create(&collection, &object).await;
            assert_eq!(created.status, 201, "{collection} {name}: {}", created.summary());
            let path = format!("{collection}/{name}");
            let [by_ours, by_real] = [ours.get(&path).await.json(), real.get(&path).await.json()];
            for field in ["uid", "resourceVersion", "creationTimestamp"] {
                assert_eq!(by_ours["metadata"][field], by_real["metadata"][field], "{path}");
            }
            for field in ["data", "rules", "value", "provisioner"] {
                assert_eq!(by_ours[field], by_real[field], "{path}");
            }
        }
    }
}

#[test]
fn namespace_with_objects_of_kube_apiserver_is_deleted() {
    let etcd = Etcd::start();
    let mut plane = ControlPlane::new(TestStore::Etcd(&etcd));
    plane.start("ours", &[OUR_FLAGS[0], "--controllers=*"]);
    let server = KubeApiserver::start(plane.folder(), &etcd, &[]);
    let (ours, real) = (plane.admin("ours"), server.admin());
    block_on(async {
        // `resource.k8s.io/v1` exists from 1.34 on.
        let claims = "/apis/resource.k8s.io/v1/namespaces/going/resourceclaims";
        let made = real.create("/api/v1/namespaces", &json!({"metadata": {"name": "going"}})).await;
        assert_eq!(made.status, 201, "{}", made.summary());
        eventually("our server discovers kube-apiserver", async || expect_ok(&ours, claims).await).await;
        assert_eq!(ours.create("/api/v1/namespaces/going/configmaps", &config_map("a")).await.status, 201);
        let claim = json!({"metadata": {"name": "a"}, "spec": {}});
        let created = ours.create(claims, &claim).await;
        assert_eq!(created.status, 201, "{}", created.summary());
        assert_eq!(ours.delete("/api/v1/namespaces/going").await.status, 200);
        eventually("the namespace is emptied and gone", async || {
            match real.get("/api/v1/namespaces/going").await.status.as_u16() {
                404 => Ok(()),
                _ => Err(ours.get("/api/v1/namespaces/going").await.json()["status"].to_string()),
            }
        })
        .await;
        let left = real.get("/apis/resource.k8s.io/v1/resourceclaims").await.json();
        assert!(items(&left, "items").is_empty(), "{left}");
    });
}

#[test]
fn resource_of_dead_kube_apiserver_is_503_until_it_returns() {
    let etcd = Etcd::start();
    let mut plane = ControlPlane::new(TestStore::Etcd(&etcd));
    plane.start("ours", &OUR_FLAGS);
    let real = KubeApiserver::start(plane.folder(), &etcd, &[]);
    let ours = plane.admin("ours");
    block_on(eventually("our server discovers kube-apiserver", async || expect_ok(&ours, CLASSES_PATH).await));
    real.kill();
    let is_unavailable = async |client: &Client| {
        let refused = client.get(CLASSES_PATH).await;
        assert_eq!(refused.status, 503, "{}", refused.summary());
        assert_eq!(client.get("/apis/example.com/v1/widgets").await.status, 404);
    };
    block_on(is_unavailable(&ours));
    // A server that starts meanwhile knows from the store what the dead one served.
    plane.stop("ours");
    plane.start("ours", &OUR_FLAGS);
    let ours = plane.admin("ours");
    block_on(is_unavailable(&ours));
    let _real = KubeApiserver::start(plane.folder(), &etcd, &[]);
    block_on(eventually("kube-apiserver is used again", async || expect_ok(&ours, CLASSES_PATH).await));
}

async fn expect_status(client: &Client, path: &str, status: u16) -> Result<(), String> {
    let found = client.get(path).await;
    if found.status == status { Ok(()) } else { Err(found.summary()) }
}

#[test]
fn custom_resource_is_served_by_unskew_also_without_kube_apiserver() {
    let etcd = Etcd::start();
    let mut plane = ControlPlane::new(TestStore::Etcd(&etcd));
    plane.start("ours", &OUR_FLAGS);
    let server = KubeApiserver::start(plane.folder(), &etcd, &[]);
    let (ours, real) = (plane.admin("ours"), server.admin());
    block_on(async {
        eventually("our server discovers kube-apiserver", async || expect_ok(&ours, CLASSES_PATH).await).await;
        assert_eq!(ours.get(CARTS_PATH).await.status, 404);
        let created = ours.create(CRD_PATH, &carts_crd()).await;
        assert_eq!(created.status, 201, "{}", created.summary());
        eventually("kube-apiserver serves the custom resource", async || expect_ok(&real, CARTS_PATH).await).await;
        expect_ok(&ours, CARTS_PATH).await.unwrap();
        let cart = json!({"apiVersion": "shop.example.com/v1", "kind": "Cart", "metadata": {"name": "a"}, "price": 3});
        assert_eq!(ours.create(CARTS_PATH, &cart).await.status, 201);
        assert_eq!(real.get(&format!("{CARTS_PATH}/a")).await.json()["price"], 3);
        assert!(list_merged_resources(&ours).await.iter().any(|name| name.contains("\"carts\"")));
    });
    server.kill();
    plane.stop("ours");
    plane.start("ours", &OUR_FLAGS);
    let ours = plane.admin("ours");
    block_on(async {
        assert_eq!(ours.get(&format!("{CARTS_PATH}/a")).await.json()["price"], 3);
        assert_eq!(ours.delete(&format!("{CRD_PATH}/carts.shop.example.com")).await.status, 200);
        eventually("the custom resource is gone", async || expect_status(&ours, CARTS_PATH, 404).await).await;
    });
}
