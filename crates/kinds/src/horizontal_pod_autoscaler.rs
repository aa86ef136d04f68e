//! Horizontal pod autoscalers.

mod conversion;
mod metrics;
mod table;
mod validation;

use api::json::JsonObject;
use serde_json::{Value, json};

use crate::fields::{object_field_mut, set_if_absent, set_if_empty};
use crate::strategy::{KindStrategy, LENIENT_RULES};

pub(crate) static STRATEGY: KindStrategy = KindStrategy {
    rules: LENIENT_RULES,
    validate: validation::check_autoscaler,
    validate_status: |autoscaler, _| validation::check_status(autoscaler),
    columns: table::AUTOSCALERS,
    conversion: |from, to| match (from.version, to.version) {
        ("v1", "v2") => Some(conversion::v1_to_v2),
        ("v2", "v1") => Some(conversion::v2_to_v1),
        _ => None,
    },
    ..KindStrategy::DEFAULT
};

pub(crate) fn set_autoscaler_defaults(spec: &mut JsonObject) {
    let target = json!({"type": "Utilization", "averageUtilization": 80});
    set_if_empty(spec, "metrics", json!([{"type": "Resource", "resource": {"name": "cpu", "target": target}}]));
    let Some(behavior) = spec.get_mut("behavior").and_then(Value::as_object_mut) else { return };
    if let Some(up) = object_field_mut(behavior, "scaleUp") {
        let by_pods = json!({"type": "Pods", "value": 4, "periodSeconds": 15});
        let by_half = json!({"type": "Percent", "value": 100, "periodSeconds": 15});
        set_if_absent(up, "stabilizationWindowSeconds", 0);
        set_if_absent(up, "selectPolicy", "Max");
        set_if_absent(up, "policies", json!([by_pods, by_half]));
    }
    if let Some(down) = object_field_mut(behavior, "scaleDown") {
        set_if_absent(down, "selectPolicy", "Max");
        set_if_absent(down, "policies", json!([{"type": "Percent", "value": 100, "periodSeconds": 15}]));
    }
}
