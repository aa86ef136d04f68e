//! Short notations for tests.
//!
//! A cluster: `here: v1 pods:get; b live: batch/v1 jobs:get; c mute; shared: example.com/v1/xs; deleted: …; pending` is what
//! this server serves, the other members with their states and documents (`former` after the state: of a former process), the
//! definitions of shared state in storage and those deleted lately, and that the first sync is not over.
//!
//! A document: `v1 pods:get,list pods/exec:create | batch/v1! jobs:get` is the core group with one resource and its
//! subresource, and a stale version of another group. Without a colon a resource has no verbs of its own.

pub(crate) mod cluster_fixture;
pub(crate) mod definitions;
pub(crate) mod memory_network;
pub(crate) mod memory_storage;

use std::sync::Arc;

use api::Address;
use api::{GroupVersion, GroupVersionKind};
use discovery::{
    CreationTimestamp, DiscoveryFreshness, DiscoveryScope, GroupDiscovery, GroupDiscoveryList, ResourceDiscovery,
    SharedStr, SharedStrList, SubresourceDiscovery, VersionDiscovery,
};
use prometheus::{IntCounterVec, Opts, Registry};
use tokio::time::Instant;

use crate::documents::{DocumentSource, Retention, ServerDocument, StoredDocument, UnimplementedResource};
use crate::exclusion::{DELETED_GRACE_PERIOD, DefinedResource, DefinedResources, ExclusionManager, SharedResources};
use crate::identity::{HolderIdentity, ServerId};
use crate::members::{Member, MemberState, TrackedDocument};
use crate::ports::EntryVersion as StoredVersion;
use crate::view::{FirstSync, Peering, View, ViewInputs};

/// The counter that the forwarder of a real server shares with its membership.
pub(crate) fn transport_failures(registry: &Registry) -> IntCounterVec {
    let options = Opts::new("unskew_peer_transport_failures_total", "by peer and reason");
    let counter = IntCounterVec::new(options, &["peer", "reason"]).unwrap();
    registry.register(Box::new(counter.clone())).unwrap();
    counter
}

/// The document in this notation.
pub(crate) fn groups_from_notation(notation: &str) -> Arc<GroupDiscoveryList> {
    let mut groups: Vec<GroupDiscovery> = Vec::new();
    for part in notation.split('|').map(str::trim).filter(|part| !part.is_empty()) {
        let (head, resources) = part.split_once(' ').unwrap_or((part, ""));
        let name = GroupVersion::parse(head.trim_end_matches('!')).unwrap();
        let version = VersionDiscovery {
            name: name.version.into(),
            resources: resources_from_notation(resources),
            freshness: if head.ends_with('!') { DiscoveryFreshness::Stale } else { DiscoveryFreshness::Current },
        };
        if groups.last().is_none_or(|last| &*last.name != name.group) {
            let creation_timestamp = CreationTimestamp::Absent;
            groups.push(GroupDiscovery { name: name.group.into(), creation_timestamp, versions: Vec::new() });
        }
        groups.last_mut().unwrap().versions.push(version);
    }
    Arc::new(GroupDiscoveryList::new(groups.into_iter().map(Arc::new).collect()))
}

/// What a server serves, in this notation. A resource or subresource that begins with `?` is not implemented.
pub(crate) fn server_document_from_notation(notation: &str) -> ServerDocument {
    let mut unbuilt = Vec::new();
    for part in notation.split('|').map(str::trim).filter(|part| !part.is_empty()) {
        let mut words = part.split_whitespace();
        let group = GroupVersion::parse(words.next().unwrap().trim_end_matches('!')).unwrap().group;
        for word in words.filter_map(|word| word.strip_prefix('?')) {
            let (path, _) = word.split_once(':').unwrap_or((word, ""));
            let (resource, subresource) = path.split_once('/').unwrap_or((path, ""));
            unbuilt.push(UnimplementedResource {
                group: group.into(),
                resource: resource.into(),
                subresource: subresource.into(),
            });
        }
    }
    ServerDocument::from_all_groups(&groups_from_notation(&notation.replace('?', ""))).with_unimplemented(unbuilt)
}

/// The server of this short name.
pub(crate) fn server_id(name: &str) -> ServerId {
    ServerId::from_name(&format!("apiserver-{name}")).unwrap()
}

/// The view of the cluster in this notation.
pub(crate) fn view_from_notation(cluster: &str) -> View {
    View::new(view_inputs_from_notation(cluster), None)
}

/// The inputs of that view.
pub(crate) fn view_inputs_from_notation(cluster: &str) -> ViewInputs {
    let mut inputs = ViewInputs {
        this_server: server_id("me"),
        local_document: Arc::new(server_document_from_notation("")),
        members: Arc::default(),
        exclusion: Arc::default(),
        shared_groups: SharedResources::default().groups,
        first_sync: FirstSync::Over,
        peering: Peering::Enabled,
        may_be_built_in: |name| !name.group.contains('.') || name.group.ends_with(".k8s.io"),
    };
    let now = Instant::now();
    let (mut members, mut shared, mut deleted) = (Vec::new(), DefinedResources::new(), DefinedResources::new());
    for part in cluster.split(';').map(str::trim).filter(|part| !part.is_empty()) {
        let (head, rest) = part.split_once(':').unwrap_or((part, ""));
        match head {
            "here" => inputs.local_document = Arc::new(server_document_from_notation(rest)),
            "shared" => shared = defined_resources_from_notation(rest),
            "deleted" => deleted = defined_resources_from_notation(rest),
            "pending" => inputs.first_sync = FirstSync::Pending,
            head => members.push(member_from_notation(head, rest, &members, now)),
        }
    }
    members.sort_by(|a, b| a.server.cmp(&b.server));
    inputs.members = members.into();
    let mut definitions = ExclusionManager::new(DELETED_GRACE_PERIOD);
    definitions.observe(&Arc::new(shared.union(&deleted).cloned().collect()), now);
    inputs.exclusion = definitions.observe(&Arc::new(shared), now);
    inputs
}

/// Resources of definitions, to be excluded from peers' documents: `example.com/v1/xs` of a CustomResourceDefinition,
/// `example.com/v1` of an APIService.
pub(crate) fn defined_resources_from_notation(notation: &str) -> DefinedResources {
    let name = |word: &str| {
        let mut parts = word.split('/').map(SharedStr::from);
        let (group, version) = (parts.next().unwrap(), parts.next().unwrap());
        match parts.next() {
            Some(resource) => DefinedResource::Resource { group, version, resource },
            None => DefinedResource::GroupVersion { group, version },
        }
    };
    notation.split_whitespace().map(name).collect()
}

fn member_from_notation(head: &str, notation: &str, others: &[Member], since: Instant) -> Member {
    let mut words = head.split_whitespace();
    let (name, state) = (words.next().unwrap(), words.next().unwrap());
    let state = MemberState::ALL.into_iter().find(|known| known.as_str() == state).unwrap();
    let process = |number| HolderIdentity::new(&server_id(name), number);
    let known = others.iter().filter_map(Member::server_document);
    let document = server_document_from_notation(notation).intern_among(known);
    let stored = StoredDocument {
        holder: process(if words.next() == Some("former") { 1 } else { 2 }),
        source: DocumentSource::Published,
        retention: Retention::UntilReplaced,
        document,
    };
    Member {
        server: server_id(name),
        state,
        state_since: since,
        holder: (state != MemberState::Left).then(|| process(2)),
        address: (state == MemberState::Live).then(|| Address::new(&format!("{name}.example"), 6443).unwrap()),
        document: (!notation.is_empty()).then(|| TrackedDocument { stored, version: StoredVersion(1), since }),
    }
}

fn resources_from_notation(notation: &str) -> Vec<Arc<ResourceDiscovery>> {
    let mut resources: Vec<ResourceDiscovery> = Vec::new();
    for word in notation.split_whitespace() {
        let (path, verbs) = word.split_once(':').map_or((word, None), |(path, verbs)| (path, Some(verbs)));
        let verbs: Option<SharedStrList> = verbs.map(|verbs| verbs.split(',').map(Into::into).collect());
        let Some((parent, name)) = path.split_once('/') else {
            resources.push(resource_from_notation(path, verbs));
            continue;
        };
        if resources.last().is_none_or(|last| &*last.name != parent) {
            resources.push(resource_from_notation(parent, None));
        }
        let name = name.into();
        let subresource = SubresourceDiscovery { name, response_kind: None, accepted_types: Vec::new(), verbs };
        resources.last_mut().unwrap().subresources.push(subresource);
    }
    resources.into_iter().map(Arc::new).collect()
}

/// A resource such as `pods`, or `nodes@Cluster`.
fn resource_from_notation(name: &str, verbs: Option<SharedStrList>) -> ResourceDiscovery {
    let (name, scope) = name.split_once('@').unwrap_or((name, ""));
    ResourceDiscovery {
        name: name.into(),
        response_kind: Some(GroupVersionKind { group: "".into(), version: "".into(), kind: name.into() }),
        scope: if scope == "Cluster" { DiscoveryScope::Cluster } else { DiscoveryScope::Namespaced },
        singular: "".into(),
        verbs,
        short_names: SharedStrList::default(),
        categories: SharedStrList::default(),
        subresources: Vec::new(),
    }
}
