//! Budgets of disruption: whether a pod may be evicted now, and what that costs its budget.

use api::selector::LabelSelector;
use api::time::Time;
use api::{GroupResource, Status};
use object::access::{get, integer, list, part, text};
use serde_json::{Map, Value, json};

use crate::forms::Object;

/// How many evictions may wait to be seen by the controller of budgets.
const DISRUPTED_MAX: usize = 2000;
const NO_BUDGET: &str = "Cannot evict pod as it would violate the pod's disruption budget.";

/// Whether a pod disrupts nothing when it goes: it does not run, or goes anyway.
pub(crate) fn is_free(pod: &Object) -> bool {
    let is_marked = get(pod, &["metadata", "deletionTimestamp"]).is_some();
    is_marked || matches!(text(pod, &["status", "phase"]), "Pending" | "Succeeded" | "Failed")
}

/// Whether a budget is one of this pod. An empty selector selects all pods, none selects none.
pub(crate) fn covers(budget: &Object, pod: &Object) -> bool {
    let Some(selector) = part(budget, &["spec", "selector"]) else { return false };
    let Some(Ok(selector)) = object::label_selector::to_text(selector).map(|text| LabelSelector::parse(&text)) else {
        return false;
    };
    selector.matches(|label| get(pod, &["metadata", "labels", label]).and_then(Value::as_str))
}

/// What is left of a budget when a pod of it is evicted; `None` if the pod costs nothing.
pub(crate) fn spend(budget: &Object, pod: &Object, now: Time) -> Result<Option<Object>, Status> {
    if !is_ready(pod) && lets_unready_go(budget) {
        return Ok(None);
    }
    let name = text(budget, &["metadata", "name"]);
    let refuse = |cause: String| Status::too_many_requests(NO_BUDGET, 0).with_cause("DisruptionBudget", cause);
    let forbid = |why: &str| {
        let resource = GroupResource { group: "policy", resource: "poddisruptionbudget" };
        Status::forbidden(resource, name, why)
    };
    let [generation, observed] =
        [["metadata", "generation"], ["status", "observedGeneration"]].map(|path| number(budget, &path));
    if observed < generation {
        return Err(refuse(format!("The disruption budget {name} is still being processed by the server."))
            .with_retry_after(10));
    }
    let disrupted = part(budget, &["status", "disruptedPods"]).map_or(0, Map::len);
    match number(budget, &["status", "disruptionsAllowed"]) {
        ..0 => Err(forbid("pdb disruptions allowed is negative")),
        _ if disrupted > DISRUPTED_MAX => {
            Err(forbid("DisruptedPods map too big - too many evictions not confirmed by PDB controller"))
        }
        0 => {
            let [needed, healthy] =
                ["desiredHealthy", "currentHealthy"].map(|field| number(budget, &["status", field]));
            Err(refuse(format!("The disruption budget {name} needs {needed} healthy pods and has {healthy} currently")))
        }
        allowed => Ok(Some(spent(budget, text(pod, &["metadata", "name"]), allowed - 1, now))),
    }
}

fn spent(budget: &Object, pod: &str, allowed: i64, now: Time) -> Object {
    let mut next = budget.clone();
    let Some(status) = next.get_mut("status").and_then(Value::as_object_mut) else { return next };
    status.insert("disruptionsAllowed".to_owned(), allowed.into());
    let disrupted = status.entry("disruptedPods").or_insert_with(|| json!({}));
    if let Some(disrupted) = disrupted.as_object_mut() {
        disrupted.insert(pod.to_owned(), now.to_string().into());
    }
    let conditions = status.get_mut("conditions").and_then(Value::as_array_mut).into_iter().flatten();
    for condition in conditions.filter(|condition| allowed == 0 && condition["type"] == "DisruptionAllowed") {
        condition["status"] = "False".into();
        condition["reason"] = "InsufficientPods".into();
        condition["lastTransitionTime"] = now.to_string().into();
    }
    next
}

/// Whether a pod that is not ready may go: always, or while enough others are healthy.
fn lets_unready_go(budget: &Object) -> bool {
    let [needed, healthy] = ["desiredHealthy", "currentHealthy"].map(|field| number(budget, &["status", field]));
    let is_healthy = needed > 0 && healthy >= needed;
    is_healthy || text(budget, &["spec", "unhealthyPodEvictionPolicy"]) == "AlwaysAllow"
}

fn is_ready(pod: &Object) -> bool {
    list(pod, &["status", "conditions"])
        .iter()
        .any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

/// What is not there counts as nothing.
fn number(object: &Object, path: &[&str]) -> i64 {
    integer(object, path).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(value: Value) -> Object {
        let Value::Object(object) = value else { panic!("no object") };
        object
    }

    fn pod(ready: &str) -> Object {
        let conditions = json!([{"type": "Ready", "status": ready}]);
        object(json!({
            "metadata": {"name": "a", "labels": {"app": "web"}},
            "status": {"phase": "Running", "conditions": conditions},
        }))
    }

    fn budget(status: &Value) -> Object {
        let spec = json!({"selector": {"matchLabels": {"app": "web"}}});
        object(json!({"metadata": {"name": "b", "generation": 1}, "spec": spec, "status": status}))
    }

    #[track_caller]
    fn check(status: &Value, ready: &str, expected: &str) {
        let now = "2026-01-02T03:04:05Z".parse::<jiff::Timestamp>().unwrap().into();
        let outcome = match spend(&budget(status), &pod(ready), now) {
            Ok(None) => "free".to_owned(),
            Ok(Some(next)) => next["status"].to_string(),
            Err(status) => {
                let causes = status.details.iter().flat_map(|details| &details.causes);
                let causes: Vec<_> = causes.map(|cause| cause.message.clone()).collect();
                format!("{} {} {}", status.http_code(), status.message, causes.join(" "))
            }
        };
        assert_eq!(outcome.trim_end(), expected);
    }

    #[test]
    fn an_eviction_is_paid_for_or_refused() {
        check(
            &json!({"observedGeneration": 1, "disruptionsAllowed": 2}),
            "True",
            r#"{"disruptedPods":{"a":"2026-01-02T03:04:05Z"},"disruptionsAllowed":1,"observedGeneration":1}"#,
        );
        check(
            &json!({"observedGeneration": 1, "disruptionsAllowed": 0, "desiredHealthy": 2, "currentHealthy": 2}),
            "True",
            "429 Cannot evict pod as it would violate the pod's disruption budget. The disruption budget b needs 2 \
             healthy pods and has 2 currently",
        );
        check(
            &json!({"disruptionsAllowed": 1}),
            "True",
            "429 Cannot evict pod as it would violate the pod's disruption budget. The disruption budget b is still \
             being processed by the server.",
        );
        check(
            &json!({"observedGeneration": 1, "disruptionsAllowed": -1}),
            "True",
            "403 poddisruptionbudget.policy \"b\" is forbidden: pdb disruptions allowed is negative",
        );
    }

    #[test]
    fn a_pod_that_is_not_ready_costs_nothing_while_the_others_are_healthy() {
        check(&json!({"desiredHealthy": 1, "currentHealthy": 1}), "False", "free");
        check(
            &json!({"observedGeneration": 1, "desiredHealthy": 2, "currentHealthy": 1}),
            "False",
            "429 Cannot evict pod as it would violate the pod's disruption budget. The disruption budget b needs 2 \
             healthy pods and has 1 currently",
        );
    }

    #[test]
    fn budgets_select_by_labels() {
        let of = |selector: Value| object(json!({"spec": {"selector": selector}}));
        assert!(covers(&of(json!({})), &pod("True")));
        assert!(covers(&of(json!({"matchLabels": {"app": "web"}})), &pod("True")));
        assert!(!covers(&of(json!({"matchLabels": {"app": "db"}})), &pod("True")));
        assert!(!covers(&object(json!({"spec": {}})), &pod("True")));
        assert!(!is_free(&pod("True")));
        assert!(is_free(&object(json!({"status": {"phase": "Pending"}}))));
    }
}
