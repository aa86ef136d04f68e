//! The OpenAPI documents of kube-apiservers, recorded as hashes, compared with ours.
//!
//! Compared is everything but descriptions: Kubernetes' texts are its own, and our documents do not repeat them. Of the form only this
//! is made equal before: the order of members and of lists whose order means nothing, a reference alone in `allOf`, and the parameters that
//! kube-apiserver's Swagger document shares between operations under names of its own. `/openapi/v2` is recorded in parts: the paths of each
//! group-version, and the types of each package.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::PathBuf;

use cluster_tests::kube_apiserver::{KubeApiserver, KubeApiserverRelease};
use cluster_tests::{Client, ControlPlane, Etcd, TestStore};
use serde_json::{Map, Value, json};

use crate::block_on;

/// Releases with a record.
const RELEASES: [&str; 2] = ["1.35", "1.36"];
/// Lists whose order means nothing.
const SORTED_LISTS: [&str; 6] =
    ["required", "parameters", "produces", "consumes", "schemes", "x-kubernetes-group-version-kind"];

/// Lines of a part and its hash, from a kube-apiserver without flags; `differs: …` follows if ours differs.
fn record_file(release: &str) -> PathBuf {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/openapi");
    PathBuf::from(format!("{folder}/recorded-{release}.txt"))
}

/// A value without descriptions and with sorted lists; members of objects are sorted already.
fn canonical(value: &Value, parameters: &Value) -> Value {
    let Value::Object(members) = value else {
        let Value::Array(items) = value else { return value.clone() };
        return items.iter().map(|item| canonical(item, parameters)).collect();
    };
    let shared = members.get("$ref").and_then(Value::as_str).and_then(|text| text.strip_prefix("#/parameters/"));
    if let Some(parameter) = shared.and_then(|name| parameters.get(name)) {
        return canonical(parameter, &Value::Null);
    }
    let is_text = |name: &str, value: &Value| name == "description" && value.is_string();
    let mut canonical: Map<String, Value> = members
        .iter()
        .filter(|(name, value)| !is_text(name, value))
        .map(|(name, value)| (name.clone(), canonical(value, parameters)))
        .collect();
    if let Some([Value::Object(reference)]) = canonical.get("allOf").and_then(Value::as_array).map(Vec::as_slice)
        && reference.contains_key("$ref")
    {
        let reference = reference.clone();
        canonical.remove("allOf");
        canonical.extend(reference);
    }
    for name in SORTED_LISTS {
        if let Some(list) = canonical.get_mut(name).and_then(Value::as_array_mut) {
            list.sort_by_key(ToString::to_string);
        }
    }
    Value::Object(canonical)
}

/// FNV-1a, 64 bits.
fn fingerprint(text: &str) -> String {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    format!("{:016x}", text.bytes().fold(0xcbf2_9ce4_8422_2325, step))
}

/// The group-version or page of a path: `apis/apps/v1`.
fn home_of(path: &str) -> String {
    let parts = if path.starts_with("/apis/") { 3 } else { 2 };
    path.trim_matches('/').split('/').take(parts).collect::<Vec<_>>().join("/")
}

/// The compared parts of all documents of a server, by name.
async fn canonical_parts(client: &Client) -> BTreeMap<String, Value> {
    let mut parts = BTreeMap::new();
    let index = client.get("/openapi/v3").await.json();
    for path in index["paths"].as_object().unwrap().keys() {
        let document = client.get(&format!("/openapi/v3/{path}")).await.json();
        parts.insert(format!("v3 {path}"), canonical(&document, &Value::Null));
    }
    let swagger = client.get("/openapi/v2").await.json();
    let mut add = |part: String, name: &str, value: &Value| {
        let part = parts.entry(part).or_insert_with(|| json!({}));
        part[name] = canonical(value, &swagger["parameters"]);
    };
    for (path, item) in swagger["paths"].as_object().unwrap() {
        add(format!("v2 {}", home_of(path)), path, item);
    }
    for (name, definition) in swagger["definitions"].as_object().unwrap() {
        let package = name.rsplit_once('.').map_or("", |(package, _)| package);
        add(format!("v2 types {package}"), name, definition);
    }
    for (name, member) in swagger.as_object().unwrap() {
        if !["paths", "definitions", "parameters"].contains(&name.as_str()) {
            add("v2 head".to_owned(), name, member);
        }
    }
    parts
}

/// Hash of each part, and why ours differs, if it does.
fn recorded(release: &str) -> BTreeMap<String, (String, Option<String>)> {
    let text = std::fs::read_to_string(record_file(release)).unwrap_or_default();
    let lines = text.lines().filter_map(|line| {
        let (line, reason) = line.split_once(" differs: ").map_or((line, None), |(line, reason)| (line, Some(reason)));
        let (part, hash) = line.rsplit_once(' ')?;
        Some((part.to_owned(), (hash.to_owned(), reason.map(str::to_owned))))
    });
    lines.collect()
}

/// The flags of our server of a release.
fn flags(release: &str) -> [String; 2] {
    [format!("--emulated-version={release}"), "--feature-gates=StorageVersionAPI=false".to_owned()]
}

#[test]
fn openapi_documents_match_recorded_ones_of_kube_apiserver() {
    for release in RELEASES {
        let mut plane = ControlPlane::new(TestStore::Sqlite);
        plane.start("a", &flags(release).each_ref().map(String::as_str));
        let ours = block_on(canonical_parts(&plane.admin("a")));
        let recorded = recorded(release);
        assert!(recorded.len() > 60, "{release}: {recorded:?}");
        for (part, (hash, difference)) in &recorded {
            let is_same = ours.get(part).is_some_and(|part| fingerprint(&part.to_string()) == *hash);
            assert_eq!(is_same, difference.is_none(), "{release} {part}: {difference:?}");
        }
        let added: Vec<_> = ours.keys().filter(|part| !recorded.contains_key(*part)).collect();
        assert!(added.is_empty(), "{release}: {added:?}");
    }
}

/// The innermost members that differ.
fn differences(ours: &Value, theirs: &Value, at: &str, found: &mut Vec<String>) {
    match (ours, theirs) {
        _ if ours == theirs => {}
        (Value::Object(a), Value::Object(b)) => {
            let names: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
            for name in names {
                let [a, b] = [a, b].map(|members| members.get(name).unwrap_or(&Value::Null));
                differences(a, b, &format!("{at} {name}"), found);
            }
        }
        _ => found.push(format!("{at}\n  ours:   {ours}\n  theirs: {theirs}")),
    }
}

mod real {
    use cluster_tests::tools::optional_text;

    use super::*;

    /// Compares whole documents, and the record with a live server. With `UNSKEW_REAL_RECORD` the record is replaced.
    fn compare(kube_release: KubeApiserverRelease) {
        let etcd = Etcd::start();
        let mut plane = ControlPlane::new(TestStore::Sqlite);
        // It creates the certificates; the real server has its own storage.
        plane.start("maker", &[]);
        plane.stop("maker");
        let kube = KubeApiserver::start_stock(kube_release, plane.folder(), &etcd, &[]);
        let version = block_on(kube.admin().get("/version")).json();
        let release = format!("{}.{}", version["major"].as_str().unwrap(), version["minor"].as_str().unwrap());
        assert!(RELEASES.contains(&release.as_str()), "there is no record of {release}");
        plane.start("a", &flags(&release).each_ref().map(String::as_str));
        let [ours, theirs] = [plane.admin("a"), kube.admin()].map(|client| block_on(canonical_parts(&client)));
        let known = recorded(&release);
        let reason_of = |part: &String| known.get(part).and_then(|(_, reason)| reason.as_ref());
        let mut record = String::new();
        let mut unexpected = Vec::new();
        for (part, document) in &theirs {
            let reason = reason_of(part).map_or_else(String::new, |reason| format!(" differs: {reason}"));
            let _ = writeln!(record, "{part} {}{reason}", fingerprint(&document.to_string()));
            if reason_of(part).is_none() {
                differences(ours.get(part).unwrap_or(&Value::Null), document, part, &mut unexpected);
            }
        }
        if optional_text("UNSKEW_REAL_RECORD").is_some() {
            std::fs::write(record_file(&release), &record).unwrap();
        }
        assert!(unexpected.is_empty(), "{}", unexpected.join("\n"));
        assert_eq!(record, std::fs::read_to_string(record_file(&release)).unwrap());
    }

    #[test]
    fn openapi_documents_match_kube_apiserver() {
        compare(KubeApiserverRelease::New);
    }

    /// The real tier may have one release only; the older one is then compared by its record.
    #[test]
    fn openapi_documents_match_older_kube_apiserver() {
        if optional_text("KUBEBUILDER_ASSETS_OLD").is_some() {
            compare(KubeApiserverRelease::Old);
        }
    }
}
