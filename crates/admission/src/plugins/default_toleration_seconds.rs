//! DefaultTolerationSeconds: pods tolerate nodes that are not ready or unreachable for five minutes.

use object::unstructured::{nested_object_mut, objects, text};
use serde_json::{Value, json};

use super::Plugin;
use crate::attributes::Operation;
use crate::chain::{Environment, Write};
use crate::refusal::Refusal;

const NOT_READY: &str = "node.kubernetes.io/not-ready";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";

pub(super) static PLUGIN: Plugin = Plugin {
    name: "DefaultTolerationSeconds",
    operations: &[Operation::Create, Operation::Update],
    admit: Some(admit),
    validate: None,
};

fn admit(write: &mut Write<'_>, environment: &Environment<'_>) -> Result<(), Refusal> {
    if !write.attributes.is_object("", "pods") {
        return Ok(());
    }
    let Some(pod) = &mut write.object else { return Ok(()) };
    let settings = environment.settings;
    let missing: Vec<Value> = [
        (NOT_READY, settings.not_ready_toleration_seconds),
        (UNREACHABLE, settings.unreachable_toleration_seconds),
    ]
    .into_iter()
    .filter(|(key, _)| {
        !objects(pod, &["spec", "tolerations"]).any(|toleration| {
            let (given, effect) = (text(toleration, &["key"]), text(toleration, &["effect"]));
            (given == *key || given.is_empty()) && (effect == "NoExecute" || effect.is_empty())
        })
    })
    .map(
        |(key, seconds)| json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds}),
    )
    .collect();
    if !missing.is_empty() {
        let spec = nested_object_mut(pod, "spec");
        if let Value::Array(tolerations) = spec.entry("tolerations").or_insert_with(|| json!([])) {
            tolerations.extend(missing);
        }
    }
    Ok(())
}
