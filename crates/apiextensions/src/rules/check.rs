//! Checks the rules of a definition that a client writes.

use std::collections::HashSet;
use std::sync::Arc;

use api::FieldError;
use api::json::to_go_json;
use k8s_cel::{DeclType, Environment, Release};
use schema::structural::{ListType, SchemaNode, StructuralSchema, ValidationRule};
use serde_json::Value;

use super::compile::{CompiledRule, NodeEnvironment, compile};
use super::declare::declare;
use super::total_cost::{Cardinality, EXPRESSION_COST_MAX, TotalCost, cardinality_below, excess_message};

const RULES: &str = "x-kubernetes-validations";

/// Expressions of the stored definition. They may use everything that the server knows, so that an update which does
/// not touch them passes.
#[derive(Clone, Debug, Default)]
pub struct StoredExpressions {
    rules: HashSet<String>,
    messages: HashSet<String>,
}

impl StoredExpressions {
    /// Adds the expressions of an `openAPIV3Schema` of the stored definition, whatever its version.
    pub fn add_schema(&mut self, schema: &Value) {
        let mut pending = vec![schema];
        while let Some(schema) = pending.pop() {
            for rule in schema[RULES].as_array().into_iter().flatten() {
                self.rules.extend(rule["rule"].as_str().map(str::to_owned));
                let message = rule["messageExpression"].as_str().filter(|text| !text.is_empty());
                self.messages.extend(message.map(str::to_owned));
            }
            pending.extend(["items", "additionalProperties", "not"].iter().filter_map(|name| schema.get(name)));
            let lists = ["allOf", "anyOf", "oneOf"].iter().filter_map(|name| schema[name].as_array());
            pending.extend(lists.flatten());
            pending.extend(schema["properties"].as_object().into_iter().flat_map(|properties| properties.values()));
        }
    }
}

/// What [`check_expressions`] needs besides the schema.
#[expect(missing_debug_implementations, reason = "has a function")]
pub struct ExpressionCheck<'c> {
    /// The release of the server.
    pub release: Release,
    /// Expressions of the stored definition; empty for a new one.
    pub stored: &'c StoredExpressions,
    /// True if the schema of the version is the stored one: its expressions may then exceed the limit of their cost.
    pub is_unchanged: bool,
    /// True for the path of a node if the node or a node below it has errors other than those of expressions. The
    /// expressions of the node are then not checked.
    pub has_schema_errors: &'c dyn Fn(&str) -> bool,
}

/// Checks the expressions of all rules of a schema, and their costs. `json` is the schema's JSON form and `path` the path
/// of its root.
///
/// Kubernetes checks expressions only if the schema is structural and its defaults are valid, and reports their errors
/// after all others of the schema.
pub fn check_expressions(
    json: &Value,
    schema: &StructuralSchema,
    path: &str,
    check: &ExpressionCheck<'_>,
) -> Vec<FieldError> {
    let mut checker = Checker {
        check,
        new: Environment::for_new_expressions(check.release),
        stored: Environment::for_stored_expressions(check.release),
        path: path.to_owned(),
        total: TotalCost::default(),
        errors: Vec::new(),
    };
    let context = NodeContext { scope: Scope::Outside, cardinality: Some(1), uncorrelatable: None, is_root: true };
    checker.node(json, schema.root(), &context);
    checker.errors.extend(checker.total.errors(path));
    checker.errors
}

/// The types of a node for the nodes below it.
#[derive(Clone)]
enum Scope {
    /// Neither the node nor one above it has rules.
    Outside,
    /// A node above has rules, but its expressions cannot see the node.
    Unseen,
    /// The node's type, if expressions can see its values.
    Inside(Option<Arc<DeclType>>),
    /// The type of a node above could not be made.
    Failed,
}

/// What a node inherits.
struct NodeContext {
    /// The scope of the node above, narrowed to this node where it has a type for it.
    scope: Scope,
    cardinality: Cardinality,
    /// The path of the topmost list above that gives items no identity.
    uncorrelatable: Option<String>,
    is_root: bool,
}

struct Checker<'c> {
    check: &'c ExpressionCheck<'c>,
    new: Environment,
    stored: Environment,
    path: String,
    total: TotalCost,
    errors: Vec<FieldError>,
}

impl Checker<'_> {
    /// Checks the nodes below, then the node. Recursion is as deep as the schema, whose depth is limited.
    fn node(&mut self, json: &Value, schema: &SchemaNode, context: &NodeContext) {
        let scope = enter(schema, context);
        let below = |scope: Scope, uncorrelatable: Option<String>| NodeContext {
            scope,
            cardinality: cardinality_below(schema, context.cardinality),
            uncorrelatable,
            is_root: false,
        };
        if let Some(values) = schema.additional_schema() {
            let below = below(scope.element(), context.uncorrelatable.clone());
            self.child(".additionalProperties", &json["additionalProperties"], values, &below);
        }
        for property in schema.properties() {
            let name = property.name();
            let below = below(scope.property(name), context.uncorrelatable.clone());
            self.child(&format!(".properties[{name}]"), &json["properties"][name], property.schema(), &below);
        }
        if let Some(items) = schema.items() {
            let uncorrelatable = match schema.list_type() {
                Some(ListType::Map) => context.uncorrelatable.clone(),
                Some(ListType::Atomic | ListType::Set) | None => {
                    context.uncorrelatable.clone().or_else(|| Some(self.path.clone()))
                }
            };
            self.child(".items", &json["items"], items, &below(scope.element(), uncorrelatable));
        }
        if !schema.validation_rules().is_empty() && !(self.check.has_schema_errors)(&self.path) {
            self.rules(json, schema, &scope, context);
        }
    }

    fn child(&mut self, suffix: &str, json: &Value, schema: &SchemaNode, context: &NodeContext) {
        let length = self.path.len();
        self.path.push_str(suffix);
        self.node(json, schema, context);
        self.path.truncate(length);
    }

    /// Checks the rules of one node.
    fn rules(&mut self, json: &Value, schema: &SchemaNode, scope: &Scope, context: &NodeContext) {
        let decl = match scope {
            Scope::Inside(Some(decl)) => Arc::clone(decl),
            Scope::Inside(None) => return self.internal("failed to convert to declType for CEL validation rules"),
            Scope::Outside | Scope::Unseen | Scope::Failed => {
                return self.internal(
                    "internal error: failed to construct type information for x-kubernetes-validations rules: \
                     unable to convert structural schema to CEL declarations",
                );
            }
        };
        let new = NodeEnvironment::new(&self.new, &decl);
        let stored = NodeEnvironment::new(&self.stored, &decl);
        let choose = |is_stored| if is_stored { &stored } else { &new };
        let cardinality = context.cardinality.unwrap_or_else(|| decl.max_cardinality());
        for (index, rule) in schema.validation_rules().iter().enumerate() {
            let rule_environment = choose(self.check.stored.rules.contains(&*rule.rule));
            let message_environment = choose(self.check.stored.messages.contains(&*rule.message_expression));
            let path = format!("{}.{RULES}[{index}]", self.path);
            match compile(schema, rule, rule_environment, message_environment) {
                None => {}
                Some(Err(detail)) => {
                    let value = printed(&json[RULES][index]);
                    self.errors.push(FieldError::invalid_printed(format!("{path}.rule"), &value, &detail));
                    self.check_optional(rule, &path);
                }
                Some(Ok(compiled)) => {
                    self.costs(&compiled, &json[RULES][index], &path, cardinality);
                    self.check_old_self(rule, &compiled, &path, context);
                }
            }
        }
    }

    fn internal(&mut self, detail: &str) {
        self.errors.push(FieldError::internal(format!("{}.{RULES}", self.path), detail));
    }

    fn costs(&mut self, compiled: &CompiledRule, json: &Value, path: &str, cardinality: u64) {
        let cost = compiled.program.estimated_cost().max.saturating_mul(cardinality);
        self.cost("estimated rule cost", format!("{path}.rule"), cost);
        match &compiled.message {
            Some(Ok(message)) => {
                let cost = message.estimated_cost().max;
                self.cost("estimated messageExpression cost", format!("{path}.messageExpression"), cost);
            }
            Some(Err(detail)) => {
                let path = format!("{path}.messageExpression");
                self.errors.push(FieldError::invalid_printed(path, &printed(json), detail));
            }
            None => {}
        }
    }

    fn cost(&mut self, what: &str, path: String, cost: u64) {
        self.total.add(&path, cost);
        if cost > EXPRESSION_COST_MAX && !self.check.is_unchanged {
            self.errors.push(FieldError::forbidden(path, excess_message(what, cost, EXPRESSION_COST_MAX)));
        }
    }

    fn check_old_self(&mut self, rule: &ValidationRule, compiled: &CompiledRule, path: &str, context: &NodeContext) {
        if !compiled.uses_old_self {
            return self.check_optional(rule, path);
        }
        if let Some(list) = &context.uncorrelatable {
            let detail = format!("oldSelf cannot be used on the uncorrelatable portion of the schema within {list}");
            self.errors.push(FieldError::invalid(format!("{path}.rule"), &*rule.rule, detail));
        }
    }

    /// Refuses `optionalOldSelf` of a rule that does not use `oldSelf`.
    fn check_optional(&mut self, rule: &ValidationRule, path: &str) {
        if let Some(optional) = rule.optional_old_self {
            let detail = "may not be set if oldSelf is not used in rule";
            self.errors.push(FieldError::invalid(format!("{path}.optionalOldSelf"), optional, detail));
        }
    }
}

/// The scope of a node, given what the node above has for it.
fn enter(schema: &SchemaNode, context: &NodeContext) -> Scope {
    match &context.scope {
        Scope::Outside if schema.validation_rules().is_empty() => Scope::Outside,
        Scope::Outside | Scope::Unseen => match declare(schema, context.is_root || schema.is_embedded_resource()) {
            Some(decl) => Scope::Inside(Some(Arc::new(decl))),
            None => Scope::Failed,
        },
        Scope::Inside(_) | Scope::Failed => context.scope.clone(),
    }
}

impl Scope {
    fn element(&self) -> Self {
        match self {
            Self::Inside(Some(decl)) => Self::Inside(decl.element().cloned()),
            Self::Inside(None) | Self::Outside | Self::Unseen | Self::Failed => self.clone(),
        }
    }

    fn property(&self, name: &str) -> Self {
        match self {
            Self::Inside(decl) => match decl.as_ref().and_then(|decl| decl.property(name)) {
                Some(decl) => Self::Inside(Some(Arc::clone(decl))),
                None => Self::Unseen,
            },
            Self::Outside | Self::Unseen | Self::Failed => self.clone(),
        }
    }
}

/// A rule as Kubernetes prints it in errors: its fields in the order of the Go type.
fn printed(rule: &Value) -> String {
    let text = |name: &str| String::from_utf8_lossy(&to_go_json(rule[name].as_str().unwrap_or_default())).into_owned();
    let or_null = |name: &str| String::from_utf8_lossy(&to_go_json(&rule[name])).into_owned();
    format!(
        r#"{{"Rule":{},"Message":{},"MessageExpression":{},"Reason":{},"FieldPath":{},"OptionalOldSelf":{}}}"#,
        text("rule"),
        text("message"),
        text("messageExpression"),
        or_null("reason"),
        text("fieldPath"),
        or_null("optionalOldSelf"),
    )
}
