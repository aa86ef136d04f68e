//! Authorization checks: `authorizer.group('').resource('pods').check('list').allowed()`. The caller answers them.

use crate::error::EvalError;
use crate::eval::{Context, Evaluated, Invocation};
use crate::function::Function;
use crate::library::{Opaque, format};
use crate::value::Value;

/// Answers authorization checks.
pub trait Authorizer: Sync {
    /// Decides one check.
    fn authorize(&self, attributes: &CheckAttributes) -> AuthorizerDecision;
}

/// What is checked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckAttributes {
    /// Namespace and name of the service account, or nothing for the user of the request.
    pub service_account: Option<(String, String)>,
    /// The path of a check of a path; all other fields but the verb are empty then.
    pub path: Option<String>,
    /// The verb.
    pub verb: String,
    /// API group.
    pub group: String,
    /// Resource.
    pub resource: String,
    /// Subresource, or empty.
    pub subresource: String,
    /// Namespace, or empty.
    pub namespace: String,
    /// Name, or empty.
    pub name: String,
    /// Field selector as written, or empty.
    pub field_selector: String,
    /// Label selector as written, or empty.
    pub label_selector: String,
}

/// The answer to a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuthorizerDecision {
    /// True if the request may proceed.
    pub allowed: bool,
    /// The authorizer's reason.
    pub reason: String,
    /// What went wrong, if something did.
    pub error: Option<String>,
}

/// A value of the authorization library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Authorization {
    /// The `authorizer` variable, or one for a service account.
    Authorizer(Box<CheckAttributes>),
    /// A check of a path.
    PathCheck(Box<CheckAttributes>),
    /// A check within a group.
    GroupCheck(Box<CheckAttributes>),
    /// A check of a resource.
    ResourceCheck(Box<CheckAttributes>),
    /// An answer.
    Decision(Box<AuthorizerDecision>),
}

impl Authorization {
    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Authorization::Authorizer(_) => "kubernetes.authorization.Authorizer",
            Authorization::PathCheck(_) => "kubernetes.authorization.PathCheck",
            Authorization::GroupCheck(_) => "kubernetes.authorization.GroupCheck",
            Authorization::ResourceCheck(_) => "kubernetes.authorization.ResourceCheck",
            Authorization::Decision(_) => "kubernetes.authorization.Decision",
        }
    }
}

impl Value<'_> {
    /// The value of the `authorizer` variable.
    pub fn authorizer() -> Self {
        Value::opaque(Opaque::Authorization(Authorization::Authorizer(Box::default())))
    }

    /// The value of the `authorizer.requestResource` variable.
    pub fn resource_check(attributes: CheckAttributes) -> Self {
        Value::opaque(Opaque::Authorization(Authorization::ResourceCheck(Box::new(attributes))))
    }
}

pub(crate) fn call<'a>(context: &mut Context<'a>, call: &Invocation<'_, 'a>) -> Evaluated<'a> {
    let Value::Opaque(opaque) = &call.args[0] else { return Err(call.no_overload()) };
    let Opaque::Authorization(target) = &**opaque else { return Err(call.no_overload()) };
    let built = match (target, call.function) {
        (Authorization::Authorizer(attributes), _) => from_authorizer(call, attributes)?,
        (Authorization::GroupCheck(attributes), Function::Resource) => {
            let resource = call.text(1)?;
            if resource.trim().is_empty() {
                return Err(EvalError::new("resource must not be empty"));
            }
            let resource = resource.to_owned();
            Authorization::ResourceCheck(Box::new(CheckAttributes { resource, ..(**attributes).clone() }))
        }
        (Authorization::ResourceCheck(attributes) | Authorization::PathCheck(attributes), Function::Check) => {
            check(context, attributes, call.text(1)?)?
        }
        (Authorization::ResourceCheck(attributes), _) => {
            Authorization::ResourceCheck(Box::new(narrowed(call, attributes)?))
        }
        (Authorization::Decision(decision), _) => return answer(call, decision),
        _ => return Err(call.no_overload()),
    };
    Ok(Value::opaque(Opaque::Authorization(built)))
}

fn from_authorizer(call: &Invocation<'_, '_>, attributes: &CheckAttributes) -> Result<Authorization, EvalError> {
    let mut next = attributes.clone();
    match call.function {
        Function::Path => {
            let path = call.text(1)?;
            if path.trim().is_empty() {
                return Err(EvalError::new("path must not be empty"));
            }
            next.path = Some(path.to_owned());
            Ok(Authorization::PathCheck(Box::new(next)))
        }
        Function::Group => {
            call.text(1)?.clone_into(&mut next.group);
            Ok(Authorization::GroupCheck(Box::new(next)))
        }
        Function::ServiceAccount => {
            let (namespace, name) = (call.text(1)?, call.text(2)?);
            if !format::is_dns_subdomain(name) {
                return Err(EvalError::new("Invalid service account name"));
            }
            if !format::is_dns_label(namespace) {
                return Err(EvalError::new("Invalid service account namespace"));
            }
            next.service_account = Some((namespace.to_owned(), name.to_owned()));
            Ok(Authorization::Authorizer(Box::new(next)))
        }
        _ => Err(call.no_overload()),
    }
}

fn narrowed(call: &Invocation<'_, '_>, attributes: &CheckAttributes) -> Result<CheckAttributes, EvalError> {
    let mut next = attributes.clone();
    let field = match call.function {
        Function::Subresource => &mut next.subresource,
        Function::Namespace => &mut next.namespace,
        Function::ResourceName => &mut next.name,
        Function::FieldSelector => &mut next.field_selector,
        Function::LabelSelector => &mut next.label_selector,
        _ => return Err(call.no_overload()),
    };
    call.text(1)?.clone_into(field);
    Ok(next)
}

fn check(context: &mut Context<'_>, attributes: &CheckAttributes, verb: &str) -> Result<Authorization, EvalError> {
    let Some(authorizer) = context.authorizer else {
        return Err(EvalError::new("no authorizer is available for this evaluation"));
    };
    let attributes = CheckAttributes { verb: verb.to_owned(), ..attributes.clone() };
    Ok(Authorization::Decision(Box::new(authorizer.authorize(&attributes))))
}

fn answer<'a>(call: &Invocation<'_, 'a>, decision: &AuthorizerDecision) -> Evaluated<'a> {
    Ok(match call.function {
        Function::Allowed => Value::Bool(decision.allowed),
        Function::Reason => Value::from(decision.reason.clone()),
        Function::Errored => Value::Bool(decision.error.is_some()),
        Function::DecisionError => Value::from(decision.error.clone().unwrap_or_default()),
        _ => return Err(call.no_overload()),
    })
}
