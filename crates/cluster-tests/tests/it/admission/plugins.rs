//! Built-in plugins in a running server.

use serde_json::{Value, json};

use crate::{block_on, for_each_store, start_on_sqlite};

const PODS: &str = "/api/v1/namespaces/default/pods";

fn pod(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "image": "i"}]}})
}

#[test]
fn pods_get_account_tolerations_priority_and_limits() {
    let folder = tempfile::tempdir().unwrap();
    let server = start_on_sqlite(folder.path(), &["--controllers=*"]);
    let client = server.admin();
    block_on(async {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "fresh"}});
        assert_eq!(client.create("/api/v1/namespaces", &namespace).await.status, 201);
        let limits = json!({"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "l"}, "spec": {"limits": [
            {"type": "Container", "default": {"cpu": "1"}, "defaultRequest": {"cpu": "500m"}, "max": {"cpu": "2"}}]}});
        let created = client.create("/api/v1/namespaces/fresh/limitranges", &limits).await;
        assert_eq!(created.status, 201, "{}", created.summary());
        // The controller creates the service account while the request waits for it.
        let created = client.create("/api/v1/namespaces/fresh/pods", &pod("p")).await;
        assert_eq!(created.status, 201, "{}", created.summary());
        let spec = &created.json()["spec"];
        assert_eq!((&spec["serviceAccountName"], &spec["serviceAccount"]), (&json!("default"), &json!("default")));
        assert_eq!(spec["volumes"][0]["projected"]["sources"][0]["serviceAccountToken"]["expirationSeconds"], 3607);
        let mount = &spec["containers"][0]["volumeMounts"][0];
        assert_eq!(mount["mountPath"], "/var/run/secrets/kubernetes.io/serviceaccount");
        assert_eq!(spec["tolerations"].as_array().unwrap().len(), 2);
        assert_eq!((&spec["priority"], &spec["preemptionPolicy"]), (&json!(0), &json!("PreemptLowerPriority")));
        assert_eq!(spec["containers"][0]["resources"], json!({"limits": {"cpu": "1"}, "requests": {"cpu": "500m"}}));
        let mut greedy = pod("greedy");
        greedy["spec"]["containers"][0]["resources"] = json!({"limits": {"cpu": "3"}});
        let refused = client.create("/api/v1/namespaces/fresh/pods", &greedy).await;
        assert_eq!(
            refused.summary(),
            "403 pods \"greedy\" is forbidden: maximum cpu usage per Container is 2, but limit is 3"
        );
        let mut unknown = pod("unknown");
        unknown["spec"]["serviceAccountName"] = "nobody".into();
        let refused = client.create("/api/v1/namespaces/fresh/pods", &unknown).await;
        assert_eq!(
            refused.summary(),
            "403 pods \"unknown\" is forbidden: error looking up service account fresh/nobody: serviceaccount \"nobody\" not found"
        );
    });
}

#[test]
fn disabled_plugins_do_not_run() {
    let folder = tempfile::tempdir().unwrap();
    let flag = "--disable-admission-plugins=ServiceAccount,Priority,DefaultTolerationSeconds";
    let server = start_on_sqlite(folder.path(), &[flag]);
    let created = block_on(server.admin().create(PODS, &pod("p")));
    assert_eq!(created.status, 201, "{}", created.summary());
    let spec = &created.json()["spec"];
    for field in ["serviceAccountName", "priority", "tolerations", "volumes"] {
        assert_eq!(spec[field], Value::Null, "{field}");
    }
}

#[test]
fn priority_class_is_resolved_and_unknown_one_refused() {
    for_each_store(|server| {
        let client = server.admin();
        block_on(async {
            let class = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 7});
            let created = client.create("/apis/scheduling.k8s.io/v1/priorityclasses", &class).await;
            assert_eq!(created.status, 201, "{}", created.summary());
            let mut important = pod("important");
            important["spec"]["priorityClassName"] = "high".into();
            let created = client.create(PODS, &important).await;
            assert_eq!(created.json()["spec"]["priority"], 7, "{}", created.summary());
            important["metadata"]["name"] = "unknown".into();
            important["spec"]["priorityClassName"] = "none".into();
            let refused = client.create(PODS, &important).await;
            assert_eq!(
                refused.summary(),
                "403 pods \"unknown\" is forbidden: no PriorityClass with name none was found"
            );
        });
    });
}
