//! What we have seen in storage of every server, and when.
//!
//! Values in, values out: the instant of every change comes in, and the time at which something follows from waiting alone
//! comes out.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::objects::{Endpoints, Lease};
use tokio::time::Instant;

use super::{
    DocumentObservation, LeaseObservation, Member, MemberObservation, MemberState, MemberTimeouts, RecordObservation,
    TrackedDocument, derive_state,
};
use crate::documents::{Retention, ServerDocument, StoredDocument};
use crate::endpoint_record::Address;
use crate::identity::{IdentityLease, ServerId};
use crate::ports::{EntryVersion, FeedUpdate};

/// A starting server publishes its document before its lease. Nobody puts an end to a document before the lease had this long
/// to follow.
const JOIN_GRACE: Duration = Duration::from_secs(5);

/// The shortest time to live that stores keep.
const TTL_MIN: Duration = Duration::from_secs(1);
/// After so many lingers a document is removed by hand: its time to live was lost, as by a restored backup.
const OVERDUE_LINGERS: u32 = 2;

/// What we have seen of every server, this one included.
#[derive(Debug)]
pub struct MemberTracker {
    timeouts: MemberTimeouts,
    tracked: BTreeMap<ServerId, TrackedMember>,
}

/// What we have seen of one server.
#[derive(Debug)]
struct TrackedMember {
    lease: Option<IdentityLease>,
    /// When the lease was last seen to be renewed, or to be gone.
    lease_since: Instant,
    address: Option<Address>,
    /// When the address, or its absence, was first seen; the absence counts anew for another process.
    address_since: Instant,
    document: Option<TrackedDocument>,
    /// A document that nobody can read, and that is in the way of one that could be.
    unreadable: Option<EntryVersion>,
    state: MemberState,
    state_since: Instant,
}

/// A document as it was found in storage.
#[derive(Clone, Debug)]
pub struct ObservedDocument {
    /// What to compare with when it is replaced.
    pub version: EntryVersion,
    /// What it holds.
    pub content: DocumentContent,
}

/// What a document in storage holds.
#[derive(Clone, Debug)]
pub enum DocumentContent {
    /// A document.
    Document(StoredDocument),
    /// Something that only newer servers understand.
    NewerFormat,
    /// Nothing that anybody understands.
    Unreadable,
}

/// Something to be done in storage about another server. Everybody sees the same chores; whoever is first does them.
#[derive(Clone, Debug)]
pub enum CleanupAction {
    /// The lease has expired: remove it, and then what is known of its server.
    DeleteExpiredLease {
        /// The lease as it was seen.
        lease: IdentityLease,
        /// The document as it was seen.
        document: Option<EntryVersion>,
    },
    /// The lease is gone: let the document linger, and then go by itself.
    StartLinger {
        /// Whose it is.
        server: ServerId,
        /// The document as it was seen.
        document: TrackedDocument,
        /// What is left of the linger.
        ttl: Duration,
    },
    /// The lease is back before the document went: keep it, until there is a newer one.
    CancelLinger {
        /// Whose it is.
        server: ServerId,
        /// The document as it was seen.
        document: TrackedDocument,
    },
    /// The document has outlived its server, or was never one: remove it.
    DeleteDocument {
        /// Whose it is.
        server: ServerId,
        /// The document as it was seen.
        document: EntryVersion,
    },
}

impl MemberTracker {
    /// A book without pages.
    pub fn new(timeouts: MemberTimeouts) -> Self {
        Self { timeouts, tracked: BTreeMap::new() }
    }

    /// Takes in what the feed of leases gave. A lease that makes no member is the same as none.
    pub fn observe_leases(&mut self, update: FeedUpdate<Arc<Lease>>, now: Instant) {
        self.observe(update, now, |_, tracked_member, lease| {
            let lease = lease.and_then(|lease| match IdentityLease::from_lease(&lease) {
                Ok(lease) => Some(lease),
                Err(reason) => {
                    tracing::debug!(lease = lease.metadata.name, %reason, "a lease makes no member");
                    None
                }
            });
            tracked_member.observe_lease(lease, now);
        });
    }

    /// Takes in what the feed of endpoint records gave. A record without a usable address is the same as none.
    pub fn observe_records(&mut self, update: FeedUpdate<Arc<Endpoints>>, now: Instant) {
        self.observe(update, now, |server, tracked_member, record| {
            let address = record.and_then(|record| match Address::from_record(server, &record) {
                Ok(address) => Some(address),
                Err(reason) => {
                    tracing::warn!(%server, %reason, "an endpoint record cannot be used");
                    None
                }
            });
            tracked_member.observe_address(address, now);
        });
    }

    /// Takes in what the feed of documents gave; equal documents become one value.
    pub fn observe_documents(&mut self, update: FeedUpdate<ObservedDocument>, now: Instant) {
        let mut known: Vec<Arc<ServerDocument>> = Vec::new();
        let served = self.tracked.values().filter_map(|tracked_member| tracked_member.document.as_ref());
        known.extend(served.map(|document| document.stored.document.clone()));
        self.observe(update, now, |_, tracked_member, mut observed| {
            if let Some(ObservedDocument { content: DocumentContent::Document(stored), .. }) = &mut observed {
                match known.iter().find(|known| **known == stored.document) {
                    Some(equal) => stored.document = equal.clone(),
                    None => known.push(stored.document.clone()),
                }
            }
            tracked_member.observe_document(observed, now);
        });
    }

    /// The members as they are now, in the order of their names; without `me` and without those that are gone.
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

    /// When a state may change, or a chore come up, although nothing changes in storage.
    pub fn next_change(&self, now: Instant) -> Option<Instant> {
        let instants = self.tracked.values().flat_map(|tracked_member| tracked_member.change_instants(self.timeouts));
        instants.filter(|instant| *instant > now).min()
    }

    /// What is to be done in storage about servers other than `me`, and about garbage, whose ever it is.
    pub fn cleanup_actions(&self, this_server: &ServerId, now: Instant) -> Vec<CleanupAction> {
        let others = self.tracked.iter().filter(|(server, _)| *server != this_server);
        let actions =
            others.filter_map(|(server, tracked_member)| tracked_member.cleanup_action(server, now, self.timeouts));
        let garbage = self.tracked.iter().filter_map(|(server, tracked_member)| {
            tracked_member.unreadable.map(|document| CleanupAction::DeleteDocument { server: server.clone(), document })
        });
        actions.chain(garbage).collect()
    }

    fn observe<T>(
        &mut self,
        update: FeedUpdate<T>,
        now: Instant,
        mut see: impl FnMut(&ServerId, &mut TrackedMember, Option<T>),
    ) {
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
            let tracked_member = self.tracked.entry(server.clone()).or_insert_with(|| TrackedMember::new(now));
            see(&server, tracked_member, value);
        }
    }
}

impl TrackedMember {
    fn new(now: Instant) -> Self {
        Self {
            lease: None,
            lease_since: now,
            address: None,
            address_since: now,
            document: None,
            unreadable: None,
            state: MemberState::Gone,
            state_since: now,
        }
    }

    fn is_empty(&self) -> bool {
        self.lease.is_none() && self.address.is_none() && self.document.is_none() && self.unreadable.is_none()
    }

    fn observe_lease(&mut self, lease: Option<IdentityLease>, now: Instant) {
        let of = |lease: &Option<IdentityLease>| lease.as_ref().map(|lease| (lease.holder.clone(), lease.renew_time));
        let (before, after) = (of(&self.lease), of(&lease));
        if before != after {
            self.lease_since = now;
        }
        let holder =
            |holder_and_renewal: &Option<(_, _)>| holder_and_renewal.as_ref().map(|(holder, _)| holder).cloned();
        if after.is_some() && holder(&before) != holder(&after) && self.address.is_none() {
            self.address_since = now;
        }
        self.lease = lease;
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
        let lease_age = now.saturating_duration_since(self.lease_since);
        MemberObservation {
            lease: match &self.lease {
                None => LeaseObservation::Absent(lease_age),
                Some(lease) if lease.is_expired(lease_age) => LeaseObservation::Expired,
                Some(_) => LeaseObservation::Valid,
            },
            record: match &self.address {
                None => RecordObservation::Absent(now.saturating_duration_since(self.address_since)),
                Some(_) => RecordObservation::Present,
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
            holder: self.lease.as_ref().map(|lease| lease.holder.clone()),
            address: self.address.clone(),
            document: self.document.clone(),
        }
    }

    /// When waiting alone may change something.
    fn change_instants(&self, timeouts: MemberTimeouts) -> impl Iterator<Item = Instant> {
        let expiry = self.lease.as_ref().and_then(|lease| lease.duration).map(|duration| self.lease_since + duration);
        let without_lease = self.lease.is_none().then_some(self.lease_since);
        let mute = self.address.is_none().then(|| self.address_since + timeouts.mute_after);
        let linger = without_lease.map(|since| since + timeouts.linger);
        let grace = without_lease.map(|since| since + JOIN_GRACE.min(timeouts.linger));
        let overdue = without_lease.map(|since| since + timeouts.linger * OVERDUE_LINGERS);
        [expiry, mute, linger, grace, overdue].into_iter().flatten()
    }

    fn cleanup_action(&self, server: &ServerId, now: Instant, timeouts: MemberTimeouts) -> Option<CleanupAction> {
        let age = now.saturating_duration_since(self.lease_since);
        let server = || server.clone();
        match (&self.lease, &self.document) {
            (Some(lease), document) if lease.is_expired(age) => {
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
