//! The rules of each node of a schema: keywords that are not supported, list and map types, and the form of rules.

use std::collections::HashSet;

use api::FieldError;
use serde_json::Value;

use super::error_list::ErrorList;
use super::list_types;
use super::ratcheting::Requirements;
use super::schema_node::{Items, SchemaNode, SchemaOrBool};
use super::structural::conversion_problem;
use crate::rules::resolve;

const SCHEMA_TYPES: &[&str] = &["array", "boolean", "integer", "number", "object", "string"];

/// Keywords that a schema must not have, in the order of Kubernetes' checks.
const UNSUPPORTED_KEYWORDS: &[&str] =
    &["id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref"];

const RULE_REASONS: &[&str] =
    &["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];

/// From this release on, the texts of rules do not repeat the name of the field.
const FIELD_NAME_DROPPED_SINCE: u8 = 34;

/// Fields of a resource that are not described by its own schema.
const META_FIELDS: [&str; 3] = ["metadata", "kind", "apiVersion"];

/// The checks of one schema.
pub(super) struct OpenApiChecks<'c> {
    pub(super) requirements: &'c Requirements,
    pub(super) minor: u8,
}

/// Where a node is.
#[derive(Clone, Debug, Default)]
pub(super) struct NodePlace {
    pub(super) is_root: bool,
    /// Below `metadata`, `kind` or `apiVersion` of a resource.
    is_inside_meta: bool,
    /// Why a default is not allowed here.
    forbids_defaults: Option<String>,
    /// Rules are checked: not below a junctor.
    allows_rules: bool,
}

/// What the checks of a schema found.
#[derive(Default)]
pub(super) struct OpenApiFindings {
    pub(super) errors: ErrorList,
    /// Paths of nodes whose rules can be compiled: neither the node nor one below it has an error.
    pub(super) rule_nodes: HashSet<String>,
}

impl NodePlace {
    pub(super) fn root() -> Self {
        Self { is_root: true, allows_rules: true, ..Self::default() }
    }

    fn child(&self) -> Self {
        Self { is_root: false, ..self.clone() }
    }

    fn below_junctor(&self) -> Self {
        Self { allows_rules: false, ..self.child() }
    }
}

impl OpenApiChecks<'_> {
    /// Checks a node and all nodes below it.
    pub(super) fn check(&self, found: &mut OpenApiFindings, node: SchemaNode<'_>, path: &str, place: &NodePlace) {
        let errors_before = found.errors.count();
        self.check_keywords(&mut found.errors, node, path, place);
        self.check_children(found, node, path, place);
        let errors = &mut found.errors;
        if node.value("x-kubernetes-preserve-unknown-fields").and_then(Value::as_bool) == Some(false) {
            let path = format!("{path}.x-kubernetes-preserve-unknown-fields");
            errors.push(FieldError::invalid(path, false, "must be true or undefined"));
        }
        list_types::check_map_type(errors, node, path);
        list_types::check_list_type(errors, node, path, self.requirements.atomic_sets);
        list_types::check_map_list(errors, node, path);
        if self.requirements.list_map_keys {
            list_types::check_items_of_set_or_map(errors, node, path);
        }
        let rules = node.list("x-kubernetes-validations");
        if rules.is_empty() {
            return;
        }
        for (at, rule) in rules.iter().enumerate() {
            self.check_rule_form(errors, node, rule, &format!("{path}.x-kubernetes-validations[{at}]"));
        }
        if errors.count() == errors_before && place.allows_rules {
            found.rule_nodes.insert(path.to_owned());
        }
    }

    fn check_keywords(&self, errors: &mut ErrorList, node: SchemaNode<'_>, path: &str, place: &NodePlace) {
        let schema_type = node.schema_type();
        if self.requirements.valid_types && !schema_type.is_empty() && !SCHEMA_TYPES.contains(&schema_type) {
            errors.push(FieldError::not_supported(format!("{path}.type"), schema_type, SCHEMA_TYPES));
        }
        if let Some(reason) = &place.forbids_defaults
            && node.is_set("default")
        {
            errors.push(FieldError::forbidden(format!("{path}.default"), format!("must not be set {reason}")));
        }
        for keyword in UNSUPPORTED_KEYWORDS {
            let is_present = match (*keyword, node.value(keyword)) {
                ("id", Some(id)) => id.as_str().is_some_and(|id| !id.is_empty()),
                ("patternProperties" | "definitions", Some(map)) => map.as_object().is_some_and(|map| !map.is_empty()),
                (_, value) => value.is_some(),
            };
            if is_present {
                errors.push(FieldError::forbidden(format!("{path}.{keyword}"), format!("{keyword} is not supported")));
            }
        }
        if schema_type == "null" {
            let detail = "type cannot be set to null, use nullable as an alternative";
            errors.push(FieldError::forbidden(format!("{path}.type"), detail));
        }
        if let Some(Items::Many(schemas)) = node.items()
            && !schemas.is_empty()
        {
            errors
                .push(FieldError::forbidden(format!("{path}.items"), "items must be a schema object and not an array"));
        }
        if place.is_inside_meta && node.flag("x-kubernetes-embedded-resource") {
            let detail = "must not be used inside of resource meta";
            errors.push(FieldError::forbidden(format!("{path}.x-kubernetes-embedded-resource"), detail));
        }
        if node.flag("uniqueItems") {
            let detail = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
            errors.push(FieldError::forbidden(format!("{path}.uniqueItems"), detail));
        }
    }

    fn check_children(&self, found: &mut OpenApiFindings, node: SchemaNode<'_>, path: &str, place: &NodePlace) {
        if let Some(additional) = node.schema_or_bool("additionalProperties") {
            let path = format!("{path}.additionalProperties");
            if node.has_properties() && !matches!(additional, SchemaOrBool::Bool(true)) {
                let detail = "additionalProperties and properties are mutual exclusive";
                found.errors.push(FieldError::forbidden(&path, detail));
            }
            if let SchemaOrBool::Schema(values) = additional {
                let mut below = place.child();
                if place.is_inside_meta {
                    let reason = "inside additionalProperties applying to object metadata";
                    below.forbids_defaults = Some(reason.to_owned());
                }
                self.check(found, values, &path, &below);
            }
        }
        for (name, property) in node.named_nodes("properties") {
            self.check(found, property, &format!("{path}.properties[{name}]"), &property_place(node, name, place));
        }
        let below = place.below_junctor();
        if let Some(not) = node.node("not") {
            self.check(found, not, &format!("{path}.not"), &below);
        }
        for junctor in ["allOf", "oneOf", "anyOf"] {
            for (at, nested) in node.nodes(junctor).enumerate() {
                self.check(found, nested, &format!("{path}.{junctor}[{at}]"), &below);
            }
        }
        for (name, definition) in node.named_nodes("definitions") {
            self.check(found, definition, &format!("{path}.definitions[{name}]"), &below);
        }
        self.check_items(found, node, path, place);
        let dependencies = node.value("dependencies").and_then(Value::as_object);
        for (name, dependency) in dependencies.into_iter().flatten() {
            if let Some(schema) = dependency.as_object() {
                self.check(found, SchemaNode(schema), &format!("{path}.dependencies[{name}]"), &below);
            }
        }
    }

    fn check_items(&self, found: &mut OpenApiFindings, node: SchemaNode<'_>, path: &str, place: &NodePlace) {
        let below = place.child();
        match node.items() {
            Some(Items::One(items)) => self.check(found, items, &format!("{path}.items"), &below),
            Some(Items::Many(schemas)) => {
                for (at, items) in schemas.into_iter().enumerate() {
                    self.check(found, items, &format!("{path}.items[{at}]"), &below);
                }
            }
            None => {}
        }
    }

    /// Checks a rule as far as its expressions need not be compiled.
    fn check_rule_form(&self, errors: &mut ErrorList, node: SchemaNode<'_>, rule: &Value, path: &str) {
        let text = |name: &str| rule.get(name).and_then(Value::as_str).unwrap_or_default();
        let invalid = |errors: &mut ErrorList, name: &str, detail: &str| {
            let repeated = if self.minor < FIELD_NAME_DROPPED_SINCE { format!("{name} ") } else { String::new() };
            errors.push(FieldError::invalid(format!("{path}.{name}"), text(name), format!("{repeated}{detail}")));
        };
        let [expression, message, message_expression, field_path] =
            ["rule", "message", "messageExpression", "fieldPath"].map(|name| (text(name), text(name).trim()));
        if expression.1.is_empty() {
            errors.push(FieldError::required(format!("{path}.rule"), "rule is not specified"));
        } else if !message.0.is_empty() && message.1.is_empty() {
            invalid(errors, "message", "must be non-empty if specified");
        } else if has_line_break(message.1) {
            invalid(errors, "message", "must not contain line breaks");
        } else if has_line_break(expression.1) && message.1.is_empty() {
            let detail = "message must be specified if rule contains line breaks";
            errors.push(FieldError::required(format!("{path}.message"), detail));
        }
        if !message_expression.0.is_empty() && message_expression.1.is_empty() {
            let detail = "messageExpression must be non-empty if specified";
            errors.push(FieldError::required(format!("{path}.messageExpression"), detail));
        }
        if let Some(reason) = rule.get("reason").and_then(Value::as_str)
            && !RULE_REASONS.contains(&reason)
        {
            errors.push(FieldError::not_supported(format!("{path}.reason"), reason, RULE_REASONS));
        }
        if !field_path.0.is_empty() && field_path.1.is_empty() {
            invalid(errors, "fieldPath", "must be non-empty if specified");
        }
        if has_line_break(field_path.0) {
            invalid(errors, "fieldPath", "must not contain line breaks");
        }
        let is_resolved = || conversion_problem(node).is_some() || resolve(field_path.0, node, true).is_ok();
        if !field_path.0.is_empty() && !is_resolved() {
            invalid(errors, "fieldPath", "must be a valid path");
        }
    }
}

fn has_line_break(text: &str) -> bool {
    text.contains(['\n', '\r'])
}

fn property_place(parent: SchemaNode<'_>, name: &str, place: &NodePlace) -> NodePlace {
    let mut below = place.child();
    if (place.is_root || parent.flag("x-kubernetes-embedded-resource")) && META_FIELDS.contains(&name) {
        below.is_inside_meta = true;
        if place.is_root {
            below.forbids_defaults = Some(format!("in top-level {name}"));
        }
    }
    below
}
