//! Validation rules of custom resources (`x-kubernetes-validations`).
//!
//! | when | call |
//! |---|---|
//! | a definition is written | [`check_expressions`] for the schema, which `validation` calls |
//! | a version is served | [`Rules::new`], which compiles nothing yet |
//! | an object is written | [`unchecked_rules_error`] or else [`Rules::evaluate`] |
//!
//! **Invariant:** an evaluation copies no part of the objects; its work is bounded by [`OBJECT_COST_BUDGET`].

mod check;
mod compile;
mod correlate;
mod declare;
mod evaluate;
mod field_path;
mod total_cost;
mod tree;

#[cfg(test)]
mod tests;

use std::sync::{Arc, OnceLock};

use api::FieldError;
use api::field_error::FieldErrorKind;
use api::json::JsonObject;
use k8s_cel::{Environment, Release};
use schema::structural::{SchemaNode, StructuralSchema};
use serde_json::Value;

pub use check::{ExpressionCheck, StoredExpressions, check_expressions};
pub use field_path::{FieldPathError, resolve_field_path};
pub(crate) use field_path::{PathSchema, resolve};

use tree::RuleNode;

/// The most that all rules of one object may cost in one write, in units of CEL.
pub const OBJECT_COST_BUDGET: i64 = 10_000_000;

/// The path that Kubernetes prints for an object as a whole.
pub(crate) const ROOT_PATH: &str = "<nil>";

/// The rules of one version of a custom resource, compiled when objects first need them.
#[derive(Debug)]
pub struct Rules {
    schema: Arc<StructuralSchema>,
    environment: Environment,
    /// `None` if no node of the schema has rules.
    tree: OnceLock<Option<Box<RuleNode>>>,
}

/// The outcome of the rules for one object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleOutcome {
    /// Why the write is refused.
    pub errors: Vec<FieldError>,
    /// Failed rules of parts that the write does not change.
    pub warnings: Vec<String>,
}

impl Rules {
    /// The rules of a schema as a server of `release` evaluates them: with every function that it knows.
    pub fn new(schema: Arc<StructuralSchema>, release: Release) -> Self {
        Self { schema, environment: Environment::for_stored_expressions(release), tree: OnceLock::new() }
    }

    /// True if the schema has no rules. [`unchecked_rules_error`] does not apply then.
    pub fn is_empty(&self) -> bool {
        self.tree().is_none()
    }

    /// Evaluates the rules for an object that is created (`old` is `None`) or updated, also through `/status`.
    pub fn evaluate(&self, new: &JsonObject, old: Option<&JsonObject>) -> RuleOutcome {
        match self.tree() {
            Some(tree) => evaluate::evaluate(tree, self.schema.root(), &self.environment, new, old),
            None => RuleOutcome::default(),
        }
    }

    fn tree(&self) -> Option<&RuleNode> {
        self.tree.get_or_init(|| tree::build(self.schema.root())).as_deref()
    }
}

/// Evaluates the rules for the default of a node, which is at `path`. `is_resource` says that the node is the root or an
/// embedded resource. The cost is taken from the budget; less than 0 is left if it was not enough.
pub(crate) fn evaluate_default(
    schema: &SchemaNode,
    is_resource: bool,
    (path, default): (&str, &Value),
    release: Release,
    budget: &mut i64,
) -> Vec<FieldError> {
    let Some(tree) = tree::build_below(schema, is_resource) else { return Vec::new() };
    let environment = Environment::for_stored_expressions(release);
    evaluate::evaluate_default(&tree, schema, &environment, (path, default), budget)
}

/// The error that takes the place of the rules if the object has errors that make their evaluation pointless.
///
/// Applies to versions [with rules](Rules::is_empty) only.
pub fn unchecked_rules_error(errors: &[FieldError]) -> Option<FieldError> {
    let is_blocking = |error: &FieldError| {
        matches!(
            error.kind(),
            FieldErrorKind::NotSupported
                | FieldErrorKind::Required
                | FieldErrorKind::TooLong
                | FieldErrorKind::TooMany
                | FieldErrorKind::TypeInvalid
        )
    };
    errors.iter().any(is_blocking).then(|| {
        let detail = "some validation rules were not checked because the object was invalid; \
                      correct the existing errors to complete validation";
        FieldError::invalid(ROOT_PATH, Value::Null, detail)
    })
}
