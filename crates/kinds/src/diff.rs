//! Differences between two releases: served resources, storage versions and feature gates.

mod text;

use std::collections::{BTreeMap, BTreeSet};

use api::GroupResource;

use crate::feature_gates::{self, FeatureGates, FeatureSpec};
use crate::release::Release;
use crate::runtime_config::RuntimeConfig;
use crate::served_resources::ServedResources;

/// The differences between two releases, sorted by name. `Display` prints a report for humans.
///
/// A release can serve a resource if it does so with every feature gate and every version enabled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReleaseDiff {
    /// First release of the comparison.
    pub from: Release,
    /// Second release of the comparison; may be older than `from`.
    pub to: Release,
    /// Resources that only `to` can serve.
    pub added: Vec<ReleaseResource>,
    /// Resources that only `from` can serve.
    pub removed: Vec<ReleaseResource>,
    /// Resources that both can serve and only one serves by default: `to` if `enabled_by_default`, else `from`.
    pub default_changes: Vec<ReleaseResource>,
    /// Resources that both store, in different versions.
    pub storage_changes: Vec<StorageChange>,
    /// Feature gates that only one release has, or whose specs differ.
    pub gate_changes: Vec<GateChange>,
}

/// A resource or subresource in one version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ResourceEntry {
    /// The group; empty for core.
    pub group: &'static str,
    /// The version.
    pub version: &'static str,
    /// The resource.
    pub resource: &'static str,
    /// The subresource; `None` is the resource itself.
    pub subresource: Option<&'static str>,
}

/// A resource that a release can serve, and whether it does so by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReleaseResource {
    /// The resource or subresource.
    pub entry: ResourceEntry,
    /// Default of the release that has it; of `to` if both have it.
    pub enabled_by_default: bool,
}

/// A resource that two releases store in different versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StorageChange {
    /// The resource.
    pub resource: GroupResource<&'static str>,
    /// The version in which the first release writes.
    pub from: &'static str,
    /// The version in which the second release writes.
    pub to: &'static str,
}

/// A feature gate that differs between two releases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GateChange {
    /// Name of the gate.
    pub name: &'static str,
    /// Spec in the first release; `None` if it does not have the gate.
    pub from: Option<FeatureSpec>,
    /// Spec in the second release; `None` if it does not have the gate.
    pub to: Option<FeatureSpec>,
}

/// Compares two releases, in either direction.
pub fn diff_releases(from: Release, to: Release) -> ReleaseDiff {
    let [possible_from, possible_to] = [from, to].map(served_with_everything_enabled);
    let [default_from, default_to] = [from, to].map(served_by_default);
    let [had, has] = [&possible_from, &possible_to].map(resource_entries);
    let [had_on, has_on] = [&default_from, &default_to].map(resource_entries);
    let listed = |on: &BTreeSet<ResourceEntry>, entry: &ResourceEntry| ReleaseResource {
        entry: *entry,
        enabled_by_default: on.contains(entry),
    };
    let changed = had.intersection(&has).filter(|entry| had_on.contains(entry) != has_on.contains(entry));
    ReleaseDiff {
        from,
        to,
        added: has.difference(&had).map(|entry| listed(&has_on, entry)).collect(),
        removed: had.difference(&has).map(|entry| listed(&had_on, entry)).collect(),
        default_changes: changed.map(|entry| listed(&has_on, entry)).collect(),
        storage_changes: storage_changes(&possible_from, &possible_to),
        gate_changes: gate_changes(from, to),
    }
}

fn served_with_everything_enabled(release: Release) -> ServedResources {
    let gates =
        FeatureGates::parse(release, "AllAlpha=true,AllBeta=true").expect("a test turns them on in every release");
    let config = RuntimeConfig::parse(release, "api/all=true").expect("every release knows this key");
    ServedResources::new(&gates, &config)
}

fn served_by_default(release: Release) -> ServedResources {
    ServedResources::new(&FeatureGates::new(release), &RuntimeConfig::default())
}

fn resource_entries(served_resources: &ServedResources) -> BTreeSet<ResourceEntry> {
    let served = served_resources.resources().iter().flat_map(|served| {
        let (group, version, resource) = (served.group.name, served.version.name, served.kind.plural);
        let subresources = served.subresources.iter().map(|subresource| Some(subresource.name));
        subresources.chain([None]).map(move |subresource| ResourceEntry { group, version, resource, subresource })
    });
    served.collect()
}

fn storage_changes(from: &ServedResources, to: &ServedResources) -> Vec<StorageChange> {
    let [from, to] = [from, to].map(storage_versions);
    let both = from.iter().filter_map(|(resource, version)| Some((*resource, *version, *to.get(resource)?)));
    let changes = both.map(|(resource, from, to)| StorageChange { resource, from, to });
    changes.filter(|change| change.from != change.to).collect()
}

fn storage_versions(served_resources: &ServedResources) -> BTreeMap<GroupResource<&'static str>, &'static str> {
    let persisted = served_resources.stored_resources().iter().map(|persisted| {
        let resource = GroupResource { group: persisted.encoding.group, resource: persisted.resource };
        (resource, persisted.encoding.version)
    });
    persisted.collect()
}

fn gate_changes(from: Release, to: Release) -> Vec<GateChange> {
    let names: BTreeSet<_> = [from, to].into_iter().flat_map(gate_names).collect();
    let changes = names.into_iter().map(|name| GateChange {
        name,
        from: feature_gates::feature_spec(from, name),
        to: feature_gates::feature_spec(to, name),
    });
    changes.filter(|change| change.from != change.to).collect()
}

fn gate_names(release: Release) -> Vec<&'static str> {
    FeatureGates::new(release).all().map(|(name, _, _)| name).collect()
}

#[cfg(test)]
mod tests;
