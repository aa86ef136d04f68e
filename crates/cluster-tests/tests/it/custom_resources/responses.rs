//! The responses to a sequence of requests about custom objects, as a real kube-apiserver gives them.
//!
//! `tests/data/custom-responses.txt` has the recorded responses of kube-apiserver 1.36; `cargo xtask real` compares both
//! servers again, and records with `UNSKEW_REAL_RECORD`.

use std::path::PathBuf;

use bytes::Bytes;
use serde_json::Value;

use super::*;
use crate::block_on;

const FLEET_CRD: &str = "fleets.shop.example.com";

/// One request: a name, method, path, content type (an abbreviation, see [`content_type`]) and body. `Accept` follows
/// the path after a space.
type Case = (&'static str, &'static str, &'static str, &'static str, &'static str);

const NS: &str = "/apis/shop.example.com/v1/namespaces/default";

/// `~` in a path stands for [`NS`].
const CASES: &[Case] = &[
    (
        "create",
        "POST",
        "~/orders",
        "json",
        r#"{"apiVersion":"shop.example.com/v1","kind":"Order","metadata":{"name":"a","labels":{"x":"y"}},"spec":{"item":"tea"}}"#,
    ),
    (
        "create again",
        "POST",
        "~/orders",
        "json",
        r#"{"apiVersion":"shop.example.com/v1","kind":"Order","metadata":{"name":"a"},"spec":{"item":"tea"}}"#,
    ),
    (
        "create without kind",
        "POST",
        "~/orders",
        "json",
        r#"{"apiVersion":"shop.example.com/v1","metadata":{"name":"b"},"spec":{"item":"tea"}}"#,
    ),
    (
        "create without apiVersion",
        "POST",
        "~/orders",
        "json",
        r#"{"kind":"Order","metadata":{"name":"b"},"spec":{"item":"tea"}}"#,
    ),
    (
        "create of another kind",
        "POST",
        "~/orders",
        "json",
        r#"{"apiVersion":"shop.example.com/v1","kind":"Bar","metadata":{"name":"b"},"spec":{"item":"tea"}}"#,
    ),
    (
        "create of another kind and version",
        "POST",
        "~/orders",
        "json",
        r#"{"apiVersion":"shop.example.com/v2","kind":"Bar","metadata":{"name":"b"},"spec":{"item":"tea"}}"#,
    ),
    (
        "create of another version",
        "POST",
        "~/orders",
        "json",
        r#"{"apiVersion":"shop.example.com/v2","kind":"Order","metadata":{"name":"b"},"spec":{"item":"tea"}}"#,
    ),
    (
        "create of another group",
        "POST",
        "~/orders",
        "json",
        r#"{"apiVersion":"v1","kind":"Order","metadata":{"name":"b"},"spec":{"item":"tea"}}"#,
    ),
    (
        "create without name",
        "POST",
        "~/orders",
        "json",
        r#"{"apiVersion":"shop.example.com/v1","kind":"Order","spec":{"item":"tea"}}"#,
    ),
    (
        "create with a bad name",
        "POST",
        "~/orders",
        "json",
        r#"{"apiVersion":"shop.example.com/v1","kind":"Order","metadata":{"name":"A_b"},"spec":{"item":"tea"}}"#,
    ),
    (
        "create with a bad label",
        "POST",
        "~/orders",
        "json",
        r#"{"apiVersion":"shop.example.com/v1","kind":"Order","metadata":{"name":"b","labels":{"x y":"z"}},"spec":{"item":"tea"}}"#,
    ),
    (
        "create with labels of a wrong type",
        "POST",
        "~/orders",
        "json",
        r#"{"apiVersion":"shop.example.com/v1","kind":"Order","metadata":{"name":"b","labels":{"x":1}},"spec":{"item":"tea"}}"#,
    ),
    (
        "create with a list as labels",
        "POST",
        "~/orders",
        "json",
        r#"{"apiVersion":"shop.example.com/v1","kind":"Order","metadata":{"name":"b","labels":["x"]},"spec":{"item":"tea"}}"#,
    ),
    (
        "create with a number as name",
        "POST",
        "~/orders",
        "json",
        r#"{"apiVersion":"shop.example.com/v1","kind":"Order","metadata":{"name":7},"spec":{"item":"tea"}}"#,
    ),
    (
        "create with metadata of a wrong type",
        "POST",
        "~/orders",
        "json",
        r#"{"apiVersion":"shop.example.com/v1","kind":"Order","metadata":"b","spec":{"item":"tea"}}"#,
    ),
    (
        "create in another namespace",
        "POST",
        "~/orders",
        "json",
        r#"{"apiVersion":"shop.example.com/v1","kind":"Order","metadata":{"name":"b","namespace":"other"},"spec":{"item":"tea"}}"#,
    ),
    (
        "create in a missing namespace",
        "POST",
        "/apis/shop.example.com/v1/namespaces/none/orders",
        "json",
        r#"{"apiVersion":"shop.example.com/v1","kind":"Order","metadata":{"name":"b"},"spec":{"item":"tea"}}"#,
    ),
    (
        "create without a required field",
        "POST",
        "~/orders",
        "json",
        r#"{"apiVersion":"shop.example.com/v1","kind":"Order","metadata":{"name":"b"},"spec":{}}"#,
    ),
    (
        "create without spec",
        "POST",
        "~/orders",
        "json",
        r#"{"apiVersion":"shop.example.com/v1","kind":"Order","metadata":{"name":"b"}}"#,
    ),
    (
        "create with wrong values",
        "POST",
        "~/orders",
        "json",
        r#"{"apiVersion":"shop.example.com/v1","kind":"Order","metadata":{"name":"b"},"spec":{"item":"a very long item of an order","size":"huge","replicas":-1}}"#,
    ),
    (
        "create with a wrong type",
        "POST",
        "~/orders",
        "json",
        r#"{"apiVersion":"shop.example.com/v1","kind":"Order","metadata":{"name":"b"},"spec":{"item":"tea","replicas":"two"}}"#,
    ),
    (
        "create with too many replicas",
        "POST",
        "~/orders",
        "json",
        r#"{"apiVersion":"shop.example.com/v1","kind":"Order","metadata":{"name":"b"},"spec":{"item":"tea","size":"large","replicas":3000000000}}"#,
    ),
    (
        "create against a rule",
        "POST",
        "~/orders",
        "json",
        r#"{"apiVersion":"shop.example.com/v1","kind":"Order","metadata":{"name":"b"},"spec":{"item":"tea","replicas":20}}"#,
    ),
    (
        "create with an unknown field, strict",
        "POST",
        "~/orders?fieldValidation=Strict",
        "json",
        r#"{"apiVersion":"shop.example.com/v1","kind":"Order","metadata":{"name":"b","zz":1},"spec":{"item":"tea","color":"red"}}"#,
    ),
    (
        "create with an unknown field, warn",
        "POST",
        "~/orders",
        "json",
        r#"{"apiVersion":"shop.example.com/v1","kind":"Order","metadata":{"name":"b","zz":1},"spec":{"item":"tea","color":"red"}}"#,
    ),
    (
        "create with a duplicate field, strict",
        "POST",
        "~/orders?fieldValidation=Strict",
        "json",
        r#"{"apiVersion":"shop.example.com/v1","kind":"Order","metadata":{"name":"c"},"spec":{"item":"tea","item":"tea"}}"#,
    ),
    (
        "create with a generated name",
        "POST",
        "~/orders",
        "json",
        r#"{"apiVersion":"shop.example.com/v1","kind":"Order","metadata":{"generateName":"g-"},"spec":{"item":"tea"}}"#,
    ),
    (
        "dry run of a create",
        "POST",
        "~/orders?dryRun=All",
        "json",
        r#"{"apiVersion":"shop.example.com/v1","kind":"Order","metadata":{"name":"dry"},"spec":{"item":"tea"}}"#,
    ),
    (
        "bad dry run",
        "POST",
        "~/orders?dryRun=Some",
        "json",
        r#"{"apiVersion":"shop.example.com/v1","kind":"Order","metadata":{"name":"dry"},"spec":{"item":"tea"}}"#,
    ),
    (
        "create from YAML",
        "POST",
        "~/orders",
        "yaml",
        "apiVersion: shop.example.com/v1\nkind: Order\nmetadata:\n  name: yaml\nspec:\n  item: tea\n",
    ),
    ("create from bad JSON", "POST", "~/orders", "json", r#"{"apiVersion":"#),
    ("create from nothing", "POST", "~/orders", "json", ""),
    ("create from a list", "POST", "~/orders", "json", "[]"),
    ("create from text", "POST", "~/orders", "text", "x"),
    ("create from protobuf", "POST", "~/orders", "protobuf", "x"),
    (
        "create at a name",
        "POST",
        "~/orders/a",
        "json",
        r#"{"apiVersion":"shop.example.com/v1","kind":"Order","metadata":{"name":"a"},"spec":{"item":"tea"}}"#,
    ),
    (
        "create for all namespaces",
        "POST",
        "/apis/shop.example.com/v1/orders",
        "json",
        r#"{"apiVersion":"shop.example.com/v1","kind":"Order","metadata":{"name":"a"},"spec":{"item":"tea"}}"#,
    ),
    ("get", "GET", "~/orders/a", "", ""),
    ("get in the other version", "GET", "/apis/shop.example.com/v2/namespaces/default/orders/a", "", ""),
    ("get what is missing", "GET", "~/orders/none", "", ""),
    ("get a table", "GET", "~/orders/a application/json;as=Table;v=v1;g=meta.k8s.io", "", ""),
    ("get metadata", "GET", "~/orders/a application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io", "", ""),
    ("get protobuf", "GET", "~/orders/a application/vnd.kubernetes.protobuf", "", ""),
    ("get text", "GET", "~/orders/a text/plain", "", ""),
    ("get an unknown subresource", "GET", "~/orders/a/log", "", ""),
    ("get a subresource of a subresource", "GET", "~/orders/a/status/x", "", ""),
    ("get an unknown version", "GET", "/apis/shop.example.com/v9/namespaces/default/orders/a", "", ""),
    ("get an unknown resource", "GET", "~/nothings/a", "", ""),
    ("get without namespace", "GET", "/apis/shop.example.com/v1/orders/a", "", ""),
    ("list by an unknown field", "GET", "~/orders?fieldSelector=spec.item%3Dtea", "", ""),
    ("list by a bad label", "GET", "~/orders?labelSelector=%21%21", "", ""),
    ("list by a field", "GET", "~/orders?fieldSelector=spec.size%3Dlarge", "", ""),
    ("list with a bad continue token", "GET", "~/orders?continue=x&limit=1", "", ""),
    ("list with a bad limit", "GET", "~/orders?limit=x", "", ""),
    ("list with a bad revision", "GET", "~/orders?resourceVersion=x", "", ""),
    ("list at a future revision", "GET", "~/orders?resourceVersion=99999999&resourceVersionMatch=Exact", "", ""),
    ("list of a namespace that is missing", "GET", "/apis/shop.example.com/v1/namespaces/none/orders", "", ""),
    ("list a table", "GET", "~/orders?labelSelector=x%3Dy application/json;as=Table;v=v1;g=meta.k8s.io", "", ""),
    ("watch from a bad revision", "GET", "~/orders?watch=true&resourceVersion=x", "", ""),
    ("watch in a bad form", "GET", "~/orders?watch=true text/html", "", ""),
    (
        "update without revision",
        "PUT",
        "~/orders/a",
        "json",
        r#"{"apiVersion":"shop.example.com/v1","kind":"Order","metadata":{"name":"a"},"spec":{"item":"tea"}}"#,
    ),
    (
        "update with an old revision",
        "PUT",
        "~/orders/a",
        "json",
        r#"{"apiVersion":"shop.example.com/v1","kind":"Order","metadata":{"name":"a","resourceVersion":"1"},"spec":{"item":"tea"}}"#,
    ),
    (
        "update with a bad revision",
        "PUT",
        "~/orders/a",
        "json",
        r#"{"apiVersion":"shop.example.com/v1","kind":"Order","metadata":{"name":"a","resourceVersion":"x"},"spec":{"item":"tea"}}"#,
    ),
    (
        "update of another name",
        "PUT",
        "~/orders/a",
        "json",
        r#"{"apiVersion":"shop.example.com/v1","kind":"Order","metadata":{"name":"b","resourceVersion":"1"},"spec":{"item":"tea"}}"#,
    ),
    (
        "update without name",
        "PUT",
        "~/orders/a",
        "json",
        r#"{"apiVersion":"shop.example.com/v1","kind":"Order","metadata":{"resourceVersion":"1"},"spec":{"item":"tea"}}"#,
    ),
    (
        "update of another uid",
        "PUT",
        "~/orders/a",
        "json",
        r#"{"apiVersion":"shop.example.com/v1","kind":"Order","metadata":{"name":"a","uid":"00000000-0000-4000-8000-000000000000","resourceVersion":"1"},"spec":{"item":"tea"}}"#,
    ),
    (
        "update of another kind",
        "PUT",
        "~/orders/a",
        "json",
        r#"{"apiVersion":"shop.example.com/v1","kind":"Bar","metadata":{"name":"a","resourceVersion":"1"},"spec":{"item":"tea"}}"#,
    ),
    (
        "update of what is missing",
        "PUT",
        "~/orders/none",
        "json",
        r#"{"apiVersion":"shop.example.com/v1","kind":"Order","metadata":{"name":"none","resourceVersion":"1"},"spec":{"item":"tea"}}"#,
    ),
    (
        "update of the collection",
        "PUT",
        "~/orders",
        "json",
        r#"{"apiVersion":"shop.example.com/v1","kind":"Order","metadata":{"name":"a"},"spec":{"item":"tea"}}"#,
    ),
    ("patch of the collection", "PATCH", "~/orders", "merge", "{}"),
    ("merge patch", "PATCH", "~/orders/a", "merge", r#"{"spec":{"size":"large"}}"#),
    ("merge patch of nothing", "PATCH", "~/orders/a", "merge", "{}"),
    ("merge patch to a wrong value", "PATCH", "~/orders/a", "merge", r#"{"spec":{"size":"huge"}}"#),
    ("merge patch of the name", "PATCH", "~/orders/a", "merge", r#"{"metadata":{"name":"b"}}"#),
    ("merge patch of the kind", "PATCH", "~/orders/a", "merge", r#"{"kind":"Bar"}"#),
    ("merge patch of the version", "PATCH", "~/orders/a", "merge", r#"{"apiVersion":"shop.example.com/v2"}"#),
    ("merge patch of the revision", "PATCH", "~/orders/a", "merge", r#"{"metadata":{"resourceVersion":"1"}}"#),
    (
        "merge patch of an immutable field",
        "PATCH",
        "~/orders/a",
        "merge",
        r#"{"metadata":{"uid":"00000000-0000-4000-8000-000000000000"}}"#,
    ),
    ("merge patch with labels of a wrong type", "PATCH", "~/orders/a", "merge", r#"{"metadata":{"labels":{"x":1}}}"#),
    ("merge patch with a bad label", "PATCH", "~/orders/a", "merge", r#"{"metadata":{"labels":{"x y":"z"}}}"#),
    ("merge patch from bad JSON", "PATCH", "~/orders/a", "merge", "{"),
    ("merge patch from a list", "PATCH", "~/orders/a", "merge", "[]"),
    ("merge patch of what is missing", "PATCH", "~/orders/none", "merge", r#"{"spec":{"size":"large"}}"#),
    (
        "merge patch with an unknown field, strict",
        "PATCH",
        "~/orders/a?fieldValidation=Strict",
        "merge",
        r#"{"spec":{"color":"red"}}"#,
    ),
    ("merge patch with an unknown field, warn", "PATCH", "~/orders/a", "merge", r#"{"spec":{"color":"red"}}"#),
    ("JSON patch", "PATCH", "~/orders/a", "json-patch", r#"[{"op":"replace","path":"/spec/size","value":"small"}]"#),
    (
        "JSON patch with a failing test",
        "PATCH",
        "~/orders/a",
        "json-patch",
        r#"[{"op":"test","path":"/spec/size","value":"large"}]"#,
    ),
    (
        "JSON patch with a failing test of a number",
        "PATCH",
        "~/orders/a",
        "json-patch",
        r#"[{"op":"test","path":"/spec/replicas","value":9}]"#,
    ),
    (
        "JSON patch with a test of a missing field",
        "PATCH",
        "~/orders/a",
        "json-patch",
        r#"[{"op":"test","path":"/spec/none","value":9}]"#,
    ),
    (
        "JSON patch that removes a missing field",
        "PATCH",
        "~/orders/a",
        "json-patch",
        r#"[{"op":"remove","path":"/spec/none"}]"#,
    ),
    (
        "JSON patch that replaces a missing field",
        "PATCH",
        "~/orders/a",
        "json-patch",
        r#"[{"op":"replace","path":"/spec/none","value":1}]"#,
    ),
    (
        "JSON patch below a missing field",
        "PATCH",
        "~/orders/a",
        "json-patch",
        r#"[{"op":"add","path":"/spec/none/x","value":1}]"#,
    ),
    (
        "JSON patch of an unknown operation",
        "PATCH",
        "~/orders/a",
        "json-patch",
        r#"[{"op":"twist","path":"/spec/size"}]"#,
    ),
    ("JSON patch that is no list", "PATCH", "~/orders/a", "json-patch", r#"{"op":"test"}"#),
    ("JSON patch that removes the spec", "PATCH", "~/orders/a", "json-patch", r#"[{"op":"remove","path":"/spec"}]"#),
    ("strategic merge patch", "PATCH", "~/orders/a", "strategic", "{}"),
    ("patch of an unknown form", "PATCH", "~/orders/a", "json", "{}"),
    (
        "update of the status without revision",
        "PUT",
        "~/orders/a/status",
        "json",
        r#"{"apiVersion":"shop.example.com/v1","kind":"Order","metadata":{"name":"a"},"status":{"phase":"new"}}"#,
    ),
    (
        "patch of the status",
        "PATCH",
        "~/orders/a/status",
        "merge",
        r#"{"status":{"phase":"new","replicas":1,"selector":"x=y"},"metadata":{"labels":{"ignored":"yes"}},"spec":{"item":"coffee"}}"#,
    ),
    ("patch of the status to a wrong type", "PATCH", "~/orders/a/status", "merge", r#"{"status":{"phase":7}}"#),
    ("get the status", "GET", "~/orders/a/status", "", ""),
    ("create a status", "POST", "~/orders/a/status", "json", "{}"),
    ("delete a status", "DELETE", "~/orders/a/status", "", ""),
    ("get the scale", "GET", "~/orders/a/scale", "", ""),
    ("get the scale of what is missing", "GET", "~/orders/none/scale", "", ""),
    (
        "update the scale",
        "PUT",
        "~/orders/a/scale",
        "json",
        r#"{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"a","namespace":"default"},"spec":{"replicas":3}}"#,
    ),
    (
        "update the scale to a negative number",
        "PUT",
        "~/orders/a/scale",
        "json",
        r#"{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"a","namespace":"default"},"spec":{"replicas":-3}}"#,
    ),
    (
        "update the scale against a rule",
        "PUT",
        "~/orders/a/scale",
        "json",
        r#"{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"a","namespace":"default"},"spec":{"replicas":30}}"#,
    ),
    (
        "update the scale with another kind",
        "PUT",
        "~/orders/a/scale",
        "json",
        r#"{"apiVersion":"shop.example.com/v1","kind":"Order","metadata":{"name":"a"}}"#,
    ),
    (
        "update the scale with an old revision",
        "PUT",
        "~/orders/a/scale",
        "json",
        r#"{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"a","namespace":"default","resourceVersion":"1"},"spec":{"replicas":3}}"#,
    ),
    (
        "update the scale without replicas",
        "PUT",
        "~/orders/a/scale",
        "json",
        r#"{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"a","namespace":"default"}}"#,
    ),
    ("patch the scale", "PATCH", "~/orders/a/scale", "merge", r#"{"spec":{"replicas":2}}"#),
    ("patch the scale to a wrong type", "PATCH", "~/orders/a/scale", "merge", r#"{"spec":{"replicas":"2"}}"#),
    ("patch the scale to a negative number", "PATCH", "~/orders/a/scale", "merge", r#"{"spec":{"replicas":-2}}"#),
    ("get a table of the scale", "GET", "~/orders/a/scale application/json;as=Table;v=v1;g=meta.k8s.io", "", ""),
    (
        "delete of another uid",
        "DELETE",
        "~/orders/a",
        "json",
        r#"{"preconditions":{"uid":"00000000-0000-4000-8000-000000000000"}}"#,
    ),
    ("delete of another revision", "DELETE", "~/orders/a", "json", r#"{"preconditions":{"resourceVersion":"1"}}"#),
    ("delete with a bad propagation", "DELETE", "~/orders/a?propagationPolicy=Never", "", ""),
    ("delete of what is missing", "DELETE", "~/orders/none", "", ""),
    ("dry run of a delete", "DELETE", "~/orders/a?dryRun=All", "", ""),
    (
        "create with a finalizer",
        "POST",
        "~/orders",
        "json",
        r#"{"apiVersion":"shop.example.com/v1","kind":"Order","metadata":{"name":"f","finalizers":["shop.example.com/hold"]},"spec":{"item":"tea"}}"#,
    ),
    ("delete with a finalizer", "DELETE", "~/orders/f", "", ""),
    (
        "update adds a finalizer to a deleted object",
        "PATCH",
        "~/orders/f",
        "merge",
        r#"{"metadata":{"finalizers":["shop.example.com/hold","shop.example.com/more"]}}"#,
    ),
    ("release the deleted object", "PATCH", "~/orders/f", "merge", r#"{"metadata":{"finalizers":null}}"#),
    ("delete", "DELETE", "~/orders/a", "", ""),
    (
        "create of a cluster-scoped object",
        "POST",
        "/apis/shop.example.com/v1/fleets",
        "json",
        r#"{"apiVersion":"shop.example.com/v1","kind":"Fleet","metadata":{"name":"f"},"spec":{"replicas":"many","sub":{"x":1}}}"#,
    ),
    (
        "create of a cluster-scoped object with a namespace",
        "POST",
        "/apis/shop.example.com/v1/fleets",
        "json",
        r#"{"apiVersion":"shop.example.com/v1","kind":"Fleet","metadata":{"name":"g","namespace":"default"}}"#,
    ),
    (
        "create of a cluster-scoped object in a namespace",
        "POST",
        "~/fleets",
        "json",
        r#"{"apiVersion":"shop.example.com/v1","kind":"Fleet","metadata":{"name":"g"}}"#,
    ),
    ("list of a cluster-scoped resource in a namespace", "GET", "~/fleets", "", ""),
    ("get the status of a resource without", "GET", "/apis/shop.example.com/v1/fleets/f/status", "", ""),
    ("get the scale of a wrong type", "GET", "/apis/shop.example.com/v1/fleets/f/scale", "", ""),
    ("patch a scale without replicas", "PATCH", "/apis/shop.example.com/v1/fleets/none/scale", "merge", "{}"),
    (
        "create without replicas",
        "POST",
        "/apis/shop.example.com/v1/fleets",
        "json",
        r#"{"apiVersion":"shop.example.com/v1","kind":"Fleet","metadata":{"name":"empty"}}"#,
    ),
    ("get the scale without replicas", "GET", "/apis/shop.example.com/v1/fleets/empty/scale", "", ""),
    (
        "update the scale to nothing",
        "PUT",
        "/apis/shop.example.com/v1/fleets/empty/scale",
        "json",
        r#"{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"empty"},"spec":{}}"#,
    ),
    ("patch the scale with nothing", "PATCH", "/apis/shop.example.com/v1/fleets/empty/scale", "merge", "{}"),
    (
        "list without columns",
        "GET",
        "/apis/shop.example.com/v1/fleets application/json;as=Table;v=v1;g=meta.k8s.io",
        "",
        "",
    ),
    (
        "create in a deprecated version",
        "POST",
        "/apis/shop.example.com/v1beta1/fleets",
        "json",
        r#"{"apiVersion":"shop.example.com/v1beta1","kind":"Fleet","metadata":{"name":"old"}}"#,
    ),
    ("delete of the collection", "DELETE", "/apis/shop.example.com/v1/fleets", "", ""),
    (
        "bad field validation",
        "POST",
        "~/orders?fieldValidation=Other",
        "json",
        r#"{"apiVersion":"shop.example.com/v1","kind":"Order","metadata":{"name":"v"},"spec":{"item":"tea"}}"#,
    ),
];

fn content_type(short: &str) -> Option<&'static str> {
    Some(match short {
        "" => return None,
        "json" => "application/json",
        "yaml" => "application/yaml",
        "text" => "text/plain",
        "protobuf" => "application/vnd.kubernetes.protobuf",
        "merge" => "application/merge-patch+json",
        "json-patch" => "application/json-patch+json",
        "strategic" => "application/strategic-merge-patch+json",
        other => panic!("no content type {other}"),
    })
}

/// Definition of a cluster-scoped resource with few rules, one of its versions deprecated.
fn fleets_crd() -> Value {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let version = |name: &str| {
        json!({
            "name": name, "served": true, "storage": name == "v1", "deprecated": name != "v1",
            "schema": {"openAPIV3Schema": schema},
            "subresources": {"scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}},
        })
    };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": FLEET_CRD},
        "spec": {
            "group": "shop.example.com", "scope": "Cluster", "names": {"plural": "fleets", "kind": "Fleet"},
            "versions": [version("v1"), version("v1beta1")],
        },
    })
}

/// Sends all requests to a server and returns one line per response.
pub(crate) async fn responses_of(client: &Client) -> Vec<(&'static str, String)> {
    define(client, &orders_crd()).await;
    define(client, &fleets_crd()).await;
    wait_until_served(client).await;
    let mut responses = Vec::new();
    for (name, method, path, content, body) in CASES {
        let (path, accept) = path.split_once(' ').unwrap_or((path, "application/json"));
        let path = path.replacen('~', NS, 1);
        let mut request = client.request_builder(method.parse().unwrap(), &path).header("accept", accept);
        if let Some(content) = content_type(content) {
            request = request.header("content-type", content);
        }
        // Some handlers of kube-apiserver panic.
        let response = client.try_send(request, Bytes::from_static(body.as_bytes())).await;
        responses.push((*name, response.map_or_else(|failure| format!("{failure:?}"), |response| describe(&response))));
    }
    responses
}

/// A real server serves a new definition a moment after it is established.
async fn wait_until_served(client: &Client) {
    for path in ["/apis/shop.example.com/v2/orders", "/apis/shop.example.com/v1beta1/fleets"] {
        eventually(path, async || {
            let answer = client.get(path).await;
            if answer.status == 200 { Ok(()) } else { Err(answer.summary()) }
        })
        .await;
    }
}

/// Code, warnings and body of a response, without what differs between two runs.
fn describe(response: &FullResponse) -> String {
    let mut line = response.status.as_u16().to_string();
    for warning in response.headers.get_all("warning") {
        line += &format!(" [{}]", warning.to_str().unwrap());
    }
    match serde_json::from_slice::<Value>(&response.body) {
        Ok(mut body) => {
            normalize(&mut body);
            line + " " + &body.to_string()
        }
        Err(_) if response.body.starts_with(b"k8s\0") => line + " protobuf",
        Err(_) => line + " " + &format!("{:?}", String::from_utf8_lossy(&response.body)),
    }
}

fn normalize(value: &mut Value) {
    match value {
        Value::Object(object) => {
            object.remove("managedFields");
            for (name, value) in object.iter_mut() {
                match (name.as_str(), &value) {
                    ("uid" | "resourceVersion" | "creationTimestamp" | "deletionTimestamp", Value::String(text))
                        if text.len() > 1 =>
                    {
                        *value = format!("<{name}>").into();
                    }
                    ("name", Value::String(text)) if text.starts_with("g-") => *value = "g-<random>".into(),
                    _ => normalize(value),
                }
            }
        }
        Value::Array(list) => list.iter_mut().for_each(normalize),
        Value::String(text) => {
            let is_age = text.ends_with('s') && text[..text.len() - 1].parse::<u32>().is_ok();
            *text = if is_age { "<age>".to_owned() } else { without_uids(text) };
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Replaces random uids, which have 36 characters and four dashes, and revisions in texts.
fn without_uids(text: &str) -> String {
    let is_uid = |word: &&str| word.len() == 36 && word.matches('-').count() == 4 && !word.starts_with("00000000");
    let words = text.split([' ', ',', '"', '\\', '}']).filter(is_uid).map(str::to_owned).collect::<Vec<_>>();
    let text = words.iter().fold(text.to_owned(), |text, uid| text.replace(uid, "<uid>"));
    match text.split_once(", current: ") {
        Some((before, _)) => format!("{before}, current: <revision>"),
        None => text,
    }
}

fn recording() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/custom-responses.txt")
}

pub(crate) fn record(responses: &[(&str, String)]) {
    let lines: Vec<String> = responses.iter().map(|(name, response)| format!("{name}: {response}\n")).collect();
    std::fs::write(recording(), lines.concat()).unwrap();
}

pub(crate) fn recorded() -> Vec<String> {
    let text = std::fs::read_to_string(recording()).unwrap();
    text.lines().map(str::to_owned).collect()
}

/// Cases whose response is known to differ, with the reason.
pub(crate) const KNOWN_DIFFERENCES: &[(&str, &str)] = &[];

/// The cases in which two servers differ, without the known ones.
pub(crate) fn differences(ours: &[(&str, String)], real: &[String]) -> Vec<String> {
    assert_eq!(ours.len(), real.len(), "the recording has other cases");
    let pairs = ours.iter().zip(real).filter_map(|((name, ours), real)| {
        let expected = real.strip_prefix(name).and_then(|real| real.strip_prefix(": ")).expect("the same cases");
        let is_known = KNOWN_DIFFERENCES.iter().any(|(known, _)| known == name);
        match (ours == expected, is_known) {
            (false, false) => Some(format!("{name}\n  ours {ours}\n  real {expected}\n")),
            (true, true) => Some(format!("{name}: no longer differs\n")),
            (true, false) | (false, true) => None,
        }
    });
    pairs.collect()
}

#[test]
fn responses_about_custom_objects_are_those_of_kube_apiserver() {
    let mut plane = ControlPlane::new(cluster_tests::TestStore::Sqlite);
    plane.start("a", &["--emulated-version=1.36"]);
    let ours = block_on(responses_of(&plane.admin("a")));
    let found = differences(&ours, &recorded());
    assert!(found.is_empty(), "{} differences:\n{}", found.len(), found.concat());
}
