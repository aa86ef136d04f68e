//! Validation of metadata on create and update, with Kubernetes' error messages.
//!
//! [`crate::decode`] has checked the types of the metadata; absent fields count as empty.

use std::collections::BTreeSet;

use api::validation::{self as rule, ValidationErrors};
use api::{FieldError, GroupVersion};
use serde_json::{Map, Value};

use crate::delete::{FINALIZER_FOREGROUND, FINALIZER_ORPHAN};
use crate::rules::{GenerateNameRule, KindRules, KindScope, NameRule};
use crate::unstructured::{self, get, metadata_string};

/// Limit for the total bytes of annotation keys and values.
pub const ANNOTATIONS_LENGTH_MAX: usize = 256 * 1024;
/// Limit for the name of a field manager, in bytes.
pub const MANAGER_LENGTH_MAX: usize = 128;
/// Limit for the name of a subresource in managed fields, in bytes.
const SUBRESOURCE_LENGTH_MAX: usize = 256;

/// Limit of reported errors; a body can contain half a million.
const REPORTED_ERRORS_MAX: usize = 100;

/// Validates the metadata of a new object.
pub fn validate_metadata(object: &Map<String, Value>, rules: &KindRules) -> Vec<FieldError> {
    let prefix_rule = match rules.generate_name {
        GenerateNameRule::Always | GenerateNameRule::OnCreate => rules.name_rule,
        GenerateNameRule::Never => NameRule::PathSegment,
    };
    let mut errors = validate_common(object, rules, prefix_rule);
    check_managed_fields(&mut errors, object);
    errors.0
}

/// Validates the metadata that a subresource of another kind has, such as `Scale`. Managed fields stay unchecked: they
/// are those of the object.
pub fn validate_metadata_of_subresource(object: &Map<String, Value>, rules: &KindRules) -> Vec<FieldError> {
    validate_common(object, rules, rules.name_rule).0
}

/// The checks of creates and updates.
fn validate_common(object: &Map<String, Value>, rules: &KindRules, prefix_rule: NameRule) -> LimitedErrors {
    let mut errors = LimitedErrors::default();
    let generate_name = metadata_string(object, "generateName");
    if !generate_name.is_empty() {
        let faults = validate_name_prefix(generate_name, prefix_rule);
        push_invalid(&mut errors, "metadata.generateName", generate_name, faults);
    }
    match metadata_string(object, "name") {
        "" => errors.push(FieldError::required("metadata.name", "name or generateName is required")),
        given => push_invalid(&mut errors, "metadata.name", given, validate_name(given, rules.name_rule)),
    }
    check_namespace(&mut errors, metadata_string(object, "namespace"), rules.scope);
    if let Some(generation @ ..0) = unstructured::integer(object, &["metadata", "generation"]) {
        errors.push(FieldError::invalid("metadata.generation", generation, "must be greater than or equal to 0"));
    }
    check_labels(&mut errors, object);
    check_annotations(&mut errors, object);
    check_owner_references(&mut errors, object);
    check_finalizers(&mut errors, object);
    errors
}

/// Validates the metadata of an update: as that of a new object, immutable fields, and no new finalizers while
/// terminating. Managed fields that are not valid are no error: those of the stored object take their place.
pub fn validate_metadata_update(
    old: &Map<String, Value>,
    new: &Map<String, Value>,
    rules: &KindRules,
) -> Vec<FieldError> {
    let prefix_rule = match rules.generate_name {
        GenerateNameRule::Always => rules.name_rule,
        GenerateNameRule::OnCreate | GenerateNameRule::Never => NameRule::PathSegment,
    };
    let mut errors = validate_common(new, rules, prefix_rule);
    // Kubernetes checks changes with the rules of all objects, and again with those of the kind.
    for _ in 0..2 {
        check_metadata_changes(&mut errors, old, new);
    }
    errors.0
}

/// No new finalizers while the object terminates, no change of immutable fields, and rules of fields that may change.
fn check_metadata_changes(errors: &mut LimitedErrors, old: &Map<String, Value>, new: &Map<String, Value>) {
    if get(old, &["metadata", "deletionTimestamp"]).is_some() {
        let kept: BTreeSet<&str> = unstructured::texts(old, &["metadata", "finalizers"]).collect();
        let now: BTreeSet<&str> = unstructured::texts(new, &["metadata", "finalizers"]).collect();
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
    check_labels(errors, new);
    check_annotations(errors, new);
    check_owner_references(errors, new);
}

/// Checks the syntax of an object name.
pub fn validate_name(name: &str, rule: NameRule) -> ValidationErrors {
    match rule {
        NameRule::Subdomain => rule::validate_dns1123_subdomain(name),
        NameRule::Label => rule::validate_dns1123_label(name),
        NameRule::Label1035 => rule::validate_dns1035_label(name),
        NameRule::PathSegment => rule::validate_path_segment_name(name),
        NameRule::CanonicalIp => match name.parse::<std::net::IpAddr>() {
            Err(_) => vec!["must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)".into()],
            Ok(address) if address.to_string() == name => Vec::new(),
            Ok(address) => vec![format!("must be in canonical form (\"{address}\")").into()],
        },
        NameRule::ConfigKey => rule::validate_config_key(name),
    }
}

/// Checks the name of a field manager, in managed fields or in the option `fieldManager`; `field` is its path.
pub fn validate_manager_name(manager: &str, field: &str) -> Vec<FieldError> {
    let mut errors = LimitedErrors::default();
    if manager.len() > MANAGER_LENGTH_MAX {
        errors.push(FieldError::too_long(field, MANAGER_LENGTH_MAX));
    }
    for (at, character) in manager.char_indices().filter(|(_, character)| !api::quote::is_printable(*character)) {
        let detail = format!("invalid character U+{:04X} (at position {at})", character as u32);
        errors.push(FieldError::invalid(field, manager, detail));
    }
    errors.0
}

/// Up to [`REPORTED_ERRORS_MAX`] errors; further ones are dropped.
#[derive(Default)]
struct LimitedErrors(Vec<FieldError>);

impl LimitedErrors {
    fn push(&mut self, error: FieldError) {
        if self.0.len() < REPORTED_ERRORS_MAX {
            self.0.push(error);
        }
    }
}

/// Checks `generateName`, which may end with a dash because a suffix follows.
fn validate_name_prefix(base: &str, rule: NameRule) -> ValidationErrors {
    if rule == NameRule::PathSegment {
        return rule::validate_path_segment_prefix(base);
    }
    let masked = match base.strip_suffix('-').map(|rest| rest.char_indices().next_back()) {
        Some(Some((last, _))) => format!("{}a", &base[..last]),
        Some(None) | None => base.to_owned(),
    };
    validate_name(&masked, rule)
}

fn push_invalid(errors: &mut LimitedErrors, field: &str, value: &str, faults: ValidationErrors) {
    for error in faults {
        errors.push(FieldError::invalid(field, value, error));
    }
}

fn check_namespace(errors: &mut LimitedErrors, namespace: &str, scope: KindScope) {
    let field = "metadata.namespace";
    match (scope, namespace) {
        (KindScope::Namespaced, "") => errors.push(FieldError::required(field, "")),
        (KindScope::Namespaced, _) => push_invalid(errors, field, namespace, rule::validate_dns1123_label(namespace)),
        (KindScope::Cluster, "") => {}
        (KindScope::Cluster, _) => errors.push(FieldError::forbidden(field, "not allowed on this type")),
    }
}

fn metadata_entries<'a>(object: &'a Map<String, Value>, field: &str) -> impl Iterator<Item = (&'a str, &'a str)> {
    let map = unstructured::nested_object(object, &["metadata", field]);
    map.into_iter().flatten().filter_map(|(key, value)| Some((key.as_str(), value.as_str()?)))
}

fn check_labels(errors: &mut LimitedErrors, object: &Map<String, Value>) {
    for (key, value) in metadata_entries(object, "labels") {
        push_invalid(errors, "metadata.labels", key, rule::validate_label_key(key));
        push_invalid(errors, "metadata.labels", value, rule::validate_label_value(value));
    }
}

fn check_annotations(errors: &mut LimitedErrors, object: &Map<String, Value>) {
    let mut length = 0;
    for (key, value) in metadata_entries(object, "annotations") {
        push_invalid(errors, "metadata.annotations", key, rule::validate_label_key(&key.to_lowercase()));
        length += key.len() + value.len();
    }
    if length > ANNOTATIONS_LENGTH_MAX {
        errors.push(FieldError::too_long("metadata.annotations", ANNOTATIONS_LENGTH_MAX));
    }
}

/// An owner reference in the order of Go's fields.
fn go_owner_reference(owner: &Map<String, Value>) -> String {
    let text = |name: &str| Some(Value::from(unstructured::text(owner, &[name])));
    let fields = ["apiVersion", "kind", "name", "uid"].map(|name| (name, text(name)));
    let flags = ["controller", "blockOwnerDeletion"].map(|name| (name, owner.get(name).cloned()));
    let shown = fields.into_iter().chain(flags).filter_map(|(name, value)| Some(format!("\"{name}\":{}", value?)));
    format!("{{{}}}", shown.collect::<Vec<_>>().join(","))
}

fn check_owner_references(errors: &mut LimitedErrors, object: &Map<String, Value>) {
    let field = "metadata.ownerReferences";
    for owner in unstructured::objects(object, &["metadata", "ownerReferences"]) {
        let text = |name: &str| unstructured::text(owner, &[name]);
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
            errors.push(FieldError::invalid_without_value(field, detail).showing(go_owner_reference(owner)));
        }
    }
    let is_controller = |owner: &&Map<String, Value>| unstructured::flag(owner, &["controller"]);
    let mut controllers = unstructured::objects(object, &["metadata", "ownerReferences"]).filter(is_controller);
    if let (Some(first), Some(second)) = (controllers.next(), controllers.next()) {
        let [first, second] = [first, second]
            .map(|owner| format!("{}/{}", unstructured::text(owner, &["kind"]), unstructured::text(owner, &["name"])));
        let detail = format!(
            "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {second}"
        );
        let owners: Vec<String> =
            unstructured::objects(object, &["metadata", "ownerReferences"]).map(go_owner_reference).collect();
        let error = FieldError::invalid_without_value(field, detail);
        errors.push(error.showing(format!("[{}]", owners.join(","))));
    }
}

fn check_finalizers(errors: &mut LimitedErrors, object: &Map<String, Value>) {
    let finalizers = unstructured::texts(object, &["metadata", "finalizers"]);
    for finalizer in finalizers.clone() {
        push_invalid(errors, "metadata.finalizers", finalizer, rule::validate_label_key(finalizer));
    }
    let has = |wanted: &str| finalizers.clone().any(|finalizer| finalizer == wanted);
    if has(FINALIZER_ORPHAN) && has(FINALIZER_FOREGROUND) {
        let detail = format!("finalizer {FINALIZER_ORPHAN} and {FINALIZER_FOREGROUND} cannot be both set");
        let all = unstructured::list(object, &["metadata", "finalizers"]);
        errors.push(FieldError::invalid("metadata.finalizers", all, detail));
    }
}

/// Finalizers of Kubernetes itself, which need no domain.
const STANDARD_FINALIZERS: [&str; 3] = ["kubernetes", FINALIZER_ORPHAN, FINALIZER_FOREGROUND];

/// Errors for finalizers that are neither Kubernetes' own nor have a domain.
pub fn validate_finalizer_names(object: &Map<String, Value>) -> Vec<FieldError> {
    let finalizers = unstructured::texts(object, &["metadata", "finalizers"]).enumerate();
    let is_unknown = |name: &str| !name.contains('/') && !STANDARD_FINALIZERS.contains(&name);
    let unknown = finalizers.filter(|(_, name)| is_unknown(name)).map(|(at, name)| {
        let detail = "name is neither a standard finalizer name nor is it fully qualified";
        FieldError::invalid(format!("metadata.finalizers[{at}]"), name, detail)
    });
    unknown.take(REPORTED_ERRORS_MAX).collect()
}

fn check_managed_fields(errors: &mut LimitedErrors, object: &Map<String, Value>) {
    for (at, entry) in unstructured::objects(object, &["metadata", "managedFields"]).enumerate() {
        let field = |name: &str| format!("metadata.managedFields[{at}].{name}");
        let text = |name: &str| unstructured::text(entry, &[name]);
        if !matches!(text("operation"), "Apply" | "Update") {
            let detail = "must be `Apply` or `Update`";
            errors.push(FieldError::invalid(field("operation"), text("operation"), detail));
        }
        if !matches!(text("fieldsType"), "" | "FieldsV1") {
            errors.push(FieldError::invalid(field("fieldsType"), text("fieldsType"), "must be `FieldsV1`"));
        }
        validate_manager_name(text("manager"), &field("manager")).into_iter().for_each(|error| errors.push(error));
        if text("subresource").len() > SUBRESOURCE_LENGTH_MAX {
            errors.push(FieldError::too_long(field("subresource"), SUBRESOURCE_LENGTH_MAX));
        }
    }
}

#[cfg(test)]
mod tests;
