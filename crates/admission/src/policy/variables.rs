//! What expressions of a policy see: the variables of one run, and whether its match conditions hold.

use std::rc::Rc;

use api::json::JsonObject;
use api::{GroupResource, Status};
use k8s_cel::{Input, Value as CelValue};
use serde_json::Value;

use super::expressions::VariableValues;
use super::set::Policy;
use crate::chain::{Clock, Context, Write};
use crate::refusal::Refusal;
use crate::webhook::matching::Invocation;
use crate::webhook::{CONDITIONS_COST_MAX, CelAuthorizer, FailurePolicy, aggregate, resource_check};

/// Cost of all expressions of one run: a policy with a binding and a param.
pub(super) const RUN_COST_MAX: u64 = 10_000_000;

/// One run of a policy, with a binding and a param.
pub(super) struct Run<'a> {
    /// The new and the old one.
    objects: [Option<&'a JsonObject>; 2],
    params: Option<&'a JsonObject>,
    request: Rc<Value>,
    /// The request as match conditions see it, with the resource of the request; `None` if that is the one that matched.
    request_of_conditions: Option<Rc<Value>>,
    request_resource: k8s_cel::CheckAttributes,
    pub(super) authorizer: CelAuthorizer<'a>,
    pub(super) clock: Clock,
}

/// The namespace of a request, if its object is in one.
pub(super) fn namespace_of<'c>(write: &Write<'_>, context: &'c Context<'_>) -> Result<Option<&'c JsonObject>, Refusal> {
    let attributes = &write.attributes;
    let is_namespace = attributes.kind.group.is_empty() && attributes.kind.kind == "Namespace";
    if attributes.namespace.is_empty() || is_namespace {
        return Ok(None);
    }
    let namespaces = GroupResource { group: "", resource: "namespaces" };
    match context.namespace(attributes)? {
        Some(namespace) => Ok(Some(namespace)),
        None => Err(Status::not_found(namespaces, attributes.namespace).into()),
    }
}

/// The namespace as expressions see it: without the kind, as objects of all built-in types.
pub(super) fn whole_namespace(namespace: &JsonObject) -> JsonObject {
    let mut shown = namespace.clone();
    shown.remove("kind");
    shown.remove("apiVersion");
    shown
}

/// The namespace as validations see it.
pub(super) fn shown_namespace(namespace: &JsonObject) -> JsonObject {
    let mut shown = whole_namespace(namespace);
    let metadata = object::unstructured::metadata_mut(&mut shown);
    for hidden in ["managedFields", "ownerReferences", "selfLink"] {
        metadata.remove(hidden);
    }
    shown
}

fn input(object: Option<&JsonObject>) -> Input<'_> {
    object.map_or(Input::Json(&Value::Null), Input::Object)
}

impl<'a> Run<'a> {
    pub(super) fn new(
        write: &Write<'a>,
        invocation: &Invocation,
        objects: [Option<&'a JsonObject>; 2],
        params: Option<&'a JsonObject>,
        context: &Context<'a>,
    ) -> Self {
        let mut request = context.request_value(&write.attributes, &invocation.kind);
        let resource = invocation.resource.borrowed();
        let request_of_conditions = (resource != write.attributes.resource).then(|| request.clone());
        if request_of_conditions.is_some() {
            Rc::make_mut(&mut request)["resource"] = serde_json::json!({
                "group": resource.group, "version": resource.version, "resource": resource.resource,
            });
        }
        Self {
            objects,
            params,
            request,
            request_of_conditions,
            request_resource: resource_check(&write.attributes),
            authorizer: CelAuthorizer { authorization: context.authorization, user: write.attributes.user },
            clock: context.clock,
        }
    }

    /// The variables, but for those of the policy. Without authorizer its variables are absent.
    pub(super) fn inputs<'r>(&'r self, namespace: &'r Value, has_authorizer: bool) -> Vec<(&'r str, Input<'r>)> {
        self.inputs_with(&self.request, namespace, has_authorizer)
    }

    fn inputs_with<'r>(
        &'r self,
        request: &'r Value,
        namespace: &'r Value,
        has_authorizer: bool,
    ) -> Vec<(&'r str, Input<'r>)> {
        let namespace = if namespace.is_null() { Input::Value(CelValue::Null) } else { Input::Json(namespace) };
        let mut inputs = vec![
            ("object", input(self.objects[0])),
            ("oldObject", input(self.objects[1])),
            ("params", input(self.params)),
            ("request", Input::Json(request)),
            ("namespaceObject", namespace),
        ];
        if has_authorizer {
            inputs.push(("authorizer", Input::Value(CelValue::authorizer())));
            let check = CelValue::resource_check(self.request_resource.clone());
            inputs.push(("authorizer.requestResource", Input::Value(check)));
        }
        inputs
    }

    /// True if the match conditions hold; `Err` with Kubernetes' text if that is not known and failures count.
    pub(super) fn is_matched(&self, policy: &Policy) -> Result<bool, String> {
        if policy.conditions.is_empty() {
            return Ok(true);
        }
        let request = self.request_of_conditions.as_ref().unwrap_or(&self.request);
        let inputs = self.inputs_with(request, &Value::Null, true);
        let values = VariableValues::new(&policy.variables, &inputs, Some(&self.authorizer), self.clock);
        let all = with_lazy(&inputs, &values);
        let mut budget = CONDITIONS_COST_MAX;
        let evaluated =
            values.evaluate_all(policy.conditions.iter().map(Some), &all, Some(&self.authorizer), &mut budget);
        let failure = match evaluated {
            Err(error) => Some(error),
            Ok(results) => {
                let mut errors = Vec::new();
                for evaluated in results.into_iter().flatten() {
                    match evaluated.result {
                        Ok(value) if value.as_bool() == Some(false) => return Ok(false),
                        Ok(_) => {}
                        Err(error) => errors.push(error),
                    }
                }
                aggregate(&errors)
            }
        };
        match (failure, policy.failure_policy) {
            (None, _) => Ok(true),
            (Some(_), FailurePolicy::Ignore) => Ok(false),
            (Some(error), FailurePolicy::Fail) => Err(error),
        }
    }
}

/// Adds the variables of the policy.
pub(super) fn with_lazy<'r>(
    inputs: &'r [(&'r str, Input<'r>)],
    values: &'r VariableValues<'r>,
) -> Vec<(&'r str, Input<'r>)> {
    let mut all = inputs.to_vec();
    all.push(("variables", Input::Lazy(values)));
    all
}
