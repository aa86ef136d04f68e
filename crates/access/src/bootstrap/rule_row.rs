//! A compact notation for rules: each list is a string of words separated by spaces; `core` means the core group.

use super::ServerFeatures;
use crate::rbac::PolicyRule;

/// One rule of a table.
#[derive(Clone, Copy, Debug)]
pub(super) struct RuleRow {
    verbs: &'static str,
    groups: &'static str,
    resources: &'static str,
    names: &'static str,
    paths: &'static str,
    condition: RuleCondition,
}

/// When a rule exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RuleCondition {
    Always,
    /// While the feature gate is on.
    Gate(&'static str),
    /// While the feature gate is off.
    WithoutGate(&'static str),
    /// From this minor release on.
    Since(u32),
    /// Up to this minor release.
    Until(u32),
}

pub(super) const READ: &str = "get list watch";
pub(super) const WRITE: &str = "create update patch delete deletecollection";
pub(super) const READ_WRITE: &str = "get list watch create update patch delete deletecollection";
pub(super) const READ_UPDATE: &str = "get list watch update patch";

/// Permission to write events, which most components have.
pub(super) const EVENTS: RuleRow = rule("create update patch", "core events.k8s.io", "events");

/// Verbs on resources in API groups.
pub(super) const fn rule(verbs: &'static str, groups: &'static str, resources: &'static str) -> RuleRow {
    RuleRow { verbs, groups, resources, names: "", paths: "", condition: RuleCondition::Always }
}

/// Like [`rule`], limited to the named objects.
pub(super) const fn rule_for_names(
    verbs: &'static str,
    groups: &'static str,
    resources: &'static str,
    names: &'static str,
) -> RuleRow {
    RuleRow { names, ..rule(verbs, groups, resources) }
}

/// Verbs on non-resource paths.
pub(super) const fn path_rule(verbs: &'static str, paths: &'static str) -> RuleRow {
    RuleRow { verbs, groups: "", resources: "", names: "", paths, condition: RuleCondition::Always }
}

/// A rule that exists under a condition.
pub(super) const fn rule_when(condition: RuleCondition, row: RuleRow) -> RuleRow {
    RuleRow { condition, ..row }
}

impl RuleCondition {
    fn is_met(self, features: &ServerFeatures<'_>) -> bool {
        match self {
            Self::Always => true,
            Self::Gate(gate) => (features.is_on)(gate),
            Self::WithoutGate(gate) => !(features.is_on)(gate),
            Self::Since(minor) => features.minor >= minor,
            Self::Until(minor) => features.minor <= minor,
        }
    }
}

impl RuleRow {
    /// True if a server with these features has the rule.
    pub(super) fn exists(self, features: &ServerFeatures<'_>) -> bool {
        self.condition.is_met(features)
    }

    /// Converts to a `PolicyRule`; every list is sorted, as in Kubernetes' defaults.
    pub(super) fn to_rule(self) -> PolicyRule {
        PolicyRule {
            verbs: sorted_words(self.verbs),
            api_groups: sorted_words(self.groups),
            resources: sorted_words(self.resources),
            resource_names: sorted_words(self.names),
            non_resource_urls: sorted_words(self.paths),
        }
    }
}

fn sorted_words(text: &str) -> Vec<String> {
    let mut words: Vec<String> =
        text.split_whitespace().map(|word| if word == "core" { "" } else { word }.to_owned()).collect();
    words.sort_unstable();
    words
}
