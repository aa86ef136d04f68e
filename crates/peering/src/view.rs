//! All that this server knows of the cluster, at one moment.
//!
//! One task writes it, and everybody reads it: routing, discovery, `/debug/peers`. Since all read one value, no two of them can
//! disagree.

use std::sync::Arc;

use api::GroupVersionResource;
use discovery::ServerLiveness;

use crate::documents::ServerDocument;
use crate::endpoint_record::Address;
use crate::exclusion::Exclusion;
use crate::identity::ServerId;
use crate::members::{Member, MemberState};
use crate::merged::{MergedDocuments, MergedInput};
use crate::route::IncompleteViewReason;
use crate::routing_table::{MemberIndex, RoutingTable, ServingMember};

/// Whether something may be built into some server, known or newer: `catalogue::may_be_built_in` or `looks_built_in`.
pub type MayBeBuiltIn = fn(GroupVersionResource<&str>) -> bool;

/// The cluster as this server knows it. Immutable; a [`MemberIndex`] means something only with the view it came from.
#[derive(Debug)]
pub struct View {
    this_server: ServerId,
    local_document: Arc<ServerDocument>,
    members: Arc<[Member]>,
    exclusion: Arc<Exclusion>,
    first_sync: FirstSync,
    peering: Peering,
    may_be_built_in: MayBeBuiltIn,
    incomplete_reason: Option<IncompleteViewReason>,
    routing_table: Arc<RoutingTable>,
    merged_documents: Arc<MergedDocuments>,
}

/// What a [`View`] is made from.
#[derive(Clone, Debug)]
pub struct ViewInputs {
    /// This server.
    pub this_server: ServerId,
    /// What it serves itself.
    pub local_document: Arc<ServerDocument>,
    /// The others, in the order of their names.
    pub members: Arc<[Member]>,
    /// What is struck from what they list.
    pub exclusion: Arc<Exclusion>,
    /// Whether every member was heard once, or at least tried.
    pub first_sync: FirstSync,
    /// Whether we can talk to peers at all.
    pub peering: Peering,
    /// What may be built in.
    pub may_be_built_in: MayBeBuiltIn,
}

/// Whether the members were heard since the start of this server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstSync {
    /// Not all of them.
    Pending,
    /// All, or tried once.
    Over,
}

/// Whether this server takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peering {
    /// It does.
    Enabled,
    /// Certificates are missing: it has no way to ask or forward, so every other member is mute to it.
    Disabled,
}

impl View {
    /// The view that follows from these. What did not change since `last` is taken over from it.
    pub fn new(inputs: ViewInputs, previous: Option<&Self>) -> Self {
        let ViewInputs {
            this_server: me,
            local_document: local,
            mut members,
            exclusion,
            first_sync,
            peering,
            may_be_built_in,
        } = inputs;
        if peering == Peering::Disabled {
            members = members.iter().filter_map(as_mute).collect();
        }
        let same_inputs = previous.filter(|last| {
            Arc::ptr_eq(&last.local_document, &local)
                && Arc::ptr_eq(&last.exclusion, &exclusion)
                && have_same_documents(&last.members, &members)
        });
        let (table, merged) = match same_inputs {
            Some(last) => (last.routing_table.clone(), last.merged_documents.clone()),
            None => {
                let (last_table, last_merged) = previous
                    .map_or_else(Default::default, |last| (last.routing_table.clone(), last.merged_documents.clone()));
                let table = last_table.rebuild(&local, &serving_members(&members), &exclusion);
                (Arc::new(table), last_merged.update(merged_inputs(&me, &local, &members, &exclusion)))
            }
        };
        let unheard = incomplete_reason(&members, first_sync);
        Self {
            this_server: me,
            local_document: local,
            members,
            exclusion,
            first_sync,
            peering,
            may_be_built_in,
            incomplete_reason: unheard,
            routing_table: table,
            merged_documents: merged,
        }
    }

    /// Whether a view of these would be the same, except for when things were first seen.
    pub(crate) fn is_made_from(&self, inputs: &ViewInputs) -> bool {
        let is_same = match inputs.peering {
            Peering::Enabled => self.members == inputs.members,
            Peering::Disabled => self.members.iter().cloned().eq(inputs.members.iter().filter_map(as_mute)),
        };
        Arc::ptr_eq(&self.local_document, &inputs.local_document)
            && Arc::ptr_eq(&self.exclusion, &inputs.exclusion)
            && self.first_sync == inputs.first_sync
            && self.peering == inputs.peering
            && self.this_server == inputs.this_server
            && is_same
    }

    /// This server.
    pub fn this_server(&self) -> &ServerId {
        &self.this_server
    }

    /// What this server serves itself.
    pub fn local_document(&self) -> &Arc<ServerDocument> {
        &self.local_document
    }

    /// The other servers, in the order of their names.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// One of them.
    pub fn member(&self, index: MemberIndex) -> &Member {
        &self.members[index.0 as usize]
    }

    /// Where one of them listens; every live member has an address.
    pub fn address(&self, index: MemberIndex) -> Option<&Address> {
        self.member(index).address.as_ref()
    }

    /// Whether every member was heard once, or at least tried.
    pub fn first_sync(&self) -> FirstSync {
        self.first_sync
    }

    /// Whether this server takes part.
    pub fn peering(&self) -> Peering {
        self.peering
    }

    /// The merged discovery documents.
    pub fn merged_documents(&self) -> &Arc<MergedDocuments> {
        &self.merged_documents
    }

    /// Who serves what.
    pub fn routing_table(&self) -> &Arc<RoutingTable> {
        &self.routing_table
    }

    /// Why something that nobody lists may exist nevertheless.
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

/// A member as it is to a server that cannot talk to it. One that left is nobody.
fn as_mute(member: &Member) -> Option<Member> {
    let state = match member.state {
        MemberState::Live | MemberState::Suspect | MemberState::Unknown | MemberState::Mute => MemberState::Mute,
        MemberState::Left | MemberState::Gone => return None,
    };
    Some(Member { state, document: None, ..member.clone() })
}

/// Whether a member's document counts, and how.
fn liveness_of(member: &Member) -> Option<ServerLiveness> {
    match member.state {
        MemberState::Live => Some(ServerLiveness::Live),
        MemberState::Suspect | MemberState::Left => Some(ServerLiveness::NotLive),
        MemberState::Unknown | MemberState::Mute | MemberState::Gone => None,
    }
}

/// Whether tables and documents made from either list of members would be the same.
fn have_same_documents(a: &[Member], b: &[Member]) -> bool {
    let same = |(a, b): (&Member, &Member)| {
        let documents = [a, b].map(|member| member.server_document().map(Arc::as_ptr));
        a.server == b.server && liveness_of(a) == liveness_of(b) && documents[0] == documents[1]
    };
    a.len() == b.len() && a.iter().zip(b).all(same)
}

fn serving_members(members: &[Member]) -> Vec<ServingMember<'_>> {
    let indices = (0..).map(MemberIndex);
    let bearers = indices.zip(members).filter_map(|(index, member)| {
        let is_live = liveness_of(member)? == ServerLiveness::Live;
        Some(ServingMember { member: index, is_live, document: member.server_document()? })
    });
    bearers.collect()
}

fn merged_inputs(
    this_server: &ServerId,
    local_document: &Arc<ServerDocument>,
    members: &[Member],
    exclusion: &Arc<Exclusion>,
) -> Vec<MergedInput> {
    let ours = MergedInput {
        server: this_server.clone(),
        liveness: ServerLiveness::Live,
        document: local_document.clone(),
        exclusion: Exclusion::empty(),
    };
    let theirs = members.iter().filter_map(|member| {
        Some(MergedInput {
            server: member.server.clone(),
            liveness: liveness_of(member)?,
            document: member.server_document()?.clone(),
            exclusion: exclusion.clone(),
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
