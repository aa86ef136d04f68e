//! Checks of single values, such as the defaults of a schema.

use api::FieldError;
use serde_json::Value;

use super::node::SchemaNode;
use super::{MetadataType, MetadataValidator, embedded, prune, validate};

impl SchemaNode {
    /// Removes the fields of a value of the node that the schema does not specify.
    pub fn prune_value(&self, value: &mut Value) {
        prune::prune_value(value, self);
    }

    /// Decodes and validates `apiVersion`, `kind` and `metadata` of the resources in a value of the node. With `is_resource` the
    /// value is one itself. Paths of errors begin at the value.
    pub fn check_embedded(
        &self,
        value: &mut Value,
        is_resource: bool,
        object_meta: MetadataType<'_>,
        validator: MetadataValidator<'_>,
    ) -> Vec<FieldError> {
        embedded::check(value, self, is_resource, object_meta, validator)
    }

    /// Validates a value of the node. Paths of errors begin at the value; the value itself has the empty path.
    ///
    /// `release` is the minor version of the Kubernetes release to imitate.
    pub fn validate_value(&self, value: &Value, release: u8) -> Vec<FieldError> {
        validate::validate(value, None, self, "", release)
    }
}
