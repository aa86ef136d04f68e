//! One policy rule, and what it matches.

use std::fmt;

use api::quote::QuotedList;
use api::wire::null_is_default;
use serde::{Deserialize, Serialize};

/// Stands for every verb, group, resource or path.
const WILDCARD: &str = "*";

/// What may be done to what: verbs on resources of groups, or verbs on paths.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PolicyRule {
    /// The verbs; `*` for all.
    #[serde(default, deserialize_with = "null_is_default")]
    pub verbs: Vec<String>,
    /// The groups; `*` for all, the empty string for core.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub api_groups: Vec<String>,
    /// Resources and `resource/subresource` pairs; `*` for all of both, `*/scale` for one subresource of any resource.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<String>,
    /// The only objects the rule is about; empty for all. A request without a name, such as a list, has none of them.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub resource_names: Vec<String>,
    /// Paths; a `*` at the end stands for any rest.
    #[serde(
        default,
        rename = "nonResourceURLs",
        deserialize_with = "null_is_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub non_resource_urls: Vec<String>,
}

/// A question in the form rules answer it: resource and subresource already joined.
#[derive(Clone, Copy, Debug)]
pub(super) enum RuleQuery<'a> {
    Resource { verb: &'a str, group: &'a str, combined_resource: &'a str, subresource: &'a str, name: &'a str },
    Path { verb: &'a str, path: &'a str },
}

impl PolicyRule {
    pub(super) fn allows(&self, query: &RuleQuery<'_>) -> bool {
        match query {
            RuleQuery::Resource { verb, group, combined_resource: combined, subresource, name } => {
                contains_or_wildcard(&self.api_groups, group)
                    && contains_or_wildcard(&self.verbs, verb)
                    && self.resources.iter().any(|of_rule| resource_matches(of_rule, combined, subresource))
                    && (self.resource_names.is_empty() || self.resource_names.iter().any(|of_rule| of_rule == name))
            }
            RuleQuery::Path { verb, path } => {
                contains_or_wildcard(&self.verbs, verb)
                    && self.non_resource_urls.iter().any(|of_rule| path_matches(of_rule, path))
            }
        }
    }

    /// Whether no table of exact names can find this rule by its resources.
    pub(super) fn has_wildcard_resource(&self) -> bool {
        self.resources.iter().any(|resource| resource.starts_with('*'))
    }
}

/// Whether the list names the value, or everything.
fn contains_or_wildcard(rule_items: &[String], value: &str) -> bool {
    rule_items.iter().any(|item| item == WILDCARD || item == value)
}

fn resource_matches(pattern: &str, combined_resource: &str, subresource: &str) -> bool {
    pattern == WILDCARD
        || pattern == combined_resource
        || (!subresource.is_empty() && pattern.strip_prefix("*/").is_some_and(|of_any| of_any == subresource))
}

/// Whether a path of a rule stands for the path. Stars count only at the end, and several there are as good as one.
pub(super) fn path_matches(pattern: &str, path: &str) -> bool {
    pattern == path || (pattern.ends_with('*') && path.starts_with(pattern.trim_end_matches('*')))
}

/// As escalation errors show rules: `{APIGroups:["apps"], Resources:["deployments"], Verbs:["get"]}`.
impl fmt::Display for PolicyRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [
            ("APIGroups", &self.api_groups),
            ("Resources", &self.resources),
            ("NonResourceURLs", &self.non_resource_urls),
            ("ResourceNames", &self.resource_names),
            ("Verbs", &self.verbs),
        ];
        f.write_str("{")?;
        let mut separator = "";
        for (name, list) in parts {
            if !list.is_empty() {
                write!(f, "{separator}{name}:{}", QuotedList(list))?;
                separator = ", ";
            }
        }
        f.write_str("}")
    }
}
