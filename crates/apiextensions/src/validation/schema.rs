//! One `openAPIV3Schema`: the rules of the root, of structural schemas, of defaults, of every node, and of expressions.

use std::collections::HashSet;

use api::FieldError;
use k8s_cel::Release;
use schema::structural::StructuralSchema;
use serde_json::Value;

use super::ValidationOptions;
use super::defaults::validate_defaults;
use super::error_list::ErrorList;
use super::internal_form::VersionFields;
use super::open_api::{NodePlace, OpenApiChecks, OpenApiFindings};
use super::ratcheting::Requirements;
use super::schema_fields::{SCHEMA_FIELDS, go_schema};
use super::schema_node::SchemaNode;
use super::structural::{conversion_problem, validate_structural};
use super::views;
use crate::rules::{ExpressionCheck, check_expressions};

/// Fields that the root may have, by Go's names, if there is a status subresource: the schema of the status can then be
/// taken out of the root's properties.
const ALLOWED_AT_ROOT: &[&str] = &[
    "Description",
    "Type",
    "Format",
    "Title",
    "Maximum",
    "ExclusiveMaximum",
    "Minimum",
    "ExclusiveMinimum",
    "MaxLength",
    "MinLength",
    "Pattern",
    "MaxItems",
    "MinItems",
    "UniqueItems",
    "MultipleOf",
    "Required",
    "Items",
    "Properties",
    "ExternalDocs",
    "Example",
    "XPreserveUnknownFields",
    "XValidations",
];

/// Extensions that need a structural schema. `x-kubernetes-map-type` is none of them.
pub(super) fn has_kubernetes_extension(node: SchemaNode<'_>) -> bool {
    node.flag("x-kubernetes-embedded-resource")
        || node.is_set("x-kubernetes-preserve-unknown-fields")
        || node.flag("x-kubernetes-int-or-string")
        || !node.list("x-kubernetes-list-map-keys").is_empty()
        || node.is_set("x-kubernetes-list-type")
        || !node.list("x-kubernetes-validations").is_empty()
}

/// The checks of the schemas of one definition.
pub(super) struct SchemaChecks<'c> {
    pub(super) requirements: &'c Requirements,
    pub(super) options: &'c ValidationOptions,
}

impl SchemaChecks<'_> {
    /// Checks the schema that `fields` has. `version` is the version, or the first one of those that share the schema.
    pub(super) fn validate(
        &self,
        all_errors: &mut ErrorList,
        fields: &VersionFields<'_>,
        path: &str,
        has_status: bool,
        version: &str,
    ) {
        let (Some(json), Some(schema)) = (fields.schema_value(), fields.schema()) else { return };
        let path = format!("{path}.openAPIV3Schema");
        let mut errors = ErrorList::default();
        if has_status {
            check_root_fields(&mut errors, schema, &path);
        }
        if schema.flag("nullable") {
            errors.push(FieldError::forbidden(format!("{path}.nullable"), "nullable cannot be true at the root"));
        }
        let structural = self.validate_structure(&mut errors, json, schema, &path);
        let mut found = OpenApiFindings::default();
        let checks = OpenApiChecks { requirements: self.requirements, minor: self.options.minor };
        checks.check(&mut found, schema, &path, &NodePlace::root());
        errors.extend(found.errors.into_errors());
        if let Ok(Some(structural)) = &structural {
            self.validate_rules(&mut errors, json, structural, &path, &found.rule_nodes, version);
        }
        if errors.is_empty()
            && let Err(problem) = structural
        {
            errors.push(FieldError::invalid(path, "", problem));
        }
        all_errors.extend(errors.into_errors());
    }

    /// Checks that the schema is structural and that its defaults are valid. Returns the compiled schema if it is and
    /// must be, or why it cannot be converted: other checks report most reasons, too.
    fn validate_structure(
        &self,
        errors: &mut ErrorList,
        json: &Value,
        schema: SchemaNode<'_>,
        path: &str,
    ) -> Result<Option<StructuralSchema>, String> {
        if !self.requirements.structural {
            return Ok(None);
        }
        if let Some(problem) = conversion_problem(schema) {
            return Err(problem);
        }
        let before = errors.count();
        errors.extend(validate_structural(path, schema, self.options.minor));
        if errors.count() > before {
            return Ok(None);
        }
        // Fails for types that Kubernetes does not know either, which an old definition may have.
        let Ok(structural) = StructuralSchema::from_json(json) else { return Ok(None) };
        let requires_pruned = self.requirements.pruned_defaults;
        errors.extend(validate_defaults(path, structural.root(), requires_pruned, self.options));
        Ok((errors.count() == before).then_some(structural))
    }

    /// Compiles the rules of the nodes at these paths and limits their costs.
    fn validate_rules(
        &self,
        errors: &mut ErrorList,
        json: &Value,
        schema: &StructuralSchema,
        path: &str,
        nodes: &HashSet<String>,
        version: &str,
    ) {
        let unchanged = &self.requirements.unchanged;
        let check = ExpressionCheck {
            release: Release(self.options.minor),
            stored: &unchanged.expressions,
            is_unchanged: unchanged.schemas.contains(version),
            has_schema_errors: &|path| !nodes.contains(path),
        };
        errors.extend(check_expressions(json, schema, path, &check));
    }

    /// Checks the selectable fields against the schema that stands beside them. `version` is empty for fields that all
    /// versions share.
    pub(super) fn validate_selectable_fields(
        &self,
        errors: &mut ErrorList,
        fields: &VersionFields<'_>,
        path: &str,
        version: &str,
    ) {
        let Some(schema) = fields.schema() else { return };
        if let Some(problem) = conversion_problem(schema) {
            errors.push(FieldError::invalid(format!("{path}.schema.openAPIV3Schema"), "", problem));
        }
        let allows_too_many = self.requirements.unchanged.too_many_selectable_fields.contains(version);
        let path = format!("{path}.selectableFields");
        views::validate_selectable_fields(errors, &path, fields.selectable_fields(), schema, allows_too_many);
    }
}

/// Checks what the root has if there is a status subresource. Kubernetes reports the first field only.
fn check_root_fields(errors: &mut ErrorList, schema: SchemaNode<'_>, path: &str) {
    for field in SCHEMA_FIELDS.iter().filter(|field| field.is_set(schema)) {
        if field.go_name == "Type" && schema.schema_type() != "object" {
            let detail = "only \"object\" is allowed as the type at the root of the schema if the status subresource is \
                          enabled";
            errors.push(FieldError::invalid(format!("{path}.type"), schema.schema_type(), detail));
            return;
        }
        if !ALLOWED_AT_ROOT.contains(&field.go_name) {
            let detail = format!(
                "only [{}] fields are allowed at the root of the schema if the status subresource is enabled",
                ALLOWED_AT_ROOT.join(" ")
            );
            errors.push(FieldError::invalid_printed(path, &go_schema(schema), &detail));
            return;
        }
    }
}
