//! Custom resources and aggregated APIs: shared state that peers' documents have no say in.
//!
//! All servers read their definitions from the storage they share. What this server can itself serve of them is struck from
//! what peers list, one by one, and stays struck for a while after its definition is gone: a peer's document is a late copy and
//! would keep a dead resource alive.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use discovery::Name;
use foldhash::fast::RandomState;
use tokio::time::Instant;

use crate::table::with_key;

/// How long a deleted definition is remembered; kube-apiserver's own period.
pub const GRACE: Duration = Duration::from_secs(5 * 60);

/// Something that a definition in storage brings, in a version that is served.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SharedName {
    /// A resource of a CustomResourceDefinition.
    Resource {
        /// The group.
        group: Name,
        /// The version.
        version: Name,
        /// The resource.
        resource: Name,
    },
    /// A whole version that an APIService hands to another server.
    Version {
        /// The group.
        group: Name,
        /// The version.
        version: Name,
    },
}

/// All that definitions in storage bring and that this server can itself serve. What it cannot is left out: a peer that can
/// is then forwarded to like for any other resource.
pub type SharedNames = BTreeSet<SharedName>;

/// Whose definition it is that a name is struck for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Definition {
    /// One that is in storage now.
    Present,
    /// One that was deleted less than [`GRACE`] ago.
    Deleted,
}

/// The names that are struck, at one moment.
#[derive(Debug, Default)]
pub struct Exclusion {
    names: HashMap<Box<[u8]>, Definition, RandomState>,
    /// The versions of groups that any of them are of: most are of none.
    versions: HashSet<Box<[u8]>, RandomState>,
}

impl Exclusion {
    /// Nothing is struck, as in a gateway.
    pub fn none() -> Arc<Self> {
        Arc::default()
    }

    /// Why a resource is struck, if it is.
    pub fn definition(&self, group: &str, version: &str, resource: &str) -> Option<Definition> {
        if !self.touches(group, version) {
            return None;
        }
        let by_resource = with_key([group, version, resource], |key| self.names.get(key));
        let by_version = with_key([group, version], |key| self.names.get(key));
        match (by_resource, by_version) {
            (Some(Definition::Present), _) | (_, Some(Definition::Present)) => Some(Definition::Present),
            (Some(Definition::Deleted), _) | (_, Some(Definition::Deleted)) => Some(Definition::Deleted),
            (None, None) => None,
        }
    }

    /// Whether anything of a version is struck.
    pub fn touches(&self, group: &str, version: &str) -> bool {
        !self.is_empty() && with_key([group, version], |key| self.versions.contains(key))
    }

    /// Whether nothing is struck.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }
}

/// Follows the definitions and remembers those that went.
#[derive(Debug)]
pub struct Definitions {
    grace: Duration,
    present: Arc<SharedNames>,
    deleted: HashMap<SharedName, Instant>,
    exclusion: Arc<Exclusion>,
}

impl Definitions {
    /// No definitions yet.
    pub fn new(grace: Duration) -> Self {
        Self { grace, present: Arc::default(), deleted: HashMap::new(), exclusion: Exclusion::none() }
    }

    /// Takes in what is defined now, and what has become of the deleted; gives what is struck. The value is the same as
    /// before if nothing changed.
    pub fn see(&mut self, present: &Arc<SharedNames>, now: Instant) -> Arc<Exclusion> {
        let is_new = !Arc::ptr_eq(present, &self.present) && present != &self.present;
        if is_new {
            self.deleted.extend(self.present.difference(present).map(|name| (name.clone(), now)));
        }
        let remembered = self.deleted.len();
        self.deleted.retain(|name, since| !present.contains(name) && now.duration_since(*since) < self.grace);
        if is_new || self.deleted.len() != remembered {
            self.exclusion = Arc::new(exclusion_of(present, self.deleted.keys()));
        }
        self.present = present.clone();
        self.exclusion.clone()
    }

    /// When a deleted definition is to be forgotten.
    pub fn next_change(&self) -> Option<Instant> {
        self.deleted.values().min().map(|since| *since + self.grace)
    }
}

fn exclusion_of<'a>(present: &SharedNames, deleted: impl Iterator<Item = &'a SharedName>) -> Exclusion {
    let present = present.iter().map(|name| (name, Definition::Present));
    let all: Vec<_> = deleted.map(|name| (name, Definition::Deleted)).chain(present).collect();
    Exclusion {
        names: all.iter().map(|(name, definition)| (key_of(name), *definition)).collect(),
        versions: all.iter().map(|(name, _)| version_key_of(name)).collect(),
    }
}

fn key_of(name: &SharedName) -> Box<[u8]> {
    match name {
        SharedName::Resource { group, version, resource } => with_key([group, version, resource], |key| key.into()),
        SharedName::Version { .. } => version_key_of(name),
    }
}

fn version_key_of(name: &SharedName) -> Box<[u8]> {
    match name {
        SharedName::Resource { group, version, .. } | SharedName::Version { group, version } => {
            with_key([group, version], |key| key.into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::shared_names;

    fn names(notation: &str) -> Arc<SharedNames> {
        Arc::new(shared_names(notation))
    }

    #[track_caller]
    fn check(exclusion: &Exclusion, name: &str, expected: Option<Definition>) {
        let mut parts = name.split('/');
        let [group, version, resource] = std::array::from_fn(|_| parts.next().unwrap());
        assert_eq!(exclusion.definition(group, version, resource), expected, "{name}");
    }

    #[test]
    fn a_custom_resource_is_struck_by_itself() {
        let exclusion = Definitions::new(GRACE).see(&names("batch/v2/widgets"), Instant::now());
        check(&exclusion, "batch/v2/widgets", Some(Definition::Present));
        for other in ["batch/v2/jobs", "batch/v1/widgets", "apps/v2/widgets"] {
            check(&exclusion, other, None);
        }
    }

    #[test]
    fn an_aggregated_version_is_struck_as_a_whole() {
        let exclusion = Definitions::new(GRACE).see(&names("metrics.k8s.io/v1beta1"), Instant::now());
        check(&exclusion, "metrics.k8s.io/v1beta1/pods", Some(Definition::Present));
        check(&exclusion, "metrics.k8s.io/v1/pods", None);
    }

    #[test]
    fn a_deleted_definition_stays_struck_for_the_grace_and_not_longer() {
        let mut definitions = Definitions::new(GRACE);
        let start = Instant::now();
        definitions.see(&names("a/v1/xs b/v1/ys"), start);
        let exclusion = definitions.see(&names("b/v1/ys"), start);
        check(&exclusion, "a/v1/xs", Some(Definition::Deleted));
        check(&exclusion, "b/v1/ys", Some(Definition::Present));
        assert_eq!(definitions.next_change(), Some(start + GRACE));
        let exclusion = definitions.see(&names("b/v1/ys"), start + GRACE - Duration::from_millis(1));
        check(&exclusion, "a/v1/xs", Some(Definition::Deleted));
        // At the very instant of the timer, so that no second one is needed.
        let exclusion = definitions.see(&names("b/v1/ys"), start + GRACE);
        check(&exclusion, "a/v1/xs", None);
        assert_eq!(definitions.next_change(), None);
    }

    #[test]
    fn a_definition_that_returns_is_present_and_its_next_deletion_counts_anew() {
        let mut definitions = Definitions::new(GRACE);
        let start = Instant::now();
        definitions.see(&names("a/v1/xs"), start);
        definitions.see(&names(""), start);
        let exclusion = definitions.see(&names("a/v1/xs"), start + GRACE / 2);
        check(&exclusion, "a/v1/xs", Some(Definition::Present));
        definitions.see(&names(""), start + GRACE);
        assert_eq!(definitions.next_change(), Some(start + GRACE * 2));
    }

    #[test]
    fn nothing_new_is_the_same_value() {
        let mut definitions = Definitions::new(GRACE);
        let start = Instant::now();
        let first = definitions.see(&names("a/v1/xs"), start);
        assert!(Arc::ptr_eq(&first, &definitions.see(&names("a/v1/xs"), start + GRACE)));
        assert!(!Arc::ptr_eq(&first, &definitions.see(&names("a/v1/xs a/v1/ys"), start + GRACE)));
    }
}
