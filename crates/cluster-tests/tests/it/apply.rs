//! Server-side apply and managed fields.

pub(crate) mod corpus;
mod endpoints;
mod kubectl;
pub(crate) mod recording;
pub(crate) mod sequence;

use cluster_tests::Client;
use futures_util::StreamExt as _;
use serde_json::Value;

use self::corpus::{WIDGETS_CRD, corpus};
use self::recording::Recording;
use self::sequence::{StepResult, digest, generate, run};
use crate::custom_resource::CRD_PATH;
use crate::{block_on, start_on_sqlite};

/// The release whose results are recorded.
const RECORDED_RELEASE: &str = "--emulated-version=1.36";
const CONCURRENT_SEQUENCES: usize = 8;

/// Creates the definition of widgets and waits until they are served.
pub(crate) async fn create_widgets(client: &Client) {
    let created = client.create(CRD_PATH, &serde_json::from_str(WIDGETS_CRD).unwrap()).await;
    assert_eq!(created.status, 201, "{}", created.summary());
    let widgets = "/apis/apply.example.com/v1/namespaces/default/widgets";
    for _ in 0..600 {
        if client.get(widgets).await.status == 200 {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    panic!("widgets are not served");
}

const SCALE_APPLIED: &str = "the scale of a custom object without managed fields can be applied";
const SCALE_TIMES: &str = "scale entries have a time";
const SCALE_JOINED: &str = "a scale does not split entries";

/// The steps of a sequence in which ours differs, each with the name of the rule by which it deviates from kube-apiserver on
/// purpose; `None` if no rule explains the difference.
pub(crate) fn deviations(ours: &[StepResult], real: &[StepResult]) -> Vec<(usize, Option<&'static str>)> {
    let mut found: Vec<(usize, Option<&'static str>)> = Vec::new();
    for (at, (ours, real)) in ours.iter().zip(real).enumerate().filter(|(_, (ours, real))| ours != real) {
        let earlier = |rules: &[&str]| found.iter().any(|(_, rule)| rule.is_some_and(|rule| rules.contains(&rule)));
        let rule = deviation(ours, real).or_else(|| {
            if earlier(&[SCALE_APPLIED]) {
                return Some("after a scale that only ours applied");
            }
            let is_consequence = earlier(&[SCALE_TIMES, SCALE_JOINED]) && differs_only_in_managed_fields(ours, real);
            is_consequence.then_some("after entries of a scale that ours does not split")
        });
        found.push((at, rule));
    }
    found
}

fn differs_only_in_managed_fields(ours: &StepResult, real: &StepResult) -> bool {
    let [our_object, real_object] = [ours, real].map(|result| {
        let mut content = result.content.clone();
        content["metadata"]["managedFields"] = Value::Null;
        content
    });
    ours.code == real.code && our_object == real_object
}

/// The name of the rule by which ours deviates from kube-apiserver on purpose; `None` if no rule explains a difference.
fn deviation(ours: &StepResult, real: &StepResult) -> Option<&'static str> {
    let message = real.content["message"].as_str().unwrap_or_default();
    if real.code == 500 && message.contains("request to convert CR to an invalid group/version: autoscaling/v1") {
        return Some(SCALE_APPLIED);
    }
    if (ours.code, real.code) == (404, 422) && !ours.is_written && !real.is_written {
        return Some("an apply of the status does not try to create the object");
    }
    if ours.code != real.code {
        return None;
    }
    let [our_content, real_content] = [ours, real].map(|result| result.content.clone());
    let differs_only_in_times = |is_concerned: fn(&Value) -> bool| {
        let without_times = |mut content: Value| {
            entries_mut(&mut content)
                .iter_mut()
                .filter(|entry| is_concerned(entry))
                .for_each(|entry| entry["time"] = Value::Null);
            content
        };
        our_content != real_content && without_times(our_content.clone()) == without_times(real_content.clone())
    };
    if differs_only_in_times(|entry| entry["subresource"] == "scale") {
        return Some(SCALE_TIMES);
    }
    if differs_only_in_times(|entry| entry["operation"] == "Apply") {
        return Some("the entry of an apply that only adds an owner has a time");
    }
    if our_content != real_content && joined_entries(our_content.clone()) == joined_entries(real_content.clone()) {
        return Some(SCALE_JOINED);
    }
    None
}

fn entries_mut(content: &mut Value) -> &mut [Value] {
    content.pointer_mut("/metadata/managedFields").and_then(Value::as_array_mut).map_or(&mut [], Vec::as_mut_slice)
}

/// The object with entries of the same identity joined, without times.
fn joined_entries(mut content: Value) -> Value {
    let mut joined: Vec<Value> = Vec::new();
    for entry in entries_mut(&mut content) {
        entry["time"] = Value::Null;
        let identity =
            |entry: &Value| ["manager", "operation", "apiVersion", "subresource"].map(|name| entry[name].clone());
        match joined.iter_mut().find(|other| identity(other) == identity(entry)) {
            Some(other) => sequence::merge(&mut other["fieldsV1"], &entry["fieldsV1"]),
            None => joined.push(entry.clone()),
        }
    }
    joined.sort_by_key(Value::to_string);
    content["metadata"]["managedFields"] = joined.into();
    content
}

#[test]
fn recorded_sequences_have_the_results_of_kube_apiserver() {
    let folder = tempfile::tempdir().unwrap();
    let server = start_on_sqlite(folder.path(), &[RECORDED_RELEASE]);
    let recorded = Recording::read();
    assert!(recorded.len() >= 300, "{}", recorded.len());
    let kinds = corpus();
    let client = server.admin();
    let differing: Vec<u64> = block_on(async {
        create_widgets(&client).await;
        let sequences = recorded.iter().map(async |(seed, digests)| {
            let kind = &kinds[usize::try_from(*seed).unwrap() % kinds.len()];
            let results = run(&client, kind, &format!("s{seed}"), &generate(kind, *seed)).await;
            let is_same = results
                .iter()
                .zip(digests)
                .all(|(result, wanted)| wanted.is_none_or(|wanted| digest(result) == wanted));
            (!is_same).then_some(*seed)
        });
        futures_util::stream::iter(sequences)
            .buffered(CONCURRENT_SEQUENCES)
            .filter_map(async |seed| seed)
            .collect()
            .await
    });
    assert_eq!(differing, [0; 0], "seeds; `cargo xtask real apply` with UNSKEW_REAL_SEED shows the difference");
}
