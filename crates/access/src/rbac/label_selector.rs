//! Structured label selectors, as aggregation rules contain them.

use std::collections::BTreeMap;

use api::wire::{null_is_default, objects};
use serde::{Deserialize, Serialize};

/// A label selector; all labels and requirements must match. An empty selector matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LabelSelectorSpec {
    /// Labels that must be present with exactly this value.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub match_labels: BTreeMap<String, String>,
    /// Requirements on single labels.
    #[serde(default, deserialize_with = "objects", skip_serializing_if = "Vec::is_empty")]
    pub match_expressions: Vec<LabelSelectorRequirement>,
}

/// A condition on one label.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LabelSelectorRequirement {
    /// The label's key.
    #[serde(default)]
    pub key: String,
    /// `In`, `NotIn`, `Exists` or `DoesNotExist`.
    #[serde(default)]
    pub operator: String,
    /// The values of `In` and `NotIn`.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<String>,
}

impl LabelSelectorSpec {
    /// Reports whether the labels match. A requirement with an unknown operator never matches.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.match_labels.iter().all(|(key, value)| labels.get(key) == Some(value))
            && self.match_expressions.iter().all(|requirement| requirement.matches(labels))
    }
}

impl LabelSelectorRequirement {
    fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        let value = labels.get(&self.key);
        let is_listed = || value.is_some_and(|value| self.values.contains(value));
        match self.operator.as_str() {
            "In" => is_listed(),
            "NotIn" => !is_listed(),
            "Exists" => value.is_some(),
            "DoesNotExist" => value.is_none(),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_selector_matches_as_in_kubernetes() {
        let labels = BTreeMap::from([("tier".to_owned(), "web".to_owned())]);
        for (selector, expected) in [
            (r#"{}"#, true),
            (r#"{"matchLabels":null,"matchExpressions":null}"#, true),
            (r#"{"matchLabels":{"tier":"web"}}"#, true),
            (r#"{"matchLabels":{"tier":"db"}}"#, false),
            (r#"{"matchLabels":{"tier":"web","x":""}}"#, false),
            (r#"{"matchExpressions":[{"key":"tier","operator":"In","values":["db","web"]}]}"#, true),
            (r#"{"matchExpressions":[{"key":"tier","operator":"In","values":["db"]}]}"#, false),
            (r#"{"matchExpressions":[{"key":"x","operator":"In","values":["db"]}]}"#, false),
            (r#"{"matchExpressions":[{"key":"tier","operator":"NotIn","values":["web"]}]}"#, false),
            (r#"{"matchExpressions":[{"key":"x","operator":"NotIn","values":["web"]}]}"#, true),
            (r#"{"matchExpressions":[{"key":"tier","operator":"Exists"}]}"#, true),
            (r#"{"matchExpressions":[{"key":"x","operator":"Exists"}]}"#, false),
            (r#"{"matchExpressions":[{"key":"x","operator":"DoesNotExist"}]}"#, true),
            (r#"{"matchExpressions":[{"key":"tier","operator":"DoesNotExist"}]}"#, false),
            (r#"{"matchExpressions":[{"key":"tier","operator":"Like"}]}"#, false),
            (r#"{"matchLabels":{"tier":"web"},"matchExpressions":[{"key":"x","operator":"Exists"}]}"#, false),
        ] {
            let parsed: LabelSelectorSpec = serde_json::from_str(selector).unwrap();
            assert_eq!(parsed.matches(&labels), expected, "{selector}");
        }
    }
}
