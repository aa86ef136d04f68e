//! Objects of custom resources: from request and storage to the object that handlers see, and back.

use std::sync::Arc;

use api::json::JsonObject;
use api::{FieldError, GroupVersionKind, Status};
use apiextensions::conversion::is_empty_object;
use apiextensions::rules::unchecked_rules_error;
use apiextensions::{CustomResourceVersion, Rules, validate_embedded_metadata};
use kinds::object_meta_of;
use object::StoredObject;
use schema::structural::{DecodeError, MetadataType, StructuralSchema};
use serde_json::Value;

use super::LiveDefinition;
use super::conversion::{RequestConversions, failure_status};

/// The schema of a version, compiled when the first object needs it.
#[derive(Debug)]
pub(super) struct CompiledVersion {
    schema: Arc<StructuralSchema>,
    rules: Rules,
}

/// The outcome of validating a custom object.
#[derive(Debug, Default)]
pub(crate) struct CustomVerdict {
    pub(crate) errors: Vec<FieldError>,
    /// Failed rules of parts that the write does not change.
    pub(crate) warnings: Vec<String>,
}

impl LiveDefinition {
    /// Makes an object of a request body: pruned and defaulted by the schema of its version. Returns the paths of unknown
    /// fields.
    pub(crate) fn decode_request(
        &self,
        object: &mut JsonObject,
        version: &CustomResourceVersion,
    ) -> Result<Vec<String>, DecodeError> {
        match self.compiled(version) {
            Some(compiled) => compiled.schema.decode_request(object, self.object_meta()),
            None => Ok(Vec::new()),
        }
    }

    /// Brings a stored object to a version: pruned and defaulted by the schema of its own version, then converted and
    /// pruned by the schema of the target.
    pub(crate) fn to_served(
        &self,
        stored: &StoredObject,
        target: &CustomResourceVersion,
        conversions: Option<&RequestConversions>,
    ) -> Result<JsonObject, Status> {
        let stored_in = self.stored_version(stored)?;
        let decode = || {
            let mut object = stored.to_object();
            if let Some(compiled) = self.compiled(stored_in)
                && let Err(error) = compiled.schema.decode_stored(&mut object, self.object_meta())
            {
                let definition = &self.definition.metadata.name;
                tracing::warn!(definition, %error, "stored object has malformed metadata");
            }
            object
        };
        if !std::ptr::eq(stored_in, target) && self.has_webhook() {
            return self.convert_stored(stored, target, conversions, decode);
        }
        let mut object = decode();
        self.convert(&mut object, target, conversions)?;
        Ok(object)
    }

    /// Brings an object of a version to the storage version, pruned by its schema.
    pub(crate) fn to_stored(
        &self,
        object: &mut JsonObject,
        version: &CustomResourceVersion,
        conversions: Option<&RequestConversions>,
    ) -> Result<(), Status> {
        let storage = self.definition.storage_version().and_then(|storage| self.version(&storage.name));
        self.convert(object, storage.unwrap_or(version), conversions)
    }

    /// Brings an object of any version of the definition to another, pruned by its schema.
    pub(crate) fn convert(
        &self,
        object: &mut JsonObject,
        target: &CustomResourceVersion,
        conversions: Option<&RequestConversions>,
    ) -> Result<(), Status> {
        if version_of(object) == target.version().name {
            return Ok(());
        }
        if self.has_webhook() && !is_empty_object(object) {
            *object = self.convert_object(object, target, conversions)?;
            return Ok(());
        }
        object.insert("apiVersion".to_owned(), target.group_version().to_string().into());
        self.prune(object, target);
        Ok(())
    }

    /// True if the webhook must convert a stored object to this version.
    pub(crate) fn needs_webhook(&self, stored: &StoredObject, target: &CustomResourceVersion) -> bool {
        self.has_webhook() && stored.api_version.rsplit('/').next() != Some(&target.version().name)
    }

    /// The version in which an object is stored. It is not in the definition if the version was removed while objects
    /// were stored in it.
    fn stored_version(&self, stored: &StoredObject) -> Result<&CustomResourceVersion, Status> {
        let name = stored.api_version.split_once('/').filter(|(group, _)| *group == self.definition.spec.group);
        name.and_then(|(_, version)| self.version(version)).ok_or_else(|| {
            let invalid = "request to convert CR from an invalid group/version";
            failure_status(format!("{invalid}: {}", stored.api_version))
        })
    }

    /// Drops what the schema of a version does not know.
    pub(super) fn prune(&self, object: &mut JsonObject, version: &CustomResourceVersion) {
        if let Some(compiled) = self.compiled(version) {
            compiled.schema.prune(object, false);
        }
    }

    /// Validates an object that is created, or updated from `old`; through `status` only the status counts. Errors of its
    /// metadata may make the evaluation of rules pointless.
    pub(crate) fn validate(
        &self,
        version: &CustomResourceVersion,
        new: &JsonObject,
        old: Option<&JsonObject>,
        subresource: &str,
        metadata_errors: Vec<FieldError>,
    ) -> CustomVerdict {
        let wrong_type = validate_kind(new, version.group_version_kind());
        // As in kube-apiserver: metadata and schema of an object of another kind are not looked at.
        let is_other_kind = !wrong_type.is_empty();
        let mut errors = if is_other_kind { wrong_type } else { metadata_errors };
        let Some(compiled) = self.compiled(version) else {
            return CustomVerdict { errors, warnings: Vec::new() };
        };
        let schema = &compiled.schema;
        let release = self.release.minor();
        match (subresource, old) {
            _ if is_other_kind => {}
            ("status", Some(old)) => {
                errors.extend(schema.validate_status(new, old, release));
                errors.extend(version.scale().into_iter().flat_map(|scale| scale.validate_status(new)));
            }
            _ => {
                // Copies: the schema validates values, and handlers hold objects.
                let (value, old_value) = (Value::Object(new.clone()), old.cloned().map(Value::Object));
                errors.extend(schema.validate(&value, old_value.as_ref(), release));
                errors.extend(version.scale().and_then(|scale| scale.validate_spec(new)));
                errors.extend(version.scale().into_iter().flat_map(|scale| scale.validate_status(new)));
            }
        }
        if subresource != "status" {
            errors.extend(schema.validate_embedded(new, self.object_meta(), &validate_embedded_metadata));
        }
        errors.extend(schema.validate_lists(new, old));
        if compiled.rules.is_empty() {
            return CustomVerdict { errors, warnings: Vec::new() };
        }
        if let Some(unchecked) = unchecked_rules_error(&errors) {
            errors.push(unchecked);
            return CustomVerdict { errors, warnings: Vec::new() };
        }
        let outcome = compiled.rules.evaluate(new, old);
        errors.extend(outcome.errors);
        CustomVerdict { errors, warnings: outcome.warnings }
    }

    /// The compiled schema of a version; `None` if the version has no schema, or one that cannot be compiled.
    fn compiled(&self, version: &CustomResourceVersion) -> Option<&CompiledVersion> {
        let position = self.versions.iter().position(|known| std::ptr::eq(known, version))?;
        self.compiled[position].get_or_init(|| self.compile(version).map(Box::new)).as_deref()
    }

    fn compile(&self, version: &CustomResourceVersion) -> Option<CompiledVersion> {
        let schema = version.version().schema.open_api_v3_schema.as_ref()?;
        match StructuralSchema::from_json(&schema.to_value()) {
            Ok(mut schema) => {
                schema.prune_defaults(self.object_meta());
                let schema = Arc::new(schema);
                let rules = Rules::new(schema.clone(), k8s_cel::Release(self.release.minor()));
                Some(CompiledVersion { schema, rules })
            }
            Err(error) => {
                let (definition, version) = (&self.definition.metadata.name, &version.version().name);
                tracing::error!(definition, version, %error, "schema cannot be compiled; objects are not validated");
                None
            }
        }
    }

    /// The schema of a version; `None` if it has none, or one that cannot be compiled.
    pub(crate) fn schema(&self, version: &CustomResourceVersion) -> Option<&StructuralSchema> {
        self.compiled(version).map(|compiled| &*compiled.schema)
    }

    pub(crate) fn object_meta(&self) -> MetadataType<'static> {
        object_meta_of(self.release)
    }
}

/// The version in `apiVersion`, without the group.
pub(super) fn version_of(object: &JsonObject) -> &str {
    let api_version = object.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
    api_version.rsplit('/').next().unwrap_or_default()
}

/// A patch or a create may give a custom object another kind or version.
fn validate_kind(object: &JsonObject, expected: GroupVersionKind<&str>) -> Vec<FieldError> {
    let api_version = expected.group_version().to_string();
    let fields = [("kind", expected.kind), ("apiVersion", &*api_version)];
    let wrong = fields.into_iter().filter_map(|(field, wanted)| {
        let found = object.get(field).and_then(Value::as_str).unwrap_or_default();
        (found != wanted).then(|| FieldError::invalid(field, found, format!("must be {wanted}")))
    });
    wrong.collect()
}
