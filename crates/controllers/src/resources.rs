//! The resources that controllers work on, from discovery.
//!
//! One version represents all versions of a resource, which are views of the same objects. A resource without a
//! confirmed version stays in the list, so that requests for it fail instead of being skipped.

use std::collections::HashMap;
use std::sync::Arc;

use api::{GroupResource, GroupVersion, GroupVersionResource};
use discovery::{
    DiscoveryFreshness, DiscoveryScope, GroupDiscovery, GroupDiscoveryList, SharedStrList, VersionDiscovery,
};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

/// Characters to escape in a path segment.
const PATH_SEGMENT_ESCAPES: &AsciiSet =
    &CONTROLS.add(b' ').add(b'"').add(b'#').add(b'%').add(b'/').add(b'<').add(b'>').add(b'?');

/// One resource in the version used for requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DiscoveredResource {
    pub(crate) name: GroupVersionResource,
    pub(crate) kind: Arc<str>,
    pub(crate) scope: ResourceScope,
    pub(crate) discovery_state: DiscoveryState,
    verbs: SharedStrList,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResourceScope {
    Cluster,
    Namespace,
}

/// Whether discovery confirms a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DiscoveryState {
    Confirmed,
    /// All its versions are `Stale`.
    Stale,
    /// It was listed before and is not listed now, but is not proven gone.
    Unlisted,
}

impl DiscoveredResource {
    pub(crate) fn supports(&self, verb: &str) -> bool {
        self.verbs.iter().any(|known| **known == *verb)
    }

    pub(crate) fn group_resource(&self) -> GroupResource<&str> {
        self.name.group_resource()
    }

    /// The path of the collection in a namespace; with an empty namespace, of all namespaces or of the cluster scope.
    pub(crate) fn path(&self, namespace: &str) -> String {
        let GroupVersionResource { group, version, resource } = &self.name;
        let root = if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
        match (self.scope, namespace) {
            (ResourceScope::Namespace, namespace) if !namespace.is_empty() => {
                format!("{root}/namespaces/{}/{resource}", escape_segment(namespace))
            }
            (ResourceScope::Cluster | ResourceScope::Namespace, _) => format!("{root}/{resource}"),
        }
    }

    /// The path of one object.
    pub(crate) fn object_path(&self, namespace: &str, name: &str) -> String {
        format!("{}/{}", self.path(namespace), escape_segment(name))
    }
}

fn escape_segment(text: &str) -> impl std::fmt::Display + '_ {
    utf8_percent_encode(text, PATH_SEGMENT_ESCAPES)
}

type GroupVersionKindKey = (Arc<str>, Arc<str>, Arc<str>);

/// All discovered resources, and the group versions that are stale.
#[derive(Clone, Debug, Default)]
pub(crate) struct DiscoveredResources {
    /// One version of each, in order of discovery.
    all: Vec<Arc<DiscoveredResource>>,
    /// The resource of each group, version and kind, under every version.
    kinds: HashMap<GroupVersionKindKey, Arc<DiscoveredResource>>,
    /// Group versions that discovery marks as stale.
    stale: Vec<GroupVersion>,
}

impl DiscoveredResources {
    /// The resources of the `/api` and the `/apis` document.
    pub(crate) fn from_documents(core: &GroupDiscoveryList, others: &GroupDiscoveryList) -> Self {
        let mut resources = Self::default();
        for group in core.items().iter().chain(others.items()) {
            resources.add_group(group);
        }
        resources
    }

    /// Adds one version of each resource in a group, preferring confirmed versions.
    fn add_group(&mut self, group: &GroupDiscovery) {
        let is_stale = |version: &&VersionDiscovery| version.freshness == DiscoveryFreshness::Stale;
        for version in group.versions.iter().filter(is_stale) {
            self.stale.push(GroupVersion { group: group.name.clone(), version: version.name.clone() });
        }
        let confirmed = group.versions.iter().filter(|version| !is_stale(version));
        let mut chosen: HashMap<Arc<str>, Arc<DiscoveredResource>> = HashMap::new();
        for version in confirmed.chain(group.versions.iter().filter(is_stale)) {
            for listed in &version.resources {
                let Some(resource) = from_discovery(group, version, listed) else { continue };
                let key = (group.name.clone(), version.name.clone(), resource.kind.clone());
                // A version may list only the subresources of a resource that another version lists in full; the full
                // one counts.
                let first = chosen.get(&listed.name).filter(|first| first.supports("get") || !resource.supports("get"));
                let first = first.cloned().unwrap_or_else(|| {
                    let first = Arc::new(resource);
                    chosen.insert(listed.name.clone(), first.clone());
                    first
                });
                self.kinds.entry(key).or_insert(first);
            }
        }
        let names = group.versions.iter().flat_map(|version| &version.resources).map(|listed| &listed.name);
        let mut chosen_in_order: Vec<Arc<DiscoveredResource>> = names.filter_map(|name| chosen.remove(name)).collect();
        self.all.append(&mut chosen_in_order);
    }

    pub(crate) fn all(&self) -> &[Arc<DiscoveredResource>] {
        &self.all
    }

    /// Group versions that discovery marks as stale.
    pub(crate) fn stale_versions(&self) -> &[GroupVersion] {
        &self.stale
    }

    /// The resource of a kind in the given version, or else in another version of the group, which has the same
    /// objects.
    pub(crate) fn find_by_kind(&self, api_version: &str, kind: &str) -> Option<&Arc<DiscoveredResource>> {
        let GroupVersion { group, version } = GroupVersion::parse(api_version).ok()?;
        let exact = self.kinds.get(&(Arc::from(group), Arc::from(version), Arc::from(kind)));
        exact.or_else(|| self.all.iter().find(|resource| *resource.name.group == *group && *resource.kind == *kind))
    }

    /// The resources that `next` lacks.
    pub(crate) fn missing_in(&self, next: &Self) -> Vec<Arc<DiscoveredResource>> {
        let has =
            |wanted: &DiscoveredResource| next.all.iter().any(|each| each.group_resource() == wanted.group_resource());
        self.all.iter().filter(|resource| !has(resource)).cloned().collect()
    }

    /// Adds a resource that is no longer listed.
    pub(crate) fn keep_unlisted(&mut self, resource: &DiscoveredResource) {
        let GroupVersionResource { group, version, .. } = &resource.name;
        let kept = Arc::new(DiscoveredResource { discovery_state: DiscoveryState::Unlisted, ..resource.clone() });
        self.kinds.insert((group.clone(), version.clone(), kept.kind.clone()), kept.clone());
        self.all.push(kept);
    }

    /// The resources that support list and delete.
    pub(crate) fn deletable(&self) -> impl Iterator<Item = &Arc<DiscoveredResource>> {
        self.all.iter().filter(|resource| resource.supports("list") && resource.supports("delete"))
    }
}

/// Converts a discovery entry; `None` if it has no kind or no verbs, because it is listed only for its subresources.
fn from_discovery(
    group: &GroupDiscovery,
    version: &VersionDiscovery,
    listed: &discovery::ResourceDiscovery,
) -> Option<DiscoveredResource> {
    let kind = listed.response_kind.as_ref()?;
    let verbs = listed.verbs.clone()?;
    Some(DiscoveredResource {
        name: GroupVersionResource {
            group: group.name.clone(),
            version: version.name.clone(),
            resource: listed.name.clone(),
        },
        kind: kind.kind.clone(),
        scope: match listed.scope {
            DiscoveryScope::Namespaced => ResourceScope::Namespace,
            DiscoveryScope::Cluster | DiscoveryScope::Other(_) => ResourceScope::Cluster,
        },
        discovery_state: if version.freshness == DiscoveryFreshness::Stale {
            DiscoveryState::Stale
        } else {
            DiscoveryState::Confirmed
        },
        verbs,
    })
}

#[cfg(test)]
pub(crate) mod tests;
