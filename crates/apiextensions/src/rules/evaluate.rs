//! Evaluates the rules of an object.
//!
//! The rules of a value come before those below it. An evaluation that runs out of its budget ends all of it.

use std::ops::ControlFlow;

use api::FieldError;
use api::json::JsonObject;
use k8s_cel::{EvalError, Evaluation, Input, Program, Value as CelValue};
use schema::structural::{RuleReason, SchemaNode, SchemaType, ValidationRule};
use serde_json::Value;

use super::compile::{CompiledRule, OLD_SELF, SELF};
use super::correlate::{Correlated, OldItems, Part};
use super::tree::{NodeRules, RuleNode};
use super::{OBJECT_COST_BUDGET, ROOT_PATH, RuleOutcome};

/// The longest message that an expression may give, in bytes.
const MESSAGE_BYTES_MAX: usize = 5 * 1024;

const OUT_OF_BUDGET: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

pub(super) fn evaluate<'o>(
    tree: &'o RuleNode,
    schema: &'o SchemaNode,
    environment: &k8s_cel::Environment,
    new: &'o JsonObject,
    old: Option<&'o JsonObject>,
) -> RuleOutcome {
    let mut walk =
        Walk { environment, budget: OBJECT_COST_BUDGET, path: String::new(), outcome: RuleOutcome::default() };
    let root = Site { node: tree, schema, new: Part::Object(new), old: old.map(Part::Object) };
    let correlated = old.map(|old| Correlated::new(Some(Part::Object(new)), Some(Part::Object(old)), schema));
    let ratchet = Ratchet { current: correlated.as_ref(), parent: None };
    let _ = walk.visit(root, ratchet);
    walk.outcome
}

/// Evaluates the rules of a default value, which is at `path`, first as unchanged and then as new. Takes their cost from
/// the budget; less than 0 is left if it was not enough.
pub(super) fn evaluate_default(
    tree: &RuleNode,
    schema: &SchemaNode,
    environment: &k8s_cel::Environment,
    (path, default): (&str, &Value),
    budget: &mut i64,
) -> Vec<FieldError> {
    let Some(new) = Part::of(default) else { return Vec::new() };
    let mut left = *budget;
    for old in [Some(new), None] {
        let mut walk = Walk { environment, budget: *budget, path: path.to_owned(), outcome: RuleOutcome::default() };
        let flow = walk.visit(Site { node: tree, schema, new, old }, Ratchet::NEVER);
        left = left.min(if flow.is_break() { -1 } else { walk.budget });
        if !walk.outcome.errors.is_empty() {
            *budget = left;
            return walk.outcome.errors;
        }
    }
    *budget = left;
    Vec::new()
}

/// A value and where it is.
#[derive(Clone, Copy)]
struct Site<'o> {
    node: &'o RuleNode,
    schema: &'o SchemaNode,
    new: Part<'o>,
    /// Present if the old object has a value that corresponds to this one.
    old: Option<Part<'o>>,
}

/// Decides whether failures at a value are only warnings, because the write does not change it.
#[derive(Clone, Copy)]
struct Ratchet<'r, 'o> {
    current: Option<&'r Correlated<'o>>,
    /// The nearest value above that has an old one; counts if `current` has none.
    parent: Option<&'r Correlated<'o>>,
}

impl<'r, 'o> Ratchet<'r, 'o> {
    const NEVER: Self = Self { current: None, parent: None };

    fn is_unchanged(self) -> bool {
        self.current.or(self.parent).is_some_and(Correlated::is_unchanged)
    }

    /// For a value below, given its correlation.
    fn below<'c>(self, child: Option<&'c Correlated<'o>>) -> Ratchet<'c, 'o>
    where
        'r: 'c,
    {
        match self.current {
            Some(current) => Ratchet { current: child, parent: Some(current) },
            None => self,
        }
    }
}

struct Walk<'w> {
    environment: &'w k8s_cel::Environment,
    budget: i64,
    path: String,
    outcome: RuleOutcome,
}

/// Break: no further rules are evaluated.
type Flow = ControlFlow<()>;

impl Walk<'_> {
    /// Recursion is as deep as the schema, whose depth is limited.
    fn visit<'o>(&mut self, site: Site<'o>, ratchet: Ratchet<'_, 'o>) -> Flow {
        if let Some(rules) = site.node.rules() {
            self.node_rules(site, rules, ratchet)?;
        }
        match site.new {
            Part::Object(new) => {
                self.map_values(site, new, ratchet)?;
                self.fields(site, new, ratchet)
            }
            Part::Other(Value::Array(new)) => self.items(site, new, ratchet),
            Part::Other(_) => Flow::Continue(()),
        }
    }

    fn map_values<'o>(&mut self, site: Site<'o>, new: &'o JsonObject, ratchet: Ratchet<'_, 'o>) -> Flow {
        let (Some(node), Some(schema)) = (site.node.values.as_deref(), site.schema.additional_schema()) else {
            return Flow::Continue(());
        };
        for (key, value) in new {
            let length = self.path.len();
            self.path.push('[');
            self.path.push_str(key);
            self.path.push(']');
            self.field(site, node, schema, (key, value), ratchet)?;
            self.path.truncate(length);
        }
        Flow::Continue(())
    }

    fn fields<'o>(&mut self, site: Site<'o>, new: &'o JsonObject, ratchet: Ratchet<'_, 'o>) -> Flow {
        for (index, node) in &site.node.properties {
            let Some(property) = site.schema.properties().get(*index) else { continue };
            let Some(value) = new.get(property.name()) else { continue };
            let length = self.path.len();
            if length > 0 {
                self.path.push('.');
            }
            self.path.push_str(property.name());
            self.field(site, node, property.schema(), (property.name(), value), ratchet)?;
            self.path.truncate(length);
        }
        Flow::Continue(())
    }

    /// Visits a field of an object or a value of a map, whose path is the current one.
    fn field<'o>(
        &mut self,
        parent: Site<'o>,
        node: &'o RuleNode,
        schema: &'o SchemaNode,
        (name, value): (&'o str, &'o Value),
        ratchet: Ratchet<'_, 'o>,
    ) -> Flow {
        let Some(new) = Part::of(value) else { return Flow::Continue(()) };
        let old = parent.old.and_then(Part::object).and_then(|old| Part::of(old.get(name)?));
        let site = Site { node, schema, new, old };
        // Both objects were converted to one version: changes of these fields of the root are not visible.
        let is_root = ratchet.current.is_some() && ratchet.parent.is_none();
        if is_root && matches!(name, "apiVersion" | "kind") {
            return self.visit(site, Ratchet::NEVER);
        }
        let child = ratchet.current.and_then(|current| current.field(name));
        self.visit(site, ratchet.below(child.as_ref()))
    }

    fn items<'o>(&mut self, site: Site<'o>, new: &'o [Value], ratchet: Ratchet<'_, 'o>) -> Flow {
        let (Some(node), Some(schema)) = (site.node.items.as_deref(), site.schema.items()) else {
            return Flow::Continue(());
        };
        let old_items = OldItems::new(site.schema, site.old.and_then(Part::array));
        for (index, item) in new.iter().enumerate() {
            let Some(new) = Part::of(item) else { continue };
            let length = self.path.len();
            self.path.push_str(&format!("[{index}]"));
            let old = old_items.get(item).and_then(Part::of);
            let child = ratchet.current.and_then(|current| current.item(item, &old_items));
            self.visit(Site { node, schema, new, old }, ratchet.below(child.as_ref()))?;
            self.path.truncate(length);
        }
        Flow::Continue(())
    }

    fn node_rules<'o>(&mut self, site: Site<'o>, rules: &'o NodeRules, ratchet: Ratchet<'_, 'o>) -> Flow {
        let Some(compiled) = rules.compiled(site.schema, self.environment) else {
            let detail = "rule compiler initialization error: failed to convert to declType for CEL validation rules";
            self.refuse(site, detail);
            return Flow::Continue(());
        };
        if self.budget <= 0 {
            self.refuse(site, OUT_OF_BUDGET);
            return Flow::Break(());
        }
        let is_transition = |rule: &Option<Result<CompiledRule, String>>| {
            rule.as_ref().is_some_and(|rule| rule.as_ref().is_ok_and(|rule| rule.uses_old_self))
        };
        // Messages see the old value as it is, even where the rule sees an optional one.
        let message_old = site.old.filter(|_| compiled.iter().any(is_transition));
        for (compiled, rule) in compiled.iter().zip(site.schema.validation_rules()) {
            let compiled = match compiled {
                None => continue,
                Some(Err(detail)) => {
                    self.refuse(site, &format!("rule compile error: {detail}"));
                    continue;
                }
                Some(Ok(compiled)) => compiled,
            };
            if self.holds(site, rule, compiled)? == Some(false) {
                self.fail(site, rules, (rule, compiled), message_old, ratchet)?;
            }
        }
        Flow::Continue(())
    }

    /// The value of a rule; `None` if the rule does not apply, or has an error, which is recorded.
    fn holds(
        &mut self,
        site: Site<'_>,
        rule: &ValidationRule,
        compiled: &CompiledRule,
    ) -> ControlFlow<(), Option<bool>> {
        let is_optional = rule.optional_old_self == Some(true);
        if compiled.uses_old_self && site.old.is_none() && !is_optional {
            return ControlFlow::Continue(None);
        }
        let old = match site.old {
            Some(old) => Some(input(old)),
            None if is_optional => Some(Input::Value(CelValue::Optional(None))),
            None => None,
        };
        let mut inputs = vec![(SELF, input(site.new))];
        inputs.extend(old.map(|old| (OLD_SELF, old)));
        let outcome = compiled.program.evaluate(&Evaluation::new(&inputs));
        if !self.spend(outcome.cost) {
            self.refuse(site, OUT_OF_BUDGET);
            return ControlFlow::Break(());
        }
        match outcome.result {
            Ok(value) => ControlFlow::Continue(Some(value.as_bool() == Some(true))),
            Err(error) => self.rule_error(site, rule, &error),
        }
    }

    fn rule_error(
        &mut self,
        site: Site<'_>,
        rule: &ValidationRule,
        error: &EvalError,
    ) -> ControlFlow<(), Option<bool>> {
        let name = rule_name(rule);
        if error.is_cost_limit() {
            let detail = format!(
                "'{error}': no further validation rules will be run due to call cost exceeds limit for rule: {name}"
            );
            self.refuse(site, &detail);
            return ControlFlow::Break(());
        }
        let message = error.to_string();
        let detail = if message.starts_with("no such overload") {
            format!(
                "'{message}': call arguments did not match a supported operator, function or macro signature for rule: {name}"
            )
        } else {
            format!("{message} evaluating rule: {name}")
        };
        self.refuse(site, &detail);
        ControlFlow::Continue(None)
    }

    /// Takes a cost from the budget; false if too little is left.
    fn spend(&mut self, cost: u64) -> bool {
        match i64::try_from(cost) {
            Ok(cost) if cost <= self.budget => {
                self.budget -= cost;
                true
            }
            _ => false,
        }
    }

    /// Records that a rule is false.
    fn fail<'o>(
        &mut self,
        site: Site<'o>,
        rules: &'o NodeRules,
        (rule, compiled): (&ValidationRule, &'o CompiledRule),
        message_old: Option<Part<'o>>,
        ratchet: Ratchet<'_, 'o>,
    ) -> Flow {
        let is_warning = !compiled.uses_old_self && ratchet.is_unchanged();
        let path = self.failure_path(&compiled.field_path);
        let message = match &compiled.message {
            Some(Ok(program)) => self.message(site, rules, program, rule, message_old),
            Some(Err(_)) | None => Ok(None),
        };
        let message = match message {
            Ok(message) => message,
            Err(detail) => {
                self.record(FieldError::invalid(path, type_name(site.schema), detail), is_warning);
                return Flow::Break(());
            }
        };
        let detail = message.unwrap_or_else(|| default_message(rule));
        self.record(failure(path, site, &detail, rule.reason), is_warning);
        Flow::Continue(())
    }

    fn failure_path(&self, below: &str) -> String {
        match (self.path.is_empty(), below.is_empty()) {
            (true, true) => ROOT_PATH.to_owned(),
            (true, false) => below.to_owned(),
            (false, true) => self.path.clone(),
            (false, false) => format!("{}.{below}", self.path),
        }
    }

    fn record(&mut self, error: FieldError, is_warning: bool) {
        if is_warning {
            self.outcome.warnings.push(error.to_string());
        } else {
            self.outcome.errors.push(error);
        }
    }

    /// Evaluates the expression for a message. `None` means that the rule's text is used; the error ends the evaluation.
    fn message<'o>(
        &mut self,
        site: Site<'o>,
        rules: &'o NodeRules,
        program: &'o Program,
        rule: &ValidationRule,
        old: Option<Part<'o>>,
    ) -> Result<Option<String>, String> {
        let mut inputs = vec![(SELF, input(site.new))];
        let old = old.zip(rules.decl.as_ref()).and_then(|(old, decl)| match old {
            Part::Object(object) => decl.view_object(object).ok(),
            Part::Other(value) => decl.view(value).ok(),
        });
        inputs.extend(old.map(|old| (OLD_SELF, Input::Value(old))));
        let outcome = program.evaluate(&Evaluation::new(&inputs));
        if !self.spend(outcome.cost) {
            return Err(format!("messageExpression evaluation failed due to running out of cost budget, {NO_FURTHER}"));
        }
        let value = match outcome.result {
            Ok(value) => value,
            Err(error) if error.is_cost_limit() => {
                let expression = api::quote::Quoted(&rule.message_expression);
                return Err(format!("{NO_FURTHER} due to call cost exceeds limit for messageExpression: {expression}"));
            }
            Err(_) => return Ok(None),
        };
        let CelValue::String(message) = value else { return Ok(None) };
        let message = message.trim();
        let is_usable = !message.is_empty() && message.len() <= MESSAGE_BYTES_MAX && !message.contains('\n');
        Ok(is_usable.then(|| message.to_owned()))
    }

    /// Records an error of the node whose value is the node's type.
    fn refuse(&mut self, site: Site<'_>, detail: &str) {
        let path = self.failure_path("");
        self.outcome.errors.push(FieldError::invalid(path, type_name(site.schema), detail));
    }
}

const NO_FURTHER: &str = "no further validation rules will be run";

fn input(part: Part<'_>) -> Input<'_> {
    match part {
        Part::Object(object) => Input::Object(object),
        Part::Other(value) => Input::Json(value),
    }
}

fn type_name(schema: &SchemaNode) -> &'static str {
    schema.schema_type().map_or("", SchemaType::name)
}

/// How errors name a rule.
fn rule_name(rule: &ValidationRule) -> &str {
    if rule.message.is_empty() { rule.rule.trim() } else { rule.message.trim() }
}

fn default_message(rule: &ValidationRule) -> String {
    if rule.message.is_empty() { format!("failed rule: {}", rule.rule.trim()) } else { rule.message.trim().to_owned() }
}

fn failure(path: String, site: Site<'_>, detail: &str, reason: RuleReason) -> FieldError {
    let is_composite = matches!(site.schema.schema_type(), Some(SchemaType::Object | SchemaType::Array));
    let value = match site.new {
        _ if is_composite => Value::Null,
        Part::Other(value) => value.clone(),
        Part::Object(object) => Value::Object(object.clone()),
    };
    let error = match reason {
        RuleReason::Forbidden => return FieldError::forbidden(path, detail),
        RuleReason::Required => return FieldError::required(path, detail),
        RuleReason::Duplicate => FieldError::duplicate(path, value),
        RuleReason::Invalid => FieldError::invalid(path, value, detail),
    };
    if is_composite { error.without_value() } else { error }
}
