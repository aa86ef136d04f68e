//! Type checks of the expressions of a validating policy against the kinds that it is for. They find mistakes that show
//! only when an expression is evaluated; a policy with warnings is in force all the same.

use std::collections::BTreeSet;
use std::sync::Arc;

use api::json::JsonObject;
use api::{GroupVersion, GroupVersionKind, GroupVersionResource};
use k8s_cel::{CompileError, DeclType, Environment, Program};
use kinds::expressions::{DefinedVariables, declare_type_checked_variables};
use object::unstructured::{nested_object, objects, text, texts};

/// Kinds of one rule that are checked, as in Kubernetes.
const CHECKED_KINDS_MAX: usize = 10;

/// What is known about kinds.
pub trait CheckedTypes {
    /// The kind of a resource; `None` if it is not served.
    fn kind_of(&self, resource: GroupVersionResource<&str>) -> Option<GroupVersionKind>;

    /// The type of the objects of a kind; `None` if it has no schema.
    fn type_of(&self, kind: GroupVersionKind<&str>) -> Option<DeclType>;
}

/// A mistake in an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpressionWarning {
    /// Such as `spec.validations[0].expression`.
    pub field: String,
    /// One paragraph per kind for which the expression is wrong.
    pub warning: String,
}

/// The resources that the rules of a policy name without wildcards and subresources, in the order in which they are checked.
pub fn checked_resources(policy: &JsonObject) -> Vec<GroupVersionResource> {
    let mut found = Vec::new();
    for rule in objects(policy, &["spec", "matchConstraints", "resourceRules"]) {
        let list = |name| {
            let mut items: Vec<&str> = texts(rule, &[name]).collect();
            items.sort_unstable();
            items
        };
        let (groups, versions, mut resources) = (list("apiGroups"), list("apiVersions"), list("resources"));
        if groups.iter().chain(&versions).any(|name| name.contains('*')) {
            continue;
        }
        resources.retain(|name| !name.contains(['*', '/']));
        let names = groups.iter().flat_map(|group| versions.iter().map(move |version| (group, version)));
        let all = names.flat_map(|(group, version)| resources.iter().map(move |resource| (group, version, resource)));
        let named = all.map(|(group, version, resource)| GroupVersionResource {
            group: *group,
            version: *version,
            resource: *resource,
        });
        found.extend(named.map(|resource| resource.owned()).take(CHECKED_KINDS_MAX));
    }
    found
}

/// The `paramKind` of a policy.
pub fn param_kind(policy: &JsonObject) -> Option<GroupVersionKind> {
    let kind = nested_object(policy, &["spec", "paramKind"])?;
    let GroupVersion { group, version } = GroupVersion::parse(text(kind, &["apiVersion"])).ok()?;
    Some(GroupVersionKind { group, version, kind: text(kind, &["kind"]) }.owned())
}

/// Checks validations and their messages.
pub fn type_check(policy: &JsonObject, types: &dyn CheckedTypes, release: k8s_cel::Release) -> Vec<ExpressionWarning> {
    let resources = checked_resources(policy);
    let kinds: BTreeSet<_> = resources
        .iter()
        .filter_map(|resource| types.kind_of(resource.borrowed()))
        .map(|kind| (kind.group, kind.version, kind.kind))
        .collect();
    let params = param_kind(policy);
    let params = params.map(|kind| types.type_of(kind.borrowed()).unwrap_or_else(DeclType::dynamic));
    let scopes: Vec<(GroupVersionKind, Scope)> = kinds
        .into_iter()
        .filter_map(|(group, version, kind)| {
            let kind = GroupVersionKind { group, version, kind };
            let object = types.type_of(kind.borrowed())?;
            Some((kind, Scope::of(policy, object, params.clone(), release)))
        })
        .collect();
    let mut warnings = Vec::new();
    for (index, validation) in objects(policy, &["spec", "validations"]).enumerate() {
        for name in ["expression", "messageExpression"] {
            let expression = text(validation, &[name]);
            if expression.is_empty() && name == "messageExpression" {
                continue;
            }
            let issues: Vec<String> = scopes
                .iter()
                .filter_map(|(kind, scope)| {
                    let issues = scope.compile(expression).err()?;
                    Some(format!("{kind}: {issues}\n"))
                })
                .collect();
            if !issues.is_empty() {
                let field = format!("spec.validations[{index}].{name}");
                warnings.push(ExpressionWarning { field, warning: issues.join("\n") });
            }
        }
    }
    warnings
}

/// What expressions of a policy can use when the policy is about objects of one kind.
struct Scope {
    environment: Environment,
    variables: DefinedVariables,
}

impl Scope {
    fn of(policy: &JsonObject, object: DeclType, params: Option<DeclType>, release: k8s_cel::Release) -> Self {
        let base = Environment::for_stored_expressions(release);
        let params = params.map(|params| Arc::new(params.named("Params")));
        let environment = declare_type_checked_variables(base, &Arc::new(object.named("Object")), params);
        let mut scope = Self { environment, variables: DefinedVariables::default() };
        for variable in objects(policy, &["spec", "variables"]) {
            let program = scope.compile(text(variable, &["expression"])).ok();
            scope.variables.define(text(variable, &["name"]), program.as_ref().map(Program::output_type));
        }
        scope
    }

    fn compile(&self, expression: &str) -> Result<Program, CompileError> {
        self.variables.declare_for(expression, self.environment.clone()).compile(expression)
    }
}
