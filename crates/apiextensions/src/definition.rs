//! A CustomResourceDefinition in the form of `apiextensions.k8s.io/v1`, as far as serving its resources needs it.
//!
//! Reading is lenient: a definition comes from storage, where another release may have written it. Validation of a
//! definition that a client sends works on its JSON.

use api::KindScope;
use api::json::JsonObject;
use api::wire::null_is_default;
use bytes::Bytes;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;

/// The finalizer that keeps a definition until its objects are deleted.
pub const CLEANUP_FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

/// One definition at one revision of the store.
#[derive(Clone, Debug, Deserialize)]
pub struct Definition {
    /// The parts of `metadata` that serving needs.
    pub metadata: DefinitionMetadata,
    /// The desired state.
    pub spec: DefinitionSpec,
    /// What the servers have decided about the definition.
    #[serde(default, deserialize_with = "null_is_default")]
    pub status: DefinitionStatus,
}

/// The parts of `metadata` that serving needs.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DefinitionMetadata {
    /// `<plural>.<group>`.
    pub name: String,
    /// Differs between a definition and a later one of the same name.
    #[serde(default, deserialize_with = "null_is_default")]
    pub uid: String,
    /// Counts the changes of `spec`.
    #[serde(default, deserialize_with = "null_is_default")]
    pub generation: i64,
    /// Set once the definition is being deleted.
    pub deletion_timestamp: Option<String>,
    /// Empty lets a definition with a deletion timestamp go.
    #[serde(default, deserialize_with = "null_is_default")]
    pub finalizers: Vec<String>,
}

/// The desired state of a definition.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DefinitionSpec {
    /// The API group; has at least one dot.
    pub group: String,
    /// The names that the definition asks for; served are [`DefinitionStatus::accepted_names`].
    pub names: ResourceNames,
    /// The scope of the objects.
    pub scope: DefinitionScope,
    /// The versions, in the order of the object.
    #[serde(default, deserialize_with = "null_is_default")]
    pub versions: Vec<DefinitionVersion>,
    /// How objects are converted between versions; `None` means that only `apiVersion` changes.
    pub conversion: Option<DefinitionConversion>,
    /// True only in definitions of long ago: unknown fields are not pruned.
    #[serde(default, deserialize_with = "null_is_default")]
    pub preserve_unknown_fields: bool,
}

/// The scope as the API writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum DefinitionScope {
    /// Objects are in no namespace.
    Cluster,
    /// Every object is in a namespace.
    Namespaced,
}

/// The names of a custom resource.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceNames {
    /// The resource in paths.
    #[serde(deserialize_with = "null_is_default")]
    pub plural: String,
    /// An alias for clients.
    #[serde(deserialize_with = "null_is_default")]
    pub singular: String,
    /// Short aliases for clients.
    #[serde(deserialize_with = "null_is_default")]
    pub short_names: Vec<String>,
    /// The kind of the objects.
    #[serde(deserialize_with = "null_is_default")]
    pub kind: String,
    /// The kind of lists of the objects.
    #[serde(deserialize_with = "null_is_default")]
    pub list_kind: String,
    /// Groups of resources for clients, such as `all`.
    #[serde(deserialize_with = "null_is_default")]
    pub categories: Vec<String>,
}

/// One version of a custom resource.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DefinitionVersion {
    /// The version in paths.
    pub name: String,
    /// Whether requests for the version are served.
    #[serde(default, deserialize_with = "null_is_default")]
    pub served: bool,
    /// Whether objects are stored in this version; true for exactly one.
    #[serde(default, deserialize_with = "null_is_default")]
    pub storage: bool,
    /// Whether responses carry a deprecation warning.
    #[serde(default, deserialize_with = "null_is_default")]
    pub deprecated: bool,
    /// Replaces the default text of the warning.
    pub deprecation_warning: Option<String>,
    /// The schema of the objects.
    #[serde(default, deserialize_with = "null_is_default")]
    pub schema: VersionSchema,
    /// The subresources of the objects.
    #[serde(default, deserialize_with = "null_is_default")]
    pub subresources: VersionSubresources,
    /// The columns of `kubectl get` after the name; none means the age.
    #[serde(default, deserialize_with = "null_is_default")]
    pub additional_printer_columns: Vec<PrinterColumn>,
    /// The fields that field selectors may name, beside name and namespace.
    #[serde(default, deserialize_with = "null_is_default")]
    pub selectable_fields: Vec<SelectableField>,
}

/// The schema of a version.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VersionSchema {
    /// OpenAPI v3 as the definition has it; `None` in definitions of long ago.
    #[serde(rename = "openAPIV3Schema")]
    pub open_api_v3_schema: Option<SchemaJson>,
}

/// A schema as JSON text: smaller than its parsed form, which only compiling and publishing need. Clones
/// share it, and so does the text that it was read from.
#[derive(Clone, Debug)]
pub struct SchemaJson(Bytes);

impl SchemaJson {
    /// The text, as it is stored.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Parses the text.
    pub fn to_value(&self) -> Value {
        serde_json::from_slice(&self.0).expect("raw JSON was parsed when it was read")
    }

    /// Replaces the text by the same text in `whole`, if it is there at or after an offset. Returns its end.
    fn share(&mut self, whole: &Bytes, offset: usize) -> Option<usize> {
        let [text, rest] = [&self.0, &whole[offset..]].map(|text| std::str::from_utf8(text).unwrap_or_default());
        let range = offset + rest.find(text)?..;
        let range = range.start..range.start + text.len();
        self.0 = whole.slice(range.clone());
        Some(range.end)
    }
}

impl<'de> Deserialize<'de> for SchemaJson {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text: Box<str> = Box::<RawValue>::deserialize(deserializer)?.into();
        Ok(Self(text.into_boxed_bytes().into()))
    }
}

/// The subresources of a version.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct VersionSubresources {
    /// Present if `status` is written by its own subresource only.
    pub status: Option<Value>,
    /// Present if the objects can be scaled.
    pub scale: Option<ScaleSubresource>,
}

/// Where an object has the values of a `Scale`.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ScaleSubresource {
    /// A path below `.spec`.
    pub spec_replicas_path: String,
    /// A path below `.status`.
    pub status_replicas_path: String,
    /// A path below `.spec` or `.status`.
    pub label_selector_path: Option<String>,
}

/// A column of `kubectl get`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PrinterColumn {
    /// The heading.
    pub name: String,
    /// An OpenAPI type.
    #[serde(rename = "type")]
    pub cell_type: String,
    /// An OpenAPI format; may be empty.
    #[serde(default, deserialize_with = "null_is_default")]
    pub format: String,
    /// For clients; may be empty.
    #[serde(default, deserialize_with = "null_is_default")]
    pub description: String,
    /// 0 is always shown, more only in wide output.
    #[serde(default, deserialize_with = "null_is_default")]
    pub priority: i32,
    /// Where the cell's value is.
    pub json_path: String,
}

/// A field that field selectors may name.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SelectableField {
    /// Dotted, with a leading dot.
    pub json_path: String,
}

/// How objects are converted between versions.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct DefinitionConversion {
    /// `None` or `Webhook`.
    pub strategy: String,
    /// The webhook of the strategy `Webhook`.
    pub webhook: Option<ConversionWebhook>,
}

/// The webhook that converts objects.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConversionWebhook {
    /// Where the webhook is and whom to trust: a `WebhookClientConfig` as JSON.
    #[serde(default)]
    pub client_config: Value,
    /// Versions of ConversionReview that the webhook reads, the preferred one first.
    #[serde(default, deserialize_with = "null_is_default")]
    pub conversion_review_versions: Vec<String>,
}

/// What the servers have decided about a definition.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DefinitionStatus {
    /// The conditions.
    #[serde(default, deserialize_with = "null_is_default")]
    pub conditions: Vec<DefinitionCondition>,
    /// The names that are served.
    #[serde(default, deserialize_with = "null_is_default")]
    pub accepted_names: ResourceNames,
    /// Versions in which objects may be stored.
    #[serde(default, deserialize_with = "null_is_default")]
    pub stored_versions: Vec<String>,
}

/// A condition of a definition.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct DefinitionCondition {
    /// `Established`, `NamesAccepted`, `Terminating` and others.
    #[serde(rename = "type")]
    pub condition_type: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// One word for programs.
    #[serde(default, deserialize_with = "null_is_default")]
    pub reason: String,
    /// Text for people.
    #[serde(default, deserialize_with = "null_is_default")]
    pub message: String,
}

impl Definition {
    /// Reads a definition in the form of `v1`.
    pub fn from_object(object: &JsonObject) -> Result<Self, serde_json::Error> {
        Self::deserialize(object)
    }

    /// Reads the JSON text of a definition in the form of `v1`. The schemas share the text.
    pub fn from_json(text: &Bytes) -> Result<Self, serde_json::Error> {
        let mut definition: Self = serde_json::from_slice(text)?;
        definition.share_schemas(text);
        Ok(definition)
    }

    /// Reads a definition in the form of `v1` that was converted from the stored JSON `text` of an older version. The
    /// schemas share the text if they are there in the form in which this program writes them.
    pub fn from_converted(object: &JsonObject, text: &Bytes) -> Result<Self, serde_json::Error> {
        let mut definition = Self::deserialize(object)?;
        let sources = object.get("spec").and_then(|spec| spec["versions"].as_array()).into_iter().flatten();
        for (version, source) in definition.spec.versions.iter_mut().zip(sources) {
            if let Some(schema) = &mut version.schema.open_api_v3_schema {
                schema.0 = api::json::to_go_json(&source["schema"]["openAPIV3Schema"]).into();
            }
        }
        definition.share_schemas(text);
        Ok(definition)
    }

    fn schemas(&mut self) -> impl Iterator<Item = &mut SchemaJson> {
        self.spec.versions.iter_mut().filter_map(|version| version.schema.open_api_v3_schema.as_mut())
    }

    /// The versions are in the order of the text. In older forms, those with the same schema have it in common.
    fn share_schemas(&mut self, text: &Bytes) {
        self.schemas()
            .fold(0, |offset, schema| schema.share(text, offset).or_else(|| schema.share(text, 0)).unwrap_or(offset));
    }

    /// The scope of the objects.
    pub fn scope(&self) -> KindScope {
        match self.spec.scope {
            DefinitionScope::Cluster => KindScope::Cluster,
            DefinitionScope::Namespaced => KindScope::Namespaced,
        }
    }

    /// The version in which objects are stored.
    pub fn storage_version(&self) -> Option<&DefinitionVersion> {
        self.spec.versions.iter().find(|version| version.storage)
    }

    /// The version of this name.
    pub fn version(&self, name: &str) -> Option<&DefinitionVersion> {
        self.spec.versions.iter().find(|version| version.name == name)
    }

    /// True if the definition is established: discovery lists its resources.
    pub fn is_established(&self) -> bool {
        self.has_condition("Established")
    }

    /// True if requests for the resources are served. Names are accepted before the definition is established.
    pub fn is_served(&self) -> bool {
        self.has_condition("NamesAccepted") || self.is_established()
    }

    /// True if no new object may be created because the definition is being deleted.
    pub fn is_terminating(&self) -> bool {
        self.has_condition("Terminating") || self.metadata.deletion_timestamp.is_some()
    }

    /// True if the status of a condition is `True`.
    pub fn has_condition(&self, condition_type: &str) -> bool {
        let is_true = |found: &DefinitionCondition| found.condition_type == condition_type && found.status == "True";
        self.status.conditions.iter().any(is_true)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn schemas_of_a_converted_definition_share_the_text_they_come_from() {
        let [common, other] = ["a < b", "c"].map(|text| json!({"type": "object", "description": text}));
        let version = |name: &str, schema: &Value| json!({"name": name, "schema": {"openAPIV3Schema": schema}});
        let object = json!({"metadata": {"name": "foos.ex.io"}, "spec": {
            "group": "ex.io", "names": {}, "scope": "Cluster",
            "versions": [version("v1", &common), version("v2", &common), {"name": "v3"}, version("v4", &other)],
        }});
        let text = json!({"spec": {"validation": {"openAPIV3Schema": common}, "versions": [version("v4", &other)]}});
        let text = Bytes::from(api::json::to_go_json(&text));
        let definition = Definition::from_converted(object.as_object().expect("test value is an object"), &text);
        let definition = definition.expect("test value is a definition");
        for (name, expected) in [("v1", &common), ("v2", &common), ("v4", &other)] {
            let version = definition.version(name).expect("the version is there");
            let schema = version.schema.open_api_v3_schema.as_ref().expect("the version has a schema");
            assert_eq!(schema.to_value(), *expected);
            assert!(text.as_ptr_range().contains(&schema.as_bytes().as_ptr()), "{name}");
        }
    }

    #[test]
    fn schemas_of_a_definition_share_its_text() {
        let schemas =
            [json!({"type": "object"}), json!({"type": "object", "description": "b"}), json!({"type": "object"})];
        let versions = schemas
            .iter()
            .enumerate()
            .map(|(position, schema)| json!({"name": format!("v{position}"), "schema": {"openAPIV3Schema": schema}}));
        let text = json!({"metadata": {"name": "foos.ex.io"}, "spec": {
            "group": "ex.io", "names": {}, "scope": "Cluster", "versions": versions.collect::<Value>(),
        }});
        let text = Bytes::from(text.to_string());
        let definition = Definition::from_json(&text).expect("test value is a definition");
        for (version, expected) in definition.spec.versions.iter().zip(&schemas) {
            let schema = version.schema.open_api_v3_schema.as_ref().expect("every version has a schema");
            assert_eq!(schema.to_value(), *expected);
            assert!(text.as_ptr_range().contains(&schema.as_bytes().as_ptr()), "{}", version.name);
        }
    }
}
