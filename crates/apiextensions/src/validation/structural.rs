//! Structural schemas: every field has one place in the spine of `properties`, `items` and `additionalProperties`, and
//! `allOf`, `anyOf`, `oneOf` and `not` only restrict values.

use api::FieldError;
use serde_json::Value;

use super::error_list::ErrorList;
use super::schema_fields::{FieldForm, SCHEMA_FIELDS};
use super::schema_node::{Items, SchemaNode, SchemaOrBool};

/// From this release on, `externalDocs` and `example` are part of a structural schema.
const DOCUMENTED_SINCE: u8 = 36;

const MUST_BE_EMPTY: &str = "must be empty to be structural";
const MUST_BE_UNDEFINED: &str = "must be undefined to be structural";
const MUST_BE_FALSE: &str = "must be false to be structural";

/// Fields that a schema below `allOf`, `anyOf`, `oneOf` or `not` must not have.
const SPINE_FIELDS: &[(&str, &str)] = &[
    ("type", MUST_BE_EMPTY),
    ("additionalProperties", MUST_BE_UNDEFINED),
    ("default", MUST_BE_UNDEFINED),
    ("title", MUST_BE_EMPTY),
    ("description", MUST_BE_EMPTY),
    ("nullable", MUST_BE_FALSE),
    ("x-kubernetes-preserve-unknown-fields", MUST_BE_FALSE),
    ("x-kubernetes-embedded-resource", MUST_BE_FALSE),
    ("x-kubernetes-int-or-string", MUST_BE_FALSE),
    ("x-kubernetes-list-map-keys", MUST_BE_EMPTY),
    ("x-kubernetes-list-type", MUST_BE_UNDEFINED),
    ("x-kubernetes-map-type", MUST_BE_UNDEFINED),
    ("x-kubernetes-validations", MUST_BE_EMPTY),
];

/// Fields that cannot be converted to a structural schema, with the name that the message has. The flag says that an
/// empty map counts as absent.
const UNSUPPORTED_FIELDS: &[(&str, &str)] = &[
    ("id", "id"),
    ("$schema", "schema"),
    ("$ref", "$ref"),
    ("patternProperties", "patternProperties"),
    ("dependencies", "dependencies"),
    ("additionalItems", "additionalItems"),
    ("definitions", "definitions"),
];

/// Where a schema is in the spine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Level {
    Root,
    Item,
    Field,
}

/// Why a schema cannot be converted to a structural schema at all.
pub(super) fn conversion_problem(node: SchemaNode<'_>) -> Option<String> {
    let is_present = |name: &str| match node.value(name) {
        Some(Value::String(text)) => !text.is_empty(),
        Some(Value::Object(map)) => !map.is_empty() || name == "additionalItems",
        Some(_) => true,
        None => false,
    };
    if let Some((_, shown)) = UNSUPPORTED_FIELDS.iter().find(|(name, _)| is_present(name)) {
        return Some(format!("OpenAPIV3Schema '{shown}' is not supported"));
    }
    let below =
        node.node("not").into_iter().chain(["allOf", "anyOf", "oneOf"].into_iter().flat_map(|field| node.nodes(field)));
    if let Some(problem) = below.into_iter().find_map(conversion_problem) {
        return Some(problem);
    }
    if node.value("x-kubernetes-preserve-unknown-fields").and_then(Value::as_bool) == Some(false) {
        return Some("internal error: 'x-kubernetes-preserve-unknown-fields' must be true or undefined".to_owned());
    }
    if let Some(Items::Many(schemas)) = node.items()
        && !schemas.is_empty()
    {
        return Some("OpenAPIV3Schema 'items' must be a schema, but is an array".to_owned());
    }
    let mut spine = node.item_schema().into_iter();
    let problem = spine.find_map(conversion_problem);
    let problem = problem.or_else(|| node.named_nodes("properties").find_map(|(_, node)| conversion_problem(node)));
    problem.or_else(|| node.node("additionalProperties").and_then(conversion_problem))
}

/// The errors of a schema that can be converted, sorted by text. `minor` is the release.
pub(super) fn validate_structural(path: &str, schema: SchemaNode<'_>, minor: u8) -> Vec<FieldError> {
    let mut errors = ErrorList::default();
    let checks = StructuralChecks { minor };
    checks.check_spine(&mut errors, schema, Level::Root, path);
    check_complete(&mut errors, schema, Some(schema), path, path, false);
    let mut errors = errors.into_errors();
    errors.sort_by_cached_key(FieldError::to_string);
    errors
}

/// True if the schema is structural.
pub(super) fn is_structural(schema: SchemaNode<'_>, minor: u8) -> bool {
    conversion_problem(schema).is_none() && validate_structural("", schema, minor).is_empty()
}

struct StructuralChecks {
    minor: u8,
}

impl StructuralChecks {
    fn check_spine(&self, errors: &mut ErrorList, node: SchemaNode<'_>, level: Level, path: &str) {
        let schema_type = node.schema_type();
        match node.item_schema() {
            Some(items) => self.check_spine(errors, items, Level::Item, &format!("{path}.items")),
            None if schema_type == "array" => {
                errors.push(FieldError::required(format!("{path}.items"), "must be specified"));
            }
            None => {}
        }
        for (name, property) in node.named_nodes("properties") {
            self.check_spine(errors, property, Level::Field, &format!("{path}.properties[{name}]"));
        }
        let additional = node.schema_or_bool("additionalProperties");
        let additional_path = format!("{path}.additionalProperties");
        if additional.is_some() && level == Level::Root {
            errors.push(FieldError::forbidden(&additional_path, "must not be used at the root"));
        }
        if let Some(SchemaOrBool::Schema(values)) = additional {
            self.check_spine(errors, values, Level::Field, &additional_path);
        }
        check_int_or_string(errors, node, path);
        let skips = JunctorSkips {
            any_of: self.is_int_or_string_any_of(node),
            first_all_of_any_of: node.nodes("allOf").next().is_some_and(|first| self.is_int_or_string_any_of(first)),
        };
        self.check_junctors(errors, node, skips, path);
        check_type(errors, node, level, path);
        self.check_type_and_object_meta(errors, node, level, path);
    }

    /// Checks `kind`, `apiVersion` and `metadata` of the root and of embedded resources.
    fn check_type_and_object_meta(&self, errors: &mut ErrorList, node: SchemaNode<'_>, level: Level, path: &str) {
        let is_resource = level == Level::Root || node.flag("x-kubernetes-embedded-resource");
        let must_be = |errors: &mut ErrorList, name: &str, expected: &str| {
            let Some(found) = node.property(name).filter(|_| is_resource) else { return };
            if found.schema_type() != expected {
                let path = format!("{path}.properties[{name}].type");
                errors.push(FieldError::invalid(path, found.schema_type(), format!("must be {expected}")));
            }
        };
        must_be(errors, "kind", "string");
        must_be(errors, "apiVersion", "string");
        must_be(errors, "metadata", "object");
        if level == Level::Root
            && let Some(metadata) = node.property("metadata")
            && !self.specifies_only_names(metadata)
        {
            let detail =
                "must not specify anything other than name and generateName, but metadata is implicitly specified";
            errors.push(FieldError::forbidden(format!("{path}.properties[metadata]"), detail));
        }
        let is_unspecified = !node.flag("x-kubernetes-preserve-unknown-fields") && !node.has_properties();
        if node.flag("x-kubernetes-embedded-resource") && is_unspecified {
            let detail = "must not be empty if x-kubernetes-embedded-resource is true without \
                          x-kubernetes-preserve-unknown-fields";
            errors.push(FieldError::required(format!("{path}.properties"), detail));
        }
    }

    /// True if the schema of the root's metadata restricts nothing but the names.
    fn specifies_only_names(&self, metadata: SchemaNode<'_>) -> bool {
        let restricts_names =
            metadata.named_nodes("properties").all(|(name, _)| ["name", "generateName"].contains(&name));
        self.structural_fields(metadata, false).all(|name| match name {
            "type" | "default" => true,
            "properties" => restricts_names,
            _ => false,
        })
    }

    /// True if `anyOf` is exactly the types of an integer and a string.
    fn is_int_or_string_any_of(&self, node: SchemaNode<'_>) -> bool {
        let mut types = node.nodes("anyOf");
        let mut is_next = |expected: &str| {
            types.next().is_some_and(|node| {
                node.schema_type() == expected && self.structural_fields(node, true).all(|name| name == "type")
            })
        };
        is_next("integer") && is_next("string") && types.next().is_none()
    }

    /// The fields that a structural schema of the node has; `is_nested` below a junctor.
    fn structural_fields<'n>(
        &self,
        node: SchemaNode<'n>,
        is_nested: bool,
    ) -> impl Iterator<Item = &'static str> + use<'n> {
        let is_documented = self.minor >= DOCUMENTED_SINCE;
        SCHEMA_FIELDS.iter().filter(move |field| field.is_set(node)).filter_map(move |field| {
            let is_empty = || match node.value(field.name) {
                Some(Value::Array(list)) => list.is_empty(),
                Some(Value::Object(map)) => map.is_empty(),
                _ => false,
            };
            let is_part = match (field.name, field.form) {
                ("enum", _) | (_, FieldForm::Nodes) => !is_empty(),
                ("properties", _) => is_nested || !is_empty(),
                ("patternProperties" | "dependencies" | "definitions" | "additionalItems" | "$ref", _) => false,
                ("externalDocs" | "example", _) => is_documented,
                ("items", _) => node.item_schema().is_some(),
                ("additionalProperties", _) if is_nested => {
                    !matches!(node.schema_or_bool("additionalProperties"), Some(SchemaOrBool::Bool(false)))
                }
                _ => true,
            };
            is_part.then_some(field.name)
        })
    }

    /// Checks what stands in `allOf`, `anyOf`, `oneOf` and `not`, and the pattern.
    fn check_junctors(&self, errors: &mut ErrorList, node: SchemaNode<'_>, skips: JunctorSkips, path: &str) {
        for junctor in ["anyOf", "allOf", "oneOf"] {
            if junctor == "anyOf" && skips.any_of {
                continue;
            }
            for (at, nested) in node.nodes(junctor).enumerate() {
                let skips = JunctorSkips {
                    any_of: junctor == "allOf" && at == 0 && skips.first_all_of_any_of,
                    first_all_of_any_of: false,
                };
                self.check_nested(errors, nested, skips, &format!("{path}.{junctor}[{at}]"));
            }
        }
        if let Some(not) = node.node("not") {
            self.check_nested(errors, not, JunctorSkips::default(), &format!("{path}.not"));
        }
        let pattern = node.text("pattern");
        if !pattern.is_empty()
            && let Err(problem) = re2::check(pattern)
        {
            let detail = format!("must be a valid regular expression, but isn't: {problem}");
            errors.push(FieldError::invalid(format!("{path}.pattern"), pattern, detail));
        }
    }

    /// Checks a schema below a junctor, which must have no fields of the spine.
    fn check_nested(&self, errors: &mut ErrorList, node: SchemaNode<'_>, skips: JunctorSkips, path: &str) {
        self.check_junctors(errors, node, skips, path);
        if let Some(items) = node.item_schema() {
            self.check_nested(errors, items, JunctorSkips::default(), &format!("{path}.items"));
        }
        for (name, property) in node.named_nodes("properties") {
            self.check_nested(errors, property, JunctorSkips::default(), &format!("{path}.properties[{name}]"));
        }
        for (name, detail) in SPINE_FIELDS {
            let is_present = match node.value(name) {
                Some(Value::String(text)) => !text.is_empty() || *detail == MUST_BE_UNDEFINED,
                Some(Value::Array(list)) => !list.is_empty() || *detail == MUST_BE_UNDEFINED,
                Some(Value::Bool(value)) => *value || *name == "default",
                Some(_) => true,
                None => false,
            };
            if is_present {
                errors.push(FieldError::forbidden(format!("{path}.{name}"), *detail));
            }
        }
        if node.property("metadata").is_some() {
            let detail = "must not be specified in a nested context";
            errors.push(FieldError::forbidden(format!("{path}.properties[metadata]"), detail));
        }
    }
}

/// Junctors that have the types of an int-or-string, which are exempt.
#[derive(Clone, Copy, Default)]
struct JunctorSkips {
    any_of: bool,
    first_all_of_any_of: bool,
}

fn check_int_or_string(errors: &mut ErrorList, node: SchemaNode<'_>, path: &str) {
    if !node.flag("x-kubernetes-int-or-string") {
        return;
    }
    for name in ["x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource"] {
        if node.flag(name) {
            let detail = "must be false if x-kubernetes-int-or-string is true";
            errors.push(FieldError::invalid(format!("{path}.{name}"), true, detail));
        }
    }
}

fn check_type(errors: &mut ErrorList, node: SchemaNode<'_>, level: Level, path: &str) {
    let (schema_type, type_path) = (node.schema_type(), format!("{path}.type"));
    let is_embedded = node.flag("x-kubernetes-embedded-resource");
    let is_untyped = node.flag("x-kubernetes-int-or-string") || node.flag("x-kubernetes-preserve-unknown-fields");
    if is_embedded && schema_type != "object" {
        let detail = "must be object if x-kubernetes-embedded-resource is true";
        errors.push(if schema_type.is_empty() {
            FieldError::required(&type_path, detail)
        } else {
            FieldError::invalid(&type_path, schema_type, detail)
        });
    } else if schema_type.is_empty() && !is_untyped {
        let place = match level {
            Level::Root => "at the root",
            Level::Item => "for specified array items",
            Level::Field => "for specified object fields",
        };
        errors.push(FieldError::required(&type_path, format!("must not be empty {place}")));
    }
    if is_embedded && node.is_set("additionalProperties") {
        let detail = "must not be used if x-kubernetes-embedded-resource is set";
        errors.push(FieldError::forbidden(format!("{path}.additionalProperties"), detail));
    }
    if level == Level::Root && !schema_type.is_empty() && schema_type != "object" {
        errors.push(FieldError::invalid(type_path, schema_type, "must be object at the root"));
    }
}

/// Checks that what the junctors of `node` restrict exists in `spine`. Kubernetes starts at the root only and does not
/// look into the spine for further junctors.
fn check_complete(
    errors: &mut ErrorList,
    node: SchemaNode<'_>,
    spine: Option<SchemaNode<'_>>,
    spine_path: &str,
    path: &str,
    is_nested: bool,
) {
    let Some(spine) = spine else {
        errors.push(FieldError::required(spine_path, format!("because it is defined in {path}")));
        return;
    };
    if let Some(not) = node.node("not") {
        check_complete(errors, not, Some(spine), spine_path, &format!("{path}.not"), true);
    }
    for junctor in ["allOf", "anyOf", "oneOf"] {
        for (at, nested) in node.nodes(junctor).enumerate() {
            check_complete(errors, nested, Some(spine), spine_path, &format!("{path}.{junctor}[{at}]"), true);
        }
    }
    if !is_nested {
        return;
    }
    if let Some(items) = node.item_schema() {
        let [spine_path, path] = [spine_path, path].map(|path| format!("{path}.items"));
        check_complete(errors, items, spine.item_schema(), &spine_path, &path, true);
    }
    for (name, property) in node.named_nodes("properties") {
        let [spine_path, path] = [spine_path, path].map(|path| format!("{path}.properties[{name}]"));
        check_complete(errors, property, spine.property(name), &spine_path, &path, true);
    }
}
