//! Validation of CustomResourceDefinitions in the form of `apiextensions.k8s.io/v1`: all rules of Kubernetes, with its
//! paths, texts and order.
//!
//! Definitions come in as JSON that has passed the type check and has its defaults. Metadata is validated like that of
//! any object, by `object`; only its rules for definitions are here. Errors below a map, such as `properties`, are in
//! the order of the keys; Kubernetes has them in random order.

mod approval;
mod ca_bundle;
mod conversion;
mod defaults;
mod error_list;
mod internal_form;
mod json_fields;
mod list_types;
mod names;
mod open_api;
mod ratcheting;
mod schema;
mod schema_fields;
mod schema_node;
mod structural;
mod views;
mod warnings;
mod webhook_url;

use std::collections::{BTreeMap, HashSet};

use ::schema::structural::MetadataType;
use api::FieldError;
use api::json::JsonObject;
use serde_json::Value;

use error_list::ErrorList;
use internal_form::{InternalSpec, InternalVersion, VersionFields};
use json_fields::{flag, object_or_empty, text, texts};
use ratcheting::Requirements;
use schema::SchemaChecks;
use schema_node::SchemaNode;

use crate::definition::{DefinitionCondition, SchemaJson};
use crate::naming;

pub use approval::{APPROVED_ANNOTATION, ApprovalState, approval_state, is_protected_group};
pub use conversion::validate_webhook_client;
pub use warnings::warnings;

const SCHEMA_TYPES: &[&str] = &["array", "boolean", "integer", "number", "object", "string"];

/// From this release on, a missing schema has no further explanation, and texts do not repeat the field's name.
const SHORT_TEXTS_SINCE: u8 = 34;
/// From this release on, the error about a stored version that is missing says what to do.
const STORED_VERSION_ADVICE_SINCE: u8 = 33;

/// The server that validates.
#[derive(Clone, Copy, Debug)]
pub struct ValidationOptions {
    /// The second number of the release: 36 of 1.36.
    pub minor: u8,
    /// The type of the metadata of objects in the release.
    pub object_meta: MetadataType<'static>,
}

/// Validates a new definition.
pub fn validate_definition(new: &JsonObject, options: &ValidationOptions) -> Vec<FieldError> {
    let mut errors = ErrorList::default();
    let spec = InternalSpec::new(new);
    check_name(&mut errors, new, &spec);
    validate_spec(&mut errors, &spec, &Requirements::of_create(), options);
    validate_rest(&mut errors, None, new, &spec, options);
    errors.into_errors()
}

/// Validates an update of a definition. `new` has the status that the update leads to.
pub fn validate_definition_update(old: &JsonObject, new: &JsonObject, options: &ValidationOptions) -> Vec<FieldError> {
    let mut errors = ErrorList::default();
    let (old_spec, new_spec) = (InternalSpec::new(old), InternalSpec::new(new));
    let requirements = Requirements::of_update(old, &old_spec, &new_spec, options);
    validate_spec(&mut errors, &new_spec, &requirements, options);
    check_immutable_fields(&mut errors, old_spec.spec, new_spec.spec, requirements.immutable_names);
    validate_rest(&mut errors, Some(old), new, &new_spec, options);
    errors.into_errors()
}

/// True unless the conversion webhook of a definition has a CA bundle that cannot be read.
pub fn has_valid_ca_bundle(definition: &crate::Definition) -> bool {
    let webhook = definition.spec.conversion.as_ref().and_then(|conversion| conversion.webhook.as_ref());
    let bundle = webhook.and_then(|webhook| webhook.client_config.get("caBundle")?.as_str());
    bundle.is_none_or(|bundle| bundle.is_empty() || ca_bundle::ca_bundle_problem(bundle).is_none())
}

/// The condition of a definition whose schemas are not structural, which only old data can be; `None` removes it.
pub fn structural_condition(
    definition: &crate::Definition,
    options: &ValidationOptions,
) -> Option<DefinitionCondition> {
    let spec = &definition.spec;
    let mut errors = Vec::new();
    for (position, version) in spec.versions.iter().enumerate() {
        let Some(Value::Object(schema)) = version.schema.open_api_v3_schema.as_ref().map(SchemaJson::to_value) else {
            continue;
        };
        let schema = SchemaNode(&schema);
        if let Some(problem) = structural::conversion_problem(schema) {
            let message = format!("failed to check validation schema for version {}: {problem}", version.name);
            return Some(naming::unchecked_schema_condition(&message));
        }
        let path = format!("spec.versions[{position}].schema.openAPIV3Schema");
        errors.extend(structural::validate_structural(&path, schema, options.minor));
    }
    naming::non_structural_condition(spec.preserve_unknown_fields, &errors)
}

/// Validates an update through the status subresource. Kubernetes does not check stored versions here.
pub fn validate_definition_status_update(new: &JsonObject) -> Vec<FieldError> {
    let mut errors = ErrorList::default();
    validate_accepted_names(&mut errors, new);
    errors.into_errors()
}

/// Checks the name, and like Kubernetes the prefix of generated names by the same rule.
fn check_name(errors: &mut ErrorList, new: &JsonObject, spec: &InternalSpec<'_>) {
    let plural = text(object_or_empty(spec.spec, "names"), "plural");
    let required = format!("{plural}.{}", text(spec.spec, "group"));
    for field in ["generateName", "name"] {
        let name = text(object_or_empty(new, "metadata"), field);
        if !name.is_empty() && name != required {
            let detail = "must be spec.names.plural+\".\"+spec.group";
            errors.push(FieldError::invalid(format!("metadata.{field}"), name, detail));
        }
    }
}

/// Checks what comes after the spec.
fn validate_rest(
    errors: &mut ErrorList,
    old: Option<&JsonObject>,
    new: &JsonObject,
    spec: &InternalSpec<'_>,
    options: &ValidationOptions,
) {
    validate_accepted_names(errors, new);
    validate_stored_versions(errors, new, spec, options);
    errors.extend(approval::approval_error(text(spec.spec, "group"), old, new));
    let preserved_before = old.is_some_and(|old| InternalSpec::new(old).preserves_unknown_fields());
    if spec.preserves_unknown_fields() && !preserved_before {
        let detail = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema \
                      instead";
        errors.push(FieldError::invalid("spec.preserveUnknownFields", true, detail));
    }
}

fn validate_accepted_names(errors: &mut ErrorList, definition: &JsonObject) {
    let status = object_or_empty(definition, "status");
    names::validate_names(errors, "status.acceptedNames", object_or_empty(status, "acceptedNames"));
}

fn validate_stored_versions(
    errors: &mut ErrorList,
    definition: &JsonObject,
    spec: &InternalSpec<'_>,
    options: &ValidationOptions,
) {
    let path = "status.storedVersions";
    let status = object_or_empty(definition, "status");
    let stored: Vec<_> = texts(status, "storedVersions").collect();
    let shown = || status.get("storedVersions").cloned().unwrap_or_default();
    if stored.is_empty() {
        return errors.push(FieldError::invalid(path, shown(), "must have at least one stored version"));
    }
    let mut missing: BTreeMap<_, _> = stored.iter().enumerate().map(|(at, version)| (*version, at)).collect();
    for version in &spec.versions {
        // A second version of the same name does not find the stored one that the first has taken.
        let is_stored = missing.remove(version.name()).is_some();
        if flag(version.object, "storage") && !is_stored {
            let detail = format!("must have the storage version {}", version.name());
            errors.push(FieldError::invalid(path, shown(), detail));
        }
    }
    for (version, at) in missing {
        let detail = if options.minor >= STORED_VERSION_ADVICE_SINCE {
            format!(
                "missing from spec.versions; {version} was previously a storage version, and must remain in spec.versions \
                 until a storage migration ensures no data remains persisted in {version} and removes {version} from \
                 status.storedVersions"
            )
        } else {
            "must appear in spec.versions".to_owned()
        };
        errors.push(FieldError::invalid(format!("{path}[{at}]"), version, detail));
    }
}

fn check_immutable_fields(errors: &mut ErrorList, old: &JsonObject, new: &JsonObject, is_established: bool) {
    let value = |spec: &JsonObject, path: &str| match path.split_once('.') {
        Some((part, name)) => text(object_or_empty(spec, part), name).to_owned(),
        None => text(spec, path).to_owned(),
    };
    let once_established = ["scope", "names.kind"].into_iter().filter(|_| is_established);
    for path in once_established.chain(["group", "names.plural"]) {
        let shown = value(new, path);
        if shown != value(old, path) {
            errors.push(FieldError::invalid(format!("spec.{path}"), shown, "field is immutable"));
        }
    }
}

fn validate_spec(
    errors: &mut ErrorList,
    spec: &InternalSpec<'_>,
    requirements: &Requirements,
    options: &ValidationOptions,
) {
    let mut requirements = requirements.clone();
    let prunes = !spec.preserves_unknown_fields();
    names::validate_group(errors, text(spec.spec, "group"));
    conversion::check_enum(errors, "spec.scope", text(spec.spec, "scope"), &["Cluster", "Namespaced"]);
    check_schemas_present(errors, spec, &requirements, options);
    let has_defaults = spec.has_node(&|node| node.is_set("default"));
    if has_defaults && !prunes {
        let detail = "must be false in order to use defaults in the schema";
        errors.push(FieldError::invalid("spec.preserveUnknownFields", true, detail));
    }
    requirements.structural |= prunes || has_defaults || spec.has_node(&schema::has_kubernetes_extension);
    let checks = SchemaChecks { requirements: &requirements, options };
    for (at, version) in spec.versions.iter().enumerate() {
        validate_version(errors, spec, version, &format!("spec.versions[{at}]"), &checks);
    }
    check_version_names(errors, spec);
    let resource_names = object_or_empty(spec.spec, "names");
    names::require_names(errors, resource_names);
    names::validate_names(errors, "spec.names", resource_names);
    validate_shared_fields(errors, spec, &checks);
    let strategy = text(object_or_empty(spec.spec, "conversion"), "strategy");
    if spec.spec.get("conversion").is_some_and(Value::is_object) && strategy != "None" && !prunes {
        let detail = "must be None if spec.preserveUnknownFields is true";
        errors.push(FieldError::invalid("spec.conversion.strategy", strategy, detail));
    }
    conversion::validate_conversion(errors, spec.spec, requirements.conversion);
}

/// Checks that versions have schemas: all of a new definition, and served ones of an old definition that prunes.
fn check_schemas_present(
    errors: &mut ErrorList,
    spec: &InternalSpec<'_>,
    requirements: &Requirements,
    options: &ValidationOptions,
) {
    if spec.shared.schema().is_some() || (!requirements.schema && spec.preserves_unknown_fields()) {
        return;
    }
    for (at, version) in spec.versions.iter().enumerate() {
        let detail = match requirements.schema {
            true if options.minor >= SHORT_TEXTS_SINCE => "",
            true => "schemas are required",
            false if flag(version.object, "served") => "because otherwise all fields are pruned",
            false => continue,
        };
        if version.fields.schema().is_none() {
            errors.push(FieldError::required(format!("spec.versions[{at}].schema.openAPIV3Schema"), detail));
        }
    }
}

fn validate_version(
    errors: &mut ErrorList,
    spec: &InternalSpec<'_>,
    version: &InternalVersion<'_>,
    path: &str,
    checks: &SchemaChecks<'_>,
) {
    let (name, fields) = (version.name(), &version.fields);
    names::check_label(errors, format!("{path}.name"), name, "");
    check_deprecation_warning(errors, version, path);
    let has_own = spec.versions.iter().any(|version| version.fields.subresources.is_some());
    let holder = match spec.versions.iter().find(|candidate| candidate.name() == name) {
        Some(version) if has_own => &version.fields,
        _ => &spec.shared,
    };
    checks.validate(errors, fields, &format!("{path}.schema"), holder.has_status_subresource(), name);
    validate_views(errors, fields, path);
    if fields.selectable_fields().is_empty() {
        return;
    }
    let selectable_path = format!("{path}.selectableFields");
    match fields.schema() {
        Some(_) => checks.validate_selectable_fields(errors, fields, path, name),
        None if checks.options.minor >= SHORT_TEXTS_SINCE => {
            let detail = "may only be set when `version.schema.openAPIV3Schema` is not included";
            errors.push(FieldError::invalid(selectable_path, "", detail));
        }
        None => {
            let detail = "selectableFields may only be set when version.schema.openAPIV3Schema is not included";
            errors.push(FieldError::invalid(selectable_path, "", detail));
        }
    }
}

/// Checks the fields that all versions share, and that stand at the top of the spec therefore.
fn validate_shared_fields(errors: &mut ErrorList, spec: &InternalSpec<'_>, checks: &SchemaChecks<'_>) {
    let fields = &spec.shared;
    let has_status =
        fields.has_status_subresource() || spec.versions.iter().any(|version| version.fields.has_status_subresource());
    let first = spec.versions.first().map_or("", InternalVersion::name);
    checks.validate(errors, fields, "spec.validation", has_status, first);
    validate_views(errors, fields, "spec");
    if fields.selectable_fields().is_empty() {
        return;
    }
    if fields.validation.is_none() {
        let prefix = if checks.options.minor >= SHORT_TEXTS_SINCE { "" } else { "selectableFields " };
        let detail = format!("{prefix}may only be set when validations.schema is included");
        errors.push(FieldError::invalid("spec.selectableFields", "", detail));
    } else {
        checks.validate_selectable_fields(errors, fields, "spec", "");
    }
}

fn validate_views(errors: &mut ErrorList, fields: &VersionFields<'_>, path: &str) {
    views::validate_subresources(errors, &format!("{path}.subresources"), fields.subresources);
    for (at, column) in fields.columns().iter().enumerate() {
        views::validate_column(errors, &format!("{path}.additionalPrinterColumns[{at}]"), column);
    }
}

fn check_deprecation_warning(errors: &mut ErrorList, version: &InternalVersion<'_>, path: &str) {
    let Some(shown) = version.object.get("deprecationWarning").filter(|value| value.is_string()) else { return };
    let warning = shown.as_str().unwrap_or_default();
    let mut report = |detail: String| {
        let path = format!("{path}.deprecationWarning");
        errors.push(FieldError::invalid_printed(path, &schema_fields::go_value(shown), &detail));
    };
    if !flag(version.object, "deprecated") {
        return report("can only be set for deprecated versions".to_owned());
    }
    if warning.len() > 256 {
        report("must be <= 256 characters long".to_owned());
    }
    if warning.is_empty() {
        report("must not be an empty string".to_owned());
    }
    let unprintable = warning.char_indices().find(|(_, character)| !api::quote::is_printable(*character));
    if let Some((at, _)) = unprintable {
        let detail = "must only contain printable UTF-8 characters; non-printable character found at index";
        report(format!("{detail} {at}"));
    }
}

fn check_version_names(errors: &mut ErrorList, spec: &InternalSpec<'_>) {
    let mut seen = HashSet::new();
    let are_unique = spec.versions.iter().all(|version| seen.insert(version.name()));
    let storage = spec.versions.iter().filter(|version| flag(version.object, "storage")).count();
    let rules = [
        (are_unique, "must contain unique version names"),
        (storage == 1, "must have exactly one version marked as storage version"),
    ];
    for (_, detail) in rules.into_iter().filter(|(is_satisfied, _)| !is_satisfied) {
        errors.push(FieldError::invalid_printed("spec.versions", &spec.shown_versions(), detail));
    }
    let first = spec.versions.first().map_or("", InternalVersion::name);
    if !first.is_empty() {
        names::check_label(errors, "spec.version", first, "");
    }
}
