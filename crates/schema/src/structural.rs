//! The structural schema of a version of a custom resource, compiled from its OpenAPI v3 form.
//!
//! [`StructuralSchema::from_json`] reads the `openAPIV3Schema` of a stored definition. Reading is lenient, because
//! another release may have written the definition: unknown keywords are ignored. The compiled form is compact and drops
//! what serving objects does not need, such as descriptions.
//!
//! [`StructuralSchema::decode_request`] and [`StructuralSchema::decode_stored`] are what Kubernetes does to an object
//! between decoding and serving it. Validation is in the order of Kubernetes: [`StructuralSchema::validate`], then
//! [`StructuralSchema::validate_embedded`], then [`StructuralSchema::validate_lists`]; an update of the status has
//! [`StructuralSchema::validate_status`] instead of the first two.

mod correlate;
mod defaults;
mod embedded;
mod formats;
mod lists;
mod node;
mod object_meta;
mod parse;
mod prune;
mod validate;
mod value;

#[cfg(test)]
mod tests;

use api::FieldError;
use api::json::JsonObject;
use serde_json::Value;

pub use embedded::MetadataValidator;
pub use node::{
    AdditionalProperties, ListType, MapType, Pattern, Property, RuleReason, SchemaNode, SchemaType, ValidationRule,
};
pub use object_meta::MetadataType;
pub use parse::SchemaError;

/// The schema of the objects of one version of a custom resource.
#[derive(Debug)]
pub struct StructuralSchema {
    root: SchemaNode,
}

/// Why an object cannot be decoded. Displays as the reason in [`crate::cannot_be_handled_message`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The metadata of the object has a wrong type.
    #[error("{0}")]
    Metadata(String),
    /// An embedded resource has one.
    #[error("{0}")]
    Embedded(FieldError),
}

impl StructuralSchema {
    /// The schema of whole objects.
    pub fn root(&self) -> &SchemaNode {
        &self.root
    }

    /// Removes from defaults what [`Self::prune`] would remove from objects. To be called once, before the schema is used.
    pub fn prune_defaults(&mut self, object_meta: MetadataType<'_>) {
        defaults::prune_defaults(&mut self.root, object_meta);
    }

    /// Makes an object of a request: decodes metadata, prunes, drops nulls, decodes embedded resources, sets defaults.
    ///
    /// Returns the paths of unknown fields in the order of Kubernetes' strict decoding errors.
    pub fn decode_request(
        &self,
        object: &mut JsonObject,
        object_meta: MetadataType<'_>,
    ) -> Result<Vec<String>, DecodeError> {
        let mut unknown = Vec::new();
        if let Some(metadata) = object.get_mut("metadata") {
            let fields = object_meta::round_trip(metadata, object_meta).map_err(DecodeError::Metadata)?;
            unknown.extend(fields.iter().map(|field| format!("metadata.{field}")));
        }
        unknown.append(&mut self.prune(object, true));
        self.drop_nulls(object);
        embedded::coerce(object, &self.root, object_meta, &mut unknown).map_err(DecodeError::Embedded)?;
        self.set_defaults(object);
        Ok(unknown)
    }

    /// Makes an object of a stored one, with the schema of the version in which it is stored. Malformed metadata fields
    /// are dropped, and generation 0 becomes 1; metadata that is no object is an error.
    pub fn decode_stored(&self, object: &mut JsonObject, object_meta: MetadataType<'_>) -> Result<(), DecodeError> {
        if let Some(metadata) = object.get_mut("metadata") {
            object_meta::salvage(metadata, object_meta).map_err(DecodeError::Metadata)?;
        }
        self.prune(object, false);
        self.drop_nulls(object);
        embedded::repair(object, &self.root, false, object_meta);
        if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
            metadata.entry("generation").or_insert_with(|| 1.into());
        }
        self.set_defaults(object);
        Ok(())
    }

    /// Removes the fields that the schema does not specify. Returns their sorted paths if `reports_unknown`.
    pub fn prune(&self, object: &mut JsonObject, reports_unknown: bool) -> Vec<String> {
        prune::prune(object, &self.root, reports_unknown)
    }

    /// Removes nulls of fields that are neither nullable nor have a default.
    pub fn drop_nulls(&self, object: &mut JsonObject) {
        prune::drop_nulls(object, &self.root);
    }

    /// Sets the defaults of fields that are missing, or null without being nullable.
    pub fn set_defaults(&self, object: &mut JsonObject) {
        defaults::set_defaults(object, &self.root);
    }

    /// Validates an object. With the old one of an update, errors of unchanged values are dropped (ratcheting).
    ///
    /// `release` is the minor version of the Kubernetes release to imitate.
    pub fn validate(&self, object: &Value, old: Option<&Value>, release: u8) -> Vec<FieldError> {
        validate::validate(object, old, &self.root, "", release)
    }

    /// Validates only the status of an object, for an update of the subresource `status`.
    pub fn validate_status(&self, object: &JsonObject, old: &JsonObject, release: u8) -> Vec<FieldError> {
        let (Some(status), Some(schema)) = (object.get("status"), self.root.property("status")) else {
            return Vec::new();
        };
        let old = old.get("status").unwrap_or(&Value::Null);
        validate::validate(status, Some(old), schema, "status", release)
    }

    /// Validates `apiVersion`, `kind` and `metadata` of embedded resources, on create and update alike.
    pub fn validate_embedded(
        &self,
        object: &JsonObject,
        object_meta: MetadataType<'_>,
        validator: MetadataValidator<'_>,
    ) -> Vec<FieldError> {
        embedded::validate(object, &self.root, object_meta, validator)
    }

    /// Reports repeated items of lists of the types `set` and `map`, in the whole object. With the old object of an
    /// update, only if that has none.
    pub fn validate_lists(&self, object: &JsonObject, old: Option<&JsonObject>) -> Vec<FieldError> {
        if old.is_some_and(|old| !lists::validate(old, &self.root).is_empty()) {
            return Vec::new();
        }
        lists::validate(object, &self.root)
    }
}
