//! Compiled expressions of a policy, and their evaluation within a budget.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use k8s_cel::{Authorizer, Environment, EvalError, Evaluation, Input, LazyFields, Program, Type, Value};
use kinds::expressions::{AdmissionVariables, DefinedVariables, declare_admission_variables};

use crate::chain::Clock;
use crate::webhook::OUT_OF_BUDGET;

/// Variables that refer to each other deeper than this are an error, because their evaluation recurses.
const VARIABLE_DEPTH_MAX: usize = 50;

/// An expression, compiled once.
#[derive(Debug)]
pub(crate) struct Expression {
    pub(crate) text: String,
    /// The text of an error is Kubernetes'.
    pub(crate) program: Result<Program, String>,
}

/// A variable of a policy.
#[derive(Debug)]
pub(crate) struct Variable {
    name: String,
    expression: Expression,
}

/// Compiles the expressions of one policy.
pub(crate) struct Compiler {
    release: k8s_cel::Release,
    has_params: bool,
    variables: DefinedVariables,
}

impl Compiler {
    pub(crate) fn new(release: k8s_cel::Release, has_params: bool) -> Self {
        Self { release, has_params, variables: DefinedVariables::default() }
    }

    /// What an expression can use.
    pub(crate) fn environment(&self, expression: &str, authorizer: bool) -> Environment {
        let variables = AdmissionVariables { params: self.has_params, authorizer };
        let base = Environment::for_stored_expressions(self.release);
        self.variables.declare_for(expression, declare_admission_variables(base, variables))
    }

    /// Compiles an expression that must evaluate to a type; `wanted` names it in the error.
    pub(crate) fn compile(&self, text: &str, is_accepted: impl Fn(&Type) -> bool, wanted: &str) -> Expression {
        Expression::compile(text, &self.environment(text, true), is_accepted, wanted)
    }

    /// Compiles a variable, which later expressions can use.
    pub(crate) fn variable(&mut self, name: &str, text: &str) -> Variable {
        let expression = Expression::compile(text, &self.environment(text, true), |_| true, "");
        self.variables.define(name, expression.program.as_ref().ok().map(|program| program.output_type()));
        Variable { name: name.to_owned(), expression }
    }
}

impl Expression {
    /// Compiles an expression that must evaluate to a type; `wanted` names it in the error.
    pub(crate) fn compile(
        text: &str,
        environment: &Environment,
        is_accepted: impl Fn(&Type) -> bool,
        wanted: &str,
    ) -> Self {
        let program = match environment.compile(text) {
            Ok(program) if is_accepted(program.output_type()) => Ok(program),
            Ok(program) => Err(format!("must evaluate to {wanted} but got {}", program.output_type())),
            Err(error) => Err(format!("compilation failed: {error}")),
        };
        Self { text: text.to_owned(), program }
    }
}

/// The values of variables, each evaluated at its first use.
pub(crate) struct VariableValues<'a> {
    variables: &'a [Variable],
    inputs: &'a [(&'a str, Input<'a>)],
    authorizer: Option<&'a dyn Authorizer>,
    cells: Vec<OnceLock<Result<Value<'a>, EvalError>>>,
    /// Cost since it was last taken.
    cost: AtomicU64,
    depth: AtomicUsize,
    clock: Clock,
}

/// The result of an expression, and how long its evaluation took. The text of an error is Kubernetes'.
pub(crate) struct Evaluated<'e> {
    pub(crate) result: Result<Value<'e>, String>,
    pub(crate) elapsed: Duration,
}

/// The variables that one of them can use: those before it.
struct Earlier<'v, 'a> {
    values: &'v VariableValues<'a>,
    count: usize,
}

impl<'a> VariableValues<'a> {
    pub(crate) fn new(
        variables: &'a [Variable],
        inputs: &'a [(&'a str, Input<'a>)],
        authorizer: Option<&'a dyn Authorizer>,
        clock: Clock,
    ) -> Self {
        let cells = variables.iter().map(|_| OnceLock::new()).collect();
        Self { variables, inputs, authorizer, cells, cost: AtomicU64::new(0), depth: AtomicUsize::new(0), clock }
    }

    fn value(&self, name: &str, count: usize) -> Option<Result<Value<'a>, EvalError>> {
        let at = self.variables[..count].iter().rposition(|variable| variable.name == name)?;
        Some(self.cells[at].get_or_init(|| self.compute(at)).clone())
    }

    fn compute(&self, at: usize) -> Result<Value<'a>, EvalError> {
        let Variable { name, expression } = &self.variables[at];
        let fails = |what: &str, error: String| {
            EvalError::new(format!("composited variable {name:?} fails to {what}: {error}"))
        };
        let program = expression.program.as_ref().map_err(|error| fails("compile", error.clone()))?;
        let charge = |cost| self.cost.fetch_add(cost, Ordering::Relaxed);
        if !program.uses("variables") {
            let evaluation = Evaluation { authorizer: self.authorizer, ..Evaluation::new(self.inputs) };
            let outcome = program.evaluate(&evaluation);
            charge(outcome.cost);
            return outcome.result.map_err(|error| fails("evaluate", error.to_string()));
        }
        if self.depth.fetch_add(1, Ordering::Relaxed) >= VARIABLE_DEPTH_MAX {
            return Err(fails("evaluate", "variables refer to each other too deeply".to_owned()));
        }
        let earlier = Earlier { values: self, count: at };
        let mut inputs = self.inputs.to_vec();
        inputs.push(("variables", Input::Lazy(&earlier)));
        let evaluation = Evaluation { authorizer: self.authorizer, ..Evaluation::new(&inputs) };
        let outcome = program.evaluate(&evaluation);
        charge(outcome.cost);
        let result = outcome.result.and_then(Value::into_owned);
        self.depth.fetch_sub(1, Ordering::Relaxed);
        result.map_err(|error| fails("evaluate", error.to_string()))
    }

    /// Evaluates expressions one after the other. An expression that is absent has no result. `Err` if the budget is
    /// used up.
    pub(crate) fn evaluate_all<'e>(
        &'e self,
        expressions: impl Iterator<Item = Option<&'e Expression>>,
        inputs: &'e [(&'e str, Input<'e>)],
        authorizer: Option<&'e dyn Authorizer>,
        budget: &mut u64,
    ) -> Result<Vec<Option<Evaluated<'e>>>, String> {
        let mut results = Vec::new();
        for expression in expressions {
            let Some(expression) = expression else {
                results.push(None);
                continue;
            };
            let program = match &expression.program {
                Ok(program) => program,
                Err(error) => {
                    let result = Err(format!("compilation error: {error}"));
                    results.push(Some(Evaluated { result, elapsed: Duration::ZERO }));
                    continue;
                }
            };
            let started = (self.clock)();
            let outcome = program.evaluate(&Evaluation { authorizer, ..Evaluation::new(inputs) });
            let elapsed = (self.clock)().saturating_sub(started);
            let cost = self.cost.swap(0, Ordering::Relaxed).saturating_add(outcome.cost);
            *budget = budget.checked_sub(cost).ok_or_else(|| OUT_OF_BUDGET.to_owned())?;
            let failed = |error| format!("expression '{}' resulted in error: {error}", expression.text);
            results.push(Some(Evaluated { result: outcome.result.map_err(failed), elapsed }));
        }
        Ok(results)
    }
}

impl LazyFields for VariableValues<'_> {
    fn field(&self, name: &str) -> Option<Result<Value<'_>, EvalError>> {
        self.value(name, self.variables.len())
    }
}

impl LazyFields for Earlier<'_, '_> {
    fn field(&self, name: &str) -> Option<Result<Value<'_>, EvalError>> {
        self.values.value(name, self.count)
    }
}
