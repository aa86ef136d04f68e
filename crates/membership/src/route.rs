//! Routes requests by the rules of docs/decisions/README.md, in their order.
//!
//! A pure function of a request and a [`View`]. Every outcome carries its reason.

use std::sync::Arc;

use api::target::ResourceTarget;
use api::{RouteMismatch, Target};

use crate::exclusion::DefinitionState;
use crate::hop::Hop;
use crate::routing_table::{LocalSupport, MemberIndex, ResourceServers, ServingMembers};
use crate::view::View;

/// Where a request goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route {
    /// This server answers.
    Local(LocalReason),
    /// One of these live members answers; never empty. The forwarder orders them.
    Peers(Arc<[MemberIndex]>),
    /// The path and method fit the resource on no server that lists it. Never for resources that this server lists: its handler
    /// decides by the same rule.
    RouteMismatch(PeerRouteMismatch),
    /// No server is known to serve it. Before a 404 the view must have caught up with storage: wait for the proof and route
    /// again with [`AbsenceProof::CaughtUp`]; without proof it is [`UnavailableReason::AbsenceNotProven`].
    ProveAbsence,
    /// 503: the resource may exist, but cannot be reached or its absence cannot be proven.
    Unavailable(UnavailableReason),
}

/// A request that fits no route of its resource, which only other members list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerRouteMismatch {
    /// The response of a server that serves the resource.
    pub mismatch: RouteMismatch,
    /// True if the resource may be built in, so that kube-apiserver's routes are all there is. Custom resources and aggregated
    /// API servers have routes of their own: a member that serves them must answer.
    pub may_be_built_in: bool,
    /// The live members that list the resource; `None` if there are none.
    pub live: Option<Arc<[MemberIndex]>>,
}

/// Why this server answers a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LocalReason {
    /// Rule 1: no resource request.
    NotAResource,
    /// Rule 3: this server serves resource, subresource and verb.
    ServedHere,
    /// Rule 3: this server serves resource and subresource, and no server the verb. The response is 405.
    VerbServedNowhere,
    /// Rule 3: this server lists the resource, and path and method do not fit its scope. The response is 404, 405 or 400.
    RouteMismatch,
    /// Rule 4: a definition in storage brings the resource, and every server reads definitions itself.
    SharedState,
    /// This server lists the resource without implementing it, and no other server has it. The response is 501.
    NotImplemented,
    /// Rule 7: proven that no server serves it. The response is 404.
    ServedNowhere,
}

/// Why a request cannot be served now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UnavailableReason {
    /// Rule 2: a peer forwarded the request, and this server does not serve the resource.
    ForwardedButNotServed,
    /// Rule 4: a definition in storage brings the resource, and no live server is known to serve it.
    DefinedButNotServed,
    /// Rule 5: only members that are suspect or have left serve the resource.
    OnlyUnreachableMembers,
    /// Rule 6: the resource may be built in, and the document of a member that may serve it is not known.
    ViewIncomplete(IncompleteViewReason),
    /// Rule 7: the absence could not be proven.
    AbsenceNotProven,
}

/// Why the view may not hold everything that the cluster serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IncompleteViewReason {
    /// The first sync is not over.
    NotSynced,
    /// A member's document is not known yet, or is that of a former process.
    MemberUnknown,
    /// A member does not take part, so its document will not be known.
    MemberMute,
}

/// Whether the view is known to be up to date.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AbsenceProof {
    /// The view may be behind.
    NotRequested,
    /// The view holds everything that storage held when the request arrived.
    CaughtUp,
}

/// Routes a request. The first rule that matches decides.
pub fn route(target: &Target<'_>, hop: Hop, view: &View, proof: AbsenceProof) -> Route {
    let Target::Resource(resource) = target else { return Route::Local(LocalReason::NotAResource) };
    let resource_servers = view.routing_table().lookup(resource);
    let local = resource_servers.map_or(LocalSupport::NotListed, |resource_servers| resource_servers.local);
    if let Some(mismatch) =
        resource_servers.and_then(|resource_servers| decide_route_mismatch(resource_servers, resource, hop, view))
    {
        return mismatch;
    }
    if serves_locally(local, resource) {
        return Route::Local(LocalReason::ServedHere);
    }
    let offer =
        resource_servers.map_or(PeerOffer::NotListed, |resource_servers| peer_offer(resource_servers, resource));
    if let (LocalSupport::Serves(_), PeerOffer::NotListed | PeerOffer::WithoutVerb(_)) = (local, &offer) {
        return Route::Local(LocalReason::VerbServedNowhere);
    }
    if hop == Hop::FromPeer {
        return Route::Unavailable(UnavailableReason::ForwardedButNotServed);
    }
    match offer {
        PeerOffer::LiveWithVerb(members) | PeerOffer::WithoutVerb(Some(members)) => {
            return Route::Peers(members.clone());
        }
        PeerOffer::UnreachableWithVerb | PeerOffer::WithoutVerb(None) => {
            return Route::Unavailable(UnavailableReason::OnlyUnreachableMembers);
        }
        PeerOffer::NotListed => {}
    }
    route_unlisted(resource, local, view, proof)
}

/// Rules 3 and 5 for a path that does not fit the scope of its resource. The 404 of a peer for such a path would look as if the
/// peer did not serve the resource.
fn decide_route_mismatch(
    resource_servers: ResourceServers<'_>,
    resource: &ResourceTarget<'_>,
    hop: Hop,
    view: &View,
) -> Option<Route> {
    let mismatch = resource_servers.route_mismatch(resource)?;
    if resource_servers.local != LocalSupport::NotListed {
        return Some(Route::Local(LocalReason::RouteMismatch));
    }
    let may_be_built_in = view.may_be_built_in(resource.group_version_resource());
    let live = resource_servers.live.any().cloned();
    let is_decided = hop == Hop::FromClient && (may_be_built_in || live.is_some());
    is_decided.then_some(Route::RouteMismatch(PeerRouteMismatch { mismatch, may_be_built_in, live }))
}

/// Rules 4, 6 and 7 for resources that no member lists: shared state is excluded from their documents.
fn route_unlisted(resource: &ResourceTarget<'_>, local: LocalSupport, view: &View, proof: AbsenceProof) -> Route {
    let name = resource.group_version_resource();
    if view.exclusion().definition_state(name.group, name.version, name.resource) == Some(DefinitionState::Present) {
        return Route::Local(LocalReason::SharedState);
    }
    if let Some(incomplete) = view.incomplete_reason()
        && view.may_be_built_in(name)
    {
        return Route::Unavailable(UnavailableReason::ViewIncomplete(incomplete));
    }
    match (local, proof) {
        (LocalSupport::NotImplemented, _) => Route::Local(LocalReason::NotImplemented),
        (LocalSupport::NotListed | LocalSupport::Serves(_), AbsenceProof::CaughtUp) => {
            Route::Local(LocalReason::ServedNowhere)
        }
        (LocalSupport::NotListed | LocalSupport::Serves(_), AbsenceProof::NotRequested) => Route::ProveAbsence,
    }
}

fn serves_locally(local: LocalSupport, resource: &ResourceTarget<'_>) -> bool {
    match local {
        LocalSupport::NotListed | LocalSupport::NotImplemented => false,
        LocalSupport::Serves(verbs) => resource.is_connect() || verbs.contains(resource.verb),
    }
}

/// What members serve of a resource and subresource.
enum PeerOffer<'a> {
    /// Live members have the verb.
    LiveWithVerb(&'a Arc<[MemberIndex]>),
    /// Only suspect members or members that left have the verb.
    UnreachableWithVerb,
    /// No member has the verb, but some list the resource: these, if any is live. The verb never makes a resource less
    /// reachable than its name alone would.
    WithoutVerb(Option<&'a Arc<[MemberIndex]>>),
    /// No member lists it.
    NotListed,
}

fn peer_offer<'a>(resource_servers: ResourceServers<'a>, resource: &ResourceTarget<'_>) -> PeerOffer<'a> {
    let with_verb = |members: &'a ServingMembers| {
        if resource.is_connect() { members.any() } else { members.with_verb(resource.verb) }
    };
    let ResourceServers { live, unreachable: away, .. } = resource_servers;
    match (with_verb(live), with_verb(away)) {
        (Some(members), _) => PeerOffer::LiveWithVerb(members),
        (None, Some(_)) => PeerOffer::UnreachableWithVerb,
        (None, None) if live.any().is_some() || away.any().is_some() => PeerOffer::WithoutVerb(live.any()),
        (None, None) => PeerOffer::NotListed,
    }
}

impl UnavailableReason {
    /// The number of the routing rule in docs/decisions/README.md, which the 503 names.
    pub const fn routing_rule(self) -> u8 {
        match self {
            Self::ForwardedButNotServed => 2,
            Self::DefinedButNotServed => 4,
            Self::OnlyUnreachableMembers => 5,
            Self::ViewIncomplete(_) => 6,
            Self::AbsenceNotProven => 7,
        }
    }
}

impl LocalReason {
    /// The number of the routing rule in docs/decisions/README.md.
    pub const fn routing_rule(self) -> u8 {
        match self {
            Self::NotAResource => 1,
            Self::ServedHere | Self::VerbServedNowhere | Self::RouteMismatch => 3,
            Self::SharedState => 4,
            Self::NotImplemented | Self::ServedNowhere => 7,
        }
    }
}

#[cfg(test)]
mod tests;
