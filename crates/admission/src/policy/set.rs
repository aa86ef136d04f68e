//! Policies and bindings as one compiled snapshot.

use std::collections::HashMap;
use std::sync::Arc;

use api::json::JsonObject;
use k8s_cel::Type;
use object::unstructured::{metadata_string, nested_object, objects, text, texts};

use super::expressions::{Compiler, Expression, Variable};
use super::params::{ParamKind, ParamRef};
use crate::candidates::CandidateIndex;
use crate::chain::{Context, Write};
use crate::compiled::{StateId, reuse};
use crate::webhook::{FailurePolicy, MatchCriteria};

/// All policies and bindings of one revision.
#[derive(Debug, Default)]
pub struct PolicySet {
    pub(super) validating: PolicyList,
    pub(super) mutating: PolicyList,
}

/// Policies of a kind that have a binding, in the order of their names.
#[derive(Debug, Default)]
pub(super) struct PolicyList {
    policies: Vec<BoundPolicy>,
    /// Positions of the policies.
    index: CandidateIndex,
    /// Everything that was compiled, with or without binding, so that only what changed is compiled again.
    compiled: HashMap<StateId, Arc<Policy>>,
    read: HashMap<StateId, Arc<Binding>>,
}

/// A policy with its bindings in the order of their names.
#[derive(Debug)]
pub(super) struct BoundPolicy {
    pub(super) policy: Arc<Policy>,
    pub(super) bindings: Vec<Arc<Binding>>,
}

#[derive(Debug)]
pub(super) struct Policy {
    pub(super) name: String,
    pub(super) failure_policy: FailurePolicy,
    /// `None` if the policy has none, which validation refuses.
    pub(super) criteria: Option<MatchCriteria>,
    pub(super) param_kind: Option<ParamKind>,
    pub(super) conditions: Vec<Expression>,
    pub(super) variables: Vec<Variable>,
    pub(super) rules: PolicyRules,
}

#[derive(Debug)]
pub(super) enum PolicyRules {
    Validating { validations: Vec<Validation>, annotations: Vec<(String, Expression)> },
    Mutating { mutations: Vec<Mutation>, is_reinvoked: bool },
}

#[derive(Debug)]
pub(super) struct Validation {
    pub(super) expression: Expression,
    pub(super) message: String,
    pub(super) message_expression: Option<Expression>,
    pub(super) reason: String,
}

#[derive(Debug)]
pub(super) struct Mutation {
    pub(super) is_json_patch: bool,
    pub(super) expression: Expression,
}

#[derive(Debug)]
pub(super) struct Binding {
    pub(super) name: String,
    policy: String,
    /// `None` if the binding does not restrict the policy.
    pub(super) criteria: Option<MatchCriteria>,
    pub(super) param_ref: Option<ParamRef>,
    pub(super) actions: Vec<String>,
}

impl PolicySet {
    /// The policies and bindings of a later revision, in any order and version. What did not change is taken from this
    /// set; the rest is read and compiled. An object that cannot be read is left out.
    pub fn update<R>(
        &self,
        validating: [Vec<(StateId, R)>; 2],
        mutating: [Vec<(StateId, R)>; 2],
        release: k8s_cel::Release,
    ) -> Self
    where
        R: FnOnce() -> Option<JsonObject>,
    {
        Self {
            validating: self.validating.update(validating, false, release),
            mutating: self.mutating.update(mutating, true, release),
        }
    }
}

impl PolicyList {
    fn update<R>(
        &self,
        [policies, bindings]: [Vec<(StateId, R)>; 2],
        is_mutating: bool,
        release: k8s_cel::Release,
    ) -> Self
    where
        R: FnOnce() -> Option<JsonObject>,
    {
        let compiled = reuse(&self.compiled, policies, |policy| Policy::compile(policy, is_mutating, release));
        let read = reuse(&self.read, bindings, Binding::read);
        let mut list = Self { compiled, read, ..Self::default() };
        let mut bindings_of: HashMap<&str, Vec<&Arc<Binding>>> = HashMap::new();
        for binding in list.read.values() {
            bindings_of.entry(&binding.policy).or_default().push(binding);
        }
        for policy in list.compiled.values() {
            let Some(bindings) = bindings_of.remove(policy.name.as_str()) else { continue };
            let mut bindings: Vec<Arc<Binding>> = bindings.into_iter().cloned().collect();
            bindings.sort_by(|one, other| one.name.cmp(&other.name));
            list.policies.push(BoundPolicy { policy: policy.clone(), bindings });
        }
        list.policies.sort_by(|one, other| one.policy.name.cmp(&other.policy.name));
        for (position, BoundPolicy { policy, .. }) in list.policies.iter().enumerate() {
            match &policy.criteria {
                Some(criteria) => list.index.add(position, criteria),
                // It is an error of every write.
                None => list.index.add_unconditional(position),
            }
        }
        list
    }

    /// The policies that can match a write.
    pub(super) fn candidates(&self, write: &Write<'_>, context: &Context<'_>) -> Vec<&BoundPolicy> {
        let positions = self.index.find(write, write.object.as_ref(), context);
        positions.into_iter().map(|position| &self.policies[position]).collect()
    }
}

impl Binding {
    fn read(binding: &JsonObject) -> Self {
        let criteria = nested_object(binding, &["spec", "matchResources"]).map(|resources| {
            let criteria = MatchCriteria::read(resources, "resourceRules");
            MatchCriteria { is_of_all_resources: criteria.rules.is_empty(), ..criteria }
        });
        Self {
            name: metadata_string(binding, "name").to_owned(),
            policy: text(binding, &["spec", "policyName"]).to_owned(),
            criteria,
            param_ref: nested_object(binding, &["spec", "paramRef"]).map(ParamRef::read),
            actions: texts(binding, &["spec", "validationActions"]).map(str::to_owned).collect(),
        }
    }
}

impl Policy {
    fn compile(policy: &JsonObject, is_mutating: bool, release: k8s_cel::Release) -> Self {
        let spec = nested_object(policy, &["spec"]).cloned().unwrap_or_default();
        let param_kind = nested_object(&spec, &["paramKind"]).map(ParamKind::read);
        let mut compiler = Compiler::new(release, param_kind.is_some());
        let variables: Vec<Variable> = objects(&spec, &["variables"])
            .map(|variable| compiler.variable(text(variable, &["name"]), text(variable, &["expression"])))
            .collect();
        let is_bool = |found: &Type| matches!(found, Type::Bool);
        let conditions = objects(&spec, &["matchConditions"])
            .map(|condition| compiler.compile(text(condition, &["expression"]), is_bool, "bool"))
            .collect();
        let rules = if is_mutating { mutating_rules(&spec, &compiler) } else { validating_rules(&spec, &compiler) };
        Self {
            name: metadata_string(policy, "name").to_owned(),
            failure_policy: match text(&spec, &["failurePolicy"]) {
                "Ignore" => FailurePolicy::Ignore,
                _ => FailurePolicy::Fail,
            },
            criteria: nested_object(&spec, &["matchConstraints"]).map(|it| MatchCriteria::read(it, "resourceRules")),
            param_kind,
            conditions,
            variables,
            rules,
        }
    }
}

fn validating_rules(spec: &JsonObject, compiler: &Compiler) -> PolicyRules {
    let is_bool = |found: &Type| matches!(found, Type::Bool);
    let is_string = |found: &Type| matches!(found, Type::String);
    let validations = objects(spec, &["validations"])
        .map(|validation| {
            let of_message = text(validation, &["messageExpression"]);
            Validation {
                expression: compiler.compile(text(validation, &["expression"]), is_bool, "bool"),
                message: text(validation, &["message"]).to_owned(),
                message_expression: (!of_message.is_empty()).then(|| {
                    let environment = compiler.environment(of_message, false);
                    Expression::compile(of_message, &environment, is_string, "string")
                }),
                reason: text(validation, &["reason"]).to_owned(),
            }
        })
        .collect();
    let is_text_or_null = |found: &Type| matches!(found, Type::String | Type::Null);
    let annotations = objects(spec, &["auditAnnotations"])
        .map(|annotation| {
            let value = text(annotation, &["valueExpression"]);
            let value = compiler.compile(value, is_text_or_null, "one of [string null_type]");
            (text(annotation, &["key"]).to_owned(), value)
        })
        .collect();
    PolicyRules::Validating { validations, annotations }
}

fn mutating_rules(spec: &JsonObject, compiler: &Compiler) -> PolicyRules {
    let environment = |source: &str| compiler.environment(source, true).patch_types();
    let is_named = |found: &Type, name: &str| matches!(found, Type::Object(_)) && found.to_string() == name;
    let mutations = objects(spec, &["mutations"])
        .map(|mutation| {
            let is_json_patch = text(mutation, &["patchType"]) == "JSONPatch";
            let expression = if is_json_patch {
                let is_patch = |found: &Type| matches!(found, Type::List(item) if is_named(item, "JSONPatch"));
                let source = text(mutation, &["jsonPatch", "expression"]);
                Expression::compile(source, &environment(source), is_patch, "list(JSONPatch)")
            } else {
                let source = text(mutation, &["applyConfiguration", "expression"]);
                Expression::compile(source, &environment(source), |found| is_named(found, "Object"), "Object")
            };
            Mutation { is_json_patch, expression }
        })
        .collect();
    PolicyRules::Mutating { mutations, is_reinvoked: text(spec, &["reinvocationPolicy"]) == "IfNeeded" }
}
