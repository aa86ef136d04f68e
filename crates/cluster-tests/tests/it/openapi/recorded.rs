//! The OpenAPI documents of a kube-apiserver, recorded as hashes, compared with ours.
//!
//! Compared are the types (fields, formats, required ones, list and map topology, patch rules, defaults that are not zero) and the
//! operations (id, tags, kind, action, parameters, bodies, responses and their media types). Not compared: texts; zero defaults, enums and
//! unions, which our table of types does not have; the deprecated `/watch/` paths, and `OPTIONS` and `HEAD` and the parameters of
//! connections, which our documents do not have.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use cluster_tests::kube_apiserver::{KubeApiserver, KubeApiserverRelease, release_of_assets};
use cluster_tests::{Client, ControlPlane, Etcd, TestStore};
use serde_json::{Map, Value, json};

use crate::block_on;

/// Lines of a path below `/openapi/v3/` and the hash of its document, from a kube-apiserver 1.36 without flags; `differs: …` follows if
/// our document differs.
const RECORD_FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/openapi/recorded-1.36.txt");

const METHODS: [&str; 5] = ["get", "put", "post", "delete", "patch"];
/// Members of types that are not compared.
const UNCOMPARED: [&str; 2] = ["enum", "x-kubernetes-unions"];

/// A type without what is not compared.
fn canonical_type(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            let is_text = |name: &str, value: &Value| name == "description" && value.is_string();
            let is_zero = |name: &str, value: &Value| {
                name == "default" && [json!(""), json!(0), json!(0.0), json!(false), json!({})].contains(value)
            };
            let mut canonical: Map<String, Value> = members
                .iter()
                .filter(|(name, value)| {
                    !is_text(name, value) && !is_zero(name, value) && !UNCOMPARED.contains(&name.as_str())
                })
                .map(|(name, value)| (name.clone(), canonical_type(value)))
                .collect();
            // A reference with siblings is wrapped.
            if let Some([Value::Object(reference)]) =
                canonical.get("allOf").and_then(Value::as_array).map(Vec::as_slice)
                && reference.contains_key("$ref")
            {
                let reference = reference.clone();
                canonical.remove("allOf");
                canonical.extend(reference);
            }
            if let Some(required) = canonical.get_mut("required").and_then(Value::as_array_mut) {
                required.sort_by_key(ToString::to_string);
            }
            Value::Object(canonical)
        }
        Value::Array(items) => items.iter().map(canonical_type).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

fn canonical_operation(item: &Value, operation: &Value) -> Value {
    let kind = &operation["x-kubernetes-group-version-kind"];
    if operation["x-kubernetes-action"] == "connect" {
        return json!({"id": operation["operationId"], "kind": kind});
    }
    let lists = [&item["parameters"], &operation["parameters"]];
    let mut parameters: Vec<String> = lists
        .into_iter()
        .filter_map(Value::as_array)
        .flatten()
        .map(|parameter| format!("{} {} {}", parameter["in"], parameter["name"], parameter["schema"]["type"]))
        .collect();
    parameters.sort();
    let schemas = |content: &Value| -> BTreeMap<String, Value> {
        let members = content.as_object().into_iter().flatten();
        members.map(|(name, medium)| (name.clone(), medium["schema"].clone())).collect()
    };
    let responses = operation["responses"].as_object().into_iter().flatten();
    let responses: BTreeMap<&String, _> =
        responses.map(|(code, response)| (code, schemas(&response["content"]))).collect();
    let body = &operation["requestBody"];
    json!({
        "id": operation["operationId"], "tags": operation["tags"], "kind": kind,
        "action": operation["x-kubernetes-action"], "parameters": parameters, "body": schemas(&body["content"]),
        "isRequired": body["required"] == true, "responses": responses,
    })
}

/// The compared part of a document, with sorted members.
fn canonical(document: &Value) -> Value {
    let types = canonical_type(&document["components"]["schemas"]);
    let paths = document["paths"].as_object().into_iter().flatten();
    let operations: BTreeMap<String, Value> = paths
        .filter(|(path, _)| !path.contains("/watch/"))
        .flat_map(|(path, item)| {
            METHODS.into_iter().filter_map(move |method| {
                Some((format!("{method} {path}"), canonical_operation(item, item.get(method)?)))
            })
        })
        .collect();
    json!({"version": document["info"]["version"], "types": types, "operations": operations})
}

/// FNV-1a, 64 bits.
fn fingerprint(text: &str) -> String {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    format!("{:016x}", text.bytes().fold(0xcbf2_9ce4_8422_2325, step))
}

/// The compared part of every document of a group-version, by path.
async fn canonical_documents(client: &Client) -> BTreeMap<String, Value> {
    let index = client.get("/openapi/v3").await.json();
    let mut documents = BTreeMap::new();
    for path in index["paths"].as_object().unwrap().keys() {
        // Other documents describe no resources.
        let is_version = path.starts_with("api/") || path.matches('/').count() == 2 && path.starts_with("apis/");
        if is_version {
            documents.insert(path.clone(), canonical(&client.get(&format!("/openapi/v3/{path}")).await.json()));
        }
    }
    documents
}

/// Hash of each document, and why ours differs, if it does.
fn recorded() -> BTreeMap<String, (String, Option<String>)> {
    let text = std::fs::read_to_string(RECORD_FILE).unwrap();
    let lines = text.lines().filter_map(|line| {
        let (path, rest) = line.split_once(' ')?;
        let (hash, reason) = rest.split_once(" differs: ").map_or((rest, None), |(hash, reason)| (hash, Some(reason)));
        Some((path.to_owned(), (hash.to_owned(), reason.map(str::to_owned))))
    });
    lines.collect()
}

#[test]
fn openapi_documents_match_recorded_ones_of_kube_apiserver() {
    let mut plane = ControlPlane::new(TestStore::Sqlite);
    plane.start("a", &["--emulated-version=1.36", "--feature-gates=StorageVersionAPI=false"]);
    let ours = block_on(canonical_documents(&plane.admin("a")));
    let recorded = recorded();
    assert!(recorded.len() > 20, "{recorded:?}");
    for (path, (hash, difference)) in recorded {
        let is_same = ours.get(&path).is_some_and(|document| fingerprint(&document.to_string()) == hash);
        assert_eq!(is_same, difference.is_none(), "{path}: {difference:?}");
    }
}

/// The types and operations that differ between two documents.
fn differences(ours: &Value, theirs: &Value) -> Vec<String> {
    let mut found = Vec::new();
    for part in ["types", "operations"] {
        let none = Map::new();
        let [ours, theirs] = [ours, theirs].map(|document| document[part].as_object().unwrap_or(&none));
        let names: BTreeSet<&String> = ours.keys().chain(theirs.keys()).collect();
        for name in names.into_iter().filter(|name| ours.get(*name) != theirs.get(*name)) {
            let [ours, theirs] = [ours, theirs].map(|members| members.get(name).unwrap_or(&Value::Null));
            found.push(format!("{part} {name}\n  ours:   {ours}\n  theirs: {theirs}"));
        }
    }
    if ours["version"] != theirs["version"] {
        found.push(format!("version {} {}", ours["version"], theirs["version"]));
    }
    found
}

mod real {
    use cluster_tests::tools::optional_text;

    use super::*;

    /// Compares whole documents, and the record with a live server. With `UNSKEW_REAL_RECORD` the record is replaced.
    #[test]
    fn openapi_documents_match_kube_apiserver() {
        assert_eq!(release_of_assets(), "1.36", "the record is of 1.36");
        let etcd = Etcd::start();
        let mut plane = ControlPlane::new(TestStore::Etcd(&etcd));
        plane.start("a", &["--emulated-version=1.36", "--feature-gates=StorageVersionAPI=false"]);
        let kube = KubeApiserver::start_stock(KubeApiserverRelease::New, plane.folder(), &etcd, &[]);
        let [ours, theirs] = [plane.admin("a"), kube.admin()].map(|client| block_on(canonical_documents(&client)));
        let known = recorded();
        let mut record = String::new();
        for (path, document) in &theirs {
            let reason = known.get(path).and_then(|(_, reason)| reason.as_ref());
            let reason = reason.map_or_else(String::new, |reason| format!(" differs: {reason}"));
            let _ = writeln!(record, "{path} {}{reason}", fingerprint(&document.to_string()));
        }
        if optional_text("UNSKEW_REAL_RECORD").is_some() {
            std::fs::write(RECORD_FILE, &record).unwrap();
        }
        let mut unexpected = Vec::new();
        for (path, document) in &theirs {
            let is_expected = known.get(path).is_some_and(|(_, reason)| reason.is_some());
            if !is_expected {
                let ours = ours.get(path).unwrap_or(&Value::Null);
                unexpected
                    .extend(differences(ours, document).into_iter().map(|difference| format!("{path} {difference}")));
            }
        }
        assert!(unexpected.is_empty(), "{}", unexpected.join("\n"));
        assert_eq!(record, std::fs::read_to_string(RECORD_FILE).unwrap());
    }
}
