//! A single policy rule and its matching.

use std::fmt;

use api::quote::QuotedList;
use api::wire::null_is_default;
use serde::{Deserialize, Serialize};

/// Matches every verb, group, resource or path.
const WILDCARD: &str = "*";

/// A policy rule: verbs on resources in API groups, or verbs on non-resource paths.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PolicyRule {
    /// `*` matches all.
    #[serde(default, deserialize_with = "null_is_default")]
    pub verbs: Vec<String>,
    /// `*` matches all; the empty string is the core group.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub api_groups: Vec<String>,
    /// Resources and `resource/subresource` pairs; `*` matches both, `*/scale` matches one subresource of every
    /// resource.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<String>,
    /// Limits the rule to these objects; empty means all. Requests without a name, such as lists, never match a name.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub resource_names: Vec<String>,
    /// Paths; a trailing `*` matches any suffix.
    #[serde(
        default,
        rename = "nonResourceURLs",
        deserialize_with = "null_is_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub non_resource_urls: Vec<String>,
}

/// An authorization query in the form rules are matched against, with resource and subresource joined.
#[derive(Clone, Copy, Debug)]
pub(super) enum RuleQuery<'a> {
    Resource { verb: &'a str, group: &'a str, combined_resource: &'a str, subresource: &'a str, name: &'a str },
    Path { verb: &'a str, path: &'a str },
}

impl PolicyRule {
    pub(super) fn allows(&self, query: &RuleQuery<'_>) -> bool {
        match query {
            RuleQuery::Resource { verb, group, combined_resource, subresource, name } => {
                contains_or_wildcard(&self.api_groups, group)
                    && contains_or_wildcard(&self.verbs, verb)
                    && self.resources.iter().any(|of_rule| resource_matches(of_rule, combined_resource, subresource))
                    && (self.resource_names.is_empty() || self.resource_names.iter().any(|of_rule| of_rule == name))
            }
            RuleQuery::Path { verb, path } => {
                contains_or_wildcard(&self.verbs, verb)
                    && self.non_resource_urls.iter().any(|of_rule| path_matches(of_rule, path))
            }
        }
    }

    /// Reports whether the rule must be checked for every resource, because an exact-name lookup cannot find it.
    pub(super) fn has_wildcard_resource(&self) -> bool {
        self.resources.iter().any(|resource| resource.starts_with('*'))
    }
}

fn contains_or_wildcard(rule_items: &[String], value: &str) -> bool {
    rule_items.iter().any(|item| item == WILDCARD || item == value)
}

fn resource_matches(pattern: &str, combined_resource: &str, subresource: &str) -> bool {
    pattern == WILDCARD
        || pattern == combined_resource
        || (!subresource.is_empty() && pattern.strip_prefix("*/").is_some_and(|of_any| of_any == subresource))
}

/// Reports whether a rule's path matches. Only trailing stars are wildcards; several equal one.
pub(super) fn path_matches(pattern: &str, path: &str) -> bool {
    pattern == path || (pattern.ends_with('*') && path.starts_with(pattern.trim_end_matches('*')))
}

/// Formats a rule as escalation errors do: `{APIGroups:["apps"], Resources:["deployments"], Verbs:["get"]}`.
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
