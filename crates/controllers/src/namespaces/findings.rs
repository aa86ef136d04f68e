//! What a look at a namespace found, and what follows from it.

use std::collections::BTreeMap;

use api::GroupVersion;

use crate::resources::{Resource, Resources, Standing};

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
    pub(super) contents: Contents,
}

/// Whether a namespace had something in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Contents {
    #[default]
    None,
    Found,
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Every resource was listed, and every list was empty: it may go.
    Finalize,
    /// Everything that was found is gone: look again at once, to see that nothing came after it.
    LookAgain,
    /// Something is left, or not everything could be seen.
    Wait,
}

/// What became of one resource in the namespace.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Emptied {
    /// There was nothing.
    Empty,
    /// There was something, and it is gone.
    Cleared,
    /// There still is something.
    Left { count: usize, finalizers: BTreeMap<String, usize>, is_unexpected: bool },
    /// Nobody knows.
    Failed(String),
}

impl Findings {
    /// Notes what discovery leaves open.
    pub(super) fn note_discovery(&mut self, resources: &Resources) {
        let stale = |version: &GroupVersion| {
            (version.to_string(), format!("{version}: stale GroupVersion discovery: {version}"))
        };
        let unlisted = |resource: &&std::sync::Arc<Resource>| resource.standing == Standing::Unlisted;
        let unlisted = resources.all().iter().filter(unlisted).map(|resource| {
            let version = resource.name.group_version().to_string();
            let why = format!("{version}: {} is no longer listed and may still exist", resource.group_resource());
            (version, why)
        });
        let failing: BTreeMap<String, String> = unlisted.chain(resources.stale().iter().map(stale)).collect();
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
    pub(super) fn note(&mut self, resource: &Resource, namespace: &str, emptied: Emptied) {
        match emptied {
            Emptied::Empty => {}
            Emptied::Cleared => self.contents = Contents::Found,
            Emptied::Left { count, finalizers, is_unexpected } => {
                self.contents = Contents::Found;
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
            Emptied::Failed(why) => self.failures.push(why),
        }
    }

    /// A namespace goes only if nothing was found and nothing could have been overlooked.
    pub(super) fn verdict(&self) -> Verdict {
        if self.discovery.is_some() || !self.failures.is_empty() || !self.remaining.is_empty() {
            return Verdict::Wait;
        }
        match self.contents {
            Contents::Found => Verdict::LookAgain,
            Contents::None => Verdict::Finalize,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resources::tests::resources;

    fn left(count: usize) -> Emptied {
        Emptied::Left { count, finalizers: BTreeMap::from([("f".to_owned(), count)]), is_unexpected: false }
    }

    #[test]
    fn only_a_pass_that_found_nothing_and_saw_everything_lets_a_namespace_go() {
        let all = resources(&["v1 pods Pod ns list,delete", "batch/v1 jobs Job ns list,delete"]);
        let [pods, jobs] = all.all() else { panic!("two resources") };
        let verdict = |emptied: Vec<Emptied>| {
            let mut findings = Findings::default();
            findings.note_discovery(&all);
            for (resource, emptied) in [pods, jobs].into_iter().zip(emptied) {
                findings.note(resource, "n", emptied);
            }
            findings.verdict()
        };
        assert_eq!(verdict(vec![Emptied::Empty, Emptied::Empty]), Verdict::Finalize);
        assert_eq!(verdict(vec![Emptied::Empty, Emptied::Cleared]), Verdict::LookAgain);
        assert_eq!(verdict(vec![left(1), Emptied::Empty]), Verdict::Wait);
        assert_eq!(verdict(vec![Emptied::Empty, Emptied::Failed("503".to_owned())]), Verdict::Wait);
        assert_eq!(verdict(vec![Emptied::Cleared, Emptied::Failed("503".to_owned())]), Verdict::Wait);
    }

    #[test]
    fn a_stale_version_keeps_a_namespace_whatever_was_listed() {
        let mut findings = Findings::default();
        findings.note_discovery(&resources(&["batch/v2! planets Planet ns list,delete"]));
        assert_eq!(findings.verdict(), Verdict::Wait);
        assert_eq!(
            findings.discovery.as_deref(),
            Some(
                "Discovery failed for some groups, 1 failing: unable to retrieve the complete list of server APIs: \
                 batch/v2: stale GroupVersion discovery: batch/v2"
            )
        );
    }

    #[test]
    fn what_is_no_longer_listed_keeps_a_namespace() {
        let before = resources(&["batch/v2 planets Planet ns list,delete"]);
        let mut after = resources(&[]);
        after.keep_unlisted(&before.all()[0]);
        let mut findings = Findings::default();
        findings.note_discovery(&after);
        assert_eq!(findings.verdict(), Verdict::Wait);
        assert!(
            findings.discovery.unwrap().ends_with("batch/v2: planets.batch is no longer listed and may still exist")
        );
    }
}
