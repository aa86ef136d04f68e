//! Type checks of the expressions of a validating policy against the kinds that it is for. They find mistakes that show
//! only when an expression is evaluated; a policy with warnings is in force all the same.

use std::collections::BTreeSet;
use std::sync::Arc;

use api::json::JsonObject;
use api::{GroupVersion, GroupVersionKind, GroupVersionResource};
use k8s_cel::{DeclType, Environment};
use kinds::expressions::{declare_type_checked_variables, declared_type, with_variables};
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
    let environments: Vec<(GroupVersionKind, Environment)> = kinds
        .into_iter()
        .filter_map(|(group, version, kind)| {
            let kind = GroupVersionKind { group, version, kind };
            let object = types.type_of(kind.borrowed())?;
            Some((kind, environment(policy, object, params.clone(), release)))
        })
        .collect();
    let mut warnings = Vec::new();
    for (index, validation) in objects(policy, &["spec", "validations"]).enumerate() {
        for name in ["expression", "messageExpression"] {
            let expression = text(validation, &[name]);
            if expression.is_empty() && name == "messageExpression" {
                continue;
            }
            let issues: Vec<String> = environments
                .iter()
                .filter_map(|(kind, environment)| {
                    let issues = environment.compile(expression).err()?;
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

fn environment(
    policy: &JsonObject,
    object: DeclType,
    params: Option<DeclType>,
    release: k8s_cel::Release,
) -> Environment {
    let base = Environment::for_stored_expressions(release);
    let params = params.map(|params| Arc::new(params.named("Params")));
    let base = declare_type_checked_variables(base, &Arc::new(object.named("Object")), params);
    let mut declared: Vec<(String, DeclType)> = Vec::new();
    for variable in objects(policy, &["spec", "variables"]) {
        let program = with_variables(&base, &declared).compile(text(variable, &["expression"]));
        let decl = program.map_or_else(|_| DeclType::dynamic(), |program| declared_type(program.output_type()));
        declared.push((text(variable, &["name"]).to_owned(), decl));
    }
    with_variables(&base, &declared)
}
