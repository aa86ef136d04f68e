//! The real kube-controller-manager and kube-scheduler on ours: quotas as beside a real kube-apiserver, and pods that are
//! created for a Deployment and bound to a node.

use std::path::{Path, PathBuf};

use cluster_tests::kube_apiserver::{KubeApiserver, KubeApiserverRelease, release_of_assets};
use cluster_tests::kube_programs::KubeProgram;
use cluster_tests::wait::eventually;
use cluster_tests::{Client, Etcd, RunningServer, TestStore};
use http::Method;
use serde_json::{Value, json};

use crate::block_on;

const NAMESPACE: &str = "/api/v1/namespaces/limited";
const MERGE: &str = "application/merge-patch+json";

/// A write, and what the quota has used once the controllers have seen it.
struct Step {
    method: Method,
    /// Below the namespace.
    path: String,
    body: Value,
    used: Value,
}

fn step(method: Method, path: &str, body: Value, used: &Value) -> Step {
    Step { method, path: path.to_owned(), body, used: used.clone() }
}

fn pod(name: &str, cpu: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"serviceAccountName": "default",
        "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}]}})
}

fn config_map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})
}

fn service(name: &str, kind: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
        "spec": {"type": kind, "ports": [{"port": 80, "protocol": "TCP"}]}})
}

/// Creates, updates and deletes under a quota on pods, their requests, config maps and services.
fn steps() -> Vec<Step> {
    let (post, patch, delete) = (Method::POST, Method::PATCH, Method::DELETE);
    // The config map kube-root-ca.crt counts.
    let used = |pods: u32, cpu: &str, maps: u32, services: u32, ports: u32| {
        json!({"pods": pods.to_string(), "requests.cpu": cpu, "count/configmaps": maps.to_string(),
            "services": services.to_string(), "services.nodeports": ports.to_string()})
    };
    let mut steps = Vec::new();
    for number in 0..5 {
        let maps = u32::min(number + 2, 4);
        steps.push(step(post.clone(), "configmaps", config_map(&format!("c{number}")), &used(0, "0", maps, 0, 0)));
    }
    steps.push(step(post.clone(), "configmaps", config_map("c0"), &used(0, "0", 4, 0, 0)));
    steps.push(step(delete.clone(), "configmaps/c0", Value::Null, &used(0, "0", 3, 0, 0)));
    steps.push(step(post.clone(), "configmaps", config_map("c9"), &used(0, "0", 4, 0, 0)));
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    steps.push(step(patch.clone(), "configmaps/c1", label, &used(0, "0", 4, 0, 0)));
    steps.push(step(post.clone(), "pods", pod("big", "2"), &used(0, "0", 4, 0, 0)));
    let mut silent = pod("silent", "1");
    silent["spec"]["containers"][0].as_object_mut().unwrap().remove("resources");
    steps.push(step(post.clone(), "pods", silent, &used(0, "0", 4, 0, 0)));
    for (name, cpu, pods, total) in
        [("one", "250m", 1, "250m"), ("two", "250m", 2, "500m"), ("three", "600m", 2, "500m"), ("four", "500m", 3, "1")]
    {
        steps.push(step(post.clone(), "pods", pod(name, cpu), &used(pods, total, 4, 0, 0)));
    }
    steps.push(step(post.clone(), "pods", pod("five", "1m"), &used(3, "1", 4, 0, 0)));
    // A pod that ended uses nothing.
    steps.push(step(
        patch.clone(),
        "pods/four/status",
        json!({"status": {"phase": "Succeeded"}}),
        &used(2, "500m", 4, 0, 0),
    ));
    steps.push(step(delete.clone(), "pods/two?gracePeriodSeconds=0", Value::Null, &used(1, "250m", 4, 0, 0)));
    steps.push(step(post.clone(), "services", service("s1", "NodePort"), &used(1, "250m", 4, 1, 1)));
    steps.push(step(post.clone(), "services", service("s2", "NodePort"), &used(1, "250m", 4, 1, 1)));
    steps.push(step(post.clone(), "services", service("s2", "ClusterIP"), &used(1, "250m", 4, 2, 1)));
    steps.push(step(post.clone(), "services", service("s3", "ClusterIP"), &used(1, "250m", 4, 2, 1)));
    let internal = json!({"spec": {"type": "ClusterIP"}});
    steps.push(step(patch.clone(), "services/s1", internal, &used(1, "250m", 4, 2, 0)));
    let external = json!({"spec": {"type": "NodePort"}});
    steps.push(step(patch.clone(), "services/s2", external.clone(), &used(1, "250m", 4, 2, 1)));
    steps.push(step(patch.clone(), "services/s1", external, &used(1, "250m", 4, 2, 1)));
    let raised = json!({"spec": {"hard": {"count/configmaps": "6"}}});
    steps.push(step(patch, "resourcequotas/q", raised, &used(1, "250m", 4, 2, 1)));
    for name in ["c4", "c5", "c6"] {
        let maps = if name == "c4" { 5 } else { 6 };
        steps.push(step(post.clone(), "configmaps", config_map(name), &used(1, "250m", maps, 2, 1)));
    }
    steps.push(step(delete, "services/s2", Value::Null, &used(1, "250m", 6, 1, 0)));
    steps
}

/// Performs all steps. Returns what the client saw of each, with the status of the quota after it.
async fn perform(client: &Client) -> Vec<String> {
    let create = async |path: &str, object: &Value| {
        let created = client.create(path, object).await;
        assert_eq!(created.status, 201, "{path}: {}", created.summary());
    };
    create("/api/v1/namespaces", &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "limited"}}))
        .await;
    for path in [format!("{NAMESPACE}/serviceaccounts/default"), format!("{NAMESPACE}/configmaps/kube-root-ca.crt")] {
        eventually("the controllers furnish the namespace", async || match client.get(&path).await.status.as_u16() {
            200 => Ok(()),
            code => Err(code.to_string()),
        })
        .await;
    }
    let hard =
        json!({"pods": "3", "requests.cpu": "1", "count/configmaps": "4", "services": "2", "services.nodeports": "1"});
    let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {"hard": hard}});
    create(&format!("{NAMESPACE}/resourcequotas"), &quota).await;
    let read = async || client.get(&format!("{NAMESPACE}/resourcequotas/q")).await.json();
    let settled = async |used: &Value| {
        eventually("the quota is true", async || {
            let quota = read().await;
            let (hard, found) = (&quota["spec"]["hard"], &quota["status"]);
            let is_true = found["used"] == *used && found["hard"] == *hard;
            if is_true { Ok(()) } else { Err(format!("{found} is not {used} of {hard}")) }
        })
        .await;
    };
    settled(
        &json!({"pods": "0", "requests.cpu": "0", "count/configmaps": "1", "services": "0", "services.nodeports": "0"}),
    )
    .await;
    let mut lines = Vec::new();
    for (number, step) in steps().iter().enumerate() {
        let path = format!("{NAMESPACE}/{}", step.path);
        let body = if step.body.is_null() { String::new() } else { step.body.to_string() };
        let content = if step.method == Method::PATCH { MERGE } else { "application/json" };
        let response = client.send_body(step.method.clone(), &path, content, body.into()).await;
        settled(&step.used).await;
        let seen = if response.status.is_success() { response.status.to_string() } else { response.summary() };
        lines.push(format!("{number} {} {}: {seen}", step.method, step.path));
        lines.push(read().await["status"].to_string());
    }
    lines
}

fn write_kubeconfig(folder: &Path, server: &Client) -> PathBuf {
    let file = |name: &str| folder.join("unskew-data/pki").join(name).display().to_string();
    let config = json!({"apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": format!("https://{}", server.address()), "certificate-authority": file("ca.crt")}}],
        "users": [{"name": "u", "user": {"client-certificate": file("admin.crt"), "client-key": file("admin.key")}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}]});
    let path = folder.join("real.kubeconfig");
    std::fs::write(&path, config.to_string()).unwrap();
    path
}

#[test]
fn quota_beside_controller_manager_is_as_with_kube_apiserver() {
    let folder = tempfile::tempdir().unwrap();
    let release_flag = format!("--emulated-version={}", release_of_assets());
    let ours = RunningServer::start(folder.path(), TestStore::Sqlite, &["--controllers=*", &release_flag]);
    let manager = KubeProgram::controller_manager(folder.path(), &ours.kubeconfig());
    let of_ours = block_on(perform(&ours.admin()));
    drop(manager);
    let etcd = Etcd::start();
    let real = KubeApiserver::start_stock(KubeApiserverRelease::New, folder.path(), &etcd, &[]);
    let _manager = KubeProgram::controller_manager(folder.path(), &write_kubeconfig(folder.path(), &real.admin()));
    let of_real = block_on(perform(&real.admin()));
    println!("{} lines", of_real.len());
    for (ours, real) in of_ours.iter().zip(&of_real) {
        assert_eq!(ours, real);
    }
    assert_eq!(of_ours.len(), of_real.len());
}

#[test]
fn deployment_gets_pods_with_accounts_priorities_and_a_node() {
    let folder = tempfile::tempdir().unwrap();
    let release_flag = format!("--emulated-version={}", release_of_assets());
    let server = RunningServer::start(folder.path(), TestStore::Sqlite, &["--controllers=*", &release_flag]);
    let _manager = KubeProgram::controller_manager(folder.path(), &server.kubeconfig());
    let _scheduler = KubeProgram::start("kube-scheduler", folder.path(), &server.kubeconfig(), &[]);
    let client = server.admin();
    block_on(async {
        let create = async |path: &str, object: &Value| {
            let created = client.create(path, object).await;
            assert_eq!(created.status, 201, "{path}: {}", created.summary());
            created.json()
        };
        let node =
            create("/api/v1/nodes", &json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})).await;
        assert_eq!(node["spec"]["taints"][0]["key"], "node.kubernetes.io/not-ready");
        let amounts = json!({"cpu": "4", "memory": "8Gi", "pods": "100"});
        let status = json!({"status": {"capacity": amounts, "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "ready",
                "lastHeartbeatTime": node["metadata"]["creationTimestamp"],
                "lastTransitionTime": node["metadata"]["creationTimestamp"]}]}});
        let patched =
            client.send_body(Method::PATCH, "/api/v1/nodes/n1/status", MERGE, status.to_string().into()).await;
        assert_eq!(patched.status, 200, "{}", patched.summary());
        let class = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 7});
        create("/apis/scheduling.k8s.io/v1/priorityclasses", &class).await;
        let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {
            "replicas": 3, "selector": {"matchLabels": {"app": "web"}}, "template": {"metadata": {"labels": {"app": "web"}},
                "spec": {"priorityClassName": "high", "containers": [{"name": "c", "image": "i"}]}}}});
        create("/apis/apps/v1/namespaces/default/deployments", &deployment).await;
        let pods =
            async || client.get("/api/v1/namespaces/default/pods").await.json()["items"].as_array().unwrap().clone();
        eventually("all pods are bound", async || {
            let nodes: Vec<Value> = pods().await.iter().map(|pod| pod["spec"]["nodeName"].clone()).collect();
            if nodes == ["n1", "n1", "n1"] { Ok(()) } else { Err(format!("{nodes:?}")) }
        })
        .await;
        for pod in pods().await {
            let spec = &pod["spec"];
            assert_eq!((&spec["serviceAccountName"], &spec["priority"]), (&json!("default"), &json!(7)));
            let tolerations: Vec<&Value> =
                spec["tolerations"].as_array().unwrap().iter().map(|it| &it["key"]).collect();
            assert_eq!(tolerations, ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"]);
            let mount = &spec["containers"][0]["volumeMounts"][0];
            assert_eq!(mount["mountPath"], "/var/run/secrets/kubernetes.io/serviceaccount");
            let bound = json!({"apiVersion": "v1", "kind": "Pod", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]});
            let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
                "spec": {"audiences": [], "expirationSeconds": 3607, "boundObjectRef": bound}});
            let token = create("/api/v1/namespaces/default/serviceaccounts/default/token", &request).await;
            assert!(token["status"]["token"].as_str().is_some_and(|token| token.matches('.').count() == 2));
        }
        eventually("the deployment controller reports its pods", async || {
            let status = client.get("/apis/apps/v1/namespaces/default/deployments/web").await.json()["status"].clone();
            if status["replicas"] == 3 { Ok(()) } else { Err(status.to_string()) }
        })
        .await;
    });
}
