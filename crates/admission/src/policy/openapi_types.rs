//! Types of kinds as an OpenAPI v3 document describes them.

use api::GroupVersionKind;
use k8s_cel::{DeclType, Field, ListKind};
use serde_json::{Map, Value};

const REFERENCE_PREFIX: &str = "#/components/schemas/";

/// The type of the objects of a kind; `None` if the document does not have the kind.
pub fn type_in_document(document: &Value, kind: GroupVersionKind<&str>) -> Option<DeclType> {
    let schemas = document["components"]["schemas"].as_object()?;
    let is_kind =
        |named: &Value| named["group"] == kind.group && named["version"] == kind.version && named["kind"] == kind.kind;
    let has_kind = |schema: &&Value| {
        schema["x-kubernetes-group-version-kind"].as_array().is_some_and(|kinds| kinds.iter().any(is_kind))
    };
    let schema = schemas.values().find(has_kind)?;
    Declarations { schemas, visited: Vec::new() }.declare(schema, true)
}

struct Declarations<'d> {
    schemas: &'d Map<String, Value>,
    /// The references on the way to the current schema.
    visited: Vec<&'d str>,
}

impl<'d> Declarations<'d> {
    /// `None` if expressions cannot see values of the schema.
    fn declare(&mut self, schema: &'d Value, is_resource: bool) -> Option<DeclType> {
        let Some(reference) = reference_of(schema) else { return self.declare_resolved(schema, is_resource) };
        // A schema that contains itself ends with an object without fields, as in Kubernetes.
        if self.visited.contains(&reference) {
            return Some(DeclType::object([]));
        }
        self.visited.push(reference);
        let schemas = self.schemas;
        let declared = schemas.get(reference).and_then(|schema| self.declare(schema, is_resource));
        self.visited.pop();
        declared
    }

    fn declare_resolved(&mut self, schema: &'d Value, is_resource: bool) -> Option<DeclType> {
        if schema["format"] == "int-or-string" || schema["x-kubernetes-int-or-string"] == true {
            return Some(DeclType::int_or_string(None));
        }
        Some(match schema["type"].as_str()? {
            "array" => DeclType::list(self.declare_part(schema.get("items")?)?, None, ListKind::Atomic),
            "object" => match schema.get("additionalProperties").filter(|values| values.is_object()) {
                Some(values) => DeclType::map(self.declare_part(values)?, None),
                None => DeclType::object(self.fields(schema, is_resource)),
            },
            "string" => match schema["format"].as_str() {
                Some("byte") => DeclType::bytes(None),
                Some("duration") => DeclType::duration(),
                Some("date") => DeclType::date(),
                Some("date-time") => DeclType::date_time(),
                _ => DeclType::string(None),
            },
            "boolean" => DeclType::bool(),
            "number" => DeclType::double(),
            "integer" => DeclType::int(),
            _ => return None,
        })
    }

    fn declare_part(&mut self, schema: &'d Value) -> Option<DeclType> {
        self.declare(schema, schema["x-kubernetes-embedded-resource"] == true)
    }

    fn fields(&mut self, schema: &'d Value, is_resource: bool) -> Vec<Field> {
        let mut fields = Vec::new();
        let mut has_metadata = false;
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            if let Some(decl) = self.declare_part(property) {
                has_metadata |= name == "metadata";
                fields.push(Field::new(name.clone(), decl));
            }
        }
        if is_resource && !has_metadata {
            let names = ["name", "generateName"].map(|name| Field::new(name, DeclType::string(None)));
            fields.push(Field::new("metadata", DeclType::object(names)));
            fields.extend(["apiVersion", "kind"].map(|name| Field::new(name, DeclType::string(None))));
        }
        fields
    }
}

/// The name that a schema refers to, directly or with a default beside.
fn reference_of(schema: &Value) -> Option<&str> {
    let reference = match schema["allOf"].as_array().map(Vec::as_slice) {
        Some([one]) => &one["$ref"],
        Some(_) | None => &schema["$ref"],
    };
    reference.as_str()?.strip_prefix(REFERENCE_PREFIX)
}
