//! The form in which Kubernetes validates a definition: what all versions share stands at the top of the spec.
//!
//! The paths of errors follow this form, so a definition with one version has its schema at
//! `spec.validation.openAPIV3Schema`.

use api::json::JsonObject;
use serde_json::Value;

use super::json_fields::{flag, object, object_or_empty, objects, text};
use super::schema_fields::{canonical_schema, go_schema, go_struct, go_value, without_empty_values};
use super::schema_node::SchemaNode;

/// A definition's spec in the internal form.
#[derive(Debug)]
pub(super) struct InternalSpec<'a> {
    pub(super) spec: &'a JsonObject,
    /// What all versions share.
    pub(super) shared: VersionFields<'a>,
    pub(super) versions: Vec<InternalVersion<'a>>,
}

/// One version, without the fields that all versions share.
#[derive(Debug)]
pub(super) struct InternalVersion<'a> {
    pub(super) object: &'a JsonObject,
    pub(super) fields: VersionFields<'a>,
}

/// The fields that stand either in each version or at the top.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct VersionFields<'a> {
    /// The holder of `openAPIV3Schema`.
    pub(super) validation: Option<&'a JsonObject>,
    pub(super) subresources: Option<&'a JsonObject>,
    pub(super) columns: Option<&'a Value>,
    pub(super) selectable_fields: Option<&'a Value>,
}

impl<'a> InternalSpec<'a> {
    pub(super) fn new(definition: &'a JsonObject) -> Self {
        let spec = object_or_empty(definition, "spec");
        let objects: Vec<_> = objects(spec, "versions").collect();
        let all: Vec<_> = objects.iter().map(|version| VersionFields::of_version(version)).collect();
        let first = all.first().copied().unwrap_or_default();
        let mut shared = VersionFields::default();
        let mut versions: Vec<_> =
            objects.into_iter().zip(&all).map(|(object, fields)| InternalVersion { object, fields: *fields }).collect();
        if are_equal(&all, |fields| fields.validation.map(canonical_validation)) {
            shared.validation = first.validation;
            versions.iter_mut().for_each(|version| version.fields.validation = None);
        }
        if are_equal(&all, |fields| fields.subresources.map(canonical_subresources)) {
            shared.subresources = first.subresources;
            versions.iter_mut().for_each(|version| version.fields.subresources = None);
        }
        if are_equal(&all, |fields| canonical_list(fields.columns)) {
            shared.columns = first.columns;
            versions.iter_mut().for_each(|version| version.fields.columns = None);
        }
        if are_equal(&all, |fields| canonical_list(fields.selectable_fields)) {
            shared.selectable_fields = first.selectable_fields;
            versions.iter_mut().for_each(|version| version.fields.selectable_fields = None);
        }
        Self { spec, shared, versions }
    }

    /// The schemas, each once.
    pub(super) fn schemas(&self) -> impl Iterator<Item = SchemaNode<'a>> {
        self.schema_values().filter_map(Value::as_object).map(SchemaNode)
    }

    /// The schemas as JSON, each once.
    pub(super) fn schema_values(&self) -> impl Iterator<Item = &'a Value> {
        let holders = [&self.shared].into_iter().chain(self.versions.iter().map(|version| &version.fields));
        holders.filter_map(VersionFields::schema_value)
    }

    /// True if a node of any schema satisfies the condition.
    pub(super) fn has_node(&self, condition: &dyn Fn(SchemaNode<'_>) -> bool) -> bool {
        self.schemas().any(|schema| schema.any(condition))
    }

    /// The schema of a version, wherever it stands; the outer `None` if there is no such version. A shared schema is
    /// that of any version.
    pub(super) fn schema_of(&self, version: &str) -> Option<Option<SchemaNode<'a>>> {
        if self.versions.iter().all(|version| version.fields.validation.is_none()) {
            return Some(self.shared.schema());
        }
        let found = self.versions.iter().find(|candidate| candidate.name() == version);
        found.map(|version| version.fields.schema())
    }

    /// True if the spec preserves unknown fields, which only old definitions may.
    pub(super) fn preserves_unknown_fields(&self) -> bool {
        flag(self.spec, "preserveUnknownFields")
    }

    /// The list of versions as messages show it.
    pub(super) fn shown_versions(&self) -> String {
        if self.versions.is_empty() {
            return if self.spec.get("versions").is_some_and(Value::is_array) { "[]" } else { "null" }.to_owned();
        }
        let versions: Vec<_> = self.versions.iter().map(InternalVersion::shown).collect();
        format!("[{}]", versions.join(","))
    }
}

impl<'a> InternalVersion<'a> {
    pub(super) fn name(&self) -> &'a str {
        text(self.object, "name")
    }

    fn shown(&self) -> String {
        let or_null = |value: Option<String>| value.unwrap_or_else(|| "null".to_owned());
        let own_flag = |name: &str| flag(self.object, name).to_string();
        let warning = self.object.get("deprecationWarning").filter(|value| value.is_string());
        let schema = self.fields.validation.map(|validation| {
            let schema = object(validation, "openAPIV3Schema").map(|schema| go_schema(SchemaNode(schema)));
            go_struct([("OpenAPIV3Schema", or_null(schema))].into_iter())
        });
        go_struct(
            [
                ("Name", go_value(&self.name().into())),
                ("Served", own_flag("served")),
                ("Storage", own_flag("storage")),
                ("Deprecated", own_flag("deprecated")),
                ("DeprecationWarning", or_null(warning.map(go_value))),
                ("Schema", or_null(schema)),
                ("Subresources", or_null(self.fields.subresources.map(shown_subresources))),
                ("AdditionalPrinterColumns", shown_list(self.fields.columns, COLUMN_FIELDS)),
                ("SelectableFields", shown_list(self.fields.selectable_fields, &[("JSONPath", "jsonPath", "\"\"")])),
            ]
            .into_iter(),
        )
    }
}

impl<'a> VersionFields<'a> {
    fn of_version(version: &'a JsonObject) -> Self {
        let list = |name: &str| version.get(name).filter(|value| value.is_array());
        Self {
            validation: object(version, "schema"),
            subresources: object(version, "subresources"),
            columns: list("additionalPrinterColumns"),
            selectable_fields: list("selectableFields"),
        }
    }

    pub(super) fn schema(&self) -> Option<SchemaNode<'a>> {
        self.schema_value().and_then(Value::as_object).map(SchemaNode)
    }

    pub(super) fn schema_value(&self) -> Option<&'a Value> {
        self.validation?.get("openAPIV3Schema").filter(|schema| schema.is_object())
    }

    pub(super) fn has_status_subresource(&self) -> bool {
        self.subresources.is_some_and(|subresources| object(subresources, "status").is_some())
    }

    pub(super) fn columns(&self) -> &'a [Value] {
        self.columns.and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }

    pub(super) fn selectable_fields(&self) -> &'a [Value] {
        self.selectable_fields.and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }
}

/// Fields of a printer column: Go's name, name in JSON, the zero value.
const COLUMN_FIELDS: &[(&str, &str, &str)] = &[
    ("Name", "name", "\"\""),
    ("Type", "type", "\"\""),
    ("Format", "format", "\"\""),
    ("Description", "description", "\"\""),
    ("Priority", "priority", "0"),
    ("JSONPath", "jsonPath", "\"\""),
];

fn shown_list(items: Option<&Value>, fields: &[(&str, &str, &str)]) -> String {
    let Some(items) = items.and_then(Value::as_array) else { return "null".to_owned() };
    let items = items.iter().map(|item| {
        go_struct(fields.iter().map(|(go_name, name, zero)| {
            let value = item.get(name).filter(|value| !value.is_null());
            (*go_name, value.map_or_else(|| (*zero).to_owned(), go_value))
        }))
    });
    format!("[{}]", items.collect::<Vec<_>>().join(","))
}

fn shown_subresources(subresources: &JsonObject) -> String {
    let scale = object(subresources, "scale").map(|scale| {
        let path = |name: &str| go_value(&text(scale, name).into());
        let selector = scale.get("labelSelectorPath").filter(|value| value.is_string());
        go_struct(
            [
                ("SpecReplicasPath", path("specReplicasPath")),
                ("StatusReplicasPath", path("statusReplicasPath")),
                ("LabelSelectorPath", selector.map_or_else(|| "null".to_owned(), go_value)),
            ]
            .into_iter(),
        )
    });
    let status = object(subresources, "status").map_or("null", |_| "{}");
    let scale = scale.unwrap_or_else(|| "null".to_owned());
    go_struct([("Status", status.to_owned()), ("Scale", scale)].into_iter())
}

fn are_equal<'a>(all: &[VersionFields<'a>], canonical: impl Fn(&VersionFields<'a>) -> Option<Value>) -> bool {
    let [first, rest @ ..] = all else { return true };
    if rest.is_empty() {
        return true;
    }
    let first = canonical(first);
    rest.iter().all(|fields| canonical(fields) == first)
}

fn canonical_validation(validation: &JsonObject) -> Value {
    object(validation, "openAPIV3Schema").map_or(Value::Null, |schema| canonical_schema(SchemaNode(schema)))
}

fn canonical_subresources(subresources: &JsonObject) -> Value {
    let mut scale = object(subresources, "scale").cloned();
    if let Some(scale) = &mut scale {
        scale.retain(|name, value| !value.is_null() && (name == "labelSelectorPath" || *value != ""));
    }
    let status = object(subresources, "status").is_some();
    Value::Array(vec![status.into(), scale.map_or(Value::Null, Value::Object)])
}

fn canonical_list(value: Option<&Value>) -> Option<Value> {
    let value = value.map(without_empty_values)?;
    (!value.as_array().is_some_and(Vec::is_empty)).then_some(value)
}

/// True if two lists of selectable fields are equal.
pub(super) fn are_same_selectable_fields(left: &VersionFields<'_>, right: &VersionFields<'_>) -> bool {
    canonical_list(left.selectable_fields) == canonical_list(right.selectable_fields)
}

/// True if both versions have a schema and the schemas are equal, or both have none.
pub(super) fn are_same_schemas(left: Option<SchemaNode<'_>>, right: Option<SchemaNode<'_>>) -> bool {
    left.map(canonical_schema) == right.map(canonical_schema)
}
