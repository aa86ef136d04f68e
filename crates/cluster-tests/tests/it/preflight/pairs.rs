//! "Predicted = observed": one release fills storage, preflight judges it for another, and a server of the other release on a
//! copy of the storage shows whether preflight was right.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use cluster_tests::wait::eventually;
use cluster_tests::{Client, RunningServer};
use http::Method;
use serde_json::{Value, json};
use store::StoreEntry;
use store::sqlite::SqliteScan;

use super::objects::{TestObject, test_objects};
use super::run_preflight;
use crate::custom_resource::{CARTS_PATH, CRD_PATH, carts_crd};
use crate::{block_on, start_on_sqlite};

pub(super) const ALL_APIS: &str = "--runtime-config=api/all=true";
pub(super) const ALL_GATES: &str = "--feature-gates=AllAlpha=true,AllBeta=true";
/// Discovery of one server, without its peers.
const OWN_DISCOVERY: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList;profile=nopeer";

/// Versions and scope of the resources that one server serves, by group and plural.
type Served = BTreeMap<(String, String), Vec<ServedVersion>>;

/// The plurals of kinds, by group and kind.
pub(super) type Plurals = BTreeMap<(String, String), String>;

#[derive(Clone)]
pub(super) struct ServedVersion {
    version: String,
    is_namespaced: bool,
    has_update: bool,
}

async fn served_resources(client: &Client) -> Served {
    let mut served = Served::new();
    for path in ["/api", "/apis"] {
        let request = client.request_builder(Method::GET, path).header("accept", OWN_DISCOVERY);
        let document = client.send(request, bytes::Bytes::new()).await.json();
        for group in document["items"].as_array().unwrap() {
            let group_name = group["metadata"]["name"].as_str().unwrap_or_default();
            for version in group["versions"].as_array().unwrap() {
                for resource in version["resources"].as_array().into_iter().flatten() {
                    let key = (group_name.to_owned(), resource["resource"].as_str().unwrap().to_owned());
                    served.entry(key).or_default().push(ServedVersion {
                        version: version["version"].as_str().unwrap().to_owned(),
                        is_namespaced: resource["scope"] == "Namespaced",
                        has_update: resource["verbs"].as_array().unwrap().contains(&json!("update")),
                    });
                }
            }
        }
    }
    served
}

fn collection(group: &str, served: &ServedVersion, resource: &str, namespace: &str) -> String {
    let ServedVersion { version, is_namespaced, .. } = served;
    let root = if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
    match is_namespaced {
        true => format!("{root}/namespaces/{namespace}/{resource}"),
        false => format!("{root}/{resource}"),
    }
}

/// Creates the test objects that the release knows, and returns how many.
pub(super) async fn fill(client: &Client, objects: &[TestObject]) -> usize {
    let served = served_resources(client).await;
    let mut created = 0;
    for object in objects {
        let TestObject { group, resource, kind, name, versions, body } = object;
        let Some(offered) = served.get(&((*group).to_owned(), (*resource).to_owned())) else { continue };
        let Some(chosen) = offered.iter().find(|offered| versions.contains(&&*offered.version)) else { continue };
        let mut body = body.clone();
        let api_version = if group.is_empty() { chosen.version.clone() } else { format!("{group}/{}", chosen.version) };
        body["apiVersion"] = json!(api_version);
        body["kind"] = json!(kind);
        body["metadata"] = json!({"name": name});
        let response = client.create(&collection(group, chosen, resource, "default"), &body).await;
        let status = response.status.as_u16();
        // 409: it is there in another form.
        assert!([201, 409, 422].contains(&status), "{resource} {name} {api_version}: {}", response.summary());
        created += usize::from(status == 201);
    }
    assert_eq!(client.create(CRD_PATH, &carts_crd()).await.status, 201);
    let cart =
        json!({"apiVersion": "shop.example.com/v1", "kind": "Cart", "metadata": {"name": "cart"}, "spec": {"a": 1}});
    eventually("the custom object is stored", async || {
        let created = client.create(CARTS_PATH, &cart).await;
        if created.status == 201 { Ok(()) } else { Err(created.summary()) }
    })
    .await;
    created
}

/// The stored API objects by key, without what belongs to servers.
fn stored_objects(folder: &Path) -> BTreeMap<String, Value> {
    let mut scan = SqliteScan::open(&folder.join("unskew-data/store.db"), b"/registry/".as_slice()).unwrap();
    let mut objects = BTreeMap::new();
    while let Some(entries) = scan.next_chunk().unwrap() {
        objects.extend(entries.iter().filter_map(api_object));
    }
    objects
}

/// The key and the object of an entry, if it is one that clients write.
pub(super) fn api_object(entry: &StoreEntry) -> Option<(String, Value)> {
    let key = String::from_utf8_lossy(&entry.key).into_owned();
    let value = serde_json::from_slice::<Value>(&entry.value).ok()?;
    let is_of_servers =
        ["/leases/", "/storageversions/", "/apiservices/", "/masterleases/", "/ranges/", "/peerserverleases/"];
    let is_object = value["kind"].is_string() && value["metadata"]["name"].is_string();
    (is_object && !is_of_servers.iter().any(|part| key.contains(part))).then_some((key, value))
}

/// Resource, and namespace with name, of a stored object.
fn place(object: &Value) -> (String, String, String) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let metadata = &object["metadata"];
    let namespace = text(&metadata["namespace"]);
    let name = text(&metadata["name"]);
    let object_name = if namespace.is_empty() { name } else { format!("{namespace}/{name}") };
    let api_version = text(&object["apiVersion"]);
    let group = api_version.split_once('/').map_or(String::new(), |(group, _)| group.to_owned());
    (group, text(&object["kind"]), object_name)
}

/// Predictions and observations alike: `invisible RESOURCE`, `unreadable RESOURCE VERSION`, `refused RESOURCE OBJECT`,
/// `lost RESOURCE OBJECT FIELD`, and of stock servers `unwritable RESOURCE OBJECT`.
pub(super) type Outcomes = BTreeSet<String>;

pub(super) fn predict(home: &Path, storage: &str, to: &str, flags: &[&str], is_stock: bool) -> Outcomes {
    let to = format!("--to={to}");
    let mut all = vec![to.as_str(), storage];
    all.extend(flags);
    let output = run_preflight(home, &all);
    let report: Value = serde_json::from_str(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    let mut predicted = Outcomes::new();
    for finding in report["findings"].as_array().unwrap() {
        let text = |field: &str| finding[field].as_str().unwrap_or_default();
        let (effect, resource, evidence) = (text("effect"), text("resource"), text("evidence"));
        let objects = finding["objects"].as_array().unwrap().iter();
        let objects = objects.map(|object| object.as_str().unwrap().split(' ').next().unwrap());
        let name = text("field").rsplit('.').next().unwrap();
        match effect {
            "invisible" => drop(predicted.insert(format!("invisible {resource}"))),
            "unreadable" => {
                let version =
                    evidence.split("stored as ").nth(1).and_then(|rest| rest.split([',', ' ']).next()).unwrap();
                predicted.insert(format!("unreadable {resource} {version}"));
            }
            // No client of ours writes it.
            "fieldsDropped" if text("field").split('.').next() == Some("status") => {}
            "gateDiffers" if evidence.contains("would refuse") => {
                predicted.extend(objects.map(|object| format!("refused {resource} {object}")));
            }
            "writesRefused" => {
                let effects = ["refused", "unwritable"].into_iter().take(1 + usize::from(is_stock));
                let refused = |object: &str| {
                    effects.clone().map(move |effect| format!("{effect} {resource} {object}")).collect::<Vec<_>>()
                };
                predicted.extend(objects.flat_map(refused));
            }
            "fieldsDropped" | "gateDiffers" => {
                predicted.extend(objects.map(|object| format!("lost {resource} {object} {name}")));
            }
            other => panic!("{other}: {finding}"),
        }
    }
    assert_eq!(output.code, Some(i32::from(!predicted.is_empty())), "{to}: {}", output.stdout);
    without_fields_of_refused(&predicted)
}

/// A refused object shows no fields that are lost.
fn without_fields_of_refused(outcomes: &Outcomes) -> Outcomes {
    let is_of_refused = |outcome: &String| {
        let object = outcome.strip_prefix("lost ").and_then(|rest| rest.rsplit_once(' '));
        object.is_some_and(|(object, _)| outcomes.contains(&format!("refused {object}")))
    };
    outcomes.iter().filter(|outcome| !is_of_refused(outcome)).cloned().collect()
}

/// Starts a server of the release on a copy of the storage, lists and rewrites everything, and creates everything once more
/// without storing it.
fn observe(source: &Path, to: &str, flags: &[&str], plurals: &Plurals) -> Outcomes {
    let copy = tempfile::tempdir().unwrap();
    copy_folder(&source.join("unskew-data"), &copy.path().join("unskew-data"));
    let emulated = format!("--emulated-version={to}");
    let mut all = vec![emulated.as_str()];
    all.extend(flags);
    let server = start_on_sqlite(copy.path(), &all);
    let client = server.admin();
    let before = stored_objects(copy.path());
    let observed = block_on(observe_objects(&client, &before, plurals));
    let after = stored_objects(copy.path());
    assert!(before.keys().all(|key| after.contains_key(key)), "an object is gone");
    assert_eq!(server.stop(), Some(0));
    observed
}

/// What the one running server does to objects: of those that it serves and reads, every one is read, rewritten, and created
/// once more without storing it.
pub(super) async fn observe_objects(client: &Client, objects: &BTreeMap<String, Value>, plurals: &Plurals) -> Outcomes {
    let served = served_resources(client).await;
    let decodable = decodable_versions(client).await;
    let mut unlisted = BTreeSet::new();
    let mut observed = Outcomes::new();
    for object in objects.values() {
        let (group, kind, name) = place(object);
        let plural = &plurals[&(group.clone(), kind)];
        let resource = if group.is_empty() { plural.clone() } else { format!("{plural}.{group}") };
        let api_version = object["apiVersion"].as_str().unwrap();
        let Some(versions) = served.get(&(group.clone(), plural.clone())) else {
            observed.insert(format!("invisible {resource}"));
            continue;
        };
        // A stock server does not report: one object that it cannot decode breaks the list.
        let list = collection(&group, &ServedVersion { is_namespaced: false, ..versions[0].clone() }, plural, "");
        if decodable.is_empty() && (unlisted.contains(&list) || client.get(&list).await.status == 500) {
            unlisted.insert(list);
            observed.insert(format!("unreadable {resource} {api_version}"));
            continue;
        }
        let reported = decodable.get(&format!("{}.{plural}", if group.is_empty() { "core" } else { &group }));
        if reported.is_some_and(|reported| !reported.contains(api_version)) {
            observed.insert(format!("unreadable {resource} {api_version}"));
            continue;
        }
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
        let path = collection(&group, &versions[0], plural, namespace);
        observed.extend(rewrite(client, &path, &versions[0], object).await.map(|outcome| match &*outcome {
            "unwritable" => format!("unwritable {resource} {name}"),
            _ => outcome,
        }));
        let version = api_version.rsplit('/').next().unwrap();
        if let Some(same) = versions.iter().find(|served| served.version == version) {
            let path = collection(&group, same, plural, namespace);
            observed.extend(create_again(client, &path, object, &resource, &name).await);
        }
    }
    observed
}

/// What the one running server reports for each resource, by `group.plural`.
async fn decodable_versions(client: &Client) -> BTreeMap<String, BTreeSet<String>> {
    let leases = client.get("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases").await.json();
    let holders: BTreeSet<&str> =
        leases["items"].as_array().unwrap().iter().filter_map(|lease| lease["metadata"]["name"].as_str()).collect();
    let list = client.get("/apis/internal.apiserver.k8s.io/v1alpha1/storageversions").await;
    if list.status != 200 {
        return BTreeMap::new();
    }
    let list = list.json();
    let versions = |object: &Value| {
        let mut entries = object["status"]["storageVersions"].as_array().into_iter().flatten();
        // The server that filled the storage took its lease with it.
        let of_running = entries.rfind(|entry| holders.contains(entry["apiServerID"].as_str().unwrap())).cloned();
        let decodable = of_running.map(|entry| entry["decodableVersions"].as_array().cloned().unwrap_or_default());
        decodable.unwrap_or_default().iter().map(|version| version.as_str().unwrap().to_owned()).collect()
    };
    let items = list["items"].as_array().into_iter().flatten();
    items.map(|object| (object["metadata"]["name"].as_str().unwrap().to_owned(), versions(object))).collect()
}

/// Reads an object and writes it back: the server keeps everything that it does not know.
async fn rewrite(client: &Client, path: &str, served: &ServedVersion, object: &Value) -> Option<String> {
    let one = format!("{path}/{}", object["metadata"]["name"].as_str().unwrap());
    let read = client.get(&one).await;
    if read.status != 200 {
        return Some(format!("not read {one}: {}", read.summary()));
    }
    if !served.has_update {
        return None;
    }
    let written = client.update(&one, &read.json()).await;
    match written.status.as_u16() {
        200 => None,
        422 => Some("unwritable".to_owned()),
        _ => Some(format!("not written {one}: {}", written.summary())),
    }
}

/// Creates a copy of an object without storing it: fields that are missing in the response, or the refusal.
async fn create_again(client: &Client, path: &str, object: &Value, resource: &str, name: &str) -> Outcomes {
    let mut copy = object.clone();
    copy.as_object_mut().unwrap().remove("status");
    copy["metadata"] = json!({"name": format!("{}-copy", object["metadata"]["name"].as_str().unwrap()),
        "labels": object["metadata"]["labels"], "namespace": object["metadata"]["namespace"]});
    let created = client.create(&format!("{path}?dryRun=All"), &copy).await;
    let mut outcomes = Outcomes::new();
    match created.status.as_u16() {
        201 => {
            let mut lost = BTreeSet::new();
            collect_lost_fields(&copy, &created.json(), &mut lost);
            outcomes.extend(lost.into_iter().map(|field| format!("lost {resource} {name} {field}")));
        }
        422 => drop(outcomes.insert(format!("refused {resource} {name}"))),
        _ => drop(outcomes.insert(format!("not created {resource} {name}: {}", created.summary()))),
    }
    outcomes
}

fn collect_lost_fields(sent: &Value, received: &Value, lost: &mut BTreeSet<String>) {
    match (sent, received) {
        (Value::Object(sent), Value::Object(received)) => {
            for (name, value) in sent.iter().filter(|(_, value)| !value.is_null()) {
                match received.get(name) {
                    Some(received) => collect_lost_fields(value, received, lost),
                    // It does not stay behind without fields.
                    None if name == "lifecycle" => lost.extend(value.as_object().unwrap().keys().cloned()),
                    None => drop(lost.insert(name.clone())),
                }
            }
        }
        (Value::Array(sent), Value::Array(received)) => {
            sent.iter().zip(received).for_each(|(sent, received)| collect_lost_fields(sent, received, lost));
        }
        _ => {}
    }
}

fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        match entry.file_type().unwrap().is_dir() {
            true => copy_folder(&entry.path(), &to.join(entry.file_name())),
            false => drop(std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap()),
        }
    }
}

/// The plurals of stored kinds, by group and kind, from a server that serves all of them.
pub(super) async fn plurals(client: &Client) -> Plurals {
    let mut plurals = BTreeMap::new();
    for path in ["/api", "/apis"] {
        let request = client.request_builder(Method::GET, path).header("accept", OWN_DISCOVERY);
        let document = client.send(request, bytes::Bytes::new()).await.json();
        for group in document["items"].as_array().unwrap() {
            let resources =
                group["versions"].as_array().unwrap().iter().flat_map(|version| version["resources"].as_array());
            for resource in resources.flatten() {
                let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                let key = (text(&group["metadata"]["name"]), text(&resource["responseKind"]["kind"]));
                plurals.insert(key, text(&resource["resource"]));
            }
        }
    }
    plurals
}

/// Fills storage by `from`, and compares predictions for `to` with a server of `to`, once with its defaults and once with all
/// APIs and gates on. `expected` must be among the latter.
#[track_caller]
fn check(from: &str, to: &str, expected: &[&str]) {
    let source = tempfile::tempdir().unwrap();
    let server = start_on_sqlite(source.path(), &[&format!("--emulated-version={from}"), ALL_APIS, ALL_GATES]);
    let certificate = std::fs::read_to_string(server.pki().join("ca.crt")).unwrap();
    let (client, created) = (server.admin(), block_on(fill(&server.admin(), &test_objects(&certificate))));
    let plurals = block_on(plurals(&client));
    // Copies that no release accepts, because their names say what they are: not a matter of the change.
    let always = block_on(observe_objects(&client, &stored_objects(source.path()), &plurals));
    assert!(always.iter().all(|outcome| outcome.starts_with("refused ")), "{always:#?}");
    assert!(created > 10, "{from} stored {created} objects");
    assert_eq!(RunningServer::stop(server), Some(0));
    for flags in [&[][..], &[ALL_APIS, ALL_GATES]] {
        let storage = format!("--sqlite-file={}", source.path().join("unskew-data/store.db").display());
        let predicted = predict(source.path(), &storage, to, flags, false);
        let observed: Outcomes = observe(source.path(), to, flags, &plurals).difference(&always).cloned().collect();
        let missed: Vec<&String> = observed.difference(&predicted).collect();
        let wrong: Vec<&String> = predicted.difference(&observed).collect();
        assert!(
            missed.is_empty() && wrong.is_empty(),
            "{from} to {to} {flags:?}: missed {missed:#?}, wrong {wrong:#?}"
        );
        if !flags.is_empty() {
            let absent: Vec<_> = expected.iter().filter(|outcome| !predicted.contains(**outcome)).collect();
            assert!(absent.is_empty(), "{from} to {to}: {absent:?} not in {predicted:#?}");
        }
    }
}

#[test]
fn predictions_between_1_36_and_1_37_come_true() {
    check("1.37", "1.36", &["unreadable workloads.scheduling.k8s.io scheduling.k8s.io/v1beta1"]);
    check("1.36", "1.37", &["unreadable workloads.scheduling.k8s.io scheduling.k8s.io/v1alpha2"]);
}

#[test]
fn predictions_between_1_35_and_1_36_come_true() {
    check("1.36", "1.35", &["unreadable workloads.scheduling.k8s.io scheduling.k8s.io/v1alpha2"]);
    check("1.35", "1.36", &["unreadable workloads.scheduling.k8s.io scheduling.k8s.io/v1alpha1"]);
}

#[test]
fn predictions_between_1_34_and_1_35_come_true() {
    let migrations = "unreadable storageversionmigrations.storagemigration.k8s.io storagemigration.k8s.io";
    check("1.35", "1.34", &[&format!("{migrations}/v1beta1"), "refused pods default/compared"]);
    check("1.34", "1.35", &[&format!("{migrations}/v1alpha1")]);
}

#[test]
fn predictions_between_1_33_and_1_34_come_true() {
    check("1.34", "1.33", &["lost pods default/named hostnameOverride", "refused pods default/from-file"]);
    check("1.33", "1.34", &[]);
}
