//! The resources that only peers serve, from the discovery documents in a view.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use discovery::{GroupDiscovery, GroupDiscoveryList, ResourceDiscovery, SharedStr, VersionDiscovery};
use membership::ServerId;
use membership::View;
use membership::members::{Member, MemberState};
use schema::openapi::merge::DocumentedResource;

/// The resources that only peers serve, and the peers that serve them.
#[derive(Debug, Default)]
pub(super) struct PeerOnlyResources {
    /// By path below `/openapi/v3/`, such as `apis/storage.k8s.io/v1`.
    pub(super) versions: BTreeMap<Box<str>, ResourceNames>,
    pub(super) contributors: Vec<Contributor>,
}

/// Resources of one group-version, each with its subresource, which is empty for the resource itself.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ResourceNames(BTreeSet<(SharedStr, SharedStr)>);

/// A member that serves some of the resources.
#[derive(Debug)]
pub(super) struct Contributor {
    pub(super) server: ServerId,
    /// False for a member whose document lingers.
    pub(super) is_live: bool,
    pub(super) member: Member,
    /// The paths of the group-versions with such resources.
    pub(super) versions: HashSet<Box<str>>,
}

impl PeerOnlyResources {
    pub(super) fn from_view(view: &View) -> Self {
        if view.members().is_empty() {
            return Self::default();
        }
        let own = [view.local_document().core(), view.local_document().apis(), view.shared_groups()];
        let own = GroupsByName::new(own.into_iter().map(AsRef::as_ref));
        let merged = [view.merged_documents().core(), view.merged_documents().apis()];
        let groups = merged.into_iter().flat_map(|document| document.items());
        // Documents share groups: nearly all are the same value here and there.
        let changed = groups.filter(|group| !own.has(group));
        let versions = changed.flat_map(|group| group.versions.iter().map(move |version| (&*group.name, version)));
        let mut missing: BTreeMap<Box<str>, ResourceNames> = BTreeMap::new();
        for (group, version) in versions {
            let mut names = ResourceNames::of(version);
            own.versions(group, &version.name).for_each(|own| names.remove(own));
            if !names.0.is_empty() {
                missing.entry(version_path(group, &version.name)).or_default().0.append(&mut names.0);
            }
        }
        let contributors = if missing.is_empty() { Vec::new() } else { contributors(view, &missing) };
        Self { versions: missing, contributors }
    }
}

/// The groups of some documents, each of which may be in several.
struct GroupsByName<'g>(HashMap<&'g str, Vec<&'g Arc<GroupDiscovery>>>);

impl<'g> GroupsByName<'g> {
    fn new(documents: impl Iterator<Item = &'g GroupDiscoveryList>) -> Self {
        let mut groups: HashMap<&str, Vec<_>> = HashMap::new();
        for group in documents.flat_map(GroupDiscoveryList::items) {
            groups.entry(&group.name).or_default().push(group);
        }
        Self(groups)
    }

    fn groups(&self, name: &str) -> &[&'g Arc<GroupDiscovery>] {
        self.0.get(name).map(Vec::as_slice).unwrap_or_default()
    }

    /// True if a document has this very value.
    fn has(&self, group: &Arc<GroupDiscovery>) -> bool {
        self.groups(&group.name).iter().any(|known| Arc::ptr_eq(known, group))
    }

    fn versions(&self, group: &str, version: &str) -> impl Iterator<Item = &'g VersionDiscovery> {
        let versions = self.groups(group).iter().flat_map(|group| &group.versions);
        versions.filter(move |candidate| *candidate.name == *version)
    }
}

impl ResourceNames {
    /// True if a path of a document of the group-version is one of a resource that only peers serve.
    pub(super) fn contains(&self, documented: DocumentedResource<'_>) -> bool {
        self.0.iter().any(|(resource, subresource)| {
            **resource == *documented.resource && **subresource == *documented.subresource
        })
    }

    /// Every name, for the hash of a document.
    pub(super) fn iter(&self) -> impl Iterator<Item = [&str; 2]> {
        self.0.iter().map(|(resource, subresource)| [&**resource, &**subresource])
    }

    fn of(version: &VersionDiscovery) -> Self {
        Self(names(version).collect())
    }

    fn remove(&mut self, version: &VersionDiscovery) {
        names(version).for_each(|name| _ = self.0.remove(&name));
    }
}

/// The resources of a version, each with its subresource.
fn names(version: &VersionDiscovery) -> impl Iterator<Item = (SharedStr, SharedStr)> {
    version.resources.iter().flat_map(|resource| {
        let ResourceDiscovery { name, verbs, subresources, .. } = &**resource;
        // A parent without verbs is listed only because of its subresources.
        let itself = verbs.as_ref().map(|_| (name.clone(), SharedStr::from("")));
        itself.into_iter().chain(subresources.iter().map(|subresource| (name.clone(), subresource.name.clone())))
    })
}

fn version_path(group: &str, version: &str) -> Box<str> {
    match group {
        "" => format!("api/{version}").into(),
        group => format!("apis/{group}/{version}").into(),
    }
}

fn contributors(view: &View, versions: &BTreeMap<Box<str>, ResourceNames>) -> Vec<Contributor> {
    let members = view.members().iter().filter_map(|member| {
        let is_live = match member.state {
            MemberState::Live => true,
            MemberState::Suspect | MemberState::Left => false,
            MemberState::Unknown | MemberState::Mute | MemberState::Gone => return None,
        };
        let document = member.server_document()?;
        let listed = GroupsByName::new([document.core(), document.apis()].into_iter().map(AsRef::as_ref));
        let serves = |path: &str, wanted: &ResourceNames| {
            let (group, version) = group_version_of(path);
            listed.versions(group, version).flat_map(names).any(|name| wanted.0.contains(&name))
        };
        let paths = versions.iter().filter(|(path, wanted)| serves(path, wanted));
        let paths: HashSet<Box<str>> = paths.map(|(path, _)| path.clone()).collect();
        (!paths.is_empty()).then(|| Contributor {
            server: member.server.clone(),
            is_live,
            member: member.clone(),
            versions: paths,
        })
    });
    members.collect()
}

/// The opposite of [`version_path`].
fn group_version_of(path: &str) -> (&str, &str) {
    match path.strip_prefix("apis/").and_then(|path| path.split_once('/')) {
        Some(group_version) => group_version,
        None => ("", path.trim_start_matches("api/")),
    }
}
