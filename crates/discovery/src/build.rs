//! Builds the local discovery document from its sources: precedence of sources, order of groups and versions.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

use api::compare_kube_aware_versions;

use crate::groups::{
    CreationTimestamp, DiscoveryFreshness, GroupDiscovery, GroupDiscoveryList, ResourceDiscovery, SharedStr,
    VersionDiscovery,
};

/// The priority of a version that specifies none.
pub const VERSION_PRIORITY_DEFAULT: i32 = 15;

/// One group-version as one source provides it.
#[derive(Clone, Debug)]
pub struct LocalGroupVersion {
    /// Decides which entry is listed if several sources have the group-version.
    pub source: DiscoverySource,
    /// Empty for the core group.
    pub group: SharedStr,
    /// Such as `v1beta1`.
    pub version: SharedStr,
    /// A group's priority is the highest among its versions.
    pub group_priority: i32,
    /// Versions with higher priority come first within the group.
    pub version_priority: i32,
    /// `Stale` if the server cannot confirm the version.
    pub freshness: DiscoveryFreshness,
    /// In document order.
    pub resources: Vec<Arc<ResourceDiscovery>>,
}

/// The source of a group-version. If several sources have the same one, only the first in this order is listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DiscoverySource {
    /// An aggregated API server, registered by an APIService.
    Aggregated,
    /// This server's built-in resources.
    BuiltIn,
    /// CustomResourceDefinitions.
    CustomResource,
}

/// Builds a document: groups by priority, then name; versions by priority, then in Kubernetes' version order.
///
/// Only listed versions count for their group's priority. Several entries of one group-version from the same source
/// are combined: resources in the given order, the higher priorities, the better freshness.
pub fn build(parts: &[LocalGroupVersion], creation_timestamp: CreationTimestamp) -> GroupDiscoveryList {
    let mut best_by_group_version: HashMap<(&str, &str), Vec<&LocalGroupVersion>> = HashMap::new();
    for part in parts {
        let best = best_by_group_version.entry((&part.group, &part.version)).or_default();
        if best.first().is_some_and(|first| part.source < first.source) {
            best.clear();
        }
        if best.first().is_none_or(|first| part.source == first.source) {
            best.push(part);
        }
    }
    let mut groups: HashMap<&str, Vec<Vec<&LocalGroupVersion>>> = HashMap::new();
    for ((group, _), parts) in best_by_group_version {
        groups.entry(group).or_default().push(parts);
    }
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_by_key(|(name, versions)| (Reverse(group_priority(versions)), *name));
    let groups = groups.into_iter().map(|(_, versions)| Arc::new(build_group(versions, creation_timestamp)));
    GroupDiscoveryList::new(groups.collect())
}

fn group_priority(versions: &[Vec<&LocalGroupVersion>]) -> Option<i32> {
    versions.iter().flatten().map(|part| part.group_priority).max()
}

fn build_group(mut versions: Vec<Vec<&LocalGroupVersion>>, creation_timestamp: CreationTimestamp) -> GroupDiscovery {
    versions.sort_by(|a, b| {
        version_priority(b)
            .cmp(&version_priority(a))
            .then_with(|| compare_kube_aware_versions(&a[0].version, &b[0].version))
    });
    let name = versions[0][0].group.clone();
    GroupDiscovery { name, creation_timestamp, versions: versions.iter().map(|parts| build_version(parts)).collect() }
}

fn version_priority(parts: &[&LocalGroupVersion]) -> Option<i32> {
    parts.iter().map(|part| part.version_priority).max()
}

fn build_version(parts: &[&LocalGroupVersion]) -> VersionDiscovery {
    VersionDiscovery {
        name: parts[0].version.clone(),
        resources: parts.iter().flat_map(|part| part.resources.iter().cloned()).collect(),
        freshness: parts.iter().map(|part| part.freshness.clone()).min().unwrap_or(DiscoveryFreshness::Unstated),
    }
}

#[cfg(test)]
mod tests;
