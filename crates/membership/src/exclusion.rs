//! Custom resources and aggregated APIs: shared state, for which peers' documents do not count.
//!
//! All servers read definitions from shared storage. Resources that this server can itself serve from definitions are excluded
//! from peers' documents, and stay excluded for a while after their definition is deleted: a peer's document is a late copy and
//! would keep a deleted resource alive.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use discovery::{GroupDiscoveryList, SharedStr};
use foldhash::fast::RandomState;
use tokio::time::Instant;

use crate::routing_table::with_key;

/// How long resources of a deleted definition stay excluded; kube-apiserver's own period.
pub const DELETED_GRACE_PERIOD: Duration = Duration::from_secs(5 * 60);

/// A served version that a definition in storage brings.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DefinedResource {
    /// A resource of a CustomResourceDefinition.
    Resource {
        /// The API group.
        group: SharedStr,
        /// The served version.
        version: SharedStr,
        /// The resource name, plural.
        resource: SharedStr,
    },
    /// A whole group-version that an APIService delegates to another server.
    GroupVersion {
        /// The API group.
        group: SharedStr,
        /// The served version.
        version: SharedStr,
    },
}

/// The resources from definitions in storage that this server can itself serve. Requests for others are forwarded to a peer
/// that serves them, like for any other resource.
pub type DefinedResources = BTreeSet<DefinedResource>;

/// What definitions in storage bring, as far as this server can serve it. Every server derives the same value from the same
/// definitions.
#[derive(Clone, Debug)]
pub struct SharedResources {
    /// The names, which are excluded from peers' documents.
    pub defined: Arc<DefinedResources>,
    /// The groups for the merged discovery document, in order. A group without versions is a built-in one: it marks a place in the
    /// order. A group that no built-in one follows comes last.
    pub groups: Arc<GroupDiscoveryList>,
}

impl Default for SharedResources {
    fn default() -> Self {
        Self { defined: Arc::default(), groups: Arc::new(GroupDiscoveryList::new(Vec::new())) }
    }
}

/// The state of the definition that excludes a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefinitionState {
    /// The definition is in storage.
    Present,
    /// The definition was deleted less than [`DELETED_GRACE_PERIOD`] ago.
    Deleted,
}

/// The excluded resources at one moment.
#[derive(Debug, Default)]
pub struct Exclusion {
    names: HashMap<Box<[u8]>, DefinitionState, RandomState>,
    /// The group-versions with an excluded resource, for a quick negative answer.
    versions: HashSet<Box<[u8]>, RandomState>,
}

impl Exclusion {
    /// Excludes nothing, as in a gateway.
    pub fn empty() -> Arc<Self> {
        Arc::default()
    }

    /// The state of the definition that excludes a resource; `None` if it is not excluded.
    pub fn definition_state(&self, group: &str, version: &str, resource: &str) -> Option<DefinitionState> {
        if !self.affects_version(group, version) {
            return None;
        }
        let by_resource = with_key([group, version, resource], |key| self.names.get(key));
        let by_version = with_key([group, version], |key| self.names.get(key));
        match (by_resource, by_version) {
            (Some(DefinitionState::Present), _) | (_, Some(DefinitionState::Present)) => Some(DefinitionState::Present),
            (Some(DefinitionState::Deleted), _) | (_, Some(DefinitionState::Deleted)) => Some(DefinitionState::Deleted),
            (None, None) => None,
        }
    }

    /// True if any resource of a group-version is excluded.
    pub fn affects_version(&self, group: &str, version: &str) -> bool {
        !self.is_empty() && with_key([group, version], |key| self.versions.contains(key))
    }

    /// True if nothing is excluded.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }
}

/// Follows the definitions and remembers deleted ones.
#[derive(Debug)]
pub struct ExclusionManager {
    grace_period: Duration,
    present: Arc<DefinedResources>,
    deleted: HashMap<DefinedResource, Instant>,
    exclusion: Arc<Exclusion>,
}

impl ExclusionManager {
    /// No definitions yet.
    pub fn new(grace_period: Duration) -> Self {
        Self { grace_period, present: Arc::default(), deleted: HashMap::new(), exclusion: Exclusion::empty() }
    }

    /// Updates the definitions and returns the exclusion; the same `Arc` as before if nothing changed.
    pub fn observe(&mut self, present: &Arc<DefinedResources>, now: Instant) -> Arc<Exclusion> {
        let is_new = !Arc::ptr_eq(present, &self.present) && present != &self.present;
        if is_new {
            self.deleted.extend(self.present.difference(present).map(|name| (name.clone(), now)));
        }
        let deleted_before = self.deleted.len();
        self.deleted.retain(|name, since| !present.contains(name) && now.duration_since(*since) < self.grace_period);
        if is_new || self.deleted.len() != deleted_before {
            self.exclusion = Arc::new(build_exclusion(present, self.deleted.keys()));
        }
        self.present = present.clone();
        self.exclusion.clone()
    }

    /// When the next deleted definition is forgotten.
    pub fn next_change(&self) -> Option<Instant> {
        self.deleted.values().min().map(|since| *since + self.grace_period)
    }
}

fn build_exclusion<'a>(present: &DefinedResources, deleted: impl Iterator<Item = &'a DefinedResource>) -> Exclusion {
    let present = present.iter().map(|name| (name, DefinitionState::Present));
    let all: Vec<_> = deleted.map(|name| (name, DefinitionState::Deleted)).chain(present).collect();
    Exclusion {
        names: all.iter().map(|(name, definition)| (resource_key(name), *definition)).collect(),
        versions: all.iter().map(|(name, _)| version_key(name)).collect(),
    }
}

fn resource_key(name: &DefinedResource) -> Box<[u8]> {
    match name {
        DefinedResource::Resource { group, version, resource } => {
            with_key([group, version, resource], |key| key.into())
        }
        DefinedResource::GroupVersion { .. } => version_key(name),
    }
}

fn version_key(name: &DefinedResource) -> Box<[u8]> {
    match name {
        DefinedResource::Resource { group, version, .. } | DefinedResource::GroupVersion { group, version } => {
            with_key([group, version], |key| key.into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::defined_resources_from_notation;

    fn defined_resources(notation: &str) -> Arc<DefinedResources> {
        Arc::new(defined_resources_from_notation(notation))
    }

    #[track_caller]
    fn check(exclusion: &Exclusion, name: &str, expected: Option<DefinitionState>) {
        let mut parts = name.split('/');
        let [group, version, resource] = std::array::from_fn(|_| parts.next().unwrap());
        assert_eq!(exclusion.definition_state(group, version, resource), expected, "{name}");
    }

    #[test]
    fn custom_resource_is_excluded_alone() {
        let exclusion =
            ExclusionManager::new(DELETED_GRACE_PERIOD).observe(&defined_resources("batch/v2/widgets"), Instant::now());
        check(&exclusion, "batch/v2/widgets", Some(DefinitionState::Present));
        for other in ["batch/v2/jobs", "batch/v1/widgets", "apps/v2/widgets"] {
            check(&exclusion, other, None);
        }
    }

    #[test]
    fn aggregated_version_is_excluded_as_a_whole() {
        let exclusion = ExclusionManager::new(DELETED_GRACE_PERIOD)
            .observe(&defined_resources("metrics.k8s.io/v1beta1"), Instant::now());
        check(&exclusion, "metrics.k8s.io/v1beta1/pods", Some(DefinitionState::Present));
        check(&exclusion, "metrics.k8s.io/v1/pods", None);
    }

    #[test]
    fn deleted_definition_is_excluded_until_grace_period_ends() {
        let mut definitions = ExclusionManager::new(DELETED_GRACE_PERIOD);
        let start = Instant::now();
        definitions.observe(&defined_resources("a/v1/xs b/v1/ys"), start);
        let exclusion = definitions.observe(&defined_resources("b/v1/ys"), start);
        check(&exclusion, "a/v1/xs", Some(DefinitionState::Deleted));
        check(&exclusion, "b/v1/ys", Some(DefinitionState::Present));
        assert_eq!(definitions.next_change(), Some(start + DELETED_GRACE_PERIOD));
        let exclusion =
            definitions.observe(&defined_resources("b/v1/ys"), start + DELETED_GRACE_PERIOD - Duration::from_millis(1));
        check(&exclusion, "a/v1/xs", Some(DefinitionState::Deleted));
        // At the exact instant of the timer, so that no second one is needed.
        let exclusion = definitions.observe(&defined_resources("b/v1/ys"), start + DELETED_GRACE_PERIOD);
        check(&exclusion, "a/v1/xs", None);
        assert_eq!(definitions.next_change(), None);
    }

    #[test]
    fn recreated_definition_restarts_grace_period() {
        let mut definitions = ExclusionManager::new(DELETED_GRACE_PERIOD);
        let start = Instant::now();
        definitions.observe(&defined_resources("a/v1/xs"), start);
        definitions.observe(&defined_resources(""), start);
        let exclusion = definitions.observe(&defined_resources("a/v1/xs"), start + DELETED_GRACE_PERIOD / 2);
        check(&exclusion, "a/v1/xs", Some(DefinitionState::Present));
        definitions.observe(&defined_resources(""), start + DELETED_GRACE_PERIOD);
        assert_eq!(definitions.next_change(), Some(start + DELETED_GRACE_PERIOD * 2));
    }

    #[test]
    fn observe_returns_same_exclusion_without_changes() {
        let mut definitions = ExclusionManager::new(DELETED_GRACE_PERIOD);
        let start = Instant::now();
        let first = definitions.observe(&defined_resources("a/v1/xs"), start);
        assert!(Arc::ptr_eq(&first, &definitions.observe(&defined_resources("a/v1/xs"), start + DELETED_GRACE_PERIOD)));
        assert!(!Arc::ptr_eq(
            &first,
            &definitions.observe(&defined_resources("a/v1/xs a/v1/ys"), start + DELETED_GRACE_PERIOD)
        ));
    }
}
