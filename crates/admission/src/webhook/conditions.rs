//! Match conditions: expressions that decide whether a webhook is called.

use std::sync::Arc;

use access::User;
use api::json::JsonObject;
use k8s_cel::{
    Authorizer, AuthorizerDecision, CheckAttributes, DeclType, Environment, Evaluation, Field, Input, ListKind,
    Program, Type, Value as CelValue,
};
use object::unstructured::{objects, text};
use serde_json::Value;

use super::FailurePolicy;
use super::configuration::Webhook;
use super::matching::Invocation;
use crate::chain::{Context, Write};
use crate::ports::Authorization;

/// Cost of all conditions of a webhook together, as in Kubernetes.
const CONDITIONS_COST_MAX: u64 = 2_500_000;
const OUT_OF_BUDGET: &str =
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
    let environment = declare_admission_variables(Environment::for_stored_expressions(release));
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

/// Declares what expressions of admission can use: `object`, `oldObject`, `request`, `namespaceObject`, `authorizer`.
pub fn declare_admission_variables(environment: Environment) -> Environment {
    environment
        .variable("object", DeclType::dynamic())
        .variable("oldObject", DeclType::dynamic())
        .shared_variable("namespaceObject", Arc::new(namespace_type()))
        .shared_variable("request", Arc::new(request_type()))
        .variable("authorizer", DeclType::library("kubernetes.authorization.Authorizer"))
        .variable("authorizer.requestResource", DeclType::library("kubernetes.authorization.ResourceCheck"))
}

fn string() -> DeclType {
    DeclType::string(None)
}

fn strings() -> DeclType {
    DeclType::list(string(), None, ListKind::Atomic)
}

fn request_type() -> DeclType {
    let kind = || {
        let fields = ["group", "version", "kind"].map(|name| Field::new(name, string()).required());
        DeclType::named_object("kubernetes.GroupVersionKind", fields)
    };
    let resource = || {
        let fields = ["group", "version", "resource"].map(|name| Field::new(name, string()).required());
        DeclType::named_object("kubernetes.GroupVersionResource", fields)
    };
    let user = DeclType::named_object(
        "kubernetes.UserInfo",
        [
            Field::new("username", string()),
            Field::new("uid", string()),
            Field::new("groups", strings()),
            Field::new("extra", DeclType::map(strings(), None)),
        ],
    );
    let fields = [
        Field::new("kind", kind()).required(),
        Field::new("resource", resource()).required(),
        Field::new("subResource", string()),
        Field::new("requestKind", kind()).required(),
        Field::new("requestResource", resource()).required(),
        Field::new("requestSubResource", string()),
        Field::new("name", string()).required(),
        Field::new("namespace", string()),
        Field::new("operation", string()).required(),
        Field::new("userInfo", user).required(),
        Field::new("dryRun", DeclType::bool()),
        Field::new("options", DeclType::dynamic()),
    ];
    DeclType::named_object("kubernetes.AdmissionRequest", fields)
}

fn namespace_type() -> DeclType {
    let required = |name: &str, decl| Field::new(name, decl).required();
    let labels = || DeclType::map(string(), None);
    let spec = DeclType::named_object("kubernetes.NamespaceSpec", [required("finalizers", strings())]);
    let condition = DeclType::named_object(
        "kubernetes.NamespaceCondition",
        [
            required("status", string()),
            required("type", string()),
            required("lastTransitionTime", DeclType::date_time()),
            required("message", string()),
            required("reason", string()),
        ],
    );
    let conditions = DeclType::list(condition, None, ListKind::Atomic);
    let status = DeclType::named_object(
        "kubernetes.NamespaceStatus",
        [required("conditions", conditions), required("phase", string())],
    );
    let metadata = DeclType::named_object(
        "kubernetes.NamespaceMetadata",
        [
            required("name", string()),
            required("generateName", string()),
            required("namespace", string()),
            required("labels", labels()),
            required("annotations", labels()),
            required("UID", string()),
            required("creationTimestamp", DeclType::date_time()),
            required("deletionGracePeriodSeconds", DeclType::int()),
            required("deletionTimestamp", DeclType::date_time()),
            required("generation", DeclType::int()),
            required("resourceVersion", string()),
            required("finalizers", strings()),
        ],
    );
    DeclType::named_object(
        "kubernetes.Namespace",
        [required("metadata", metadata), required("spec", spec), required("status", status)],
    )
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
    let request = super::review::request_value(attributes, invocation);
    let authorizer = CelAuthorizer { authorization: context.authorization, user: attributes.user };
    let resource_check = CheckAttributes {
        group: attributes.resource.group.to_owned(),
        resource: attributes.resource.resource.to_owned(),
        subresource: attributes.subresource.to_owned(),
        namespace: attributes.namespace.to_owned(),
        name: attributes.name.to_owned(),
        ..CheckAttributes::default()
    };
    let input = |object: Option<&'_ JsonObject>| object.map_or(Value::Null, |object| Value::Object(object.clone()));
    let [object, old_object] = objects.map(input);
    let variables = [
        ("object", Input::Json(&object)),
        ("oldObject", Input::Json(&old_object)),
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

struct CelAuthorizer<'a> {
    authorization: &'a dyn Authorization,
    user: &'a User,
}

impl Authorizer for CelAuthorizer<'_> {
    fn authorize(&self, attributes: &CheckAttributes) -> AuthorizerDecision {
        self.authorization.decide(self.user, attributes)
    }
}
