//! Default values in schemas: valid for their schema, without unknown fields.

use api::FieldError;

use super::ValidationOptions;
use super::schema_node::SchemaNode;

/// Checks the defaults of a structural schema.
pub(super) fn validate_defaults(
    path: &str,
    schema: SchemaNode<'_>,
    requires_pruned: bool,
    options: &ValidationOptions,
) -> Vec<FieldError> {
    let _ = (path, schema, requires_pruned, options);
    Vec::new()
}

/// True if a default of a structural schema has unknown fields.
pub(super) fn has_unpruned_defaults(schema: SchemaNode<'_>, options: &ValidationOptions) -> bool {
    let _ = (schema, options);
    false
}
