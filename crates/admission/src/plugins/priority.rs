//! Priority: resolves the priority class of pods, and keeps a single default class.

use api::GroupResource;
use api::json::JsonObject;
use object::unstructured::{flag, integer, metadata_string, nested_object_mut, text};
use serde_json::Value;

use super::Plugin;
use crate::attributes::Operation;
use crate::chain::{Environment, Write};
use crate::refusal::Refusal;

const GROUP: &str = "scheduling.k8s.io";
const PRIORITY_CLASSES: GroupResource<&str> = GroupResource { group: GROUP, resource: "priorityclasses" };

pub(super) static PLUGIN: Plugin = Plugin {
    name: "Priority",
    operations: &[Operation::Create, Operation::Update],
    admit: Some(admit),
    validate: Some(validate),
};

fn admit(write: &mut Write<'_>, environment: &Environment<'_>) -> Result<(), Refusal> {
    if write.attributes.is_object("", "pods") {
        let (operation, old) = (write.attributes.operation, write.old_object);
        let Some(pod) = &mut write.object else { return Ok(()) };
        let spec = nested_object_mut(pod, "spec");
        return match operation {
            Operation::Create => set_priority(spec, environment),
            Operation::Update | Operation::Delete | Operation::Connect => {
                keep_priority(spec, old);
                Ok(())
            }
        };
    }
    let is_group = write.attributes.is_object(GROUP, "podgroups") && write.attributes.operation == Operation::Create;
    if is_group && environment.gates.enabled("WorkloadAwarePreemption") {
        let Some(group) = &mut write.object else { return Ok(()) };
        return set_group_priority(nested_object_mut(group, "spec"), environment);
    }
    Ok(())
}

/// An update that leaves out what the create computed keeps it.
fn keep_priority(spec: &mut JsonObject, old: Option<&JsonObject>) {
    let Some(old) = old.and_then(|old| old.get("spec")) else { return };
    for field in ["priority", "preemptionPolicy"] {
        if let (None, Some(value)) = (spec.get(field), old.get(field)) {
            spec.insert(field.to_owned(), value.clone());
        }
    }
}

/// Name, value and preemption policy of a class.
struct ResolvedPriority {
    class: String,
    value: i64,
    preemption_policy: Option<String>,
}

fn set_priority(spec: &mut JsonObject, environment: &Environment<'_>) -> Result<(), Refusal> {
    let resolved = resolve(text(spec, &["priorityClassName"]), environment)?;
    if let Some(given) = integer(spec, &["priority"]).filter(|given| *given != resolved.value) {
        return Err(Refusal::forbidden(format!(
            "the integer value of priority ({given}) must not be provided in pod spec; priority admission controller \
             computed {} from the given PriorityClass name",
            resolved.value
        )));
    }
    if let Some(policy) = resolved.preemption_policy {
        let given = text(spec, &["preemptionPolicy"]);
        if !given.is_empty() && given != policy {
            return Err(Refusal::forbidden(format!(
                "the string value of PreemptionPolicy ({given}) must not be provided in pod spec; priority admission \
                 controller computed {policy} from the given PriorityClass name"
            )));
        }
        spec.insert("preemptionPolicy".to_owned(), policy.into());
    }
    set_class(spec, &resolved.class, resolved.value);
    Ok(())
}

fn set_group_priority(spec: &mut JsonObject, environment: &Environment<'_>) -> Result<(), Refusal> {
    let resolved = resolve(text(spec, &["priorityClassName"]), environment)?;
    if let Some(given) = integer(spec, &["priority"]).filter(|given| *given != resolved.value) {
        return Err(Refusal::forbidden(format!(
            "priority set in the pod group ({given}) must match the priority computed ({}) based on the priority class set \
             in the spec",
            resolved.value
        )));
    }
    set_class(spec, &resolved.class, resolved.value);
    Ok(())
}

fn set_class(spec: &mut JsonObject, class: &str, value: i64) {
    if !class.is_empty() {
        spec.insert("priorityClassName".to_owned(), class.into());
    }
    spec.insert("priority".to_owned(), value.into());
}

fn resolve(name: &str, environment: &Environment<'_>) -> Result<ResolvedPriority, Refusal> {
    let class = if name.is_empty() {
        default_class(environment)?
    } else {
        let found = environment.view.get(PRIORITY_CLASSES, "", name)?;
        let missing = || Refusal::forbidden(format!("no PriorityClass with name {name} was found"));
        Some(found.ok_or_else(missing)?)
    };
    let Some(class) = class else {
        let preemption_policy = Some("PreemptLowerPriority".to_owned());
        return Ok(ResolvedPriority { class: String::new(), value: 0, preemption_policy });
    };
    Ok(ResolvedPriority {
        class: metadata_string(&class, "name").to_owned(),
        value: integer(&class, &["value"]).unwrap_or_default(),
        preemption_policy: class.get("preemptionPolicy").and_then(Value::as_str).map(str::to_owned),
    })
}

/// The class that is marked as default; of several the one with the lowest value.
fn default_class(environment: &Environment<'_>) -> Result<Option<JsonObject>, Refusal> {
    let classes = environment.view.list(PRIORITY_CLASSES, "")?;
    let defaults = classes.into_iter().filter(|class| flag(class, &["globalDefault"]));
    Ok(defaults.min_by_key(|class| integer(class, &["value"]).unwrap_or_default()))
}

fn validate(write: &mut Write<'_>, environment: &Environment<'_>) -> Result<(), Refusal> {
    if !write.attributes.is_object(GROUP, "priorityclasses") {
        return Ok(());
    }
    let Some(class) = write.object.as_ref().filter(|class| flag(class, &["globalDefault"])) else { return Ok(()) };
    let Some(default) = default_class(environment)? else { return Ok(()) };
    let name = metadata_string(&default, "name");
    if write.attributes.operation == Operation::Create || name != metadata_string(class, "name") {
        return Err(Refusal::forbidden(format!(
            "PriorityClass {name} is already marked as default. Only one default can exist"
        )));
    }
    Ok(())
}
