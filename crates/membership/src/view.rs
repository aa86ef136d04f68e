//! Everything that this server knows of the cluster at one moment.
//!
//! One task writes it; routing, discovery and `/debug/peers` read it, so that they never disagree.

use std::sync::Arc;

use api::Address;
use api::GroupVersionResource;
use discovery::{GroupDiscoveryList, ServerLiveness};

use crate::documents::ServerDocument;
use crate::exclusion::Exclusion;
use crate::identity::ServerId;
use crate::members::{Member, MemberState};
use crate::merged::{MergedDocuments, MergedInput};
use crate::route::IncompleteViewReason;
use crate::routing_table::{MemberIndex, RoutingTable, ServingMember};

/// Whether a resource may be built into some release, known or newer: `kinds::may_be_built_in` or `kinds::has_built_in_group_name`.
pub type MayBeBuiltIn = fn(GroupVersionResource<&str>) -> bool;

/// The cluster as this server knows it. Immutable; a [`MemberIndex`] is valid only for the view it came from.
#[derive(Debug)]
pub struct View {
    this_server: ServerId,
    local_document: Arc<ServerDocument>,
    members: Arc<[Member]>,
    exclusion: Arc<Exclusion>,
    shared_groups: Arc<GroupDiscoveryList>,
    first_sync: FirstSync,
    peering: Peering,
    may_be_built_in: MayBeBuiltIn,
    incomplete_reason: Option<IncompleteViewReason>,
    routing_table: Arc<RoutingTable>,
    merged_documents: Arc<MergedDocuments>,
}

/// The inputs of a [`View`].
#[derive(Clone, Debug)]
pub struct ViewInputs {
    /// The id of this server.
    pub this_server: ServerId,
    /// What this server serves.
    pub local_document: Arc<ServerDocument>,
    /// The other members, ordered by id.
    pub members: Arc<[Member]>,
    /// The resources that are excluded from their documents.
    pub exclusion: Arc<Exclusion>,
    /// The groups of custom resources, which every server serves.
    pub shared_groups: Arc<GroupDiscoveryList>,
    /// Whether every member's document is known or was tried once.
    pub first_sync: FirstSync,
    /// Whether requests to peers are possible.
    pub peering: Peering,
    /// Decides whether an unlisted resource may be built in.
    pub may_be_built_in: MayBeBuiltIn,
}

/// Whether the first sync of this server is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstSync {
    /// Some member's document is unknown and was not tried.
    Pending,
    /// Every document is known or was tried once.
    Over,
}

/// Whether this server takes part in peering.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peering {
    /// Requests to peers are possible.
    Enabled,
    /// Certificates are missing: requests to peers are impossible, so every other member counts as mute.
    Disabled,
}

impl View {
    /// Derives a view from its inputs, reusing the parts of `previous` that did not change.
    pub fn new(inputs: ViewInputs, previous: Option<&Self>) -> Self {
        let ViewInputs {
            this_server,
            local_document,
            mut members,
            exclusion,
            shared_groups,
            first_sync,
            peering,
            may_be_built_in,
        } = inputs;
        if peering == Peering::Disabled {
            members = members.iter().filter_map(as_mute).collect();
        }
        let same_inputs = previous.filter(|last| {
            Arc::ptr_eq(&last.local_document, &local_document)
                && Arc::ptr_eq(&last.exclusion, &exclusion)
                && Arc::ptr_eq(&last.shared_groups, &shared_groups)
                && have_same_documents(&last.members, &members)
        });
        let (table, merged) = match same_inputs {
            Some(last) => (last.routing_table.clone(), last.merged_documents.clone()),
            None => {
                let (last_table, last_merged) = previous
                    .map_or_else(Default::default, |last| (last.routing_table.clone(), last.merged_documents.clone()));
                let table = last_table.rebuild(&local_document, &serving_members(&members), &exclusion);
                let inputs = merged_inputs(&this_server, &local_document, &members, &exclusion, &shared_groups);
                (Arc::new(table), last_merged.update(inputs))
            }
        };
        let unheard = incomplete_reason(&members, first_sync);
        Self {
            this_server,
            local_document,
            members,
            exclusion,
            shared_groups,
            first_sync,
            peering,
            may_be_built_in,
            incomplete_reason: unheard,
            routing_table: table,
            merged_documents: merged,
        }
    }

    /// True if a view of these inputs would be the same, except for times.
    pub(crate) fn is_made_from(&self, inputs: &ViewInputs) -> bool {
        let is_same = match inputs.peering {
            Peering::Enabled => self.members == inputs.members,
            Peering::Disabled => self.members.iter().cloned().eq(inputs.members.iter().filter_map(as_mute)),
        };
        Arc::ptr_eq(&self.local_document, &inputs.local_document)
            && Arc::ptr_eq(&self.exclusion, &inputs.exclusion)
            && Arc::ptr_eq(&self.shared_groups, &inputs.shared_groups)
            && self.first_sync == inputs.first_sync
            && self.peering == inputs.peering
            && self.this_server == inputs.this_server
            && is_same
    }

    /// The id of this server.
    pub fn this_server(&self) -> &ServerId {
        &self.this_server
    }

    /// What this server serves.
    pub fn local_document(&self) -> &Arc<ServerDocument> {
        &self.local_document
    }

    /// The groups of custom resources, which every server serves.
    pub fn shared_groups(&self) -> &Arc<GroupDiscoveryList> {
        &self.shared_groups
    }

    /// The other servers, ordered by id.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// A member by its index.
    pub fn member(&self, index: MemberIndex) -> &Member {
        &self.members[index.0 as usize]
    }

    /// The address of a member; every live member has one.
    pub fn address(&self, index: MemberIndex) -> Option<&Address> {
        self.member(index).address.as_ref()
    }

    /// Whether every member's document is known or was tried once.
    pub fn first_sync(&self) -> FirstSync {
        self.first_sync
    }

    /// Whether this server takes part in peering.
    pub fn peering(&self) -> Peering {
        self.peering
    }

    /// The merged discovery documents.
    pub fn merged_documents(&self) -> &Arc<MergedDocuments> {
        &self.merged_documents
    }

    /// The routing table.
    pub fn routing_table(&self) -> &Arc<RoutingTable> {
        &self.routing_table
    }

    /// Why a resource that no server lists may exist nevertheless.
    pub(crate) fn incomplete_reason(&self) -> Option<IncompleteViewReason> {
        self.incomplete_reason
    }

    pub(crate) fn exclusion(&self) -> &Exclusion {
        &self.exclusion
    }

    pub(crate) fn may_be_built_in(&self, resource: GroupVersionResource<&str>) -> bool {
        (self.may_be_built_in)(resource)
    }
}

/// A member as a server without peering sees it; `None` for one that left.
fn as_mute(member: &Member) -> Option<Member> {
    let state = match member.state {
        MemberState::Live | MemberState::Suspect | MemberState::Unknown | MemberState::Mute => MemberState::Mute,
        MemberState::Left | MemberState::Gone => return None,
    };
    Some(Member { state, document: None, ..member.clone() })
}

/// The liveness of a member with a document; `None` if its document does not count.
fn liveness_of(member: &Member) -> Option<ServerLiveness> {
    match member.state {
        MemberState::Live => Some(ServerLiveness::Live),
        MemberState::Suspect | MemberState::Left => Some(ServerLiveness::NotLive),
        MemberState::Unknown | MemberState::Mute | MemberState::Gone => None,
    }
}

/// True if both lists of members lead to the same tables and documents.
fn have_same_documents(a: &[Member], b: &[Member]) -> bool {
    let same = |(a, b): (&Member, &Member)| {
        let documents = [a, b].map(|member| member.server_document().map(Arc::as_ptr));
        a.server == b.server && liveness_of(a) == liveness_of(b) && documents[0] == documents[1]
    };
    a.len() == b.len() && a.iter().zip(b).all(same)
}

fn serving_members(members: &[Member]) -> Vec<ServingMember<'_>> {
    let indices = (0..).map(MemberIndex);
    let serving = indices.zip(members).filter_map(|(index, member)| {
        let is_live = liveness_of(member)? == ServerLiveness::Live;
        Some(ServingMember { member: index, is_live, document: member.server_document()? })
    });
    serving.collect()
}

fn merged_inputs(
    this_server: &ServerId,
    local_document: &Arc<ServerDocument>,
    members: &[Member],
    exclusion: &Arc<Exclusion>,
    shared_groups: &Arc<GroupDiscoveryList>,
) -> Vec<MergedInput> {
    let ours = MergedInput {
        server: this_server.clone(),
        liveness: ServerLiveness::Live,
        document: local_document.clone(),
        exclusion: exclusion.clone(),
        is_own: true,
        shared_groups: shared_groups.clone(),
    };
    let theirs = members.iter().filter_map(|member| {
        Some(MergedInput {
            server: member.server.clone(),
            liveness: liveness_of(member)?,
            document: member.server_document()?.clone(),
            exclusion: exclusion.clone(),
            is_own: false,
            shared_groups: shared_groups.clone(),
        })
    });
    std::iter::once(ours).chain(theirs).collect()
}

fn incomplete_reason(members: &[Member], first_sync: FirstSync) -> Option<IncompleteViewReason> {
    if first_sync == FirstSync::Pending {
        return Some(IncompleteViewReason::NotSynced);
    }
    let unheard = || members.iter().filter(|member| member.may_serve_more());
    if unheard().any(|member| member.state != MemberState::Mute) {
        return Some(IncompleteViewReason::MemberUnknown);
    }
    unheard().next().map(|_| IncompleteViewReason::MemberMute)
}

#[cfg(test)]
mod tests;
