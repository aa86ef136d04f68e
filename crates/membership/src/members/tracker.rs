//! What was observed of every server, and when.
//!
//! Pure: the time of every change is an argument, and the time of the next change without an observation is a result.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::Address;
use tokio::time::Instant;

use super::{
    AddressObservation, DocumentObservation, Member, MemberObservation, MemberPresence, MemberState, MemberTimeouts,
    PresenceObservation, TrackedDocument, derive_state,
};
use crate::documents::{Retention, ServerDocument, StoredDocument};
use crate::identity::{IdentityLease, ServerId};
use crate::ports::{EntryVersion, FeedUpdate};

/// A starting server publishes its document before its lease. No server gives a document a time to live before this time has
/// passed.
const JOIN_GRACE: Duration = Duration::from_secs(5);

/// The shortest time to live that stores support.
const TTL_MIN: Duration = Duration::from_secs(1);
/// After this many lingers a lingering document is deleted: its time to live was lost, as by a restored backup.
const OVERDUE_LINGERS: u32 = 2;

/// What was observed of every server, this one included.
#[derive(Debug)]
pub struct MemberTracker {
    timeouts: MemberTimeouts,
    tracked: BTreeMap<ServerId, TrackedMember>,
}

/// What was observed of one server.
#[derive(Debug)]
struct TrackedMember {
    presence: Option<MemberPresence>,
    /// When the lease was last seen to be renewed, or the presence to begin or end.
    presence_since: Instant,
    address: Option<Address>,
    /// When the address or its absence was first seen; the absence restarts with a new process.
    address_since: Instant,
    document: Option<TrackedDocument>,
    /// The version of a document that no release can decode. It has to be removed before another can be stored.
    unreadable: Option<EntryVersion>,
    state: MemberState,
    state_since: Instant,
}

/// A document as its source delivers it.
#[derive(Clone, Debug)]
pub struct ObservedDocument {
    /// The version to compare with when it is replaced.
    pub version: EntryVersion,
    /// The decoded content.
    pub content: DocumentContent,
}

/// The content of a stored document.
#[derive(Clone, Debug)]
pub enum DocumentContent {
    /// A document of this format.
    Document(StoredDocument),
    /// A document that only newer servers can decode.
    NewerFormat,
    /// Bytes that no server can decode.
    Unreadable,
}

/// An action in storage about another server. All servers derive the same actions; the first one performs each.
#[derive(Clone, Debug)]
pub enum CleanupAction {
    /// Delete an expired lease, then the document of its server.
    DeleteExpiredLease {
        /// The observed lease, for the precondition.
        lease: IdentityLease,
        /// The observed document, for the precondition.
        document: Option<EntryVersion>,
    },
    /// Give the document of a server without lease the rest of the linger as its time to live.
    StartLinger {
        /// The server of the document.
        server: ServerId,
        /// The observed document, for the precondition.
        document: TrackedDocument,
        /// The rest of the linger.
        ttl: Duration,
    },
    /// Keep a lingering document whose server is back, until it is replaced.
    CancelLinger {
        /// The server of the document.
        server: ServerId,
        /// The observed document, for the precondition.
        document: TrackedDocument,
    },
    /// Delete a document that outlived the linger or cannot be decoded.
    DeleteDocument {
        /// The server of the document.
        server: ServerId,
        /// The observed document, for the precondition.
        document: EntryVersion,
    },
}

impl MemberTracker {
    /// A tracker without servers.
    pub fn new(timeouts: MemberTimeouts) -> Self {
        Self { timeouts, tracked: BTreeMap::new() }
    }

    /// Applies an update of which servers are present.
    pub fn observe_presence(&mut self, update: FeedUpdate<MemberPresence>, now: Instant) {
        self.observe(update, now, |tracked_member, presence| tracked_member.observe_presence(presence, now));
    }

    /// Applies an update of where servers listen.
    pub fn observe_addresses(&mut self, update: FeedUpdate<Address>, now: Instant) {
        self.observe(update, now, |tracked_member, address| tracked_member.observe_address(address, now));
    }

    /// Applies an update of what servers serve. Equal documents share one allocation.
    pub fn observe_documents(&mut self, update: FeedUpdate<ObservedDocument>, now: Instant) {
        let mut known: Vec<Arc<ServerDocument>> = Vec::new();
        let served = self.tracked.values().filter_map(|tracked_member| tracked_member.document.as_ref());
        known.extend(served.map(|document| document.stored.document.clone()));
        self.observe(update, now, |tracked_member, mut observed| {
            if let Some(ObservedDocument { content: DocumentContent::Document(stored), .. }) = &mut observed {
                match known.iter().find(|known| **known == stored.document) {
                    Some(equal) => stored.document = equal.clone(),
                    None => known.push(stored.document.clone()),
                }
            }
            tracked_member.observe_document(observed, now);
        });
    }

    /// The members at this time, ordered by id, without this server and without those that are gone.
    pub fn members(&mut self, this_server: &ServerId, now: Instant) -> Vec<Member> {
        let timeouts = self.timeouts;
        self.tracked.retain(|_, tracked_member| !tracked_member.is_empty());
        let mut members = Vec::with_capacity(self.tracked.len());
        for (server, tracked_member) in &mut self.tracked {
            tracked_member.update_state(now, timeouts);
            if server != this_server && tracked_member.state != MemberState::Gone {
                members.push(tracked_member.member(server));
            }
        }
        members
    }

    /// The stored document of one server, whatever its state.
    pub fn document(&self, server: &ServerId) -> Option<&TrackedDocument> {
        self.tracked.get(server)?.document.as_ref()
    }

    /// When a state or a cleanup action may change without an observation.
    pub fn next_change(&self, now: Instant) -> Option<Instant> {
        let instants = self.tracked.values().flat_map(|tracked_member| tracked_member.change_instants(self.timeouts));
        instants.filter(|instant| *instant > now).min()
    }

    /// The cleanup actions for servers other than this one, and for undecodable documents of any server.
    pub fn cleanup_actions(&self, this_server: &ServerId, now: Instant) -> Vec<CleanupAction> {
        let others = self.tracked.iter().filter(|(server, _)| *server != this_server);
        let actions =
            others.filter_map(|(server, tracked_member)| tracked_member.cleanup_action(server, now, self.timeouts));
        let garbage = self.tracked.iter().filter_map(|(server, tracked_member)| {
            tracked_member.unreadable.map(|document| CleanupAction::DeleteDocument { server: server.clone(), document })
        });
        actions.chain(garbage).collect()
    }

    fn observe<T>(&mut self, update: FeedUpdate<T>, now: Instant, mut see: impl FnMut(&mut TrackedMember, Option<T>)) {
        let changes: Vec<(ServerId, Option<T>)> = match update {
            FeedUpdate::Changes(changes) => changes,
            FeedUpdate::All(all) => {
                let mut changes: BTreeMap<ServerId, Option<T>> =
                    self.tracked.keys().map(|server| (server.clone(), None)).collect();
                changes.extend(all.into_iter().map(|(server, value)| (server, Some(value))));
                changes.into_iter().collect()
            }
        };
        for (server, value) in changes {
            see(self.tracked.entry(server).or_insert_with(|| TrackedMember::new(now)), value);
        }
    }
}

impl TrackedMember {
    fn new(now: Instant) -> Self {
        Self {
            presence: None,
            presence_since: now,
            address: None,
            address_since: now,
            document: None,
            unreadable: None,
            state: MemberState::Gone,
            state_since: now,
        }
    }

    fn is_empty(&self) -> bool {
        self.presence.is_none() && self.address.is_none() && self.document.is_none() && self.unreadable.is_none()
    }

    fn observe_presence(&mut self, presence: Option<MemberPresence>, now: Instant) {
        let renewal = |presence: &MemberPresence| {
            (presence.holder().clone(), presence.lease().and_then(|lease| lease.renew_time))
        };
        let (before, after) = (self.presence.as_ref().map(renewal), presence.as_ref().map(renewal));
        if before != after {
            self.presence_since = now;
        }
        let is_new_holder = after.is_some() && before.map(|(holder, _)| holder) != after.map(|(holder, _)| holder);
        if is_new_holder && self.address.is_none() {
            self.address_since = now;
        }
        self.presence = presence;
    }

    fn observe_address(&mut self, address: Option<Address>, now: Instant) {
        if address != self.address {
            self.address = address;
            self.address_since = now;
        }
    }

    fn observe_document(&mut self, observed: Option<ObservedDocument>, now: Instant) {
        let last = self.document.take();
        self.unreadable = None;
        match observed {
            Some(ObservedDocument { version, content: DocumentContent::Document(stored) }) => {
                let same = |known: &TrackedDocument| {
                    known.stored.holder == stored.holder && known.stored.document == stored.document
                };
                let since = last.filter(same).map_or(now, |known| known.since);
                self.document = Some(TrackedDocument { stored, version, since });
            }
            Some(ObservedDocument { version, content: DocumentContent::Unreadable }) => self.unreadable = Some(version),
            Some(ObservedDocument { content: DocumentContent::NewerFormat, .. }) | None => {}
        }
    }

    fn update_state(&mut self, now: Instant, timeouts: MemberTimeouts) {
        let state = derive_state(self.observation(now), timeouts);
        if state != self.state {
            self.state = state;
            self.state_since = now;
        }
    }

    fn observation(&self, now: Instant) -> MemberObservation {
        let age = now.saturating_duration_since(self.presence_since);
        MemberObservation {
            presence: match &self.presence {
                None => PresenceObservation::Absent(age),
                Some(MemberPresence::Leased(lease)) if lease.is_expired(age) => PresenceObservation::Expired,
                Some(_) => PresenceObservation::Valid,
            },
            address: match &self.address {
                None => AddressObservation::Absent(now.saturating_duration_since(self.address_since)),
                Some(_) => AddressObservation::Present,
            },
            document: match self.document.as_ref().map(|document| document.stored.retention) {
                None => DocumentObservation::Missing,
                Some(Retention::UntilReplaced) => DocumentObservation::Present,
                Some(Retention::Lingering) => DocumentObservation::Lingering,
            },
        }
    }

    fn member(&self, server: &ServerId) -> Member {
        Member {
            server: server.clone(),
            state: self.state,
            state_since: self.state_since,
            holder: self.presence.as_ref().map(|presence| presence.holder().clone()),
            address: self.address.clone(),
            document: self.document.clone(),
        }
    }

    /// When the state or cleanup action of this server may change without an observation.
    fn change_instants(&self, timeouts: MemberTimeouts) -> impl Iterator<Item = Instant> {
        let lease = self.presence.as_ref().and_then(MemberPresence::lease);
        let expiry = lease.and_then(|lease| lease.duration).map(|duration| self.presence_since + duration);
        let without_lease = self.presence.is_none().then_some(self.presence_since);
        let mute = self.address.is_none().then(|| self.address_since + timeouts.mute_after);
        let linger = without_lease.map(|since| since + timeouts.linger);
        let grace = without_lease.map(|since| since + JOIN_GRACE.min(timeouts.linger));
        let overdue = without_lease.map(|since| since + timeouts.linger * OVERDUE_LINGERS);
        [expiry, mute, linger, grace, overdue].into_iter().flatten()
    }

    fn cleanup_action(&self, server: &ServerId, now: Instant, timeouts: MemberTimeouts) -> Option<CleanupAction> {
        let age = now.saturating_duration_since(self.presence_since);
        let server = || server.clone();
        match (&self.presence, &self.document) {
            (Some(MemberPresence::Leased(lease)), document) if lease.is_expired(age) => {
                let document = document.as_ref().map(|document| document.version);
                Some(CleanupAction::DeleteExpiredLease { lease: lease.clone(), document })
            }
            (Some(_), Some(document)) if document.stored.retention == Retention::Lingering => {
                Some(CleanupAction::CancelLinger { server: server(), document: document.clone() })
            }
            (Some(_), _) | (None, None) => None,
            (None, Some(document)) => {
                let end = match document.stored.retention {
                    Retention::UntilReplaced => timeouts.linger,
                    Retention::Lingering => timeouts.linger * OVERDUE_LINGERS,
                };
                if age >= end {
                    return Some(CleanupAction::DeleteDocument { server: server(), document: document.version });
                }
                let is_due =
                    document.stored.retention == Retention::UntilReplaced && age >= JOIN_GRACE.min(timeouts.linger);
                let ttl = timeouts.linger.saturating_sub(age).max(TTL_MIN);
                is_due.then(|| CleanupAction::StartLinger { server: server(), document: document.clone(), ttl })
            }
        }
    }
}

#[cfg(test)]
mod tests;
