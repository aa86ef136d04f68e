//! Compiles the expressions of one rule.

use std::sync::Arc;

use k8s_cel::{DeclType, Environment, Program, Type};
use schema::structural::{SchemaNode, ValidationRule};

use super::field_path::resolve;

pub(super) const SELF: &str = "self";
pub(super) const OLD_SELF: &str = "oldSelf";

/// A rule in the form that is evaluated.
#[derive(Debug)]
pub(super) struct CompiledRule {
    pub(super) program: Program,
    /// True for transition rules, which compare with the old value.
    pub(super) uses_old_self: bool,
    /// `None` if the rule has no expression for its message.
    pub(super) message: Option<Result<Program, String>>,
    /// The path of failures relative to the node; empty for the node itself.
    pub(super) field_path: Box<str>,
}

/// The environments in which the expressions of a node are compiled: one of new, one of stored expressions.
pub(super) struct NodeEnvironment {
    plain: Environment,
    optional: Environment,
}

impl NodeEnvironment {
    /// Adds `self` and `oldSelf` of a type.
    pub(super) fn new(base: &Environment, decl: &Arc<DeclType>) -> Self {
        let environment = base.clone().shared_variable(SELF, Arc::clone(decl));
        let old = Arc::new(DeclType::optional(Arc::clone(decl)));
        let optional = environment.clone().shared_variable(OLD_SELF, old);
        Self { plain: environment.shared_variable(OLD_SELF, Arc::clone(decl)), optional }
    }

    fn for_rule(&self, rule: &ValidationRule) -> &Environment {
        if rule.optional_old_self == Some(true) { &self.optional } else { &self.plain }
    }
}

/// Compiles a rule. Returns `None` for a rule without an expression, and the detail of the error for one that does not
/// compile. Expressions for messages have an environment of their own.
pub(super) fn compile(
    schema: &SchemaNode,
    rule: &ValidationRule,
    rule_environment: &NodeEnvironment,
    message_environment: &NodeEnvironment,
) -> Option<Result<CompiledRule, String>> {
    if rule.rule.trim().is_empty() {
        return None;
    }
    let program = match compile_rule(rule_environment.for_rule(rule), &rule.rule) {
        Ok(program) => program,
        Err(detail) => return Some(Err(detail)),
    };
    let message = (!rule.message_expression.is_empty())
        .then(|| compile_message(message_environment.for_rule(rule), &rule.message_expression));
    // Kubernetes ignores the path of a rule whose message does not compile.
    let has_path = !rule.field_path.is_empty() && !matches!(message, Some(Err(_)));
    let field_path = if has_path { resolve(&rule.field_path, schema, true).ok() } else { None };
    Some(Ok(CompiledRule {
        uses_old_self: program.uses(OLD_SELF),
        program,
        message,
        field_path: field_path.map_or_else(Box::default, |(path, _)| path.into()),
    }))
}

fn compile_rule(environment: &Environment, rule: &str) -> Result<Program, String> {
    const NOT_BOOL: &str = "cel expression must evaluate to a bool";
    match environment.compile(rule) {
        Ok(program) if matches!(program.output_type(), Type::Bool) => Ok(program),
        Ok(_) => Err(NOT_BOOL.to_owned()),
        Err(error) => Err(match error.instantiation_type() {
            Some(Type::Bool) => format!("program instantiation failed: {error}"),
            Some(_) => NOT_BOOL.to_owned(),
            None => format!("compilation failed: {error}"),
        }),
    }
}

fn compile_message(environment: &Environment, expression: &str) -> Result<Program, String> {
    const NOT_TEXT: &str = "messageExpression must evaluate to a string";
    match environment.compile(expression) {
        Ok(program) if matches!(program.output_type(), Type::String) => Ok(program),
        Ok(_) => Err(NOT_TEXT.to_owned()),
        Err(error) => Err(match error.instantiation_type() {
            Some(Type::String) => format!("messageExpression instantiation failed: {error}"),
            Some(_) => NOT_TEXT.to_owned(),
            None => format!("messageExpression compilation failed: {error}"),
        }),
    }
}
