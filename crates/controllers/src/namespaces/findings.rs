//! What a look at a namespace found, and what follows from it.

use std::collections::BTreeMap;

use api::GroupVersion;

use crate::resources::{DiscoveredResource, DiscoveredResources, DiscoveryState};

/// What one pass over a namespace has found.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Findings {
    /// What is wrong with discovery: nobody knows what else there may be.
    pub(super) discovery: Option<String>,
    /// What could not be listed or deleted.
    pub(super) failures: Vec<String>,
    /// How many objects are left, by `resource.group`.
    pub(super) remaining: BTreeMap<String, usize>,
    /// How many of them each finalizer keeps.
    pub(super) finalizers: BTreeMap<String, usize>,
    /// Whether anything was there, even if it is gone by now.
    pub(super) contents: NamespaceContents,
}

/// Whether a namespace had something in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum NamespaceContents {
    #[default]
    None,
    Found,
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FinalizeDecision {
    /// Every resource was listed, and every list was empty: it may go.
    Finalize,
    /// Everything that was found is gone: look again at once, to see that nothing came after it.
    Recheck,
    /// Something is left, or not everything could be seen.
    Wait,
}

/// What became of one resource in the namespace.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ContentDeletion {
    /// There was nothing.
    Empty,
    /// There was something, and it is gone.
    Deleted,
    /// There still is something.
    Remaining { count: usize, finalizers: BTreeMap<String, usize>, is_unexpected: bool },
    /// Nobody knows.
    Failed(String),
}

impl Findings {
    /// Notes what discovery leaves open.
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

    /// Notes what became of one resource.
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

    /// A namespace goes only if nothing was found and nothing could have been overlooked.
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
        let verdict = |emptied: Vec<ContentDeletion>| {
            let mut findings = Findings::default();
            findings.record_discovery(&all);
            for (resource, emptied) in [pods, jobs].into_iter().zip(emptied) {
                findings.record_deletion(resource, "n", emptied);
            }
            findings.decide()
        };
        assert_eq!(verdict(vec![ContentDeletion::Empty, ContentDeletion::Empty]), FinalizeDecision::Finalize);
        assert_eq!(verdict(vec![ContentDeletion::Empty, ContentDeletion::Deleted]), FinalizeDecision::Recheck);
        assert_eq!(verdict(vec![remaining(1), ContentDeletion::Empty]), FinalizeDecision::Wait);
        assert_eq!(
            verdict(vec![ContentDeletion::Empty, ContentDeletion::Failed("503".to_owned())]),
            FinalizeDecision::Wait
        );
        assert_eq!(
            verdict(vec![ContentDeletion::Deleted, ContentDeletion::Failed("503".to_owned())]),
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
