//! What changes for a cluster from one release to another: what it can serve, how it stores, which gates it knows.

mod text;

use std::collections::{BTreeMap, BTreeSet};

use api::GroupResource;

use crate::gates::{self, Gates, Spec};
use crate::release::Release;
use crate::runtime_config::RuntimeConfig;
use crate::surface::Surface;

/// The differences between two releases, everything in the order of names. Its text is for people.
///
/// What a release can serve is what it serves with every gate and every version turned on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diff {
    /// The release to start from.
    pub from: Release,
    /// The release to compare it with.
    pub to: Release,
    /// Only `to` can serve it.
    pub appears: Vec<Listed>,
    /// Only `from` can serve it.
    pub disappears: Vec<Listed>,
    /// Both can serve it, and only one does so by default: `to` if it says so here, else `from`.
    pub defaults: Vec<Listed>,
    /// Resources that both store, each in another version.
    pub storage: Vec<StorageChange>,
    /// Gates that one release does not know, or of which they say different things.
    pub gates: Vec<GateChange>,
}

/// A resource or subresource in one version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// The group; empty for core.
    pub group: &'static str,
    /// The version.
    pub version: &'static str,
    /// The resource.
    pub resource: &'static str,
    /// The subresource; `None` is the resource itself.
    pub subresource: Option<&'static str>,
}

/// Something that a release can serve, and whether it does so without being told to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed {
    /// What it is.
    pub entry: Entry,
    /// In the release that has it; in `to` if both have it.
    pub by_default: bool,
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

/// A gate of which two releases say different things.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GateChange {
    /// The gate.
    pub name: &'static str,
    /// What the first release says; `None` if it does not know the gate.
    pub from: Option<Spec>,
    /// What the second release says; `None` if it does not know the gate.
    pub to: Option<Spec>,
}

/// Compares two releases, in either direction.
pub fn diff(from: Release, to: Release) -> Diff {
    let [possible_from, possible_to] = [from, to].map(everything);
    let [default_from, default_to] = [from, to].map(defaults);
    let [had, has] = [&possible_from, &possible_to].map(entries);
    let [had_on, has_on] = [&default_from, &default_to].map(entries);
    let listed = |on: &BTreeSet<Entry>, entry: &Entry| Listed { entry: *entry, by_default: on.contains(entry) };
    let changed = had.intersection(&has).filter(|entry| had_on.contains(entry) != has_on.contains(entry));
    Diff {
        from,
        to,
        appears: has.difference(&had).map(|entry| listed(&has_on, entry)).collect(),
        disappears: had.difference(&has).map(|entry| listed(&had_on, entry)).collect(),
        defaults: changed.map(|entry| listed(&has_on, entry)).collect(),
        storage: storage_changes(&possible_from, &possible_to),
        gates: gate_changes(from, to),
    }
}

fn everything(release: Release) -> Surface {
    let gates = Gates::parse(release, "AllAlpha=true,AllBeta=true").expect("a test turns them on in every release");
    let config = RuntimeConfig::parse(release, "api/all=true").expect("every release knows this key");
    Surface::new(&gates, &config)
}

fn defaults(release: Release) -> Surface {
    Surface::new(&Gates::new(release), &RuntimeConfig::default())
}

fn entries(surface: &Surface) -> BTreeSet<Entry> {
    let served = surface.served().iter().flat_map(|served| {
        let (group, version, resource) = (served.group.name, served.version.name, served.kind.plural);
        let subresources = served.subresources.iter().map(|subresource| Some(subresource.name));
        subresources.chain([None]).map(move |subresource| Entry { group, version, resource, subresource })
    });
    served.collect()
}

fn storage_changes(from: &Surface, to: &Surface) -> Vec<StorageChange> {
    let [from, to] = [from, to].map(versions_stored);
    let both = from.iter().filter_map(|(resource, version)| Some((*resource, *version, *to.get(resource)?)));
    let changes = both.map(|(resource, from, to)| StorageChange { resource, from, to });
    changes.filter(|change| change.from != change.to).collect()
}

fn versions_stored(surface: &Surface) -> BTreeMap<GroupResource<&'static str>, &'static str> {
    let persisted = surface.persisted().iter().map(|persisted| {
        let resource = GroupResource { group: persisted.encoding.group, resource: persisted.resource };
        (resource, persisted.encoding.version)
    });
    persisted.collect()
}

fn gate_changes(from: Release, to: Release) -> Vec<GateChange> {
    let names: BTreeSet<_> = [from, to].into_iter().flat_map(names_of_gates).collect();
    let changes =
        names.into_iter().map(|name| GateChange { name, from: gates::spec(from, name), to: gates::spec(to, name) });
    changes.filter(|change| change.from != change.to).collect()
}

fn names_of_gates(release: Release) -> Vec<&'static str> {
    Gates::new(release).all().map(|(name, _, _)| name).collect()
}

#[cfg(test)]
mod tests;
