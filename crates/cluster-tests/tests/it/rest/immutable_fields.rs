//! Immutable fields, and parts of objects that have their own subresources.

use cluster_tests::client::FullResponse;
use cluster_tests::tools::{is_skipped, kubectl};
use http::Method;

use crate::*;

const DEPLOYMENTS_PATH: &str = "/apis/apps/v1/namespaces/default/deployments";
const PODS_PATH: &str = "/api/v1/namespaces/default/pods";
const SERVICES_PATH: &str = "/api/v1/namespaces/default/services";

fn pod(name: &str) -> Value {
    json!({"metadata": {"name": name, "labels": {"app": name}}, "spec": {"containers": [{"name": "a", "image": "b:1"}]}})
}

fn pod_template(app: &str) -> Value {
    json!({"metadata": {"labels": {"app": app}}, "spec": {"containers": [{"name": "a", "image": "b:1"}]}})
}

fn deployment(name: &str, app: &str) -> Value {
    let spec = json!({"selector": {"matchLabels": {"app": app}}, "template": pod_template(app)});
    json!({"metadata": {"name": name}, "spec": spec})
}

async fn merge_patch(client: &Client, path: &str, patch: &Value) -> FullResponse {
    client.send_body(Method::PATCH, path, "application/merge-patch+json", patch.to_string().into()).await
}

#[test]
fn immutable_selector_is_rejected_by_update_and_patch() {
    for_each_store_async(async |client| {
        let one = format!("{DEPLOYMENTS_PATH}/web");
        assert_eq!(client.create(DEPLOYMENTS_PATH, &deployment("web", "web")).await.status, 201);
        let refused = "422 Deployment.apps \"web\" is invalid: spec.selector: Invalid value: \
                       {\"matchLabels\":{\"app\":\"other\"}}: field is immutable";
        assert_eq!(client.update(&one, &deployment("web", "other")).await.summary(), refused);
        let patch = json!({"spec": {"selector": {"matchLabels": {"app": "other"}}}});
        let answer = merge_patch(&client, &one, &patch).await;
        let both = "422 Deployment.apps \"web\" is invalid: [spec.template.metadata.labels: Invalid value: {\"app\":\"web\"}: \
                    `selector` does not match template `labels`, spec.selector: Invalid value: \
                    {\"matchLabels\":{\"app\":\"other\"}}: field is immutable]";
        assert_eq!(answer.summary(), both);
        let cause = &answer.json()["details"]["causes"][1];
        assert_eq!((&cause["reason"], &cause["field"]), (&json!("FieldValueInvalid"), &json!("spec.selector")));
        assert_eq!(merge_patch(&client, &one, &json!({"spec": {"replicas": 3}})).await.status, 200);
        assert_eq!(client.get(&one).await.json()["spec"]["selector"], json!({"matchLabels": {"app": "web"}}));
    });
}

#[test]
fn pod_update_may_change_the_image_only() {
    for_each_store_async(async |client| {
        assert_eq!(client.create(PODS_PATH, &pod("a")).await.status, 201);
        let one = format!("{PODS_PATH}/a");
        let image = r#"[{"op":"replace","path":"/spec/containers/0/image","value":"b:2"}]"#;
        let patched = client.send_body(Method::PATCH, &one, "application/json-patch+json", image.into()).await;
        assert_eq!(patched.json()["metadata"]["generation"], 2, "{}", patched.summary());
        let moved = merge_patch(&client, &one, &json!({"spec": {"nodeName": "n"}})).await;
        let prefix = "422 Pod \"a\" is invalid: spec: Forbidden: pod updates may not change fields other than \
                      `spec.containers[*].image`,";
        assert!(moved.summary().starts_with(prefix), "{}", moved.summary());
        assert!(moved.summary().contains("\n+ \"NodeName\": \"n\",\n"), "{}", moved.summary());
        let mut read = client.get(&one).await.json();
        read["metadata"]["labels"]["b"] = json!("c");
        read["spec"]["hostNetwork"] = json!(false);
        assert_eq!(client.update(&one, &read).await.status, 200, "an unchanged object may be written back");
    });
}

#[test]
fn service_update_keeps_cluster_ips() {
    for_each_store_async(async |client| {
        let service = |spec: Value| json!({"metadata": {"name": "s"}, "spec": spec});
        let created = client
            .create(SERVICES_PATH, &service(json!({"clusterIP": "10.0.0.9", "ports": [{"port": 80}]})))
            .await
            .json();
        assert_eq!(created["spec"]["clusterIPs"], json!(["10.0.0.9"]));
        let one = format!("{SERVICES_PATH}/s");
        let replaced = client.update(&one, &service(json!({"ports": [{"port": 81}]}))).await.json();
        assert_eq!(replaced["spec"]["clusterIP"], "10.0.0.9", "{replaced}");
        let other = client.update(&one, &service(json!({"clusterIP": "10.0.0.10", "ports": [{"port": 81}]}))).await;
        assert_eq!(
            other.summary(),
            "422 Service \"s\" is invalid: spec.clusterIPs[0]: Invalid value: [\"10.0.0.10\"]: may not change once set"
        );
    });
}

/// Minimal objects of kinds whose updates are validated.
fn sample_objects() -> Vec<(&'static str, Value)> {
    let named = |mut object: Value| {
        object["metadata"]["name"] = json!("sample");
        object
    };
    let set = json!({"serviceName": "s", "selector": {"matchLabels": {"app": "a"}}, "template": pod_template("a"),
        "volumeClaimTemplates": [{"metadata": {"name": "v"}, "spec": {"accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}}}}]});
    let mut job = json!({"template": pod_template("a")});
    job["template"]["spec"]["restartPolicy"] = json!("Never");
    let claim = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1024Mi"}}});
    let volume = json!({"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/a"}});
    let objects = vec![
        (PODS_PATH, pod("sample")),
        (DEPLOYMENTS_PATH, deployment("sample", "a")),
        ("/apis/apps/v1/namespaces/default/statefulsets", json!({"spec": set})),
        ("/apis/apps/v1/namespaces/default/daemonsets", deployment("sample", "a")),
        ("/apis/batch/v1/namespaces/default/jobs", json!({"spec": job})),
        (SERVICES_PATH, json!({"spec": {"type": "LoadBalancer", "ports": [{"port": 80}]}})),
        ("/api/v1/namespaces/default/persistentvolumeclaims", json!({"spec": claim})),
        ("/api/v1/persistentvolumes", json!({"spec": volume})),
        ("/api/v1/namespaces/default/secrets", json!({"stringData": {"a": "b"}})),
        ("/api/v1/nodes", json!({"spec": {"providerID": "p"}})),
        ("/apis/storage.k8s.io/v1/storageclasses", json!({"provisioner": "p"})),
        ("/apis/storage.k8s.io/v1/csidrivers", json!({"spec": {"attachRequired": true}})),
        ("/apis/scheduling.k8s.io/v1/priorityclasses", json!({"value": 7})),
        ("/apis/node.k8s.io/v1/runtimeclasses", json!({"handler": "h"})),
    ];
    objects.into_iter().map(|(path, object)| (path, named(object))).collect()
}

#[test]
fn objects_stored_by_one_release_are_updated_by_another() {
    let etcd = Etcd::start();
    for store in [TestStore::Sqlite, TestStore::Etcd(&etcd)] {
        let folder = tempfile::tempdir().unwrap();
        let releases = ["1.31", "1.37", "1.33"];
        for (turn, release) in releases.iter().enumerate() {
            let server = RunningServer::start(folder.path(), store, &[&format!("--emulated-version={release}")]);
            let client = server.admin();
            block_on(async {
                for (path, object) in sample_objects() {
                    if turn == 0 {
                        let created = client.create(path, &object).await;
                        assert_eq!(created.status, 201, "{path}: {}", created.summary());
                    }
                    let one = format!("{path}/sample");
                    let mut read = client.get(&one).await.json();
                    read["metadata"]["labels"]["turn"] = json!(format!("t{turn}"));
                    let updated = client.update(&one, &read).await;
                    assert_eq!(updated.status, 200, "{one} at {release}: {}", updated.summary());
                    let patch = json!({"metadata": {"annotations": {"turn": format!("t{turn}")}}});
                    assert_eq!(merge_patch(&client, &one, &patch).await.status, 200, "{one} at {release}");
                }
            });
            assert_eq!(server.stop(), Some(0));
        }
    }
}

#[test]
fn kubectl_shows_immutable_field_errors_like_kubernetes() {
    if is_skipped("kubectl") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let server = start_on_sqlite(folder.path(), &["--emulated-version=1.34"]);
    let kubeconfig = server.kubeconfig();
    let apply = |name: &str, object: &Value| {
        let file = folder.path().join(name);
        std::fs::write(&file, object.to_string()).unwrap();
        kubectl(&kubeconfig, &["apply", "-f", &file.display().to_string()])
    };
    let of = |api_version: &str, kind: &str, mut object: Value| {
        object["apiVersion"] = json!(api_version);
        object["kind"] = json!(kind);
        object
    };
    apply("a.json", &of("apps/v1", "Deployment", deployment("web", "web"))).expect_success();
    let refused = apply("b.json", &of("apps/v1", "Deployment", deployment("web", "x"))).expect_failure();
    assert!(
        refused.contains(
            "The Deployment \"web\" is invalid: spec.selector: Invalid value: {\"matchLabels\":{\"app\":\"x\"}}: field \
             is immutable"
        ),
        "{refused}"
    );
    let job = |image: &str| {
        let mut job =
            of("batch/v1", "Job", json!({"metadata": {"name": "pi"}, "spec": {"template": pod_template("pi")}}));
        job["spec"]["template"]["spec"]["restartPolicy"] = json!("Never");
        job["spec"]["template"]["spec"]["containers"][0]["image"] = json!(image);
        job
    };
    apply("e.json", &job("a")).expect_success();
    let again = apply("e.json", &job("a")).expect_success();
    assert_eq!(again, "job.batch/pi unchanged\n", "labels and selector are set by the server");
    let refused = apply("f.json", &job("b")).expect_failure();
    assert!(refused.contains("The Job \"pi\" is invalid: spec.template: Invalid value: {"), "{refused}");
    let selected = kubectl(&kubeconfig, &["get", "job", "pi", "-o", "jsonpath={.spec.selector.matchLabels}"]);
    assert!(selected.expect_success().contains("batch.kubernetes.io/controller-uid"));
    let class = |provisioner: &str| {
        of("storage.k8s.io/v1", "StorageClass", json!({"metadata": {"name": "c"}, "provisioner": provisioner}))
    };
    apply("c.json", &class("a")).expect_success();
    let refused = apply("d.json", &class("b")).expect_failure();
    assert!(refused.contains("provisioner: Forbidden: updates to provisioner are forbidden."), "{refused}");
}

#[test]
fn ephemeral_containers_are_added_and_never_removed() {
    for_each_store_async(async |client| {
        assert_eq!(client.create(PODS_PATH, &pod("a")).await.status, 201);
        let part = format!("{PODS_PATH}/a/ephemeralcontainers");
        let patch = json!({"spec": {"ephemeralContainers": [{"name": "e", "image": "i"}], "nodeName": "n"}});
        let patched = merge_patch(&client, &part, &patch).await;
        assert_eq!(patched.status, 200, "{}", patched.summary());
        let spec = &patched.json()["spec"];
        assert_eq!((&spec["ephemeralContainers"][0]["name"], &spec["nodeName"]), (&json!("e"), &Value::Null));
        let removed = merge_patch(&client, &part, &json!({"spec": {"ephemeralContainers": []}})).await;
        assert!(
            removed.summary().contains("existing ephemeral containers \"e\" may not be removed"),
            "{}",
            removed.summary()
        );
        let mut stale = client.get(&format!("{PODS_PATH}/a")).await.json();
        stale["metadata"]["resourceVersion"] = json!("1");
        assert_eq!(
            client.update(&part, &stale).await.status,
            409,
            "a stale resourceVersion conflicts on subresources, too"
        );
    });
}

#[test]
fn resize_changes_cpu_and_memory_and_nothing_else() {
    for_each_store_async(async |client| {
        let mut created = pod("a");
        created["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "1"}});
        let stored = client.create(PODS_PATH, &created).await.json();
        let (one, part) = (format!("{PODS_PATH}/a"), format!("{PODS_PATH}/a/resize"));
        let changed = |change: &dyn Fn(&mut Value)| {
            let mut pod = stored.clone();
            change(&mut pod);
            pod
        };
        let refused = [
            (
                changed(&|pod| {
                    pod["spec"]["containers"][0]["name"] = json!("z");
                    pod["spec"]["nodeName"] = json!("n");
                    pod["spec"]["hostNetwork"] = json!(true);
                }),
                "spec.containers[0].name: Forbidden: containers may not be renamed or reordered on resize",
            ),
            (
                changed(&|pod| {
                    pod["spec"]["containers"].as_array_mut().unwrap().push(json!({"name": "b", "image": "i"}));
                }),
                "spec.containers: Forbidden: containers may not be added or removed on resize",
            ),
            (
                changed(&|pod| pod["spec"]["containers"][0]["resources"] = json!({})),
                "spec: Invalid value: \"Burstable\": Pod QOS Class may not change as a result of resizing, \
                 spec.containers[0].resources.requests: Forbidden: resource requests cannot be removed",
            ),
        ];
        for (pod, reason) in refused {
            let brief = client.update(&part, &pod).await.summary();
            let expected =
                [format!("422 Pod \"a\" is invalid: {reason}"), format!("422 Pod \"a\" is invalid: [{reason}]")];
            assert!(expected.contains(&brief), "{brief}");
            let rename = json!({"spec": {"containers": pod["spec"]["containers"]}});
            assert_eq!(merge_patch(&client, &part, &rename).await.status, 422, "{reason}");
            assert_eq!(client.get(&one).await.json(), stored, "a refused write changes nothing");
        }
        let resized = client
            .update(
                &part,
                &changed(&|pod| {
                    pod["metadata"]["labels"]["app"] = json!("other");
                    pod["spec"]["nodeName"] = json!("n");
                    pod["spec"]["containers"][0]["image"] = json!("x");
                    pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("2");
                }),
            )
            .await
            .json();
        let mut expected = stored["spec"].clone();
        expected["containers"][0]["resources"]["requests"]["cpu"] = json!("2");
        assert_eq!(resized["spec"], expected);
        assert_eq!(resized["metadata"]["labels"], stored["metadata"]["labels"]);
    });
}
