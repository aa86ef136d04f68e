//! Default values in schemas: valid for their schema, without unknown fields.

use api::FieldError;
use k8s_cel::Release;
use schema::structural::{SchemaNode, StructuralSchema};
use serde_json::Value;

use super::ValidationOptions;
use super::error_list::ErrorList;
use super::structural::is_structural;
use crate::rules::{OBJECT_COST_BUDGET, ROOT_PATH, evaluate_default};

/// Checks the defaults of a structural schema.
pub(super) fn validate_defaults(
    path: &str,
    root: &SchemaNode,
    requires_pruned: bool,
    options: &ValidationOptions,
) -> Vec<FieldError> {
    let mut checks = DefaultChecks {
        requires_pruned,
        release: options.minor,
        budget: OBJECT_COST_BUDGET,
        errors: ErrorList::default(),
    };
    checks.node(root, path, true, false);
    checks.errors.into_errors()
}

/// True if a default of a structural schema has unknown fields.
pub(super) fn has_unpruned_defaults(schema: &Value, minor: u8) -> bool {
    schema.as_object().is_some_and(|node| is_structural(super::schema_node::SchemaNode(node), minor))
        && StructuralSchema::from_json(schema).is_ok_and(|schema| is_unpruned(schema.root(), true, false))
}

fn is_unpruned(node: &SchemaNode, is_resource: bool, is_inside_meta: bool) -> bool {
    let is_own = !is_inside_meta && node.default().is_some_and(|default| !is_pruned(node, default));
    let below = |child: &SchemaNode, name: &str| {
        let is_inside_meta = is_inside_meta || (is_resource && is_meta_field(name));
        is_unpruned(child, child.is_embedded_resource(), is_inside_meta)
    };
    is_own
        || node.items().is_some_and(|items| below(items, ""))
        || node.additional_schema().is_some_and(|values| below(values, ""))
        || node.properties().iter().any(|property| below(property.schema(), property.name()))
}

fn is_meta_field(name: &str) -> bool {
    matches!(name, "metadata" | "apiVersion" | "kind")
}

fn is_pruned(node: &SchemaNode, default: &Value) -> bool {
    let mut pruned = default.clone();
    node.prune_value(&mut pruned);
    pruned == *default
}

struct DefaultChecks {
    requires_pruned: bool,
    release: u8,
    /// What the rules of all defaults together may still cost.
    budget: i64,
    errors: ErrorList,
}

impl DefaultChecks {
    /// Checks the default of a node and those below it. Values of maps have none.
    fn node(&mut self, node: &SchemaNode, path: &str, is_root: bool, is_inside_meta: bool) {
        let is_resource = is_root || node.is_embedded_resource();
        let is_inside_meta = is_inside_meta && !is_resource;
        if let Some(default) = node.default() {
            self.default(node, default, &format!("{path}.default"), is_resource, is_inside_meta);
        }
        if let Some(items) = node.items() {
            self.node(items, &format!("{path}.items"), false, is_inside_meta);
        }
        for property in node.properties() {
            if self.budget < 0 {
                return;
            }
            let is_inside_meta = is_inside_meta || (is_resource && is_meta_field(property.name()));
            let path = format!("{path}.properties[{}]", property.name());
            self.node(property.schema(), &path, false, is_inside_meta);
        }
    }

    fn default(&mut self, node: &SchemaNode, default: &Value, path: &str, is_resource: bool, is_inside_meta: bool) {
        if !is_inside_meta && self.requires_pruned && !is_pruned(node, default) {
            self.errors.push(FieldError::invalid(path, default.clone(), "must not have unknown fields"));
        }
        let mut errors = node.validate_value(default, self.release);
        // Kubernetes does not apply the types of int-or-string to defaults.
        errors.retain(|error| !error.body().contains("must be of type integer,string"));
        if errors.is_empty() {
            let release = Release(self.release);
            errors = evaluate_default(node, is_resource, (path, default), release, &mut self.budget);
        } else {
            errors = errors.into_iter().map(|error| at_default(error, path)).collect();
        }
        self.errors.extend(errors);
    }
}

/// Places the error of a default, whose path begins at the value, in the schema.
fn at_default(error: FieldError, path: &str) -> FieldError {
    let field = match error.field() {
        "" | ROOT_PATH => path.to_owned(),
        below => format!("{path}.{below}"),
    };
    error.with_field(field)
}
