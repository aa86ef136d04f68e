//! A compact notation for rules: each list is a string of words separated by spaces; `core` means the core group.

use crate::rbac::PolicyRule;

/// One rule of a table.
#[derive(Clone, Copy, Debug)]
pub(super) struct RuleRow {
    verbs: &'static str,
    groups: &'static str,
    resources: &'static str,
    names: &'static str,
    paths: &'static str,
}

pub(super) const READ: &str = "get list watch";
pub(super) const WRITE: &str = "create update patch delete deletecollection";
pub(super) const READ_WRITE: &str = "get list watch create update patch delete deletecollection";
pub(super) const READ_UPDATE: &str = "get list watch update patch";

/// Permission to write events, which most components have.
pub(super) const EVENTS: RuleRow = rule("create update patch", "core events.k8s.io", "events");

/// Verbs on resources in API groups.
pub(super) const fn rule(verbs: &'static str, groups: &'static str, resources: &'static str) -> RuleRow {
    RuleRow { verbs, groups, resources, names: "", paths: "" }
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
    RuleRow { verbs, groups: "", resources: "", names: "", paths }
}

impl RuleRow {
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
