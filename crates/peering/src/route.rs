//! Where a request goes: the rules of docs/decisions/README.md, in their order.
//!
//! A plain function over a request and a [`View`]. Every outcome carries its reason.

use std::sync::Arc;

use api::target::Resource;
use api::{Misfit, Target};

use crate::exclusion::Definition;
use crate::hop::Hop;
use crate::table::{Bearers, Here, Listed, MemberIndex};
use crate::view::View;

/// Where a request goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route {
    /// It is answered here.
    Here(Why),
    /// It is forwarded to one of these, all live, as the table holds them: never none. The forwarder orders them.
    Peers(Arc<[MemberIndex]>),
    /// The path and method fit the resource on no server that lists it. Never for what is listed here: the handler decides by
    /// the same rule.
    Misfit(Unfit),
    /// Nobody is known to serve it. Before that is said, the views must have caught up with storage: wait for the proof and
    /// route again with [`Proof::CaughtUp`]; if there is no proof, it is [`Unavailable::NotProven`].
    ProveAbsence,
    /// 503: it may exist, and we cannot reach it or prove that it does not.
    Unavailable(Unavailable),
}

/// A request that fits no route of its resource, which only other members list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfit {
    /// The answer of a server that serves the resource.
    pub misfit: Misfit,
    /// True if the resource may be built in, so that kube-apiserver's routes are all there is. Custom resources and aggregated
    /// API servers have routes of their own: a member that serves them must answer.
    pub may_be_built_in: bool,
    /// The live members that list the resource.
    pub live: Option<Arc<[MemberIndex]>>,
}

/// Why a request is answered here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Why {
    /// Rule 1: it is about no resource.
    NotAResource,
    /// Rule 3: resource, subresource and verb are served here.
    ServedHere,
    /// Rule 3: resource and subresource are served here, and nobody offers the verb. The answer is 405.
    VerbServedNowhere,
    /// Rule 3: it is listed here, and its path and method do not fit its scope. The answer is 404, 405 or 400.
    DoesNotFit,
    /// Rule 4: a definition in storage brings it, which every server reads for itself.
    SharedState,
    /// It is listed here and not built, and nobody else has it. The answer is 501.
    NotBuilt,
    /// Rule 7: proven to be served by nobody. The answer is 404.
    ServedNowhere,
}

/// Why a request cannot be served now, although it might be at another time or by another server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unavailable {
    /// Rule 2: a peer sent it here, and we do not serve it.
    ForwardedButUnknown,
    /// Rule 4: a definition in storage brings it, and nobody who can be reached is known to serve it.
    OnlyDefined,
    /// Rule 5: only members that are suspect or have left serve it.
    OnlySuspects,
    /// Rule 6: it may be built in, and somebody who may have it was not heard.
    Unheard(Unheard),
    /// Rule 7: that nobody serves it could not be proven.
    NotProven,
}

/// Why we may not know all that the cluster serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unheard {
    /// Our first sync is not over.
    NotSynced,
    /// A member's document is not known yet, or is that of a former process.
    MemberUnknown,
    /// A member does not say what it serves, and never will.
    MemberMute,
}

/// Whether our views are known to be up to date.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// They may be behind.
    NotAsked,
    /// They hold everything that storage held when the request came.
    CaughtUp,
}

/// Where a request goes. The first rule that matches decides.
pub fn route(target: &Target<'_>, hop: Hop, view: &View, proof: Proof) -> Route {
    let Target::Resource(resource) = target else { return Route::Here(Why::NotAResource) };
    let listed = view.table().find(resource);
    let here = listed.map_or(Here::Nothing, |listed| listed.here);
    if let Some(refused) = listed.and_then(|listed| refuse_misfit(listed, resource, hop, view)) {
        return refused;
    }
    if serves(here, resource) {
        return Route::Here(Why::ServedHere);
    }
    let offered = listed.map_or(Offered::Nowhere, |listed| offered(listed, resource));
    if let (Here::Serves(_), Offered::Nowhere | Offered::Otherwise(_)) = (here, &offered) {
        return Route::Here(Why::VerbServedNowhere);
    }
    if hop == Hop::FromPeer {
        return Route::Unavailable(Unavailable::ForwardedButUnknown);
    }
    match offered {
        Offered::Live(members) | Offered::Otherwise(Some(members)) => return Route::Peers(members.clone()),
        Offered::Away | Offered::Otherwise(None) => return Route::Unavailable(Unavailable::OnlySuspects),
        Offered::Nowhere => {}
    }
    served_nowhere(resource, here, view, proof)
}

/// Rules 3 and 5, for a path that does not fit the scope of its resource. Forwarding it would be misread: the 404 of a peer for
/// such a path looks as if the peer did not serve the resource.
fn refuse_misfit(listed: Listed<'_>, resource: &Resource<'_>, hop: Hop, view: &View) -> Option<Route> {
    let misfit = listed.misfit(resource)?;
    if listed.here != Here::Nothing {
        return Some(Route::Here(Why::DoesNotFit));
    }
    let may_be_built_in = view.may_be_built_in(resource.group_version_resource());
    let live = listed.live.any().cloned();
    let is_decided = hop == Hop::FromClient && (may_be_built_in || live.is_some());
    is_decided.then_some(Route::Misfit(Unfit { misfit, may_be_built_in, live }))
}

/// Rules 4, 6 and 7, for what no member lists: what is shared state was struck from their documents.
fn served_nowhere(resource: &Resource<'_>, here: Here, view: &View, proof: Proof) -> Route {
    let name = resource.group_version_resource();
    if view.exclusion().definition(name.group, name.version, name.resource) == Some(Definition::Present) {
        return Route::Here(Why::SharedState);
    }
    if let Some(unheard) = view.unheard()
        && view.may_be_built_in(name)
    {
        return Route::Unavailable(Unavailable::Unheard(unheard));
    }
    match (here, proof) {
        (Here::Unbuilt, _) => Route::Here(Why::NotBuilt),
        (Here::Nothing | Here::Serves(_), Proof::CaughtUp) => Route::Here(Why::ServedNowhere),
        (Here::Nothing | Here::Serves(_), Proof::NotAsked) => Route::ProveAbsence,
    }
}

fn serves(here: Here, resource: &Resource<'_>) -> bool {
    match here {
        Here::Nothing | Here::Unbuilt => false,
        Here::Serves(verbs) => resource.is_connect() || verbs.contains(resource.verb),
    }
}

/// What members offer of a resource and subresource.
enum Offered<'a> {
    /// Live members have the verb.
    Live(&'a Arc<[MemberIndex]>),
    /// Only members that are away have the verb.
    Away,
    /// Nobody has the verb, but somebody lists the resource: these, if any of them is live. The verb never makes a resource
    /// less reachable than its name alone would.
    Otherwise(Option<&'a Arc<[MemberIndex]>>),
    /// Nobody lists it.
    Nowhere,
}

fn offered<'a>(listed: Listed<'a>, resource: &Resource<'_>) -> Offered<'a> {
    let with_verb = |bearers: &'a Bearers| {
        if resource.is_connect() { bearers.any() } else { bearers.of_verb(resource.verb) }
    };
    let Listed { live, away, .. } = listed;
    match (with_verb(live), with_verb(away)) {
        (Some(members), _) => Offered::Live(members),
        (None, Some(_)) => Offered::Away,
        (None, None) if live.any().is_some() || away.any().is_some() => Offered::Otherwise(live.any()),
        (None, None) => Offered::Nowhere,
    }
}

impl Unavailable {
    /// The rule that fired, by its number in docs/decisions/README.md.
    pub const fn rule(self) -> u8 {
        match self {
            Self::ForwardedButUnknown => 2,
            Self::OnlyDefined => 4,
            Self::OnlySuspects => 5,
            Self::Unheard(_) => 6,
            Self::NotProven => 7,
        }
    }
}

impl Why {
    /// The rule that fired, by its number in docs/decisions/README.md.
    pub const fn rule(self) -> u8 {
        match self {
            Self::NotAResource => 1,
            Self::ServedHere | Self::VerbServedNowhere | Self::DoesNotFit => 3,
            Self::SharedState => 4,
            Self::NotBuilt | Self::ServedNowhere => 7,
        }
    }
}

#[cfg(test)]
mod tests;
