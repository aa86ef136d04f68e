//! Whether an object's metadata is well-formed, and whether it may follow what was there before.
//!
//! Every breach is reported, in Kubernetes' words. The object comes from [`crate::decode`], so its metadata has the right
//! types; what is missing reads as empty.

use std::collections::BTreeSet;

use api::validation::{self as rule, Faults};
use api::{FieldError, GroupVersion};
use serde_json::{Map, Value};

use crate::access::{self, get, metadata_text};
use crate::delete::{FINALIZER_FOREGROUND, FINALIZER_ORPHAN};
use crate::rules::{KindRules, NameRule, Scope};

/// How many bytes the keys and values of all annotations may have together.
pub const ANNOTATIONS_LENGTH_MAX: usize = 256 * 1024;
/// The longest name of a field manager.
pub const MANAGER_LENGTH_MAX: usize = 128;
/// The longest name of a subresource in managed fields.
const SUBRESOURCE_LENGTH_MAX: usize = 256;

/// How many breaches are reported; a body can hold half a million of them.
const ERRORS_MAX: usize = 100;

/// The breaches in the metadata of an object, name included. For creates, and as a part of [`metadata_update`].
pub fn metadata(object: &Map<String, Value>, rules: &KindRules) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let generate_name = metadata_text(object, "generateName");
    if !generate_name.is_empty() {
        push_invalid(&mut errors, "metadata.generateName", generate_name, name_prefix(generate_name, rules.names));
    }
    match metadata_text(object, "name") {
        "" => errors.push(FieldError::required("metadata.name", "name or generateName is required")),
        given => push_invalid(&mut errors, "metadata.name", given, name(given, rules.names)),
    }
    push_namespace(&mut errors, metadata_text(object, "namespace"), rules.scope);
    if let Some(generation @ ..0) = access::integer(object, &["metadata", "generation"]) {
        errors.push(FieldError::invalid("metadata.generation", generation, "must be greater than or equal to 0"));
    }
    push_labels(&mut errors, object);
    push_annotations(&mut errors, object);
    push_owner_references(&mut errors, object);
    push_finalizers(&mut errors, object);
    push_managed_fields(&mut errors, object);
    errors.0
}

/// The breaches of an update: those of [`metadata`], and changes of what cannot change.
pub fn metadata_update(old: &Map<String, Value>, new: &Map<String, Value>, rules: &KindRules) -> Vec<FieldError> {
    let mut errors = Errors(metadata(new, rules));
    if get(old, &["metadata", "deletionTimestamp"]).is_some() {
        let kept: BTreeSet<&str> = access::texts(old, &["metadata", "finalizers"]).collect();
        let now: BTreeSet<&str> = access::texts(new, &["metadata", "finalizers"]).collect();
        let added: Vec<String> = now.difference(&kept).map(|finalizer| format!("{finalizer:?}")).collect();
        if !added.is_empty() {
            let detail = format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                added.join(", ")
            );
            errors.push(FieldError::forbidden("metadata.finalizers", detail));
        }
    }
    for name in ["name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        let [before, after] = [old, new].map(|object| get(object, &["metadata", name]));
        if before != after {
            let shown = after.cloned().unwrap_or_default();
            errors.push(FieldError::invalid(format!("metadata.{name}"), shown, "field is immutable"));
        }
    }
    errors.0
}

/// What is wrong with the name of an object.
pub fn name(name: &str, rule: NameRule) -> Faults {
    match rule {
        NameRule::Subdomain => rule::dns1123_subdomain(name),
        NameRule::Label => rule::dns1123_label(name),
        NameRule::Label1035 => rule::dns1035_label(name),
        NameRule::PathSegment => rule::path_segment_name(name),
    }
}

/// What is wrong with the name of a field manager; the faults of `fieldManager` in options are these.
pub fn manager(manager: &str, field: &str) -> Vec<FieldError> {
    let mut errors = Errors::default();
    if manager.len() > MANAGER_LENGTH_MAX {
        errors.push(FieldError::too_long(field, MANAGER_LENGTH_MAX));
    }
    for (at, character) in manager.char_indices().filter(|(_, character)| character.is_control()) {
        let detail = format!("invalid character U+{:04X} (at position {at})", character as u32);
        errors.push(FieldError::invalid(field, manager, detail));
    }
    errors.0
}

/// Breaches up to a limit; those beyond it are dropped.
#[derive(Default)]
struct Errors(Vec<FieldError>);

impl Errors {
    fn push(&mut self, error: FieldError) {
        if self.0.len() < ERRORS_MAX {
            self.0.push(error);
        }
    }
}

/// A base may end with a dash, since characters follow.
fn name_prefix(base: &str, rule: NameRule) -> Faults {
    if rule == NameRule::PathSegment {
        return rule::path_segment_prefix(base);
    }
    let masked = match base.strip_suffix('-').map(|rest| rest.char_indices().next_back()) {
        Some(Some((last, _))) => format!("{}a", &base[..last]),
        Some(None) | None => base.to_owned(),
    };
    name(&masked, rule)
}

fn push_invalid(errors: &mut Errors, field: &str, value: &str, faults: Faults) {
    for fault in faults {
        errors.push(FieldError::invalid(field, value, fault));
    }
}

fn push_namespace(errors: &mut Errors, namespace: &str, scope: Scope) {
    let field = "metadata.namespace";
    match (scope, namespace) {
        (Scope::Namespaced, "") => errors.push(FieldError::required(field, "")),
        (Scope::Namespaced, _) => push_invalid(errors, field, namespace, rule::dns1123_label(namespace)),
        (Scope::Cluster, "") => {}
        (Scope::Cluster, _) => errors.push(FieldError::forbidden(field, "not allowed on this type")),
    }
}

fn texts_of<'a>(object: &'a Map<String, Value>, field: &str) -> impl Iterator<Item = (&'a str, &'a str)> {
    let map = access::part(object, &["metadata", field]);
    map.into_iter().flatten().filter_map(|(key, value)| Some((key.as_str(), value.as_str()?)))
}

fn push_labels(errors: &mut Errors, object: &Map<String, Value>) {
    for (key, value) in texts_of(object, "labels") {
        push_invalid(errors, "metadata.labels", key, rule::label_key(key));
        push_invalid(errors, "metadata.labels", value, rule::label_value(value));
    }
}

fn push_annotations(errors: &mut Errors, object: &Map<String, Value>) {
    let mut length = 0;
    for (key, value) in texts_of(object, "annotations") {
        push_invalid(errors, "metadata.annotations", key, rule::label_key(&key.to_lowercase()));
        length += key.len() + value.len();
    }
    if length > ANNOTATIONS_LENGTH_MAX {
        errors.push(FieldError::too_long("metadata.annotations", ANNOTATIONS_LENGTH_MAX));
    }
}

fn push_owner_references(errors: &mut Errors, object: &Map<String, Value>) {
    let field = "metadata.ownerReferences";
    for owner in access::objects(object, &["metadata", "ownerReferences"]) {
        let text = |name: &str| access::text(owner, &[name]);
        let version = GroupVersion::parse(text("apiVersion")).map_or("", |parsed| parsed.version);
        if version.is_empty() {
            let detail = "version must not be empty";
            errors.push(FieldError::invalid(format!("{field}.apiVersion"), text("apiVersion"), detail));
        }
        for name in ["kind", "name", "uid"].into_iter().filter(|name| text(name).is_empty()) {
            errors.push(FieldError::invalid(format!("{field}.{name}"), "", "must not be empty"));
        }
        if text("apiVersion") == "v1" && text("kind") == "Event" {
            let detail = "/v1, Kind=Event is disallowed from being an owner";
            errors.push(FieldError::invalid(field, owner.clone(), detail));
        }
    }
    let is_controller = |owner: &&Map<String, Value>| access::flag(owner, &["controller"]);
    let mut controllers = access::objects(object, &["metadata", "ownerReferences"]).filter(is_controller);
    if let (Some(first), Some(second)) = (controllers.next(), controllers.next()) {
        let [first, second] = [first, second]
            .map(|owner| format!("{}/{}", access::text(owner, &["kind"]), access::text(owner, &["name"])));
        let detail = format!(
            "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {second}"
        );
        errors.push(FieldError::invalid(field, access::list(object, &["metadata", "ownerReferences"]), detail));
    }
}

fn push_finalizers(errors: &mut Errors, object: &Map<String, Value>) {
    let finalizers = access::texts(object, &["metadata", "finalizers"]);
    for finalizer in finalizers.clone() {
        push_invalid(errors, "metadata.finalizers", finalizer, rule::label_key(finalizer));
    }
    let has = |wanted: &str| finalizers.clone().any(|finalizer| finalizer == wanted);
    if has(FINALIZER_ORPHAN) && has(FINALIZER_FOREGROUND) {
        let detail = format!("finalizer {FINALIZER_ORPHAN} and {FINALIZER_FOREGROUND} cannot be both set");
        let all = access::list(object, &["metadata", "finalizers"]);
        errors.push(FieldError::invalid("metadata.finalizers", all, detail));
    }
}

fn push_managed_fields(errors: &mut Errors, object: &Map<String, Value>) {
    for (at, entry) in access::objects(object, &["metadata", "managedFields"]).enumerate() {
        let field = |name: &str| format!("metadata.managedFields[{at}].{name}");
        let text = |name: &str| access::text(entry, &[name]);
        if !matches!(text("operation"), "Apply" | "Update") {
            let detail = "must be `Apply` or `Update`";
            errors.push(FieldError::invalid(field("operation"), text("operation"), detail));
        }
        if !matches!(text("fieldsType"), "" | "FieldsV1") {
            errors.push(FieldError::invalid(field("fieldsType"), text("fieldsType"), "must be `FieldsV1`"));
        }
        manager(text("manager"), &field("manager")).into_iter().for_each(|error| errors.push(error));
        if text("subresource").len() > SUBRESOURCE_LENGTH_MAX {
            errors.push(FieldError::too_long(field("subresource"), SUBRESOURCE_LENGTH_MAX));
        }
    }
}

#[cfg(test)]
mod tests;
