//! Creates of custom objects with a large schema, beside a real kube-apiserver.

use std::time::{Duration, Instant};

use cluster_tests::Client;
use serde_json::{Map, Value, json};

use super::beside_kube_apiserver::compare_creates;
use super::{CONNECTIONS, ServeBenchSizes};
use crate::table::{BenchRow, BenchTable, Measurement};

/// Goal for the rate of creates relative to kube-apiserver.
const CREATE_RATE_RATIO_MIN: f64 = 3.0;
/// Properties of the schema; every object has all of them.
const PROPERTIES: usize = 200;
/// How long a server may need to serve a new definition.
const STEP_TIMEOUT: Duration = Duration::from_secs(60);

const CREATE_PATH: &str = "/apis/bench.example.com/v1/namespaces/default/larges";

pub(super) fn measure(sizes: ServeBenchSizes, table: &mut BenchTable) -> anyhow::Result<()> {
    let Some([ours, real]) = compare_creates(sizes, define, CREATE_PATH, new_object)? else {
        table.note("custom: creates beside kube-apiserver skipped, because KUBEBUILDER_ASSETS is not set");
        return Ok(());
    };
    let name = format!("etcd: create with a schema of {PROPERTIES} properties, {CONNECTIONS} connections");
    table.push(
        BenchRow::new(name, Measurement::Rate(ours))
            .compared_with("kube-apiserver", Measurement::Rate(real))
            .with_ratio_goal(CREATE_RATE_RATIO_MIN),
    );
    Ok(())
}

/// Creates the definition and waits until objects can be created.
async fn define(client: Client) -> anyhow::Result<()> {
    let properties: Map<String, Value> = (0..PROPERTIES).map(property).collect();
    let spec = json!({"type": "object", "properties": properties});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "larges.bench.example.com"},
        "spec": {
            "group": "bench.example.com", "scope": "Namespaced", "names": {"plural": "larges", "kind": "Large"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}}],
        },
    });
    let created = client.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition).await;
    anyhow::ensure!(created.status == 201, "{}", created.summary());
    let object: Value = serde_json::from_slice(&new_object())?;
    let started = Instant::now();
    loop {
        let answer = client.create(CREATE_PATH, &object).await;
        if answer.status == 201 {
            return Ok(());
        }
        anyhow::ensure!(started.elapsed() < STEP_TIMEOUT, "{}", answer.summary());
    }
}

fn property(number: usize) -> (String, Value) {
    let schema = match number % 4 {
        0 => json!({"type": "string", "maxLength": 40, "pattern": "^[a-z]+$"}),
        1 => json!({"type": "integer", "minimum": 0, "maximum": 1000}),
        2 => json!({"type": "array", "items": {"type": "string"}, "maxItems": 10}),
        _ => json!({"type": "string", "enum": ["one", "two"], "default": "one"}),
    };
    (format!("field{number}"), schema)
}

fn new_object() -> Vec<u8> {
    let value = |number: usize| match number % 4 {
        0 => json!("abc"),
        1 => json!(number),
        2 => json!(["a", "b"]),
        _ => json!("two"),
    };
    let spec: Map<String, Value> = (0..PROPERTIES).map(|number| (format!("field{number}"), value(number))).collect();
    let object = json!({
        "apiVersion": "bench.example.com/v1", "kind": "Large", "metadata": {"generateName": "large-"}, "spec": spec,
    });
    object.to_string().into_bytes()
}
