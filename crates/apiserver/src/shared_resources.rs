//! What objects in storage bring, for routing and merged discovery: custom resources and group-versions of extension API servers.
//!
//! Each part has one writer; the publisher combines them.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use aggregation::api_service::GroupPriorities;
use discovery::build::{LocalGroupVersion, build};
use discovery::{CreationTimestamp, GroupDiscovery, GroupDiscoveryList};
use membership::exclusion::{DefinedResource, SharedResources};
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::definitions::CustomResources;

/// Publishes the combination of both parts.
#[derive(Debug, Default)]
pub struct SharedPublisher {
    parts: Mutex<SharedParts>,
    combined: watch::Sender<SharedResources>,
}

#[derive(Debug, Default)]
struct SharedParts {
    custom: Arc<CustomResources>,
    extensions: Arc<Vec<LocalGroupVersion>>,
    /// Of the group-versions that servers serve themselves.
    priorities: Arc<GroupPriorities>,
    /// The last combination and the parts that it was made from: most changes of definitions change nothing here.
    last: Option<Combination>,
}

#[derive(Debug)]
struct Combination {
    custom: SharedResources,
    extensions: Arc<Vec<LocalGroupVersion>>,
    priorities: Arc<GroupPriorities>,
    combined: SharedResources,
}

impl SharedPublisher {
    /// The combination as it changes.
    pub fn subscribe(&self) -> watch::Receiver<SharedResources> {
        self.combined.subscribe()
    }

    /// Replaces the custom resources.
    pub(crate) fn set_custom(&self, custom: &Arc<CustomResources>) {
        let mut parts = self.parts.lock();
        parts.custom = custom.clone();
        self.combined.send_replace(parts.combine());
    }

    /// Replaces the group-versions of extension API servers, and the priorities of all other groups.
    pub(crate) fn set_extensions(&self, extensions: &Arc<Vec<LocalGroupVersion>>, priorities: &Arc<GroupPriorities>) {
        let mut parts = self.parts.lock();
        (parts.extensions, parts.priorities) = (extensions.clone(), priorities.clone());
        self.combined.send_replace(parts.combine());
    }
}

impl SharedParts {
    fn combine(&mut self) -> SharedResources {
        let custom = self.custom.shared();
        if self.extensions.is_empty() {
            return custom.clone();
        }
        if let Some(last) = &self.last
            && Arc::ptr_eq(&last.custom.defined, &custom.defined)
            && Arc::ptr_eq(&last.custom.groups, &custom.groups)
            && Arc::ptr_eq(&last.extensions, &self.extensions)
            && Arc::ptr_eq(&last.priorities, &self.priorities)
        {
            return last.combined.clone();
        }
        let delegated = self
            .extensions
            .iter()
            .map(|part| DefinedResource::GroupVersion { group: part.group.clone(), version: part.version.clone() });
        let defined = custom.defined.iter().cloned().chain(delegated).collect();
        let mut parts = self.custom.custom_discovery().group_versions;
        parts.extend(self.extensions.iter().cloned());
        let groups = Arc::new(ordered_groups(&parts, &self.priorities));
        let combined = SharedResources { defined: Arc::new(defined), groups };
        let (custom, extensions, priorities) = (custom.clone(), self.extensions.clone(), self.priorities.clone());
        self.last = Some(Combination { custom, extensions, priorities, combined: combined.clone() });
        combined
    }
}

/// The groups of the parts by priority, then name, among all other groups, which have no versions here.
fn ordered_groups(parts: &[LocalGroupVersion], others: &GroupPriorities) -> GroupDiscoveryList {
    let mut priorities: BTreeMap<&str, i32> =
        others.iter().map(|(group, priority)| (group.as_str(), *priority)).collect();
    for part in parts {
        let known = priorities.entry(&part.group).or_insert(part.group_priority);
        *known = part.group_priority.max(*known);
    }
    let built = build(parts, CreationTimestamp::Absent);
    let place = |name: &str| GroupDiscovery {
        name: name.into(),
        creation_timestamp: CreationTimestamp::Absent,
        versions: Vec::new(),
    };
    let mut names: Vec<(Reverse<i32>, &str)> = priorities.into_iter().map(|(name, it)| (Reverse(it), name)).collect();
    names.sort_unstable();
    let groups = names.into_iter().map(|(_, name)| built.group(name).cloned().unwrap_or_else(|| Arc::new(place(name))));
    GroupDiscoveryList::new(groups.collect())
}

#[cfg(test)]
mod tests {
    use discovery::build::{DiscoverySource, LocalGroupVersion};
    use discovery::{DiscoveryFreshness, GroupDiscovery, GroupDiscoveryList};

    use super::*;

    fn part(group: &str, group_priority: i32) -> LocalGroupVersion {
        LocalGroupVersion {
            source: DiscoverySource::Aggregated,
            group: group.into(),
            version: "v1".into(),
            group_priority,
            version_priority: 15,
            freshness: DiscoveryFreshness::Current,
            resources: Vec::new(),
        }
    }

    #[test]
    fn extension_groups_stand_by_priority_among_built_in_groups() {
        let priorities = GroupPriorities::from([("apps".to_owned(), 17800), ("batch".to_owned(), 17400)]);
        let parts = [part("first.io", 20000), part("middle.io", 17500), part("late.io", 1000), part("equal.io", 17400)];
        let ordered = ordered_groups(&parts, &priorities);
        let names = |groups: &GroupDiscoveryList| -> Vec<String> {
            groups.items().iter().map(|group| group.name.to_string()).collect()
        };
        assert_eq!(names(&ordered), ["first.io", "apps", "middle.io", "batch", "equal.io", "late.io"]);
        // A group that has no APIService, of a newer peer, keeps its place.
        let own = ["apps", "new.k8s.io", "batch", "policy"].map(|name| {
            let version = build(&[part(name, 1)], CreationTimestamp::Absent).items()[0].versions.clone();
            Arc::new(GroupDiscovery {
                name: name.into(),
                creation_timestamp: CreationTimestamp::Absent,
                versions: version,
            })
        });
        let merged = GroupDiscoveryList::new(own.to_vec()).with_ordered_groups(&ordered);
        let expected = ["first.io", "apps", "new.k8s.io", "middle.io", "batch", "policy", "equal.io", "late.io"]
            .map(str::to_owned);
        assert_eq!(names(&merged), expected);
    }
}
