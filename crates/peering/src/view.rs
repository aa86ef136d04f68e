//! All that this server knows of the cluster, at one moment.
//!
//! One task writes it, and everybody reads it: routing, discovery, `/debug/peers`. Since all read one value, no two of them can
//! disagree.

use std::sync::Arc;

use api::GroupVersionResource;
use discovery::Standing;

use crate::documents::ServerDocument;
use crate::endpoints::Address;
use crate::exclusion::Exclusion;
use crate::identity::ServerId;
use crate::members::{Member, State};
use crate::merged::{Merged, MergedInput};
use crate::route::Unheard;
use crate::table::{Bearer, MemberIndex, Table};

/// Whether something may be built into some server, known or newer: `catalogue::may_be_built_in` or `looks_built_in`.
pub type MayBeBuiltIn = fn(GroupVersionResource<&str>) -> bool;

/// The cluster as this server knows it. Immutable; a [`MemberIndex`] means something only with the view it came from.
#[derive(Debug)]
pub struct View {
    me: ServerId,
    local: Arc<ServerDocument>,
    members: Arc<[Member]>,
    exclusion: Arc<Exclusion>,
    first_sync: FirstSync,
    peering: Peering,
    may_be_built_in: MayBeBuiltIn,
    unheard: Option<Unheard>,
    table: Arc<Table>,
    merged: Arc<Merged>,
}

/// What a [`View`] is made from.
#[derive(Clone, Debug)]
pub struct Inputs {
    /// This server.
    pub me: ServerId,
    /// What it serves itself.
    pub local: Arc<ServerDocument>,
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
    pub fn new(inputs: Inputs, last: Option<&Self>) -> Self {
        let Inputs { me, local, mut members, exclusion, first_sync, peering, may_be_built_in } = inputs;
        if peering == Peering::Disabled {
            members = members.iter().filter_map(muted).collect();
        }
        let same_inputs = last.filter(|last| {
            Arc::ptr_eq(&last.local, &local)
                && Arc::ptr_eq(&last.exclusion, &exclusion)
                && list_the_same(&last.members, &members)
        });
        let (table, merged) = match same_inputs {
            Some(last) => (last.table.clone(), last.merged.clone()),
            None => {
                let (last_table, last_merged) =
                    last.map_or_else(Default::default, |last| (last.table.clone(), last.merged.clone()));
                let table = last_table.next(&local, &bearers_of(&members), &exclusion);
                (Arc::new(table), last_merged.next(merged_inputs(&me, &local, &members, &exclusion)))
            }
        };
        let unheard = unheard_of(&members, first_sync);
        Self { me, local, members, exclusion, first_sync, peering, may_be_built_in, unheard, table, merged }
    }

    /// Whether a view of these would be the same, except for when things were first seen.
    pub(crate) fn is_made_from(&self, inputs: &Inputs) -> bool {
        let is_same = match inputs.peering {
            Peering::Enabled => self.members == inputs.members,
            Peering::Disabled => self.members.iter().cloned().eq(inputs.members.iter().filter_map(muted)),
        };
        Arc::ptr_eq(&self.local, &inputs.local)
            && Arc::ptr_eq(&self.exclusion, &inputs.exclusion)
            && self.first_sync == inputs.first_sync
            && self.peering == inputs.peering
            && self.me == inputs.me
            && is_same
    }

    /// This server.
    pub fn me(&self) -> &ServerId {
        &self.me
    }

    /// What this server serves itself.
    pub fn local(&self) -> &Arc<ServerDocument> {
        &self.local
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
    pub fn merged(&self) -> &Arc<Merged> {
        &self.merged
    }

    /// Who serves what.
    pub fn table(&self) -> &Arc<Table> {
        &self.table
    }

    /// Why something that nobody lists may exist nevertheless.
    pub(crate) fn unheard(&self) -> Option<Unheard> {
        self.unheard
    }

    pub(crate) fn exclusion(&self) -> &Exclusion {
        &self.exclusion
    }

    pub(crate) fn may_be_built_in(&self, resource: GroupVersionResource<&str>) -> bool {
        (self.may_be_built_in)(resource)
    }
}

/// A member as it is to a server that cannot talk to it. One that left is nobody.
fn muted(member: &Member) -> Option<Member> {
    let state = match member.state {
        State::Live | State::Suspect | State::Unknown | State::Mute => State::Mute,
        State::Left | State::Gone => return None,
    };
    Some(Member { state, document: None, ..member.clone() })
}

/// Whether a member's document counts, and how.
fn standing_of(member: &Member) -> Option<Standing> {
    match member.state {
        State::Live => Some(Standing::Current),
        State::Suspect | State::Left => Some(Standing::Stale),
        State::Unknown | State::Mute | State::Gone => None,
    }
}

/// Whether tables and documents made from either list of members would be the same.
fn list_the_same(a: &[Member], b: &[Member]) -> bool {
    let same = |(a, b): (&Member, &Member)| {
        let documents = [a, b].map(|member| member.served().map(Arc::as_ptr));
        a.server == b.server && standing_of(a) == standing_of(b) && documents[0] == documents[1]
    };
    a.len() == b.len() && a.iter().zip(b).all(same)
}

fn bearers_of(members: &[Member]) -> Vec<Bearer<'_>> {
    let indices = (0..).map(MemberIndex);
    let bearers = indices.zip(members).filter_map(|(index, member)| {
        let is_live = standing_of(member)? == Standing::Current;
        Some(Bearer { member: index, is_live, document: member.served()? })
    });
    bearers.collect()
}

fn merged_inputs(
    me: &ServerId,
    local: &Arc<ServerDocument>,
    members: &[Member],
    exclusion: &Arc<Exclusion>,
) -> Vec<MergedInput> {
    let ours = MergedInput {
        server: me.clone(),
        standing: Standing::Current,
        document: local.clone(),
        exclusion: Exclusion::none(),
    };
    let theirs = members.iter().filter_map(|member| {
        Some(MergedInput {
            server: member.server.clone(),
            standing: standing_of(member)?,
            document: member.served()?.clone(),
            exclusion: exclusion.clone(),
        })
    });
    std::iter::once(ours).chain(theirs).collect()
}

fn unheard_of(members: &[Member], first_sync: FirstSync) -> Option<Unheard> {
    if first_sync == FirstSync::Pending {
        return Some(Unheard::NotSynced);
    }
    let unheard = || members.iter().filter(|member| member.is_unheard());
    if unheard().any(|member| member.state != State::Mute) {
        return Some(Unheard::MemberUnknown);
    }
    unheard().next().map(|_| Unheard::MemberMute)
}

#[cfg(test)]
mod tests;
