//! The fields of a type by the server's OpenAPI document, so that cases can add fields that a manifest does not have.

use serde_json::{Map, Value, json};

/// Types refer to each other in circles.
const SAMPLE_DEPTH_MAX: usize = 4;

/// The OpenAPI v3 document of one API version.
pub(crate) struct Schemas {
    schemas: Map<String, Value>,
}

impl Schemas {
    pub(crate) fn new(document: &Value) -> Self {
        Self { schemas: document["components"]["schemas"].as_object().cloned().unwrap_or_default() }
    }

    /// The type of a kind; none if the document does not have it.
    pub(crate) fn of_kind(&self, api_version: &str, kind: &str) -> Option<&Value> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let wanted = json!({"group": group, "version": version, "kind": kind});
        self.schemas.values().find(|schema| {
            schema["x-kubernetes-group-version-kind"]
                .as_array()
                .is_some_and(|kinds| kinds == std::slice::from_ref(&wanted))
        })
    }

    /// The type of a field or of a map's or list's items.
    pub(crate) fn field<'a>(&'a self, schema: &'a Value, key: &str) -> Option<&'a Value> {
        let schema = self.resolve(schema);
        let field = schema["properties"].get(key).or(schema.get("additionalProperties")).or(schema.get("items"))?;
        Some(self.resolve(field))
    }

    /// True for a type with keys of the user's choice.
    pub(crate) fn is_map(&self, schema: &Value) -> bool {
        self.resolve(schema).get("additionalProperties").is_some()
    }

    /// Names of the fields of an object's type; none for maps.
    pub(crate) fn field_names<'a>(&'a self, schema: &'a Value) -> impl Iterator<Item = &'a String> {
        self.resolve(schema)["properties"].as_object().into_iter().flat_map(Map::keys)
    }

    /// Follows a reference, alone or wrapped in `allOf` beside a default.
    fn resolve<'a>(&'a self, schema: &'a Value) -> &'a Value {
        let reference = schema["$ref"].as_str().or(schema["allOf"][0]["$ref"].as_str());
        let name = reference.and_then(|reference| reference.rsplit('/').next());
        name.and_then(|name| self.schemas.get(name)).unwrap_or(schema)
    }

    /// A plausible value of a type: required fields alone, lists and maps with one entry.
    pub(crate) fn sample(&self, schema: &Value) -> Value {
        self.sample_within(schema, SAMPLE_DEPTH_MAX)
    }

    fn sample_within(&self, schema: &Value, depth: usize) -> Value {
        let schema = self.resolve(schema);
        if let Some(first) = schema["enum"].get(0) {
            return first.clone();
        }
        match (schema["type"].as_str(), schema["format"].as_str()) {
            _ if depth == 0 => Value::Null,
            (Some("string"), Some("date-time")) => "2026-01-02T03:04:05Z".into(),
            (Some("string"), Some("byte")) => "eA==".into(),
            (Some("string"), _) => "x".into(),
            (Some("boolean"), _) => true.into(),
            (Some("integer" | "number"), _) | (None, Some("int-or-string")) => 1.into(),
            (Some("array"), _) => vec![self.sample_within(&schema["items"], depth - 1)].into(),
            (Some("object"), _) => self.sample_object(schema, depth - 1),
            // A quantity is a string or a number.
            _ if schema.get("oneOf").is_some() => "1".into(),
            _ => json!({}),
        }
    }

    fn sample_object(&self, schema: &Value, depth: usize) -> Value {
        if let Some(values) = schema.get("additionalProperties") {
            return json!({"x": self.sample_within(values, depth)});
        }
        let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let fields = required.map(|key| (key.to_owned(), self.sample_within(&schema["properties"][key], depth)));
        Value::Object(fields.collect())
    }
}
