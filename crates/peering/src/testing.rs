//! Short notations for tests.
//!
//! A cluster: `here: v1 pods:get; b live: batch/v1 jobs:get; c mute; shared: example.com/v1/xs; deleted: …; pending` is what
//! this server serves, the other members with their states and documents (`former` after the state: of a former process), the
//! definitions of shared state in storage and those deleted lately, and that the first sync is not over.
//!
//! A document: `v1 pods:get,list pods/exec:create | batch/v1! jobs:get` is the core group with one resource and its
//! subresource, and a stale version of another group. Without a colon a resource has no verbs of its own.

pub(crate) mod definitions;
pub(crate) mod memory;
pub(crate) mod peers;
pub(crate) mod servers;

use std::sync::Arc;

use api::{GroupVersion, GroupVersionKind};
use discovery::{CreationTimestamp, Freshness, Group, Groups, Name, Names, Resource, Scope, Subresource, Version};
use tokio::time::Instant;

use crate::documents::{ServerDocument, Source, StoredDocument, Tenure, Unbuilt};
use crate::endpoints::Address;
use crate::exclusion::{Definitions, GRACE, SharedName, SharedNames};
use crate::identity::{HolderIdentity, ServerId};
use crate::members::{KnownDocument, Member, State};
use crate::ports::Version as StoredVersion;
use crate::view::{FirstSync, Inputs, Peering, View};

/// The document in this notation.
pub(crate) fn document(notation: &str) -> Arc<Groups> {
    let mut groups: Vec<Group> = Vec::new();
    for part in notation.split('|').map(str::trim).filter(|part| !part.is_empty()) {
        let (head, resources) = part.split_once(' ').unwrap_or((part, ""));
        let name = GroupVersion::parse(head.trim_end_matches('!')).unwrap();
        let version = Version {
            name: name.version.into(),
            resources: resources_of(resources),
            freshness: if head.ends_with('!') { Freshness::Stale } else { Freshness::Current },
        };
        if groups.last().is_none_or(|last| &*last.name != name.group) {
            let creation_timestamp = CreationTimestamp::Absent;
            groups.push(Group { name: name.group.into(), creation_timestamp, versions: Vec::new() });
        }
        groups.last_mut().unwrap().versions.push(version);
    }
    Arc::new(Groups::new(groups.into_iter().map(Arc::new).collect()))
}

/// What a server serves, in this notation. A subresource or resource that begins with `?` is listed and not built.
pub(crate) fn server_document(notation: &str) -> ServerDocument {
    let mut unbuilt = Vec::new();
    for part in notation.split('|').map(str::trim).filter(|part| !part.is_empty()) {
        let mut words = part.split_whitespace();
        let group = GroupVersion::parse(words.next().unwrap().trim_end_matches('!')).unwrap().group;
        for word in words.filter_map(|word| word.strip_prefix('?')) {
            let (path, _) = word.split_once(':').unwrap_or((word, ""));
            let (resource, subresource) = path.split_once('/').unwrap_or((path, ""));
            unbuilt.push(Unbuilt { group: group.into(), resource: resource.into(), subresource: subresource.into() });
        }
    }
    ServerDocument::from_whole(&document(&notation.replace('?', ""))).with_unbuilt(unbuilt)
}

/// The server of this short name.
pub(crate) fn server(name: &str) -> ServerId {
    ServerId::from_name(&format!("apiserver-{name}")).unwrap()
}

/// The view of the cluster in this notation.
pub(crate) fn view(cluster: &str) -> View {
    View::new(inputs(cluster), None)
}

/// What that view is made from.
pub(crate) fn inputs(cluster: &str) -> Inputs {
    let mut inputs = Inputs {
        me: server("me"),
        local: Arc::new(server_document("")),
        members: Arc::default(),
        exclusion: Arc::default(),
        first_sync: FirstSync::Over,
        peering: Peering::Enabled,
        may_be_built_in: |name| !name.group.contains('.') || name.group.ends_with(".k8s.io"),
    };
    let now = Instant::now();
    let (mut members, mut shared, mut deleted) = (Vec::new(), SharedNames::new(), SharedNames::new());
    for part in cluster.split(';').map(str::trim).filter(|part| !part.is_empty()) {
        let (head, rest) = part.split_once(':').unwrap_or((part, ""));
        match head {
            "here" => inputs.local = Arc::new(server_document(rest)),
            "shared" => shared = shared_names(rest),
            "deleted" => deleted = shared_names(rest),
            "pending" => inputs.first_sync = FirstSync::Pending,
            head => members.push(member(head, rest, &members, now)),
        }
    }
    members.sort_by(|a, b| a.server.cmp(&b.server));
    inputs.members = members.into();
    let mut definitions = Definitions::new(GRACE);
    definitions.see(&Arc::new(shared.union(&deleted).cloned().collect()), now);
    inputs.exclusion = definitions.see(&Arc::new(shared), now);
    inputs
}

/// Names such as `example.com/v1/xs` and, for a whole version, `example.com/v1`.
pub(crate) fn shared_names(notation: &str) -> SharedNames {
    let name = |word: &str| {
        let mut parts = word.split('/').map(Name::from);
        let (group, version) = (parts.next().unwrap(), parts.next().unwrap());
        match parts.next() {
            Some(resource) => SharedName::Resource { group, version, resource },
            None => SharedName::Version { group, version },
        }
    };
    notation.split_whitespace().map(name).collect()
}

fn member(head: &str, notation: &str, others: &[Member], since: Instant) -> Member {
    let mut words = head.split_whitespace();
    let (name, state) = (words.next().unwrap(), words.next().unwrap());
    let state = State::ALL.into_iter().find(|known| known.as_str() == state).unwrap();
    let process = |number| HolderIdentity::new(&server(name), number);
    let known = others.iter().filter_map(Member::served);
    let document = server_document(notation).sharing_with(known);
    let stored = StoredDocument {
        holder: process(if words.next() == Some("former") { 1 } else { 2 }),
        source: Source::Published,
        tenure: Tenure::Staying,
        document,
    };
    Member {
        server: server(name),
        state,
        since,
        holder: (state != State::Left).then(|| process(2)),
        address: (state == State::Live).then(|| Address::new(&format!("{name}.example"), 6443).unwrap()),
        document: (!notation.is_empty()).then(|| KnownDocument { stored, version: StoredVersion(1), since }),
    }
}

fn resources_of(notation: &str) -> Vec<Arc<Resource>> {
    let mut resources: Vec<Resource> = Vec::new();
    for word in notation.split_whitespace() {
        let (path, verbs) = word.split_once(':').map_or((word, None), |(path, verbs)| (path, Some(verbs)));
        let verbs: Option<Names> = verbs.map(|verbs| verbs.split(',').map(Into::into).collect());
        let Some((parent, name)) = path.split_once('/') else {
            resources.push(resource(path, verbs));
            continue;
        };
        if resources.last().is_none_or(|last| &*last.name != parent) {
            resources.push(resource(parent, None));
        }
        let name = name.into();
        let subresource = Subresource { name, response_kind: None, accepted_types: Vec::new(), verbs };
        resources.last_mut().unwrap().subresources.push(subresource);
    }
    resources.into_iter().map(Arc::new).collect()
}

/// A resource such as `pods`, or `nodes@Cluster`.
fn resource(name: &str, verbs: Option<Names>) -> Resource {
    let (name, scope) = name.split_once('@').unwrap_or((name, ""));
    Resource {
        name: name.into(),
        response_kind: Some(GroupVersionKind { group: "".into(), version: "".into(), kind: name.into() }),
        scope: if scope == "Cluster" { Scope::Cluster } else { Scope::Namespaced },
        singular: "".into(),
        verbs,
        short_names: Names::default(),
        categories: Names::default(),
        subresources: Vec::new(),
    }
}
