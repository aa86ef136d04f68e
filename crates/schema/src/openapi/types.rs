//! Types as OpenAPI 3.0 and as Swagger 2.0.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::descriptions;
use crate::{SpecialType, StructField, StructType, Topology, TypeForm, Types, ValueType, ZeroEncoding};

/// A version of OpenAPI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// Swagger 2.0.
    V2,
    /// OpenAPI 3.0.
    V3,
}

/// Types that belong to every group and version.
const COMMON_TO_ALL_GROUPS: [&str; 2] =
    ["io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions", "io.k8s.apimachinery.pkg.apis.meta.v1.WatchEvent"];

impl Dialect {
    /// A reference to a type.
    pub fn reference(self, definition: &str) -> Value {
        json!({"$ref": self.reference_text(definition)})
    }

    /// The value of `$ref`.
    pub(super) fn reference_text(self, definition: &str) -> String {
        match self {
            Self::V2 => format!("#/definitions/{definition}"),
            Self::V3 => format!("#/components/schemas/{definition}"),
        }
    }

    /// The type that a reference names.
    pub(super) fn referenced_name(self, reference: &str) -> Option<&str> {
        reference.strip_prefix(match self {
            Self::V2 => "#/definitions/",
            Self::V3 => "#/components/schemas/",
        })
    }
}

/// The schemas of these types and of all types they refer to, by name.
pub fn definitions(
    types: Types<'_>,
    named: impl Iterator<Item = String>,
    dialect: Dialect,
    group_versions: &[(&str, &str)],
) -> Vec<(String, Value)> {
    let reachable = reachable_definitions(types, named).into_iter();
    reachable
        .map(|name| {
            let schema = definition_schema(types, &name, dialect, group_versions);
            (name, schema)
        })
        .collect()
}

/// These types and all types they refer to, by name.
pub(super) fn reachable_definitions(types: Types<'_>, named: impl Iterator<Item = String>) -> BTreeSet<String> {
    let mut found: BTreeSet<String> = BTreeSet::new();
    let mut due: Vec<String> = named.collect();
    while let Some(definition) = due.pop() {
        if !found.insert(definition.clone()) {
            continue;
        }
        let fields = types.for_definition(&definition).into_iter().flat_map(StructType::fields);
        due.extend(fields.filter_map(|field| referenced_definition(field.value_type())));
    }
    found
}

/// The definition that the schema of a value refers to, at any depth of lists and maps; `None` for plain values.
fn referenced_definition(value: ValueType<'_>) -> Option<String> {
    match value.form() {
        TypeForm::List(inner) | TypeForm::Map(inner) => referenced_definition(inner),
        TypeForm::Struct(inner) => Some(inner.definition()),
        TypeForm::Special(special) => Some(special.definition().to_owned()),
        TypeForm::Text | TypeForm::Int32 | TypeForm::Int64 | TypeForm::Double | TypeForm::Bool | TypeForm::Bytes => {
            None
        }
    }
}

/// The schema of a type; a type that the release does not have is any object.
pub(super) fn definition_schema(
    types: Types<'_>,
    definition: &str,
    dialect: Dialect,
    group_versions: &[(&str, &str)],
) -> Value {
    let special = SpecialType::ALL.into_iter().find(|special| special.definition() == definition);
    match (special, types.for_definition(definition)) {
        (Some(special), _) => special_definition(special, dialect),
        (None, Some(found)) => struct_definition(found, dialect, group_versions),
        (None, None) => json!({"type": "object"}),
    }
}

fn special_definition(special: SpecialType, dialect: Dialect) -> Value {
    match (special, dialect) {
        (SpecialType::Quantity, Dialect::V2) => json!({"type": "string"}),
        (SpecialType::Quantity, Dialect::V3) => json!({"oneOf": [{"type": "string"}, {"type": "number"}]}),
        (SpecialType::IntOrString, Dialect::V2) => json!({"type": "string", "format": "int-or-string"}),
        (SpecialType::IntOrString, Dialect::V3) => {
            json!({"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]})
        }
        (SpecialType::Time | SpecialType::MicroTime, _) => json!({"type": "string", "format": "date-time"}),
        (SpecialType::Raw | SpecialType::Fields | SpecialType::Patch, _) => json!({"type": "object"}),
        // Any JSON: an empty schema.
        (
            SpecialType::Json | SpecialType::SchemaOrArray | SpecialType::SchemaOrBool | SpecialType::SchemaOrStrings,
            _,
        ) => json!({}),
    }
}

fn struct_definition(found: StructType<'_>, dialect: Dialect, group_versions: &[(&str, &str)]) -> Value {
    let mut schema = Map::from_iter([("type".to_owned(), json!("object"))]);
    let name = found.definition();
    schema.extend(descriptions::of_type(&name).map(|text| ("description".to_owned(), text.into())));
    let property = |field: StructField<'_>| {
        let description = descriptions::of_field(&name, field.name());
        (field.name().to_owned(), property_schema(field, description, dialect))
    };
    let properties: Map<String, Value> = found.fields().map(property).collect();
    if !properties.is_empty() {
        schema.insert("properties".to_owned(), properties.into());
    }
    let required: Vec<&str> = found.fields().filter(|field| field.is_required()).map(StructField::name).collect();
    if !required.is_empty() {
        schema.insert("required".to_owned(), json!(required));
    }
    let kinds: Vec<Value> = match found.kind() {
        Some(kind) => vec![json!({"group": kind.group, "version": kind.version, "kind": kind.kind})],
        None if COMMON_TO_ALL_GROUPS.contains(&name.as_str()) => {
            let of =
                |(group, version): &(&str, &str)| json!({"group": group, "version": version, "kind": found.name()});
            group_versions.iter().map(of).collect()
        }
        None => Vec::new(),
    };
    if !kinds.is_empty() {
        schema.insert("x-kubernetes-group-version-kind".to_owned(), kinds.into());
    }
    if let Some(union) = found.union() {
        let fields: Map<String, Value> = union.fields().map(|(field, name)| (field.to_owned(), name.into())).collect();
        let mut value = json!({"fields-to-discriminateBy": fields});
        if let Some(discriminator) = union.discriminator() {
            value["discriminator"] = discriminator.into();
        }
        schema.insert("x-kubernetes-unions".to_owned(), json!([value]));
    }
    if let Some(topology) = found.topology() {
        schema.insert("x-kubernetes-map-type".to_owned(), topology_name(topology).into());
    }
    Value::Object(schema)
}

/// A property with its description and Kubernetes' extensions.
fn property_schema(field: StructField<'_>, description: Option<&str>, dialect: Dialect) -> Value {
    let mut marks = kubernetes_extensions(field);
    if dialect == Dialect::V3 {
        marks.extend(field_default(field).map(|default| ("default".to_owned(), default)));
    }
    marks.extend(description.map(|text| ("description".to_owned(), text.into())));
    with_marks(value_schema(field.value_type(), dialect), marks, dialect)
}

/// Siblings of a reference mean nothing in OpenAPI 3.0, so the reference goes one level down.
fn with_marks(mut schema: Map<String, Value>, marks: Map<String, Value>, dialect: Dialect) -> Value {
    if dialect == Dialect::V3 && !marks.is_empty() && schema.contains_key("$ref") {
        schema = Map::from_iter([("allOf".to_owned(), json!([schema]))]);
    }
    schema.extend(marks);
    Value::Object(schema)
}

/// The declared default, or zero if Go always encodes the field as a value.
fn field_default(field: StructField<'_>) -> Option<Value> {
    match field.default().map(serde_json::from_str) {
        Some(Ok(default)) => Some(default),
        _ if field.zero_encoding() == ZeroEncoding::Zero => zero_value(field.value_type()),
        _ => None,
    }
}

/// The zero that documents state as the default of a value; `None` where they state none.
fn zero_value(shape: ValueType<'_>) -> Option<Value> {
    match shape.form() {
        TypeForm::Text => Some(json!("")),
        TypeForm::Int32 | TypeForm::Int64 | TypeForm::Double => Some(json!(0)),
        TypeForm::Bool => Some(json!(false)),
        TypeForm::Struct(_) => Some(json!({})),
        TypeForm::Bytes | TypeForm::Special(_) | TypeForm::List(_) | TypeForm::Map(_) => None,
    }
}

/// The schema of a value, as members of an object.
fn value_schema(shape: ValueType<'_>, dialect: Dialect) -> Map<String, Value> {
    let plain = |name: &str, format: Option<&str>| {
        let format = format.map(|format| ("format".to_owned(), json!(format)));
        Map::from_iter([("type".to_owned(), json!(name))].into_iter().chain(format))
    };
    let reference = |definition: &str| Map::from_iter([("$ref".to_owned(), dialect.reference_text(definition).into())]);
    match shape.form() {
        TypeForm::Text => {
            let mut schema = plain("string", None);
            schema.extend(shape.enum_values().map(|values| ("enum".to_owned(), values.collect::<Vec<_>>().into())));
            schema
        }
        TypeForm::Int32 => plain("integer", Some("int32")),
        TypeForm::Int64 => plain("integer", Some("int64")),
        TypeForm::Double => plain("number", Some("double")),
        TypeForm::Bool => plain("boolean", None),
        TypeForm::Bytes => plain("string", Some("byte")),
        TypeForm::Special(special) => reference(special.definition()),
        TypeForm::List(items) => {
            let mut schema = plain("array", None);
            schema.insert("items".to_owned(), element_schema(items, dialect));
            schema
        }
        TypeForm::Map(values) => {
            let mut schema = plain("object", None);
            schema.insert("additionalProperties".to_owned(), element_schema(values, dialect));
            schema
        }
        TypeForm::Struct(inner) => reference(&inner.definition()),
    }
}

/// The schema of an item of a list or of a value of a map.
fn element_schema(shape: ValueType<'_>, dialect: Dialect) -> Value {
    let default = zero_value(shape).filter(|_| dialect == Dialect::V3);
    let marks = default.map(|default| ("default".to_owned(), default)).into_iter().collect();
    with_marks(value_schema(shape, dialect), marks, dialect)
}

/// Kubernetes' extensions of a field.
fn kubernetes_extensions(field: StructField<'_>) -> Map<String, Value> {
    let mut marks = Map::new();
    if let Some(topology) = field.topology() {
        let is_list = matches!(field.value_type().form(), TypeForm::List(_) | TypeForm::Bytes);
        let name = if is_list { "x-kubernetes-list-type" } else { "x-kubernetes-map-type" };
        marks.insert(name.to_owned(), topology_name(topology).into());
        if let Topology::Map(keys) = topology {
            marks.insert("x-kubernetes-list-map-keys".to_owned(), json!(keys.names().collect::<Vec<_>>()));
        }
    }
    if let Some(rule) = field.patch_rule() {
        marks.insert("x-kubernetes-patch-strategy".to_owned(), rule.strategy.into());
        marks.extend(rule.merge_key.map(|key| ("x-kubernetes-patch-merge-key".to_owned(), key.into())));
    }
    marks
}

fn topology_name(topology: Topology<'_>) -> &'static str {
    match topology {
        Topology::Atomic => "atomic",
        Topology::Granular => "granular",
        Topology::Set => "set",
        Topology::Map(_) => "map",
    }
}
