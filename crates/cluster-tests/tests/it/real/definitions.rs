//! Installs definitions of other projects on a real kube-apiserver and on ours, and sends mutations of their sample objects
//! to both.
//!
//! `UNSKEW_REAL_DEFINITIONS` names a folder with `definitions.json` and `objects.json`: a list of CustomResourceDefinitions as a
//! project ships them, and a list of objects; without it those of the project itself are compared. The other variables are those
//! of the comparison of built-in kinds.

#![expect(clippy::print_stdout, reason = "figures are what the comparison is run for")]

use std::path::PathBuf;
use std::time::{Duration, Instant};

use cluster_tests::client::FullResponse;
use cluster_tests::kube_apiserver::{KubeApiserver, KubeApiserverRelease, release_of_assets};
use cluster_tests::tools::optional_text;
use cluster_tests::{Client, Etcd, RunningServer, TestStore};
use serde_json::{Value, json};

use super::validation::{compare, is_recording, record, write_differences};
use crate::block_on;
use crate::custom_resource::CRD_PATH;
use crate::validation::manifests::{Kind, definitions_folder, kinds_of, read_manifests};
use crate::validation::outcome::Outcome;
use crate::validation::recording::Recordings;
use crate::validation::report::{Comparison, render_tables};
use crate::validation::target::Target;

/// Until a real server lists the last of the definitions.
const ESTABLISH_TIMEOUT: Duration = Duration::from_secs(120);

#[test]
fn definitions_of_other_projects_behave_as_in_kube_apiserver() {
    let foreign = optional_text("UNSKEW_REAL_DEFINITIONS").map(PathBuf::from);
    let source = foreign.clone().unwrap_or_else(definitions_folder);
    let definitions = read_manifests(&source.join("definitions.json"));
    let mut kinds = kinds_of(read_manifests(&source.join("objects.json")).into_iter());
    let folder = tempfile::tempdir().unwrap();
    let etcd = Etcd::start();
    let release_flag = format!("--emulated-version={}", release_of_assets());
    let ours = RunningServer::start(folder.path(), TestStore::Sqlite, &[&release_flag]);
    let real = KubeApiserver::start_stock(KubeApiserverRelease::New, folder.path(), &etcd, &[]);
    let (different, comparisons) = block_on(async {
        let (ours, real) = (ours.admin(), real.admin());
        let mut different = install(&ours, &real, &definitions).await;
        for client in [&ours, &real] {
            wait_until_established(client, &definitions).await;
        }
        let (ours, real) = (discover(ours, &kinds).await, discover(real, &kinds).await);
        different.extend(create_all(&ours, &real, &mut kinds).await);
        println!("{} definitions and objects differ:\n{}", different.len(), different.join("\n"));
        (different, compare(&ours, &real, &kinds).await)
    });
    print!("{}", render_tables(&comparisons));
    write_differences(&comparisons);
    if is_recording() && foreign.is_none() {
        record(&Recordings::of_definitions(), &comparisons);
    }
    let wrong = comparisons.iter().filter(|one| one.difference().is_some() && !is_known(one)).count();
    assert_eq!((different.len(), wrong), (0, 0), "definitions and objects, cases");
}

/// True for differences that are none of verdicts or causes: the order of errors, which comes from a map in kube-apiserver, the
/// text about its storage key, the revision in the text of an object without a kind, and the `selfLink` in a dry run.
fn is_known(one: &Comparison<'_>) -> bool {
    match (&one.ours, &one.real) {
        (
            Outcome::Refused { code, reason, causes, message },
            Outcome::Refused { code: real_code, reason: real_reason, causes: real_causes, message: real_message },
        ) => {
            let is_same_refusal = (code, reason, causes) == (real_code, real_reason, real_causes);
            let is_about_storage = real_message.contains("StorageError: invalid object");
            let is_without_kind = message.contains("Object 'Kind' is missing in");
            is_same_refusal && (is_about_storage || is_without_kind || has_same_errors(message, real_message, causes))
        }
        (Outcome::Accepted { changes }, Outcome::Accepted { .. }) => changes.contains("-/metadata/selfLink"),
        _ => false,
    }
}

/// True if two messages list the same errors in any order.
fn has_same_errors(ours: &str, real: &str, causes: &[String]) -> bool {
    let listed = |message| Some(sorted_errors(message, causes)).filter(|(_, errors, _)| !errors.is_empty());
    listed(ours).is_some_and(|ours| listed(real) == Some(ours))
}

/// What is before the list of errors in a message, the errors in the order of their text, and what is after them. Each
/// begins with the field of a cause; a cause is `reason field`.
fn sorted_errors<'m>(message: &'m str, causes: &[String]) -> (&'m str, Vec<String>, &'m str) {
    let list = message.split_once(" is invalid: [").and_then(|(head, rest)| Some((head, rest.rsplit_once(']')?)));
    let Some((head, (list, tail))) = list else { return (message, Vec::new(), "") };
    let is_start = |text: &str| {
        let mut fields = causes.iter().filter_map(|cause| cause.split_once(' ')).map(|(_, field)| field);
        fields.any(|field| text.split_once(": ").is_some_and(|(start, _)| start == field || field.is_empty()))
    };
    let mut errors: Vec<String> = Vec::new();
    for text in list.split(", ") {
        match errors.last_mut() {
            Some(last) if !is_start(text) => *last = format!("{last}, {text}"),
            _ => errors.push(text.to_owned()),
        }
    }
    errors.sort();
    (head, errors, tail)
}

/// Creates all definitions on both servers, and returns the differences between their responses.
async fn install(ours: &Client, real: &Client, definitions: &[Value]) -> Vec<String> {
    let mut different = Vec::new();
    for definition in definitions {
        let name = definition["metadata"]["name"].as_str().unwrap();
        let responses = [ours.create(CRD_PATH, definition).await, real.create(CRD_PATH, definition).await];
        different.extend(difference(name, &responses));
    }
    different
}

/// Creates all objects as a dry run and for real. Those that the real server refuses serve no update.
async fn create_all(ours: &Target, real: &Target, kinds: &mut [Kind]) -> Vec<String> {
    let mut different = Vec::new();
    for kind in kinds {
        let Some(collection) = real.collection(kind) else { continue };
        for manifest in &mut kind.manifests {
            let name = format!("{collection}/{}", manifest.name().unwrap_or_default());
            let mut code = 0;
            for query in ["?dryRun=All", "?dryRun=All&fieldValidation=Strict", ""] {
                let path = format!("{collection}{query}");
                let responses = [
                    ours.client().create(&path, &manifest.object).await,
                    real.client().create(&path, &manifest.object).await,
                ];
                different.extend(difference(&format!("{name}{query}"), &responses));
                code = responses[1].status.as_u16();
            }
            manifest.is_stored = code == 201;
            if manifest.is_stored {
                for target in [ours, real] {
                    target.client().delete(&name).await;
                }
            } else {
                println!("the real server refuses {name}");
            }
        }
    }
    different
}

fn difference(name: &str, [ours, real]: &[FullResponse; 2]) -> Option<String> {
    let describe = |response: &FullResponse| {
        let mut body: Value = serde_json::from_slice(&response.body).unwrap_or_default();
        if let Some(metadata) = body.get_mut("metadata").and_then(Value::as_object_mut) {
            for field in ["uid", "resourceVersion", "creationTimestamp"] {
                metadata.remove(field);
            }
            for entry in metadata.get_mut("managedFields").and_then(Value::as_array_mut).into_iter().flatten() {
                entry["time"] = Value::Null;
            }
        }
        // Their order comes from a map in kube-apiserver.
        if let Some(causes) = body.pointer_mut("/details/causes").and_then(Value::as_array_mut) {
            causes.sort_by_key(Value::to_string);
            body["message"] = Value::Null;
        }
        let mut warnings: Vec<_> = response.headers.get_all("warning").iter().map(|text| format!("{text:?}")).collect();
        warnings.sort();
        (response.status.as_u16(), warnings, body)
    };
    let (ours, real) = (describe(ours), describe(real));
    if ours == real {
        return None;
    }
    let mut places = Vec::new();
    add_places("", &ours.2, &real.2, &mut places);
    places.truncate(6);
    Some(format!("{name}: {} {:?} {:?}, {}", ours.0, ours.1, (real.0, real.1), places.join("; ")))
}

/// The places in which two values differ.
fn add_places(path: &str, ours: &Value, real: &Value, places: &mut Vec<String>) {
    match (ours, real) {
        (Value::Object(ours), Value::Object(real)) => {
            for key in ours.keys().chain(real.keys().filter(|key| !ours.contains_key(*key))) {
                let absent = json!("<absent>");
                let sides = [ours.get(key).unwrap_or(&absent), real.get(key).unwrap_or(&absent)];
                add_places(&format!("{path}/{key}"), sides[0], sides[1], places);
            }
        }
        (Value::Array(ours), Value::Array(real)) if ours.len() == real.len() => {
            for (index, (ours, real)) in ours.iter().zip(real).enumerate() {
                add_places(&format!("{path}/{index}"), ours, real, places);
            }
        }
        (ours, real) if ours == real => {}
        (ours, real) => places.push(format!("{path}: ours {ours} real {real}")),
    }
}

async fn wait_until_established(client: &Client, definitions: &[Value]) {
    let began = Instant::now();
    loop {
        let list = client.get(CRD_PATH).await.json();
        let established = list["items"].as_array().into_iter().flatten().filter(|definition| {
            let conditions = definition["status"]["conditions"].as_array();
            conditions.is_some_and(|all| {
                all.iter().any(|condition| condition["type"] == "Established" && condition["status"] == "True")
            })
        });
        let count = established.count();
        if count == definitions.len() {
            return;
        }
        assert!(began.elapsed() < ESTABLISH_TIMEOUT, "{count} of {} definitions are established", definitions.len());
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// A real server lists a definition a moment after it is established.
async fn discover(client: Client, kinds: &[Kind]) -> Target {
    let began = Instant::now();
    loop {
        let target = Target::discover(client.clone()).await;
        let missing = kinds.iter().find(|kind| !target.serves(kind));
        let Some(missing) = missing else { return target };
        assert!(began.elapsed() < ESTABLISH_TIMEOUT, "{} is not served", missing.file_stem());
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}
