//! Policies and writes that a real kube-apiserver and ours must judge alike.
//!
//! Each case has a namespace of its own, to which its bindings are limited, so that all cases run on one server. A case
//! gives policies without what most have in common; see [`Case::policies`].

use std::path::PathBuf;

use cluster_tests::Client;
use cluster_tests::client::FullResponse;
use cluster_tests::wait::eventually;
use http::Method;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::custom_resource::CRD_PATH;

const GROUP_PATH: &str = "/apis/admissionregistration.k8s.io/v1";

/// Policies, and writes under them.
#[derive(Debug, Deserialize)]
pub(crate) struct Case {
    pub(crate) name: String,
    /// The `spec` of validating policies.
    #[serde(default)]
    validating: Vec<Value>,
    /// The `spec` of mutating policies.
    #[serde(default)]
    mutating: Vec<Value>,
    /// What the `spec` of each binding has besides the name of the policy and the namespace.
    #[serde(default)]
    binding: Map<String, Value>,
    /// Objects that exist before.
    #[serde(default)]
    params: Vec<Value>,
    /// In order.
    writes: Vec<Write>,
}

#[derive(Debug, Deserialize)]
struct Write {
    /// `create`, `update`, `patch`, `apply` or `delete`.
    verb: String,
    /// Below the namespace, such as `configmaps` or `apps/v1/deployments`.
    resource: String,
    /// The name, for all but a create, with a subresource.
    #[serde(default)]
    name: String,
    #[serde(default)]
    query: String,
    #[serde(default)]
    object: Value,
}

impl Case {
    /// Policies and bindings with their paths. A policy without match constraints is for config maps. Placeholders:
    /// `NAMESPACE` stands for the namespace of the case.
    fn policies(&self) -> Vec<(String, Value)> {
        let mut objects = Vec::new();
        for (kind, plural, specs) in [
            ("ValidatingAdmissionPolicy", "validatingadmissionpolicies", &self.validating),
            ("MutatingAdmissionPolicy", "mutatingadmissionpolicies", &self.mutating),
        ] {
            for (index, spec) in specs.iter().enumerate() {
                let name = format!("{}-{index}", self.name);
                let mut spec = spec.clone();
                let rule = json!({"operations": ["CREATE", "UPDATE"], "apiGroups": ["*"], "apiVersions": ["*"],
                    "resources": ["configmaps"]});
                let fields = spec.as_object_mut().unwrap();
                fields.entry("matchConstraints").or_insert_with(|| json!({"resourceRules": [rule]}));
                if kind.starts_with("Mutating") {
                    fields.entry("reinvocationPolicy").or_insert_with(|| "Never".into());
                }
                let mut bound = self.binding.clone();
                bound.insert("policyName".to_owned(), name.as_str().into());
                let selector = json!({"matchLabels": {"kubernetes.io/metadata.name": self.name}});
                let matched = bound.entry("matchResources").or_insert_with(|| json!({}));
                let matched = matched.as_object_mut().unwrap();
                if !matched.contains_key("objectSelector") {
                    matched.insert("namespaceSelector".to_owned(), selector);
                }
                if kind.starts_with("Validating") {
                    bound.entry("validationActions").or_insert_with(|| json!(["Deny"]));
                }
                let metadata = json!({"name": name});
                let api_version = "admissionregistration.k8s.io/v1";
                let policy = json!({"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec});
                let binding = json!({"apiVersion": api_version, "kind": format!("{kind}Binding"), "metadata": metadata,
                    "spec": bound});
                let bindings = plural.replace("policies", "policybindings");
                objects.push((format!("{GROUP_PATH}/{plural}"), policy));
                objects.push((format!("{GROUP_PATH}/{bindings}"), binding));
            }
        }
        objects
    }

    async fn perform(&self, client: &Client) -> Value {
        let mut outcomes = Vec::new();
        for write in &self.writes {
            let path = format!("{}{}", path_of(&write.resource, &self.name), write.query);
            let named = format!("{}/{}{}", path_of(&write.resource, &self.name), write.name, write.query);
            let body = || write.object.to_string().into();
            let merge = "application/merge-patch+json";
            let response = match write.verb.as_str() {
                "create" => client.create(&path, &write.object).await,
                "update" => client.update(&named, &write.object).await,
                "patch" => client.send_body(Method::PATCH, &named, merge, body()).await,
                "apply" => {
                    let named = format!("{named}?fieldManager=test&force=true");
                    client.send_body(Method::PATCH, &named, "application/apply-patch+yaml", body()).await
                }
                "delete" => client.delete(&named).await,
                other => panic!("{other}"),
            };
            outcomes.push(outcome(&response));
        }
        Value::Array(outcomes)
    }
}

/// The path of a collection: `configmaps` in the namespace, `/namespaces` in the cluster.
fn path_of(resource: &str, namespace: &str) -> String {
    let (group_version, resource) = match resource.rsplit_once('/') {
        Some(("", resource)) => return format!("/api/v1/{resource}"),
        Some((group_version, resource)) => (format!("/apis/{group_version}"), resource),
        None => ("/api/v1".to_owned(), resource),
    };
    format!("{group_version}/namespaces/{namespace}/{resource}")
}

/// What a client sees of a response, without what differs from server to server.
fn outcome(response: &FullResponse) -> Value {
    let body = response.json();
    let warnings: Vec<String> =
        response.headers.get_all("warning").iter().map(|value| value.to_str().unwrap().to_owned()).collect();
    let mut outcome = json!({"code": response.status.as_u16()});
    if !warnings.is_empty() {
        outcome["warnings"] = json!(warnings);
    }
    if body["kind"] == "Status" {
        for field in ["reason", "message"] {
            outcome[field] = body[field].clone();
        }
        if !body["details"]["causes"].is_null() {
            outcome["causes"] = body["details"]["causes"].clone();
        }
    } else {
        let mut object = body;
        for hidden in ["uid", "creationTimestamp", "resourceVersion", "managedFields"] {
            object["metadata"].as_object_mut().unwrap().remove(hidden);
        }
        outcome["object"] = object;
    }
    outcome
}

fn data_folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/policies")
}

pub(crate) fn recorded_file() -> PathBuf {
    data_folder().join("recorded.json")
}

pub(crate) fn load_cases() -> Vec<Case> {
    let text = std::fs::read_to_string(data_folder().join("cases.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

async fn create(client: &Client, path: &str, object: &Value) {
    let created = client.create(path, object).await;
    assert!([201, 409].contains(&created.status.as_u16()), "{path}: {object}: {}", created.summary());
}

/// Creates what all cases need, then performs the writes of each. Returns the outcomes by the names of the cases; of a
/// policy that is refused, the refusal.
pub(crate) async fn perform_all(client: &Client, cases: &[Case]) -> Map<String, Value> {
    create(client, CRD_PATH, &widgets_definition()).await;
    for case in cases {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": case.name}});
        create(client, "/api/v1/namespaces", &namespace).await;
    }
    wait_for_definition(client).await;
    for case in cases {
        for param in &case.params {
            let is_widget = param["kind"] == "Widget";
            let namespace = param["metadata"]["namespace"].as_str().unwrap_or(&case.name);
            create(client, &path_of(if is_widget { WIDGETS } else { "configmaps" }, namespace), param).await;
        }
    }
    let mut outcomes = Map::new();
    for case in cases {
        let mut refused = Vec::new();
        for (path, object) in case.policies() {
            let created = client.create(&path, &object).await;
            if created.status != 201 {
                refused.push(outcome(&created));
            }
        }
        if !refused.is_empty() {
            outcomes.insert(case.name.clone(), Value::Array(refused));
        }
    }
    wait_until_in_force(client, cases).await;
    for case in cases {
        if !outcomes.contains_key(&case.name) {
            outcomes.insert(case.name.clone(), case.perform(client).await);
        }
    }
    outcomes
}

const WIDGETS: &str = "example.com/v1/widgets";

fn widgets_definition() -> Value {
    let text = json!({"type": "string"});
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "size": {"type": "integer"}, "color": {"type": "string", "default": "red"}, "tags": {"type": "array", "items": text},
        "names": {"type": "array", "items": text, "x-kubernetes-list-type": "set"},
        "parts": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
            "items": {"type": "object", "required": ["name"],
                "properties": {"name": text, "count": {"type": "integer"}}}},
    }}, "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}});
    let version = |name: &str, storage: bool| {
        json!({"name": name, "served": true, "storage": storage,
        "schema": {"openAPIV3Schema": schema}, "subresources": {"status": {}}})
    };
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
            "versions": [version("v1", true), version("v2", false)]}})
}

async fn wait_for_definition(client: &Client) {
    eventually("the definition is served", async || {
        match client.get("/apis/example.com/v2/widgets").await.status.as_u16() {
            200 => Ok(()),
            code => Err(code.to_string()),
        }
    })
    .await;
}

/// Waits until policies that are created last are in force, one of each kind and on a custom kind.
async fn wait_until_in_force(client: &Client, cases: &[Case]) {
    let namespace = &cases[0].name;
    let constraints = json!({"resourceRules": [{"operations": ["CREATE"], "apiGroups": ["example.com"], "apiVersions": ["v1"],
        "resources": ["widgets"], "resourceNames": ["canary"]}]});
    let labels = "Object{metadata: Object.metadata{labels: {'mutated': 'yes'}}}";
    let canary = Case {
        name: namespace.clone(),
        validating: vec![json!({"matchConstraints": constraints, "validations": [{"expression": "false", "message":
            "in force", "messageExpression": "has(object.metadata.labels) ? 'both in force' : 'one in force'"}]})],
        mutating: vec![json!({"matchConstraints": constraints, "mutations": [
            {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": labels}}]})],
        binding: Map::new(),
        params: Vec::new(),
        writes: Vec::new(),
    };
    for (path, mut object) in canary.policies() {
        object["metadata"]["name"] = "zz-canary".into();
        if object["spec"].get("policyName").is_some() {
            object["spec"]["policyName"] = "zz-canary".into();
        }
        create(client, &path, &object).await;
    }
    let widget = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "canary"}});
    let path = format!("{}?dryRun=All", path_of(WIDGETS, namespace));
    eventually("both policies are in force", async || {
        let refused = client.create(&path, &widget).await.summary();
        if refused.contains("both in force") { Ok(()) } else { Err(refused) }
    })
    .await;
}
