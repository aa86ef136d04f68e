//! The findings of one pass over a namespace, and the decision that follows.

use std::collections::BTreeMap;

use api::GroupVersion;

use crate::resources::{DiscoveredResource, DiscoveredResources, DiscoveryState};

/// The findings of one pass over a namespace.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Findings {
    /// Why discovery is incomplete, so that there may be unknown objects.
    pub(super) discovery: Option<String>,
    /// Failed lists and deletions.
    pub(super) failures: Vec<String>,
    /// The number of remaining objects, by `resource.group`.
    pub(super) remaining: BTreeMap<String, usize>,
    /// The number of remaining objects with each finalizer.
    pub(super) finalizers: BTreeMap<String, usize>,
    /// Whether any objects were found, even if they are deleted by now.
    pub(super) contents: NamespaceContents,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum NamespaceContents {
    #[default]
    None,
    Found,
}

/// What to do after a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FinalizeDecision {
    /// Every resource was listed and empty.
    Finalize,
    /// All found objects are deleted: check again at once that no new ones were created.
    Recheck,
    /// Objects remain, or not everything could be checked.
    Wait,
}

/// The result of deleting one resource in the namespace.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ContentDeletion {
    /// There were no objects.
    Empty,
    /// All objects are deleted.
    Deleted,
    /// `is_unexpected`: the objects have no finalizers and are no pods, so they should be gone.
    Remaining { count: usize, finalizers: BTreeMap<String, usize>, is_unexpected: bool },
    /// Listing or deleting failed.
    Failed(String),
}

impl Findings {
    /// Records stale versions and unlisted resources.
    pub(super) fn record_discovery(&mut self, resources: &DiscoveredResources) {
        let stale = |version: &GroupVersion| {
            (version.to_string(), format!("{version}: stale GroupVersion discovery: {version}"))
        };
        let unlisted =
            |resource: &&std::sync::Arc<DiscoveredResource>| resource.discovery_state == DiscoveryState::Unlisted;
        let unlisted = resources.all().iter().filter(unlisted).map(|resource| {
            let version = resource.name.group_version().to_string();
            let why = format!("{version}: {} is no longer listed and may still exist", resource.group_resource());
            (version, why)
        });
        let failing: BTreeMap<String, String> = unlisted.chain(resources.stale_versions().iter().map(stale)).collect();
        if failing.is_empty() {
            return;
        }
        let why: Vec<String> = failing.values().cloned().collect();
        self.discovery = Some(format!(
            "Discovery failed for some groups, {} failing: unable to retrieve the complete list of server APIs: {}",
            failing.len(),
            why.join(", ")
        ));
    }

    /// Records the result for one resource.
    pub(super) fn record_deletion(
        &mut self,
        resource: &DiscoveredResource,
        namespace: &str,
        deletion: ContentDeletion,
    ) {
        match deletion {
            ContentDeletion::Empty => {}
            ContentDeletion::Deleted => self.contents = NamespaceContents::Found,
            ContentDeletion::Remaining { count, finalizers, is_unexpected } => {
                self.contents = NamespaceContents::Found;
                let name = &resource.name;
                self.remaining.insert(format!("{}.{}", name.resource, name.group), count);
                for (finalizer, count) in finalizers {
                    *self.finalizers.entry(finalizer).or_default() += count;
                }
                if is_unexpected {
                    self.failures
                        .push(format!("unexpected items still remain in namespace: {namespace} for gvr: {name}"));
                }
            }
            ContentDeletion::Failed(why) => self.failures.push(why),
        }
    }

    /// Decides to finalize only if nothing was found and nothing could have been overlooked.
    pub(super) fn decide(&self) -> FinalizeDecision {
        if self.discovery.is_some() || !self.failures.is_empty() || !self.remaining.is_empty() {
            return FinalizeDecision::Wait;
        }
        match self.contents {
            NamespaceContents::Found => FinalizeDecision::Recheck,
            NamespaceContents::None => FinalizeDecision::Finalize,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resources::tests::parse_resources;

    fn remaining(count: usize) -> ContentDeletion {
        ContentDeletion::Remaining {
            count,
            finalizers: BTreeMap::from([("f".to_owned(), count)]),
            is_unexpected: false,
        }
    }

    #[test]
    fn namespace_is_finalized_only_after_complete_empty_pass() {
        let all = parse_resources(&["v1 pods Pod ns list,delete", "batch/v1 jobs Job ns list,delete"]);
        let [pods, jobs] = all.all() else { panic!("two resources") };
        let outcome = |emptied: Vec<ContentDeletion>| {
            let mut findings = Findings::default();
            findings.record_discovery(&all);
            for (resource, emptied) in [pods, jobs].into_iter().zip(emptied) {
                findings.record_deletion(resource, "n", emptied);
            }
            findings.decide()
        };
        assert_eq!(outcome(vec![ContentDeletion::Empty, ContentDeletion::Empty]), FinalizeDecision::Finalize);
        assert_eq!(outcome(vec![ContentDeletion::Empty, ContentDeletion::Deleted]), FinalizeDecision::Recheck);
        assert_eq!(outcome(vec![remaining(1), ContentDeletion::Empty]), FinalizeDecision::Wait);
        assert_eq!(
            outcome(vec![ContentDeletion::Empty, ContentDeletion::Failed("503".to_owned())]),
            FinalizeDecision::Wait
        );
        assert_eq!(
            outcome(vec![ContentDeletion::Deleted, ContentDeletion::Failed("503".to_owned())]),
            FinalizeDecision::Wait
        );
    }

    #[test]
    fn stale_group_version_blocks_namespace_finalization() {
        let mut findings = Findings::default();
        findings.record_discovery(&parse_resources(&["batch/v2! planets Planet ns list,delete"]));
        assert_eq!(findings.decide(), FinalizeDecision::Wait);
        assert_eq!(
            findings.discovery.as_deref(),
            Some(
                "Discovery failed for some groups, 1 failing: unable to retrieve the complete list of server APIs: \
                 batch/v2: stale GroupVersion discovery: batch/v2"
            )
        );
    }

    #[test]
    fn unlisted_resource_blocks_namespace_finalization() {
        let before = parse_resources(&["batch/v2 planets Planet ns list,delete"]);
        let mut after = parse_resources(&[]);
        after.keep_unlisted(&before.all()[0]);
        let mut findings = Findings::default();
        findings.record_discovery(&after);
        assert_eq!(findings.decide(), FinalizeDecision::Wait);
        assert!(
            findings.discovery.unwrap().ends_with("batch/v2: planets.batch is no longer listed and may still exist")
        );
    }
}
