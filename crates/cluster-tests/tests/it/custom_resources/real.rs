//! Responses about custom objects, compared with those of a real kube-apiserver.

use cluster_tests::kube_apiserver::{KubeApiserver, KubeApiserverRelease};
use cluster_tests::{Etcd, RunningServer, TestStore};

use super::*;
use crate::block_on;

/// Method, path below the collection, content type and body of a request.
type Case = (&'static str, &'static str, &'static str, Value);

const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";

fn cases() -> Vec<Case> {
    let with = |spec: Value| json!({"apiVersion": "shop.example.com/v1", "kind": "Order", "metadata": {"name": "a"}, "spec": spec});
    let creates = [
        with(json!({"item": "tea", "size": "huge"})),
        with(json!({"size": "small"})),
        with(json!({"item": "tea", "replicas": 11})),
        with(json!({"item": "tea", "replicas": -1})),
        with(json!({"item": "tea", "replicas": 1.5})),
        with(json!({"item": 5})),
        with(json!({"item": "a text of more than twenty characters"})),
        with(json!(null)),
        with(json!([])),
        json!({"apiVersion": "shop.example.com/v1", "kind": "Order", "metadata": {"name": "A_B"}, "spec": {"item": "tea"}}),
        json!({"apiVersion": "shop.example.com/v1", "kind": "Order", "metadata": {"labels": 5, "name": "a"}}),
        json!({"apiVersion": "shop.example.com/v2", "kind": "Order", "metadata": {"name": "a"}, "spec": {"item": "tea"}}),
        json!({"apiVersion": "shop.example.com/v1", "kind": "Bar", "metadata": {"name": "a"}, "spec": {"item": "tea"}}),
        json!({"metadata": {"name": "a"}, "spec": {"item": "tea"}}),
        json!({"apiVersion": "shop.example.com/v1", "kind": "Order", "spec": {"item": "tea"}}),
    ];
    let mut cases: Vec<Case> = creates.into_iter().map(|body| ("POST", "", JSON, body)).collect();
    cases.push((
        "POST",
        "?fieldValidation=Strict",
        JSON,
        with(json!({"item": "tea", "color": "green", "a": {"b": 1}})),
    ));
    cases.push(("POST", "?fieldValidation=Other", JSON, with(json!({"item": "tea"}))));
    cases.extend([
        ("PUT", "/known", JSON, json!({"apiVersion": "shop.example.com/v1", "kind": "Order", "metadata": {"name": "known"}, "spec": {"item": "tea"}})),
        ("PUT", "/absent", JSON, json!({"apiVersion": "shop.example.com/v1", "kind": "Order", "metadata": {"name": "absent", "resourceVersion": "1"}, "spec": {"item": "tea"}})),
        ("PUT", "", JSON, with(json!({"item": "tea"}))),
        ("PATCH", "/known", MERGE, json!({"spec": {"size": "huge"}})),
        ("PATCH", "/known", MERGE, json!({"spec": {"item": null}})),
        ("PATCH", "/known", MERGE, json!({"spec": {"replicas": 11}})),
        ("PATCH", "/known", "application/strategic-merge-patch+json", json!({})),
        ("PATCH", "/known", "application/json-patch+json", json!([{"op": "test", "path": "/spec/item", "value": "milk"}])),
        ("PATCH", "/known/status", MERGE, json!({"status": {"phase": 5}})),
        ("PATCH", "/known/scale", MERGE, json!({"spec": {"replicas": -1}})),
        ("PATCH", "/known/scale", MERGE, json!({"spec": {"replicas": 11}})),
        ("PATCH", "/absent", MERGE, json!({})),
        ("GET", "/known/log", JSON, json!(null)),
        ("GET", "/absent", JSON, json!(null)),
        ("DELETE", "/absent", JSON, json!(null)),
        ("GET", "?fieldSelector=spec.item%3Dtea", JSON, json!(null)),
        ("GET", "?labelSelector=%3D%3D", JSON, json!(null)),
        ("GET", "?limit=x", JSON, json!(null)),
    ]);
    cases
}

async fn responses(client: &Client) -> Vec<String> {
    define(client, &orders_crd()).await;
    let created = create(client, ORDERS, &order("known")).await;
    let mut responses = vec![format!("managed fields: {}", created["metadata"]["managedFields"][0]["fieldsV1"])];
    for path in ["/apis/shop.example.com", "/apis/shop.example.com/v1", "/apis/shop.example.com/v2"] {
        responses.push(format!("{path}: {}", client.get(path).await.json()));
    }
    let accept = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let table = client.request_builder(Method::GET, ORDERS).header("accept", accept);
    let table = client.send(table, "".into()).await.json();
    responses.push(format!("table: {} {}", table["columnDefinitions"], table["rows"][0]["cells"]));
    let scale = client.get(&format!("{ORDERS}/known/scale")).await.json();
    responses.push(format!("scale: {} {}", scale["spec"], scale["status"]));
    for (method, path, content_type, body) in cases() {
        let request = client.request_builder(method.parse().unwrap(), &format!("{ORDERS}{path}"));
        let text = if body.is_null() { String::new() } else { body.to_string() };
        let answer = client.send(request.header("content-type", content_type), text.clone().into()).await;
        let status: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        let mut details = status["details"].clone();
        details.as_object_mut().map(|details| details.remove("uid"));
        responses.push(format!("{method} {path} {text}\n  {} {} {details}", answer.summary(), status["reason"]));
    }
    responses
}

#[test]
fn responses_about_custom_objects_agree_with_kube_apiserver() {
    let folder = tempfile::tempdir().unwrap();
    let etcd = Etcd::start();
    let ours = RunningServer::start(folder.path(), TestStore::Sqlite, &[]);
    let real = KubeApiserver::start_stock(KubeApiserverRelease::New, folder.path(), &etcd, &[]);
    let [ours, real] = [ours.admin(), real.admin()].map(|client| block_on(responses(&client)));
    let differing = ours.iter().zip(&real).filter(|(ours, real)| ours != real);
    let differing: Vec<String> = differing.map(|(ours, real)| format!("ours: {ours}\nreal: {real}\n")).collect();
    assert!(differing.is_empty(), "{} of {} differ:\n{}", differing.len(), ours.len(), differing.join("\n"));
}
