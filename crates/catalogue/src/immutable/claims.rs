//! Volumes and claims to them: what is bound stays bound.
//!
//! How much smaller a claim may become is not a question of what stays, and not answered here.

use api::FieldError;
use serde_json::{Map, Value};

use super::difference::difference;
use super::{FIXED, Object, Update, copy, items};
use crate::schema::same::is_same;
use crate::schema::{Field, Form};

/// The class of a claim, before there was a field for it.
const CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";

/// Labels of nodes by which volumes were bound to them, and what they are called since.
const RENAMED_LABELS: &[(&str, &str)] = &[
    ("beta.kubernetes.io/arch", "kubernetes.io/arch"),
    ("beta.kubernetes.io/instance-type", "node.kubernetes.io/instance-type"),
    ("beta.kubernetes.io/os", "kubernetes.io/os"),
    ("failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region"),
    ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"),
];

pub(super) fn volume(update: Update<'_>) -> Vec<FieldError> {
    [volume_source(update), node_affinity(update), attributes_class(update)].into_iter().flatten().collect()
}

fn volume_source(update: Update<'_>) -> Option<FieldError> {
    let old = source_of(update, update.before("spec"));
    let mut new = source_of(update, update.after("spec"));
    let secret = "controllerExpandSecretRef";
    if old.get("csi").is_some_and(|csi| csi.get(secret).is_none())
        && let Some(csi) = new.get_mut("csi").and_then(Value::as_object_mut)
    {
        csi.remove(secret);
    }
    let Form::Struct(spec) = update.field("spec")?.shape().form() else { return None };
    let is_kept = |name: &String| spec.field(name).is_none_or(|field| is_same(field, old.get(name), new.get(name)));
    if old.keys().chain(new.keys()).all(is_kept) {
        return None;
    }
    let difference = difference(&Value::Object(old), &Value::Object(new));
    let detail = format!("spec.persistentvolumesource is immutable after creation\n{difference}");
    Some(FieldError::forbidden("spec.persistentvolumesource", detail))
}

/// The fields that say where a volume is: in protobuf they are a message of their own.
fn source_of(update: Update<'_>, spec: Option<&Value>) -> Object {
    let is_source = |name: &str| {
        let field = update.field(&format!("spec.{name}"));
        field.is_some_and(|field: Field| field.numbers().count() > 1)
    };
    let fields = spec.and_then(Value::as_object).into_iter().flatten();
    fields.filter(|(name, _)| is_source(name)).map(|(name, value)| (name.clone(), value.clone())).collect()
}

fn node_affinity(update: Update<'_>) -> Option<FieldError> {
    let path = "spec.nodeAffinity";
    let old = update.before(path).filter(|_| !update.gates.enabled("MutablePVNodeAffinity"))?;
    let mut renamed = old.clone();
    let terms = renamed.pointer_mut("/required/nodeSelectorTerms").and_then(Value::as_array_mut);
    for (at, term) in terms.into_iter().flatten().enumerate() {
        for part in ["matchExpressions", "matchFields"] {
            let new =
                update.after(path).and_then(|affinity| affinity.pointer(&format!("/required/nodeSelectorTerms/{at}")));
            let new = items(new.and_then(|term| term.get(part)));
            let requirements = term.get_mut(part).and_then(Value::as_array_mut).into_iter().flatten();
            requirements.zip(new).for_each(|(old, new)| rename(old, new));
        }
    }
    if is_same(update.field(path)?, Some(&renamed), update.after(path)) {
        return None;
    }
    let detail = format!("{FIXED}, except for updating from beta label to GA");
    Some(FieldError::invalid("nodeAffinity", update.shown(path), detail))
}

fn rename(old: &mut Value, new: &Value) {
    let [before, after] = [&*old, new].map(|value| value.get("key").and_then(Value::as_str).unwrap_or_default());
    if RENAMED_LABELS.contains(&(before, after)) {
        old["key"] = after.into();
    }
}

pub(super) fn claim(update: Update<'_>) -> Vec<FieldError> {
    let mut faults = Vec::new();
    let empty = Map::new();
    let spec = |value: Option<&Value>| value.and_then(Value::as_object).unwrap_or(&empty).clone();
    let (mut old, mut new) = (spec(update.before("spec")), spec(update.after("spec")));
    if update.text_before("spec.volumeName").is_empty() {
        copy(new.get("volumeName"), &mut old, "volumeName");
    }
    faults.extend(check_class(update, &mut new));
    if update.text_after("status.phase") == "Bound" {
        free_bound(update, &mut new);
    }
    let [old, new] = [old, new].map(Value::Object);
    if update.field("spec").is_some_and(|field| !is_same(field, Some(&old), Some(&new))) {
        let detail = "spec is immutable after creation except resources.requests and volumeAttributesClassName for \
                      bound claims";
        faults.push(FieldError::forbidden("spec", format!("{detail}\n{}", difference(&old, &new))));
    }
    faults.extend(attributes_class(update));
    faults
}

/// A class may be given to a claim that has none, and move from the annotation to the field.
fn check_class(update: Update<'_>, new: &mut Object) -> Option<FieldError> {
    let annotation = |state: Option<&Value>| {
        let annotations = state.and_then(|metadata| metadata.get("annotations"));
        annotations.and_then(|annotations| annotations.get(CLASS_ANNOTATION)).and_then(Value::as_str).map(str::to_owned)
    };
    let [before, after] = [update.before("metadata"), update.after("metadata")].map(annotation);
    let has_none = update.before("spec.storageClassName").is_none();
    let given = update.after("spec.storageClassName").and_then(Value::as_str).filter(|_| has_none);
    let is_as_annotated = given.is_some_and(|class| before.as_deref().is_none_or(|before| before == class));
    if is_as_annotated {
        new.remove("storageClassName");
    }
    let is_moved = is_as_annotated && before.is_some() && after.is_none();
    if is_moved || before.unwrap_or_default() == *after.as_deref().unwrap_or_default() {
        return None;
    }
    let field = format!("metadata.annotations.{CLASS_ANNOTATION}");
    Some(FieldError::invalid(field, after.unwrap_or_default(), FIXED))
}

/// A claim that is bound may ask for more space, and for other attributes.
fn free_bound(update: Update<'_>, new: &mut Object) {
    let requests = new.get_mut("resources").and_then(|resources| resources.get_mut("requests"));
    if let Some(requests) = requests.and_then(Value::as_object_mut) {
        copy(update.before("spec.resources.requests.storage"), requests, "storage");
    }
    copy(update.before("spec.volumeAttributesClassName"), new, "volumeAttributesClassName");
}

fn attributes_class(update: Update<'_>) -> Option<FieldError> {
    let path = "spec.volumeAttributesClassName";
    if update.keeps(path) || update.gates.enabled("VolumeAttributesClass") {
        return None;
    }
    Some(FieldError::forbidden(path, "update is forbidden when the VolumeAttributesClass feature gate is disabled"))
}
