//! Policies in running servers.

use cluster_tests::{Client, ControlPlane};
use http::Method;
use serde_json::{Map, Value, json};

use super::policy_cases::{load_cases, perform_all, recorded_file};
use crate::custom_resource::{CARTS_PATH, CRD_PATH, carts_crd};
use crate::{CONFIG_MAPS_PATH, block_on, config_map, for_each_store_async, start_on_sqlite};

const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";

#[test]
fn writes_are_judged_as_by_kube_apiserver() {
    let recorded: Map<String, Value> =
        serde_json::from_str(&std::fs::read_to_string(recorded_file()).unwrap()).unwrap();
    for_each_store_async(async |client| {
        let outcomes = perform_all(&client, &load_cases()).await;
        assert_eq!(outcomes.len(), recorded.len(), "cases were added without being recorded");
        let differs = |(name, ours): &(&String, &Value)| recorded.get(*name) != Some(*ours);
        let different: Vec<String> = outcomes
            .iter()
            .filter(differs)
            .map(|(name, ours)| format!("{name}:\n  real {}\n  ours {ours}", recorded[name]))
            .collect();
        assert!(different.is_empty(), "{}", different.join("\n"));
    });
}
