//! Scopes of quotas: which objects a quota covers.

use api::json::JsonObject;
use kinds::FeatureGates;
use object::unstructured::{objects, text, texts};

use super::evaluator::{Evaluator, EvaluatorKind, attributes_classes};
use super::pod;

/// One requirement on objects: a scope with an operator.
pub(super) struct ScopeRequirement<'a> {
    pub(super) scope: &'a str,
    operator: &'a str,
    values: Vec<&'a str>,
}

impl<'a> ScopeRequirement<'a> {
    pub(super) fn read(requirement: &'a JsonObject) -> Self {
        Self {
            scope: text(requirement, &["scopeName"]),
            operator: text(requirement, &["operator"]),
            values: texts(requirement, &["values"]).collect(),
        }
    }

    /// True if an object is within the scope. Only pods and claims have scopes.
    pub(super) fn matches(&self, evaluator: &Evaluator<'_>, object: &JsonObject, gates: &FeatureGates) -> bool {
        match (evaluator.kind, self.scope) {
            (EvaluatorKind::Pods, "Terminating") => pod::is_terminating(object),
            (EvaluatorKind::Pods, "NotTerminating") => !pod::is_terminating(object),
            (EvaluatorKind::Pods, "BestEffort") => pod::is_best_effort(object, gates),
            (EvaluatorKind::Pods, "NotBestEffort") => !pod::is_best_effort(object, gates),
            (EvaluatorKind::Pods, "PriorityClass") => {
                let class = text(object, &["spec", "priorityClassName"]);
                self.selects(if class.is_empty() { &[] } else { std::slice::from_ref(&class) })
            }
            (EvaluatorKind::Pods, "CrossNamespacePodAffinity") => has_cross_namespace_affinity(object),
            (EvaluatorKind::VolumeClaims, "VolumeAttributesClass") if gates.enabled("VolumeAttributesClass") => {
                self.selects(&attributes_classes(object))
            }
            _ => false,
        }
    }

    /// As a label selector on one key, of which the object has any of the names.
    fn selects(&self, names: &[&str]) -> bool {
        match self.operator {
            "Exists" => !names.is_empty(),
            "DoesNotExist" => names.is_empty(),
            "In" => names.iter().any(|name| self.values.contains(name)),
            "NotIn" => names.is_empty() || names.iter().any(|name| !self.values.contains(name)),
            _ => false,
        }
    }
}

impl std::fmt::Display for ScopeRequirement<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{{{} {} [{}]}}", self.scope, self.operator, self.values.join(" "))
    }
}

/// The requirements of a quota: its scopes, then those of its scope selector.
pub(super) fn requirements(quota: &JsonObject) -> Vec<ScopeRequirement<'_>> {
    let scopes = texts(quota, &["spec", "scopes"]);
    let scopes = scopes.map(|scope| ScopeRequirement { scope, operator: "Exists", values: Vec::new() });
    let selected = objects(quota, &["spec", "scopeSelector", "matchExpressions"]).map(ScopeRequirement::read);
    scopes.chain(selected).collect()
}

/// True if an object is within all scopes of a quota.
pub(super) fn quota_covers(
    evaluator: &Evaluator<'_>,
    quota: &JsonObject,
    object: &JsonObject,
    gates: &FeatureGates,
) -> bool {
    requirements(quota).iter().all(|requirement| requirement.matches(evaluator, object, gates))
}

fn has_cross_namespace_affinity(pod: &JsonObject) -> bool {
    let crosses = |term: &JsonObject| {
        texts(term, &["namespaces"]).next().is_some() || term.get("namespaceSelector").is_some_and(|set| !set.is_null())
    };
    ["podAffinity", "podAntiAffinity"].iter().any(|affinity| {
        let required = ["spec", "affinity", affinity, "requiredDuringSchedulingIgnoredDuringExecution"];
        let preferred = ["spec", "affinity", affinity, "preferredDuringSchedulingIgnoredDuringExecution"];
        objects(pod, &required).any(crosses)
            || objects(pod, &preferred).filter_map(|weighted| weighted.get("podAffinityTerm")?.as_object()).any(crosses)
    })
}
