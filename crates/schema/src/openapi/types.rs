//! Types as OpenAPI 3.0 and as Swagger 2.0.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::descriptions;
use crate::{SpecialType, StructField, StructType, Topology, TypeForm, Types, ValueType};

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
        match self {
            Self::V2 => json!({"$ref": format!("#/definitions/{definition}")}),
            Self::V3 => json!({"$ref": format!("#/components/schemas/{definition}")}),
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
        due.extend(fields.filter_map(|field| definition_name_of(field.value_type())));
    }
    found
}

/// The name of the type of a value, or of its items; `None` for plain values.
fn definition_name_of(shape: ValueType<'_>) -> Option<String> {
    match shape.form() {
        TypeForm::List(inner) | TypeForm::Map(inner) => definition_name_of(inner),
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
    if let Some(topology) = found.topology() {
        schema.insert("x-kubernetes-map-type".to_owned(), topology_name(topology).into());
    }
    Value::Object(schema)
}

fn property_schema(field: StructField<'_>, description: Option<&str>, dialect: Dialect) -> Value {
    let Value::Object(mut schema) = value_schema(field.value_type(), dialect) else {
        unreachable!("a schema is an object")
    };
    let mut marks = kubernetes_extensions(field, dialect);
    marks.extend(description.map(|text| ("description".to_owned(), text.into())));
    // Siblings of a reference mean nothing in OpenAPI 3.0, so the reference goes one level down.
    if dialect == Dialect::V3 && !marks.is_empty() && schema.contains_key("$ref") {
        schema = Map::from_iter([("allOf".to_owned(), json!([schema]))]);
    }
    schema.extend(marks);
    Value::Object(schema)
}

fn value_schema(shape: ValueType<'_>, dialect: Dialect) -> Value {
    match shape.form() {
        TypeForm::Text => json!({"type": "string"}),
        TypeForm::Int32 => json!({"type": "integer", "format": "int32"}),
        TypeForm::Int64 => json!({"type": "integer", "format": "int64"}),
        TypeForm::Double => json!({"type": "number", "format": "double"}),
        TypeForm::Bool => json!({"type": "boolean"}),
        TypeForm::Bytes => json!({"type": "string", "format": "byte"}),
        TypeForm::Special(special) => dialect.reference(special.definition()),
        TypeForm::List(items) => json!({"type": "array", "items": value_schema(items, dialect)}),
        TypeForm::Map(values) => json!({"type": "object", "additionalProperties": value_schema(values, dialect)}),
        TypeForm::Struct(inner) => dialect.reference(&inner.definition()),
    }
}

/// Kubernetes' extensions of a field.
fn kubernetes_extensions(field: StructField<'_>, dialect: Dialect) -> Map<String, Value> {
    let mut marks = Map::new();
    if let Some(topology) = field.topology() {
        let is_list = matches!(field.value_type().form(), TypeForm::List(_));
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
    if let (Dialect::V3, Some(Ok(default))) = (dialect, field.default().map(serde_json::from_str)) {
        marks.insert("default".to_owned(), default);
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
