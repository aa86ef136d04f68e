//! What we have seen in storage of every server, and when.
//!
//! Values in, values out: the instant of every change comes in, and the time at which something follows from waiting alone
//! comes out.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::objects::{Endpoints, Lease};
use tokio::time::Instant;

use super::{DocumentSight, Evidence, KnownDocument, LeaseSight, Member, Patience, RecordSight, State, state_of};
use crate::documents::{ServerDocument, StoredDocument, Tenure};
use crate::endpoints::Address;
use crate::identity::{IdentityLease, ServerId};
use crate::ports::{Taken, Version};

/// A starting server publishes its document before its lease. Nobody puts an end to a document before the lease had this long
/// to follow.
const JOIN_GRACE: Duration = Duration::from_secs(5);

/// The shortest time to live that stores keep.
const TTL_MIN: Duration = Duration::from_secs(1);
/// After so many lingers a document is removed by hand: its time to live was lost, as by a restored backup.
const OVERDUE: u32 = 2;

/// What we have seen of every server, this one included.
#[derive(Debug)]
pub struct Book {
    patience: Patience,
    pages: BTreeMap<ServerId, Page>,
}

/// What we have seen of one server.
#[derive(Debug)]
struct Page {
    lease: Option<IdentityLease>,
    /// When the lease was last seen to be renewed, or to be gone.
    lease_since: Instant,
    address: Option<Address>,
    /// When the address, or its absence, was first seen; the absence counts anew for another process.
    address_since: Instant,
    document: Option<KnownDocument>,
    /// A document that nobody can read, and that is in the way of one that could be.
    garbage: Option<Version>,
    state: State,
    state_since: Instant,
}

/// A document as it was found in storage.
#[derive(Clone, Debug)]
pub struct FoundDocument {
    /// What to compare with when it is replaced.
    pub version: Version,
    /// What it holds.
    pub content: Content,
}

/// What a document in storage holds.
#[derive(Clone, Debug)]
pub enum Content {
    /// A document.
    Document(StoredDocument),
    /// Something that only newer servers understand.
    Newer,
    /// Nothing that anybody understands.
    Garbage,
}

/// Something to be done in storage about another server. Everybody sees the same chores; whoever is first does them.
#[derive(Clone, Debug)]
pub enum Chore {
    /// The lease has expired: remove it, and then what is known of its server.
    Sweep {
        /// The lease as it was seen.
        lease: IdentityLease,
        /// The document as it was seen.
        document: Option<Version>,
    },
    /// The lease is gone: let the document linger, and then go by itself.
    Linger {
        /// Whose it is.
        server: ServerId,
        /// The document as it was seen.
        document: KnownDocument,
        /// What is left of the linger.
        ttl: Duration,
    },
    /// The lease is back before the document went: keep it, until there is a newer one.
    Keep {
        /// Whose it is.
        server: ServerId,
        /// The document as it was seen.
        document: KnownDocument,
    },
    /// The document has outlived its server, or was never one: remove it.
    Forget {
        /// Whose it is.
        server: ServerId,
        /// The document as it was seen.
        document: Version,
    },
}

impl Book {
    /// A book without pages.
    pub fn new(patience: Patience) -> Self {
        Self { patience, pages: BTreeMap::new() }
    }

    /// Takes in what the feed of leases gave. A lease that makes no member is the same as none.
    pub fn see_leases(&mut self, taken: Taken<Arc<Lease>>, now: Instant) {
        self.see(taken, now, |_, page, lease| {
            let lease = lease.and_then(|lease| match IdentityLease::read(&lease) {
                Ok(lease) => Some(lease),
                Err(why) => {
                    tracing::debug!(lease = lease.metadata.name, %why, "a lease makes no member");
                    None
                }
            });
            page.see_lease(lease, now);
        });
    }

    /// Takes in what the feed of endpoint records gave. A record without a usable address is the same as none.
    pub fn see_records(&mut self, taken: Taken<Arc<Endpoints>>, now: Instant) {
        self.see(taken, now, |server, page, record| {
            let address = record.and_then(|record| match Address::from_record(server, &record) {
                Ok(address) => Some(address),
                Err(why) => {
                    tracing::warn!(%server, %why, "an endpoint record cannot be used");
                    None
                }
            });
            page.see_address(address, now);
        });
    }

    /// Takes in what the feed of documents gave; equal documents become one value.
    pub fn see_documents(&mut self, taken: Taken<FoundDocument>, now: Instant) {
        let mut known: Vec<Arc<ServerDocument>> = Vec::new();
        let served = self.pages.values().filter_map(|page| page.document.as_ref());
        known.extend(served.map(|document| document.stored.document.clone()));
        self.see(taken, now, |_, page, mut found| {
            if let Some(FoundDocument { content: Content::Document(stored), .. }) = &mut found {
                match known.iter().find(|known| **known == stored.document) {
                    Some(equal) => stored.document = equal.clone(),
                    None => known.push(stored.document.clone()),
                }
            }
            page.see_document(found, now);
        });
    }

    /// The members as they are now, in the order of their names; without `me` and without those that are gone.
    pub fn members(&mut self, me: &ServerId, now: Instant) -> Vec<Member> {
        let patience = self.patience;
        self.pages.retain(|_, page| !page.is_empty());
        let mut members = Vec::with_capacity(self.pages.len());
        for (server, page) in &mut self.pages {
            page.judge(now, patience);
            if server != me && page.state != State::Gone {
                members.push(page.member(server));
            }
        }
        members
    }

    /// The stored document of one server, whatever its state.
    pub fn document(&self, server: &ServerId) -> Option<&KnownDocument> {
        self.pages.get(server)?.document.as_ref()
    }

    /// When a state may change, or a chore come up, although nothing changes in storage.
    pub fn next_change(&self, now: Instant) -> Option<Instant> {
        let instants = self.pages.values().flat_map(|page| page.instants(self.patience));
        instants.filter(|instant| *instant > now).min()
    }

    /// What is to be done in storage about servers other than `me`, and about garbage, whose ever it is.
    pub fn chores(&self, me: &ServerId, now: Instant) -> Vec<Chore> {
        let others = self.pages.iter().filter(|(server, _)| *server != me);
        let chores = others.filter_map(|(server, page)| page.chore(server, now, self.patience));
        let garbage = self.pages.iter().filter_map(|(server, page)| {
            page.garbage.map(|document| Chore::Forget { server: server.clone(), document })
        });
        chores.chain(garbage).collect()
    }

    fn see<T>(&mut self, taken: Taken<T>, now: Instant, mut see: impl FnMut(&ServerId, &mut Page, Option<T>)) {
        let changes: Vec<(ServerId, Option<T>)> = match taken {
            Taken::Changes(changes) => changes,
            Taken::All(all) => {
                let mut changes: BTreeMap<ServerId, Option<T>> =
                    self.pages.keys().map(|server| (server.clone(), None)).collect();
                changes.extend(all.into_iter().map(|(server, value)| (server, Some(value))));
                changes.into_iter().collect()
            }
        };
        for (server, value) in changes {
            let page = self.pages.entry(server.clone()).or_insert_with(|| Page::new(now));
            see(&server, page, value);
        }
    }
}

impl Page {
    fn new(now: Instant) -> Self {
        Self {
            lease: None,
            lease_since: now,
            address: None,
            address_since: now,
            document: None,
            garbage: None,
            state: State::Gone,
            state_since: now,
        }
    }

    fn is_empty(&self) -> bool {
        self.lease.is_none() && self.address.is_none() && self.document.is_none() && self.garbage.is_none()
    }

    fn see_lease(&mut self, lease: Option<IdentityLease>, now: Instant) {
        let of = |lease: &Option<IdentityLease>| lease.as_ref().map(|lease| (lease.holder.clone(), lease.renew_time));
        let (before, after) = (of(&self.lease), of(&lease));
        if before != after {
            self.lease_since = now;
        }
        let holder = |sight: &Option<(_, _)>| sight.as_ref().map(|(holder, _)| holder).cloned();
        if after.is_some() && holder(&before) != holder(&after) && self.address.is_none() {
            self.address_since = now;
        }
        self.lease = lease;
    }

    fn see_address(&mut self, address: Option<Address>, now: Instant) {
        if address != self.address {
            self.address = address;
            self.address_since = now;
        }
    }

    fn see_document(&mut self, found: Option<FoundDocument>, now: Instant) {
        let last = self.document.take();
        self.garbage = None;
        match found {
            Some(FoundDocument { version, content: Content::Document(stored) }) => {
                let same = |known: &KnownDocument| {
                    known.stored.holder == stored.holder && known.stored.document == stored.document
                };
                let since = last.filter(same).map_or(now, |known| known.since);
                self.document = Some(KnownDocument { stored, version, since });
            }
            Some(FoundDocument { version, content: Content::Garbage }) => self.garbage = Some(version),
            Some(FoundDocument { content: Content::Newer, .. }) | None => {}
        }
    }

    fn judge(&mut self, now: Instant, patience: Patience) {
        let state = state_of(self.evidence(now), patience);
        if state != self.state {
            self.state = state;
            self.state_since = now;
        }
    }

    fn evidence(&self, now: Instant) -> Evidence {
        let lease_age = now.saturating_duration_since(self.lease_since);
        Evidence {
            lease: match &self.lease {
                None => LeaseSight::Absent(lease_age),
                Some(lease) if lease.is_expired(lease_age) => LeaseSight::Expired,
                Some(_) => LeaseSight::Valid,
            },
            record: match &self.address {
                None => RecordSight::Absent(now.saturating_duration_since(self.address_since)),
                Some(_) => RecordSight::Present,
            },
            document: match self.document.as_ref().map(|document| document.stored.tenure) {
                None => DocumentSight::Unknown,
                Some(Tenure::Staying) => DocumentSight::Known,
                Some(Tenure::Leaving) => DocumentSight::Leaving,
            },
        }
    }

    fn member(&self, server: &ServerId) -> Member {
        Member {
            server: server.clone(),
            state: self.state,
            since: self.state_since,
            holder: self.lease.as_ref().map(|lease| lease.holder.clone()),
            address: self.address.clone(),
            document: self.document.clone(),
        }
    }

    /// When waiting alone may change something.
    fn instants(&self, patience: Patience) -> impl Iterator<Item = Instant> {
        let expiry = self.lease.as_ref().and_then(|lease| lease.duration).map(|duration| self.lease_since + duration);
        let without_lease = self.lease.is_none().then_some(self.lease_since);
        let mute = self.address.is_none().then(|| self.address_since + patience.mute_after);
        let linger = without_lease.map(|since| since + patience.linger);
        let grace = without_lease.map(|since| since + JOIN_GRACE.min(patience.linger));
        let overdue = without_lease.map(|since| since + patience.linger * OVERDUE);
        [expiry, mute, linger, grace, overdue].into_iter().flatten()
    }

    fn chore(&self, server: &ServerId, now: Instant, patience: Patience) -> Option<Chore> {
        let age = now.saturating_duration_since(self.lease_since);
        let server = || server.clone();
        match (&self.lease, &self.document) {
            (Some(lease), document) if lease.is_expired(age) => {
                let document = document.as_ref().map(|document| document.version);
                Some(Chore::Sweep { lease: lease.clone(), document })
            }
            (Some(_), Some(document)) if document.stored.tenure == Tenure::Leaving => {
                Some(Chore::Keep { server: server(), document: document.clone() })
            }
            (Some(_), _) | (None, None) => None,
            (None, Some(document)) => {
                let end = match document.stored.tenure {
                    Tenure::Staying => patience.linger,
                    Tenure::Leaving => patience.linger * OVERDUE,
                };
                if age >= end {
                    return Some(Chore::Forget { server: server(), document: document.version });
                }
                let is_due = document.stored.tenure == Tenure::Staying && age >= JOIN_GRACE.min(patience.linger);
                let ttl = patience.linger.saturating_sub(age).max(TTL_MIN);
                is_due.then(|| Chore::Linger { server: server(), document: document.clone(), ttl })
            }
        }
    }
}

#[cfg(test)]
mod tests;
