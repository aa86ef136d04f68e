//! Match conditions: expressions that decide whether a webhook is called.

use access::User;
use api::json::JsonObject;
use k8s_cel::{
    Authorizer, AuthorizerDecision, CheckAttributes, Environment, Evaluation, Input, Program, Type, Value as CelValue,
};
use kinds::expressions::{AdmissionVariables, declare_admission_variables};
use object::unstructured::{objects, text};
use serde_json::Value;

use super::FailurePolicy;
use super::configuration::Webhook;
use super::matching::Invocation;
use crate::attributes::Attributes;
use crate::chain::{Context, Write};
use crate::ports::Authorization;

/// Cost of all conditions of a webhook together, as in Kubernetes.
pub(crate) const CONDITIONS_COST_MAX: u64 = 2_500_000;
/// How the text of an exceeded budget starts.
pub(crate) const OUT_OF_BUDGET_START: &str = "validation failed due to running out of cost budget";
pub(crate) const OUT_OF_BUDGET: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

/// One condition.
#[derive(Debug)]
pub(crate) struct MatchCondition {
    expression: String,
    /// The text of an error is Kubernetes'.
    program: Result<Program, String>,
}

/// Whether a webhook is called.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ConditionVerdict {
    Match,
    NoMatch,
    /// The request is refused with this text.
    Failed(String),
}

pub(crate) fn compile_conditions(webhook: &JsonObject, release: k8s_cel::Release) -> Vec<MatchCondition> {
    let mut conditions = objects(webhook, &["matchConditions"]).peekable();
    if conditions.peek().is_none() {
        return Vec::new();
    }
    let environment = declare_admission_variables(
        Environment::for_stored_expressions(release),
        AdmissionVariables { params: false, authorizer: true },
    );
    conditions
        .map(|condition| {
            let expression = text(condition, &["expression"]).to_owned();
            let program = match environment.compile(&expression) {
                Ok(program) if matches!(program.output_type(), Type::Bool) => Ok(program),
                Ok(program) => Err(format!("must evaluate to bool but got {}", program.output_type())),
                Err(error) => Err(format!("compilation failed: {error}")),
            };
            MatchCondition { expression, program }
        })
        .collect()
}

/// Evaluates the conditions of a webhook, all of them as Kubernetes does: a false condition outweighs errors of other conditions.
pub(crate) fn evaluate(
    webhook: &Webhook,
    invocation: &Invocation,
    write: &Write<'_>,
    objects: [Option<&JsonObject>; 2],
    context: &Context<'_>,
) -> ConditionVerdict {
    let attributes = &write.attributes;
    let request = context.request_value(attributes, &invocation.kind);
    let authorizer = CelAuthorizer { authorization: context.authorization, user: attributes.user };
    let resource_check = resource_check(attributes);
    let [object, old_object] = objects.map(|object| object.map_or(Input::Json(&Value::Null), Input::Object));
    let variables = [
        ("object", object),
        ("oldObject", old_object),
        ("namespaceObject", Input::Json(&Value::Null)),
        ("request", Input::Json(&request)),
        ("authorizer", Input::Value(CelValue::authorizer())),
        ("authorizer.requestResource", Input::Value(CelValue::resource_check(resource_check))),
    ];
    let evaluation = Evaluation { authorizer: Some(&authorizer), ..Evaluation::new(&variables) };
    let mut budget = CONDITIONS_COST_MAX;
    let mut is_out_of_budget = false;
    let mut results = Vec::with_capacity(webhook.conditions.len());
    for condition in &webhook.conditions {
        let program = match &condition.program {
            Ok(program) => program,
            Err(error) => {
                results.push(Err(format!("compilation error: {error}")));
                continue;
            }
        };
        let outcome = program.evaluate(&evaluation);
        if outcome.cost > budget {
            is_out_of_budget = true;
            break;
        }
        budget -= outcome.cost;
        results.push(match outcome.result {
            Ok(value) => Ok(value.as_bool() != Some(false)),
            Err(error) => Err(format!("expression '{}' resulted in error: {error}", condition.expression)),
        });
    }
    let errors: Vec<&String> = results.iter().filter_map(|result| result.as_ref().err()).collect();
    let failure = if is_out_of_budget {
        OUT_OF_BUDGET.to_owned()
    } else if results.contains(&Ok(false)) {
        return ConditionVerdict::NoMatch;
    } else {
        match aggregate(&errors) {
            None => return ConditionVerdict::Match,
            Some(errors) => errors,
        }
    };
    match webhook.failure_policy {
        FailurePolicy::Fail => ConditionVerdict::Failed(failure),
        FailurePolicy::Ignore => ConditionVerdict::NoMatch,
    }
}

/// The check that `authorizer.requestResource` starts with.
pub(crate) fn resource_check(attributes: &Attributes<'_>) -> CheckAttributes {
    CheckAttributes {
        group: attributes.resource.group.to_owned(),
        resource: attributes.resource.resource.to_owned(),
        subresource: attributes.subresource.to_owned(),
        namespace: attributes.namespace.to_owned(),
        name: attributes.name.to_owned(),
        ..CheckAttributes::default()
    }
}

/// Like Kubernetes' aggregate of errors: `[a, b]`, each once; one stands alone.
pub(crate) fn aggregate(errors: &[impl AsRef<str>]) -> Option<String> {
    let mut distinct: Vec<&str> = Vec::new();
    for error in errors.iter().map(AsRef::as_ref) {
        if !distinct.contains(&error) {
            distinct.push(error);
        }
    }
    match &*distinct {
        [] => None,
        [one] => Some((*one).to_owned()),
        several => Some(format!("[{}]", several.join(", "))),
    }
}

pub(crate) struct CelAuthorizer<'a> {
    pub(crate) authorization: &'a dyn Authorization,
    pub(crate) user: &'a User,
}

impl Authorizer for CelAuthorizer<'_> {
    fn authorize(&self, attributes: &CheckAttributes) -> AuthorizerDecision {
        self.authorization.decide(self.user, attributes)
    }
}
