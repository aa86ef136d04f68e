//! The fields of an OpenAPI schema, with the names and the order that Kubernetes' internal type gives them.
//!
//! Messages show schemas in that form, and some rules compare schemas by it.

use api::json::to_go_json;
use serde_json::{Map, Value};

use super::schema_node::{Items, SchemaNode, SchemaOrBool};

/// What Go has in a field; decides which values count as absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FieldForm {
    /// A string; empty is absent.
    Text,
    /// A bool; false is absent.
    Flag,
    /// A pointer to a string, bool or integer.
    Pointer,
    /// A pointer to a float, which makes 1 and 1.0 equal.
    Float,
    /// Any JSON.
    Json,
    /// A list of strings or of any JSON.
    List,
    Node,
    Nodes,
    NamedNodes,
    Items,
    NodeOrBool,
    /// A map to schemas or lists of strings.
    Dependencies,
    /// A pointer to a struct of texts.
    ExternalDocs,
    /// The rules of `x-kubernetes-validations`.
    Rules,
}

/// One field of a schema.
#[derive(Clone, Copy, Debug)]
pub(super) struct SchemaField {
    pub(super) go_name: &'static str,
    pub(super) name: &'static str,
    pub(super) form: FieldForm,
}

const fn field(go_name: &'static str, name: &'static str, form: FieldForm) -> SchemaField {
    SchemaField { go_name, name, form }
}

/// The fields in the order of Go's type.
pub(super) const SCHEMA_FIELDS: &[SchemaField] = &[
    field("ID", "id", FieldForm::Text),
    field("Schema", "$schema", FieldForm::Text),
    field("Ref", "$ref", FieldForm::Pointer),
    field("Description", "description", FieldForm::Text),
    field("Type", "type", FieldForm::Text),
    field("Nullable", "nullable", FieldForm::Flag),
    field("Format", "format", FieldForm::Text),
    field("Title", "title", FieldForm::Text),
    field("Default", "default", FieldForm::Json),
    field("Maximum", "maximum", FieldForm::Float),
    field("ExclusiveMaximum", "exclusiveMaximum", FieldForm::Flag),
    field("Minimum", "minimum", FieldForm::Float),
    field("ExclusiveMinimum", "exclusiveMinimum", FieldForm::Flag),
    field("MaxLength", "maxLength", FieldForm::Pointer),
    field("MinLength", "minLength", FieldForm::Pointer),
    field("Pattern", "pattern", FieldForm::Text),
    field("MaxItems", "maxItems", FieldForm::Pointer),
    field("MinItems", "minItems", FieldForm::Pointer),
    field("UniqueItems", "uniqueItems", FieldForm::Flag),
    field("MultipleOf", "multipleOf", FieldForm::Float),
    field("Enum", "enum", FieldForm::List),
    field("MaxProperties", "maxProperties", FieldForm::Pointer),
    field("MinProperties", "minProperties", FieldForm::Pointer),
    field("Required", "required", FieldForm::List),
    field("Items", "items", FieldForm::Items),
    field("AllOf", "allOf", FieldForm::Nodes),
    field("OneOf", "oneOf", FieldForm::Nodes),
    field("AnyOf", "anyOf", FieldForm::Nodes),
    field("Not", "not", FieldForm::Node),
    field("Properties", "properties", FieldForm::NamedNodes),
    field("AdditionalProperties", "additionalProperties", FieldForm::NodeOrBool),
    field("PatternProperties", "patternProperties", FieldForm::NamedNodes),
    field("Dependencies", "dependencies", FieldForm::Dependencies),
    field("AdditionalItems", "additionalItems", FieldForm::NodeOrBool),
    field("Definitions", "definitions", FieldForm::NamedNodes),
    field("ExternalDocs", "externalDocs", FieldForm::ExternalDocs),
    field("Example", "example", FieldForm::Json),
    field("XPreserveUnknownFields", "x-kubernetes-preserve-unknown-fields", FieldForm::Pointer),
    field("XEmbeddedResource", "x-kubernetes-embedded-resource", FieldForm::Flag),
    field("XIntOrString", "x-kubernetes-int-or-string", FieldForm::Flag),
    field("XListMapKeys", "x-kubernetes-list-map-keys", FieldForm::List),
    field("XListType", "x-kubernetes-list-type", FieldForm::Pointer),
    field("XMapType", "x-kubernetes-map-type", FieldForm::Pointer),
    field("XValidations", "x-kubernetes-validations", FieldForm::Rules),
];

/// The fields of a rule: Go's name, name in JSON, and whether an absent string is null.
const RULE_FIELDS: &[(&str, &str, bool)] = &[
    ("Rule", "rule", false),
    ("Message", "message", false),
    ("MessageExpression", "messageExpression", false),
    ("Reason", "reason", true),
    ("FieldPath", "fieldPath", false),
    ("OptionalOldSelf", "optionalOldSelf", true),
];

impl SchemaField {
    /// True if the field has a value other than Go's zero value. An empty list or map is not zero.
    pub(super) fn is_set(&self, node: SchemaNode<'_>) -> bool {
        if self.form == FieldForm::Text {
            return !node.text(self.name).is_empty();
        }
        if self.form == FieldForm::Flag { node.flag(self.name) } else { node.is_set(self.name) }
    }
}

/// A schema in a form in which schemas that Kubernetes holds equal are equal: without empty values, floats as floats.
pub(super) fn canonical_schema(node: SchemaNode<'_>) -> Value {
    let fields = SCHEMA_FIELDS.iter().filter(|field| field.is_set(node)).filter_map(|field| {
        let value = canonical_field(node, field)?;
        Some((field.name.to_owned(), value))
    });
    Value::Object(fields.collect())
}

fn canonical_field(node: SchemaNode<'_>, field: &SchemaField) -> Option<Value> {
    let value = node.value(field.name)?;
    let not_empty = |value: Value| {
        let is_empty = value.as_array().is_some_and(Vec::is_empty) || value.as_object().is_some_and(Map::is_empty);
        (!is_empty).then_some(value)
    };
    let named = |value: &Value| -> Value {
        let map = value.as_object().into_iter().flatten();
        map.map(|(name, value)| (name.clone(), canonical_value(value))).collect::<Map<_, _>>().into()
    };
    match field.form {
        FieldForm::Text | FieldForm::Flag | FieldForm::Pointer | FieldForm::Json => Some(value.clone()),
        FieldForm::Float => Some(value.as_f64().map_or_else(|| value.clone(), Value::from)),
        FieldForm::List => not_empty(value.clone()),
        FieldForm::Node | FieldForm::Items | FieldForm::NodeOrBool => Some(canonical_value(value)),
        FieldForm::Nodes => not_empty(canonical_value(value)),
        FieldForm::NamedNodes | FieldForm::Dependencies => not_empty(named(value)),
        FieldForm::ExternalDocs => Some(without_empty_values(value)),
        FieldForm::Rules => not_empty(without_empty_values(value)),
    }
}

/// A schema, or a list of schemas or of other values.
fn canonical_value(value: &Value) -> Value {
    match value {
        Value::Object(schema) => canonical_schema(SchemaNode(schema)),
        Value::Array(list) => list.iter().map(canonical_value).collect::<Vec<_>>().into(),
        Value::Null => Value::Object(Map::new()),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

/// A value without empty strings, nulls, zeros and empty lists, at any depth: equal for what Go holds equal in structs
/// without pointers. False stays, because of `optionalOldSelf`.
pub(super) fn without_empty_values(value: &Value) -> Value {
    let is_empty = |value: &Value| match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::Array(list) => list.is_empty(),
        Value::Bool(_) | Value::Object(_) => false,
    };
    match value {
        Value::Object(map) => {
            let fields = map.iter().filter(|(_, value)| !is_empty(value));
            fields.map(|(name, value)| (name.clone(), without_empty_values(value))).collect::<Map<_, _>>().into()
        }
        Value::Array(list) => list.iter().map(without_empty_values).collect::<Vec<_>>().into(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

/// A schema as messages show it: Go's internal type as JSON.
pub(super) fn go_schema(node: SchemaNode<'_>) -> String {
    let fields = SCHEMA_FIELDS.iter().map(|field| (field.go_name, go_field(node, field)));
    go_struct(fields)
}

/// A struct as Go prints it in JSON, from names and values that are JSON already.
pub(super) fn go_struct<'a>(fields: impl Iterator<Item = (&'a str, String)>) -> String {
    let fields: Vec<String> = fields.map(|(name, value)| format!("\"{name}\":{value}")).collect();
    format!("{{{}}}", fields.join(","))
}

/// A value as Go prints it in JSON.
pub(super) fn go_value(value: &Value) -> String {
    String::from_utf8_lossy(&to_go_json(value)).into_owned()
}

/// A rule of `x-kubernetes-validations` as messages show it.
pub(super) fn go_rule(rule: &Value) -> String {
    go_struct(RULE_FIELDS.iter().map(|(go_name, name, is_pointer)| {
        let value = rule.get(name).filter(|value| !value.is_null());
        (*go_name, value.map_or_else(|| if *is_pointer { "null" } else { "\"\"" }.to_owned(), go_value))
    }))
}

fn go_field(node: SchemaNode<'_>, field: &SchemaField) -> String {
    let null = || "null".to_owned();
    let Some(value) = node.value(field.name) else {
        let zero = match field.form == FieldForm::Text {
            true => "\"\"",
            false if field.form == FieldForm::Flag => "false",
            false => "null",
        };
        return zero.to_owned();
    };
    match field.form {
        FieldForm::Text | FieldForm::Flag | FieldForm::Pointer | FieldForm::Float | FieldForm::Json => go_value(value),
        FieldForm::List => go_value(value),
        FieldForm::Node => node.node(field.name).map_or_else(null, go_schema),
        FieldForm::Nodes => go_list(node.nodes(field.name).map(go_schema)),
        FieldForm::NamedNodes => go_map(node.named_nodes(field.name).map(|(name, node)| (name, go_schema(node)))),
        FieldForm::Items => go_items(node),
        FieldForm::NodeOrBool => match node.schema_or_bool(field.name) {
            Some(SchemaOrBool::Schema(schema)) => format!("{{\"Allows\":true,\"Schema\":{}}}", go_schema(schema)),
            Some(SchemaOrBool::Bool(allows)) => format!("{{\"Allows\":{allows},\"Schema\":null}}"),
            None => null(),
        },
        FieldForm::Dependencies => {
            let entries = value.as_object().into_iter().flatten();
            go_map(entries.map(|(name, value)| (name.as_str(), go_dependency(value))))
        }
        FieldForm::ExternalDocs => {
            let text = |name: &str| {
                value.get(name).filter(|text| text.is_string()).map_or_else(|| "\"\"".to_owned(), go_value)
            };
            go_struct([("Description", text("description")), ("URL", text("url"))].into_iter())
        }
        FieldForm::Rules => go_list(node.list(field.name).iter().map(go_rule)),
    }
}

/// `items` as messages show it.
pub(super) fn go_items(node: SchemaNode<'_>) -> String {
    match node.items() {
        None => "null".to_owned(),
        Some(Items::One(schema)) => format!("{{\"Schema\":{},\"JSONSchemas\":null}}", go_schema(schema)),
        Some(Items::Many(schemas)) => {
            let is_list = node.value("items").is_some_and(Value::is_array);
            let list = if is_list { go_list(schemas.into_iter().map(go_schema)) } else { "null".to_owned() };
            format!("{{\"Schema\":null,\"JSONSchemas\":{list}}}")
        }
    }
}

fn go_dependency(value: &Value) -> String {
    match value {
        Value::Object(schema) => format!("{{\"Schema\":{},\"Property\":null}}", go_schema(SchemaNode(schema))),
        Value::Array(_) => format!("{{\"Schema\":null,\"Property\":{}}}", go_value(value)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            "{\"Schema\":null,\"Property\":null}".to_owned()
        }
    }
}

fn go_list(items: impl Iterator<Item = String>) -> String {
    format!("[{}]", items.collect::<Vec<_>>().join(","))
}

fn go_map<'a>(entries: impl Iterator<Item = (&'a str, String)>) -> String {
    let entries = entries.map(|(name, value)| format!("{}:{value}", go_value(&name.into())));
    format!("{{{}}}", entries.collect::<Vec<_>>().join(","))
}
