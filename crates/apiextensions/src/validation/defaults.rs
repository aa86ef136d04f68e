//! Default values in schemas: valid for their schema, without unknown fields, with valid metadata of resources.

use api::FieldError;
use api::json::JsonObject;
use k8s_cel::Release;
use schema::structural::{MetadataType, SchemaNode, StructuralSchema};
use serde_json::Value;

use super::ValidationOptions;
use super::error_list::ErrorList;
use super::structural::is_structural;
use crate::embedded::validate_embedded_metadata;
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
        object_meta: options.object_meta,
        budget: OBJECT_COST_BUDGET,
        errors: ErrorList::default(),
    };
    checks.node(root, path, &mut Surroundings { resource: root, steps: Vec::new(), is_inside_meta: false });
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
    object_meta: MetadataType<'static>,
    /// What the rules of all defaults together may still cost.
    budget: i64,
    errors: ErrorList,
}

/// The resource that a node belongs to: the object, or the embedded resource next above the node.
struct Surroundings<'n> {
    resource: &'n SchemaNode,
    /// The way from the resource to the node.
    steps: Vec<Step<'n>>,
    /// True below `apiVersion`, `kind` and `metadata`.
    is_inside_meta: bool,
}

#[derive(Clone, Copy)]
enum Step<'n> {
    Field(&'n str),
    Item,
}

impl Surroundings<'_> {
    /// A resource with nothing but a value at the place of the node; `None` if the node is the resource.
    fn resource_with(&self, value: Value) -> Option<Value> {
        let mut resource = self.steps.iter().rev().fold(value, |value, step| match step {
            Step::Field(name) => Value::Object(JsonObject::from_iter([((*name).to_owned(), value)])),
            Step::Item => Value::Array(vec![value]),
        });
        let object = resource.as_object_mut().filter(|_| !self.steps.is_empty())?;
        for (field, any) in [("apiVersion", "validation/v1"), ("kind", "Validation")] {
            object.entry(field).or_insert_with(|| any.into());
        }
        Some(resource)
    }
}

impl DefaultChecks {
    /// Checks the default of a node and those below it. Values of maps have none.
    fn node<'n>(&mut self, node: &'n SchemaNode, path: &str, around: &mut Surroundings<'n>) {
        if node.is_embedded_resource() {
            let mut inside = Surroundings { resource: node, steps: Vec::new(), is_inside_meta: false };
            self.parts(node, path, &mut inside);
        } else {
            self.parts(node, path, around);
        }
    }

    fn parts<'n>(&mut self, node: &'n SchemaNode, path: &str, around: &mut Surroundings<'n>) {
        if let Some(default) = node.default() {
            self.default(node, default, &format!("{path}.default"), around);
        }
        if let Some(items) = node.items() {
            self.below(items, &format!("{path}.items"), Step::Item, around);
        }
        for property in node.properties() {
            if self.budget < 0 {
                return;
            }
            let path = format!("{path}.properties[{}]", property.name());
            self.below(property.schema(), &path, Step::Field(property.name()), around);
        }
    }

    fn below<'n>(&mut self, node: &'n SchemaNode, path: &str, step: Step<'n>, around: &mut Surroundings<'n>) {
        let was_inside_meta = around.is_inside_meta;
        around.is_inside_meta |= around.steps.is_empty() && matches!(step, Step::Field(name) if is_meta_field(name));
        around.steps.push(step);
        self.node(node, path, around);
        around.steps.pop();
        around.is_inside_meta = was_inside_meta;
    }

    fn default(&mut self, node: &SchemaNode, default: &Value, path: &str, around: &Surroundings<'_>) {
        if !around.is_inside_meta && self.requires_pruned && !is_pruned(node, default) {
            self.errors.push(FieldError::invalid(path, default.clone(), "must not have unknown fields"));
        }
        let mut decoded = default.clone();
        let is_resource = around.steps.is_empty();
        let mut errors = match around.is_inside_meta.then(|| around.resource_with(default.clone())).flatten() {
            Some(resource) => self.in_resource(around.resource, resource, default, path),
            None => self.embedded_resources(node, &mut decoded, is_resource, path),
        };
        if errors.is_empty() {
            errors = node.validate_value(&decoded, self.release);
            // Kubernetes does not apply the types of int-or-string to defaults.
            errors.retain(|error| !error.body().contains("must be of type integer,string"));
            errors = errors.into_iter().map(|error| at_default(error, path)).collect();
        }
        if errors.is_empty() {
            let release = Release(self.release);
            errors = evaluate_default(node, is_resource, (path, &decoded), release, &mut self.budget);
        }
        self.errors.extend(errors);
    }

    /// Checks a resource with a default in its metadata.
    fn in_resource(&self, schema: &SchemaNode, mut resource: Value, default: &Value, path: &str) -> Vec<FieldError> {
        let errors = schema.check_embedded(&mut resource, true, self.object_meta, &validate_embedded_metadata);
        let invalid =
            |reason| FieldError::invalid(path, default.clone(), format!("must result in valid metadata: {reason}"));
        FieldError::aggregate(&errors).map(invalid).into_iter().collect()
    }

    /// Checks the resources in a default, and decodes their metadata.
    fn embedded_resources(
        &self,
        node: &SchemaNode,
        default: &mut Value,
        is_resource: bool,
        path: &str,
    ) -> Vec<FieldError> {
        let errors = node.check_embedded(default, is_resource, self.object_meta, &validate_embedded_metadata);
        let place = |error: FieldError| match error.field() {
            item if item.starts_with('[') => {
                let field = format!("{path}{item}");
                error.with_field(field)
            }
            _ => error.below(path),
        };
        errors.into_iter().map(place).collect()
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
