//! The structural schema of a version of a custom resource, compiled from its OpenAPI v3 form.
//!
//! [`StructuralSchema::from_json`] reads the `openAPIV3Schema` of a stored definition. Reading is lenient, because
//! another release may have written the definition: unknown keywords are ignored. The compiled form is compact and drops
//! what serving objects does not need, such as descriptions.

mod node;
mod parse;

#[cfg(test)]
mod tests;

pub use node::{
    AdditionalProperties, ListType, MapType, Pattern, Property, RuleReason, SchemaNode, SchemaType, ValidationRule,
};
pub use parse::SchemaError;

/// The schema of the objects of one version of a custom resource.
#[derive(Debug)]
pub struct StructuralSchema {
    root: SchemaNode,
}

impl StructuralSchema {
    /// The schema of whole objects.
    pub fn root(&self) -> &SchemaNode {
        &self.root
    }
}
