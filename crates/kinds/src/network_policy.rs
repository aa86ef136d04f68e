//! Network policies.

use api::json::JsonObject;
use object::KindRules;
use object::rules::GenerationRule;
use object::table::cells::{AGE, NAME, string_column};
use object::table::{Column, cells};
use serde_json::json;

use crate::fields::{is_empty_value, set_if_empty};
use crate::strategy::{KindStrategy, RULES};

pub(crate) static STRATEGY: KindStrategy = KindStrategy {
    rules: KindRules { generation: GenerationRule::Counted, ..RULES },
    columns: POLICIES,
    ..KindStrategy::DEFAULT
};

pub(crate) fn set_network_policy_defaults(spec: &mut JsonObject) {
    let has_egress = spec.get("egress").is_some_and(|egress| !is_empty_value(egress));
    let types = if has_egress { json!(["Ingress", "Egress"]) } else { json!(["Ingress"]) };
    set_if_empty(spec, "policyTypes", types);
}

const POLICIES: &[Column] = &[
    NAME,
    string_column("Pod-Selector", "Which pods it applies to.", |policy, _| {
        cells::or_placeholder(cells::selector_text(policy, &["spec", "podSelector"]), "<none>")
    }),
    AGE,
];
