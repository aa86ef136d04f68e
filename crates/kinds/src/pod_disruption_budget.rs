//! Pod disruption budgets: eviction checks and their effect on the budget's status.

use api::json::JsonObject;
use api::selector::LabelSelector;
use api::time::Time;
use object::KindRules;
use object::rules::{GenerationRule, NameRule};
use object::table::Column;
use object::table::cells::{AGE, NAME, integer_cell, integer_column, string_column};
use object::unstructured;
use object::unstructured::{get, integer, list, nested_object, text};
use serde_json::{Map, Value, json};

use crate::strategy::{KindStrategy, RULES};
use crate::validation::conditions::check_conditions;
use crate::validation::{Field, go_label_selector};

pub(crate) static STRATEGY: KindStrategy = KindStrategy {
    rules: KindRules {
        generation: GenerationRule::Counted,
        allows_unconditional_update: false,
        name_rule: NameRule::PathSegment,
        ..RULES
    },
    allows_any_finalizer: true,
    validate: |budget| check_spec(budget.at("spec")),
    validate_status: |budget, _| check_status(budget.at("status")),
    columns: BUDGETS,
    ..KindStrategy::DEFAULT
};

/// The spec as Go prints it.
fn go_spec(spec: Field<'_>) -> String {
    let shown = |name| spec.at(name).value().map_or_else(|| "null".to_owned(), Value::to_string);
    format!(
        "{{\"MinAvailable\":{},\"Selector\":{},\"MaxUnavailable\":{},\"UnhealthyPodEvictionPolicy\":{}}}",
        shown("minAvailable"),
        go_label_selector(spec.at("selector").value()),
        shown("maxUnavailable"),
        shown("unhealthyPodEvictionPolicy"),
    )
}

fn check_spec(spec: Field<'_>) {
    let bounds = ["minAvailable", "maxUnavailable"].map(|name| spec.at(name));
    if bounds.into_iter().all(Field::is_present) {
        spec.invalid_showing(go_spec(spec), "minAvailable and maxUnavailable cannot be both set");
    }
    for bound in bounds.into_iter().filter(|bound| bound.is_present()) {
        bound.number_or_percentage();
        bound.at_most_100_percent();
    }
    spec.at("selector").label_selector();
    spec.at("unhealthyPodEvictionPolicy").one_of_if_present(&["AlwaysAllow", "IfHealthyBudget"]);
}

fn check_status(status: Field<'_>) {
    check_conditions(status.at("conditions"));
    for count in ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"] {
        status.at(count).not_negative();
    }
}

/// Why a pod may not be evicted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EvictionRefusal {
    /// The budget allows no disruption now; the reason names the budget.
    BudgetExhausted(String),
    /// The budget has changed and its controller has not seen the change; the reason names the budget.
    BudgetNotObserved(String),
    /// The status of the budget forbids evictions.
    Forbidden(&'static str),
}

/// The limit of evictions that the disruption controller has not confirmed yet.
const DISRUPTED_PODS_MAX: usize = 2000;

/// Whether an eviction needs no budget: the pod does not run, or is being deleted.
pub fn needs_no_budget(pod: &JsonObject) -> bool {
    let is_terminating = get(pod, &["metadata", "deletionTimestamp"]).is_some();
    is_terminating || matches!(text(pod, &["status", "phase"]), "Pending" | "Succeeded" | "Failed")
}

/// Whether a budget selects a pod. An empty selector selects all pods, an absent one none.
pub fn budget_selects_pod(budget: &JsonObject, pod: &JsonObject) -> bool {
    let Some(selector) = nested_object(budget, &["spec", "selector"]) else { return false };
    let Some(Ok(selector)) =
        object::label_selector::selector_to_string(selector).map(|text| LabelSelector::parse(&text))
    else {
        return false;
    };
    selector.matches(|label| get(pod, &["metadata", "labels", label]).and_then(Value::as_str))
}

/// The budget after the eviction of a pod; `None` if the eviction needs none of it.
pub fn consume_disruption(
    budget: &JsonObject,
    pod: &JsonObject,
    now: Time,
) -> Result<Option<JsonObject>, EvictionRefusal> {
    if !is_ready(pod) && allows_unready_eviction(budget) {
        return Ok(None);
    }
    let name = text(budget, &["metadata", "name"]);
    let [generation, observed] =
        [["metadata", "generation"], ["status", "observedGeneration"]].map(|path| integer_or_zero(budget, &path));
    if observed < generation {
        let reason = format!("The disruption budget {name} is still being processed by the server.");
        return Err(EvictionRefusal::BudgetNotObserved(reason));
    }
    let disrupted = nested_object(budget, &["status", "disruptedPods"]).map_or(0, Map::len);
    match integer_or_zero(budget, &["status", "disruptionsAllowed"]) {
        ..0 => Err(EvictionRefusal::Forbidden("pdb disruptions allowed is negative")),
        _ if disrupted > DISRUPTED_PODS_MAX => Err(EvictionRefusal::Forbidden(
            "DisruptedPods map too big - too many evictions not confirmed by PDB controller",
        )),
        0 => {
            let [needed, healthy] =
                ["desiredHealthy", "currentHealthy"].map(|field| integer_or_zero(budget, &["status", field]));
            let reason =
                format!("The disruption budget {name} needs {needed} healthy pods and has {healthy} currently");
            Err(EvictionRefusal::BudgetExhausted(reason))
        }
        allowed => Ok(Some(record_disruption(budget, text(pod, &["metadata", "name"]), allowed - 1, now))),
    }
}

fn record_disruption(budget: &JsonObject, pod: &str, allowed_after: i64, now: Time) -> JsonObject {
    let mut next = budget.clone();
    let Some(status) = next.get_mut("status").and_then(Value::as_object_mut) else { return next };
    status.insert("disruptionsAllowed".to_owned(), allowed_after.into());
    let disrupted = status.entry("disruptedPods").or_insert_with(|| json!({}));
    if let Some(disrupted) = disrupted.as_object_mut() {
        disrupted.insert(pod.to_owned(), now.to_string().into());
    }
    let conditions = status.get_mut("conditions").and_then(Value::as_array_mut).into_iter().flatten();
    for condition in conditions.filter(|condition| allowed_after == 0 && condition["type"] == "DisruptionAllowed") {
        condition["status"] = "False".into();
        condition["reason"] = "InsufficientPods".into();
        condition["lastTransitionTime"] = now.to_string().into();
    }
    next
}

/// Whether an unready pod may be evicted: always by policy, or while enough pods are healthy.
fn allows_unready_eviction(budget: &JsonObject) -> bool {
    let [needed, healthy] =
        ["desiredHealthy", "currentHealthy"].map(|field| integer_or_zero(budget, &["status", field]));
    let is_healthy = needed > 0 && healthy >= needed;
    is_healthy || text(budget, &["spec", "unhealthyPodEvictionPolicy"]) == "AlwaysAllow"
}

fn is_ready(pod: &JsonObject) -> bool {
    list(pod, &["status", "conditions"])
        .iter()
        .any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

fn integer_or_zero(object: &JsonObject, path: &[&str]) -> i64 {
    integer(object, path).unwrap_or_default()
}

const BUDGETS: &[Column] = &[
    NAME,
    string_column("Min Available", "How many pods must stay.", |budget, _| {
        int_or_string_cell(budget, &["spec", "minAvailable"])
    }),
    string_column("Max Unavailable", "How many pods may be missing.", |budget, _| {
        int_or_string_cell(budget, &["spec", "maxUnavailable"])
    }),
    integer_column("Allowed Disruptions", "How many pods may go now.", |budget, _| {
        integer_cell(budget, &["status", "disruptionsAllowed"])
    }),
    AGE,
];

fn int_or_string_cell(object: &JsonObject, path: &[&str]) -> Value {
    match unstructured::get(object, path) {
        Some(Value::String(text)) => text.as_str().into(),
        Some(Value::Number(number)) => number.to_string().into(),
        Some(Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_)) | None => "N/A".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(value: Value) -> JsonObject {
        let Value::Object(object) = value else { panic!("no object") };
        object
    }

    fn pod(ready: &str) -> JsonObject {
        let conditions = json!([{"type": "Ready", "status": ready}]);
        object(json!({
            "metadata": {"name": "a", "labels": {"app": "web"}},
            "status": {"phase": "Running", "conditions": conditions},
        }))
    }

    fn budget(status: &Value) -> JsonObject {
        let spec = json!({"selector": {"matchLabels": {"app": "web"}}});
        object(json!({"metadata": {"name": "b", "generation": 1}, "spec": spec, "status": status}))
    }

    #[track_caller]
    fn check(status: &Value, ready: &str, expected: &str) {
        let now = "2026-01-02T03:04:05Z".parse::<jiff::Timestamp>().unwrap().into();
        let outcome = match consume_disruption(&budget(status), &pod(ready), now) {
            Ok(None) => "free".to_owned(),
            Ok(Some(next)) => next["status"].to_string(),
            Err(refusal) => format!("{refusal:?}"),
        };
        assert_eq!(outcome, expected);
    }

    #[test]
    fn consume_disruption_decrements_budget_or_rejects() {
        check(
            &json!({"observedGeneration": 1, "disruptionsAllowed": 2}),
            "True",
            r#"{"disruptedPods":{"a":"2026-01-02T03:04:05Z"},"disruptionsAllowed":1,"observedGeneration":1}"#,
        );
        check(
            &json!({"observedGeneration": 1, "disruptionsAllowed": 0, "desiredHealthy": 2, "currentHealthy": 2}),
            "True",
            r#"BudgetExhausted("The disruption budget b needs 2 healthy pods and has 2 currently")"#,
        );
        check(
            &json!({"disruptionsAllowed": 1}),
            "True",
            r#"BudgetNotObserved("The disruption budget b is still being processed by the server.")"#,
        );
        check(
            &json!({"observedGeneration": 1, "disruptionsAllowed": -1}),
            "True",
            r#"Forbidden("pdb disruptions allowed is negative")"#,
        );
    }

    #[test]
    fn unready_pod_is_evicted_freely_while_budget_is_healthy() {
        check(&json!({"desiredHealthy": 1, "currentHealthy": 1}), "False", "free");
        check(
            &json!({"observedGeneration": 1, "desiredHealthy": 2, "currentHealthy": 1}),
            "False",
            r#"BudgetExhausted("The disruption budget b needs 2 healthy pods and has 1 currently")"#,
        );
    }

    #[test]
    fn disruption_budget_selects_pods_by_labels() {
        let of = |selector: Value| object(json!({"spec": {"selector": selector}}));
        assert!(budget_selects_pod(&of(json!({})), &pod("True")));
        assert!(budget_selects_pod(&of(json!({"matchLabels": {"app": "web"}})), &pod("True")));
        assert!(!budget_selects_pod(&of(json!({"matchLabels": {"app": "db"}})), &pod("True")));
        assert!(!budget_selects_pod(&object(json!({"spec": {}})), &pod("True")));
        assert!(!needs_no_budget(&pod("True")));
        assert!(needs_no_budget(&object(json!({"status": {"phase": "Pending"}}))));
    }
}
