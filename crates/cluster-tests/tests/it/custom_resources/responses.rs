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

/// One request per line: name, method, path, content type (an abbreviation, see [`content_type`]) and body. `Accept`
/// follows the path after a space; `~` in a path stands for [`NS`].
const REQUESTS: &str = include_str!("../../data/custom-requests.jsonl");

const NS: &str = "/apis/shop.example.com/v1/namespaces/default";

fn content_type(short: &str) -> Option<&'static str> {
    Some(match short {
        "" => return None,
        "json" => "application/json",
        "yaml" => "application/yaml",
        "text" => "text/plain",
        "protobuf" => "application/vnd.kubernetes.protobuf",
        "merge" => "application/merge-patch+json",
        "json-patch" => "application/json-patch+json",
        "apply" => "application/apply-patch+yaml",
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
pub(crate) async fn responses_of(client: &Client) -> Vec<(String, String)> {
    define(client, &orders_crd()).await;
    define(client, &fleets_crd()).await;
    wait_until_served(client).await;
    let mut responses = Vec::new();
    for line in REQUESTS.lines() {
        let [name, method, path, content, body]: [String; 5] = serde_json::from_str(line).unwrap();
        let (path, accept) = path.split_once(' ').unwrap_or((&path, "application/json"));
        let path = path.replacen('~', NS, 1);
        let mut request = client.request_builder(method.parse().unwrap(), &path).header("accept", accept);
        if let Some(content) = content_type(&content) {
            request = request.header("content-type", content);
        }
        // Some handlers of kube-apiserver panic.
        let response = client.try_send(request, Bytes::from(body)).await;
        responses.push((name, response.map_or_else(|failure| format!("{failure:?}"), |response| describe(&response))));
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
            // Descriptions of columns that every resource has are in our own words.
            if object.contains_key("jsonPath")
                || ["Name", "Age"].iter().any(|name| object.get("name") == Some(&json!(name)))
            {
                object.remove("description");
            }
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

/// Replaces random uids, which have 36 characters and four dashes, revisions and patched objects in texts.
fn without_uids(text: &str) -> String {
    let is_uid = |word: &&str| word.len() == 36 && word.matches('-').count() == 4 && !word.starts_with("00000000");
    let words = text.split([' ', ',', '"', '\\', '}', '(', ')']).filter(is_uid).map(str::to_owned).collect::<Vec<_>>();
    let text = words.iter().fold(text.to_owned(), |text, uid| text.replace(uid, "<uid>"));
    let (before, after) = match (text.split_once("Invalid value: \"{"), text.rsplit_once("}\": ")) {
        (Some((before, _)), Some((_, after))) => (before, after),
        _ => {
            let revision = ["ResourceVersion in record (", ", current: "].iter().find_map(|mark| text.split_once(mark));
            return revision.map_or_else(|| text.clone(), |(before, _)| format!("{before} <revision>"));
        }
    };
    format!("{before}Invalid value: <patched object>: {after}")
}

fn recording() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/custom-responses.txt")
}

pub(crate) fn record(responses: &[(String, String)]) {
    let lines: Vec<String> = responses.iter().map(|(name, response)| format!("{name}: {response}\n")).collect();
    std::fs::write(recording(), lines.concat()).unwrap();
}

pub(crate) fn recorded() -> Vec<String> {
    let text = std::fs::read_to_string(recording()).unwrap();
    text.lines().map(str::to_owned).collect()
}

/// Cases whose response is known to differ, with the reason.
pub(crate) const KNOWN_DIFFERENCES: &[(&str, &str)] = &[
    ("create from protobuf", "the handler of kube-apiserver panics"),
    ("create at a name", "a right to create one name would create any"),
    ("get a subresource of a subresource", "kube-apiserver ignores the rest of the path"),
    ("list with a bad continue token", "text of another base64 decoder"),
    ("watch from a bad revision", "400 is the better code"),
    ("update of another uid", "no text about the storage key"),
    ("update the scale with another kind", "no text about the source of kube-apiserver"),
    ("get a table of the scale", "a Scale has no table"),
];

/// The cases in which two servers differ, without the known ones; and known ones in which they do not.
pub(crate) fn differences(ours: &[(String, String)], real: &[String]) -> Vec<String> {
    assert_eq!(ours.len(), real.len(), "the recording has other cases");
    let pairs = ours.iter().zip(real).filter_map(|((name, ours), real)| {
        let expected = real.strip_prefix(name).and_then(|real| real.strip_prefix(": ")).expect("the same cases");
        let is_known = KNOWN_DIFFERENCES.iter().any(|(known, _)| known == name);
        match (ours == expected, is_known) {
            (true, false) | (false, true) => None,
            (true, true) => Some(format!("{name}: the known difference is gone\n")),
            (false, false) => Some(format!("{name}\n  ours {ours}\n  real {expected}\n")),
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
