//! The resources that only peers serve, from the discovery documents in a view.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use discovery::{GroupDiscoveryList, ResourceDiscovery, SharedStr, VersionDiscovery};
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
        let own = names_by_version(own.into_iter().map(AsRef::as_ref));
        let merged = [view.merged_documents().core(), view.merged_documents().apis()];
        let merged = names_by_version(merged.into_iter().map(AsRef::as_ref));
        let missing = merged.into_iter().filter_map(|(path, names)| {
            let missing = match own.get(&path) {
                Some(own) => names.0.difference(&own.0).cloned().collect(),
                None => names.0,
            };
            (!missing.is_empty()).then_some((path, ResourceNames(missing)))
        });
        let versions: BTreeMap<Box<str>, ResourceNames> = missing.collect();
        let contributors = if versions.is_empty() { Vec::new() } else { contributors(view, &versions) };
        Self { versions, contributors }
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

    fn extend(&mut self, version: &VersionDiscovery) {
        for resource in &version.resources {
            let ResourceDiscovery { name, verbs, subresources, .. } = &**resource;
            // A parent without verbs is listed only because of its subresources.
            self.0.extend(verbs.as_ref().map(|_| (name.clone(), SharedStr::from(""))));
            self.0.extend(subresources.iter().map(|subresource| (name.clone(), subresource.name.clone())));
        }
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
        let listed = names_by_version([document.core(), document.apis()].into_iter().map(AsRef::as_ref));
        let serves = |path: &str| {
            listed.get(path).zip(versions.get(path)).is_some_and(|(listed, wanted)| !listed.0.is_disjoint(&wanted.0))
        };
        let paths: HashSet<Box<str>> = versions.keys().filter(|path| serves(path.as_ref())).cloned().collect();
        (!paths.is_empty()).then(|| Contributor {
            server: member.server.clone(),
            is_live,
            member: member.clone(),
            versions: paths,
        })
    });
    members.collect()
}

fn names_by_version<'g>(documents: impl Iterator<Item = &'g GroupDiscoveryList>) -> HashMap<Box<str>, ResourceNames> {
    let mut names: HashMap<Box<str>, ResourceNames> = HashMap::new();
    for (group, version) in documents.flat_map(GroupDiscoveryList::versions) {
        let path = match &*group.name {
            "" => format!("api/{}", version.name),
            group => format!("apis/{group}/{}", version.name),
        };
        names.entry(path.into()).or_default().extend(version);
    }
    names
}
