//! The local document from its parts: which source wins, and in which order groups and versions stand.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

use api::version_order;

use crate::groups::{CreationTimestamp, Freshness, Group, Groups, Name, Resource, Version};

/// The priority of a version that states none.
pub const VERSION_PRIORITY_DEFAULT: i32 = 15;

/// What one source says of one group-version.
#[derive(Clone, Debug)]
pub struct Part {
    /// Who says it.
    pub source: Source,
    /// The group; empty for core.
    pub group: Name,
    /// The version.
    pub version: Name,
    /// A group stands as high as its highest version claims here.
    pub group_priority: i32,
    /// Higher versions stand first within the group.
    pub version_priority: i32,
    /// Whether the version is known to be served.
    pub freshness: Freshness,
    /// The resources in their order on the wire.
    pub resources: Vec<Arc<Resource>>,
}

/// Where a group-version comes from. If several sources have the same one, the first of these is shown alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    /// An aggregated API server, registered by an APIService.
    Aggregated,
    /// This server itself.
    BuiltIn,
    /// CustomResourceDefinitions.
    CustomResource,
}

/// Builds a document: groups by priority, then name; versions by priority, then in Kubernetes' own order.
///
/// Only versions that are shown count for their group's priority. Parts of one group-version from the same source are one part:
/// resources in the order given, the higher priorities, the better freshness.
pub fn build(parts: &[Part], creation_timestamp: CreationTimestamp) -> Groups {
    let mut shown: HashMap<(&str, &str), Vec<&Part>> = HashMap::new();
    for part in parts {
        let best = shown.entry((&part.group, &part.version)).or_default();
        if best.first().is_some_and(|first| part.source < first.source) {
            best.clear();
        }
        if best.first().is_none_or(|first| part.source == first.source) {
            best.push(part);
        }
    }
    let mut groups: HashMap<&str, Vec<Vec<&Part>>> = HashMap::new();
    for ((group, _), parts) in shown {
        groups.entry(group).or_default().push(parts);
    }
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_by_key(|(name, versions)| (Reverse(group_priority(versions)), *name));
    let groups = groups.into_iter().map(|(_, versions)| Arc::new(group_of(versions, creation_timestamp)));
    Groups::new(groups.collect())
}

fn group_priority(versions: &[Vec<&Part>]) -> Option<i32> {
    versions.iter().flatten().map(|part| part.group_priority).max()
}

fn group_of(mut versions: Vec<Vec<&Part>>, creation_timestamp: CreationTimestamp) -> Group {
    versions.sort_by(|a, b| {
        version_priority(b).cmp(&version_priority(a)).then_with(|| version_order(&a[0].version, &b[0].version))
    });
    let name = versions[0][0].group.clone();
    Group { name, creation_timestamp, versions: versions.iter().map(|parts| version_of(parts)).collect() }
}

fn version_priority(parts: &[&Part]) -> Option<i32> {
    parts.iter().map(|part| part.version_priority).max()
}

fn version_of(parts: &[&Part]) -> Version {
    Version {
        name: parts[0].version.clone(),
        resources: parts.iter().flat_map(|part| part.resources.iter().cloned()).collect(),
        freshness: parts.iter().map(|part| part.freshness.clone()).min().unwrap_or(Freshness::Unstated),
    }
}

#[cfg(test)]
mod tests;
