//! The members of the cluster and their states, which follow from storage alone.
//!
//! Lease, endpoint record and stored document decide; what this server observes on connections never does. So all servers that
//! see the same storage draw the same conclusion. Time is our own monotonic time since we saw something change.

mod tracker;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

pub use tracker::{CleanupAction, DocumentContent, MemberTracker, ObservedDocument};

use crate::documents::{DocumentSource, ServerDocument, StoredDocument};
use crate::endpoint_record::Address;
use crate::identity::{HolderIdentity, ServerId};
use crate::ports::EntryVersion;

/// Whether a member can be asked to serve something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MemberState {
    /// Lease, record and document are there: requests go to it.
    Live,
    /// The lease is valid and the record ran out: it may have crashed, and it may come back.
    Suspect,
    /// The lease is gone and the document lingers.
    Left,
    /// The lease is valid, and what it serves is not known yet.
    Unknown,
    /// The same, and it has had no record for long: a server that does not take part, and never will.
    Mute,
    /// Expired, or absent for longer than the linger: no member any more.
    Gone,
}

impl MemberState {
    /// Every state, as listed by metrics.
    pub const ALL: [Self; 6] = [Self::Live, Self::Suspect, Self::Left, Self::Unknown, Self::Mute, Self::Gone];

    /// The word for logs, metrics and `/debug/peers`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Suspect => "suspect",
            Self::Left => "left",
            Self::Unknown => "unknown",
            Self::Mute => "mute",
            Self::Gone => "gone",
        }
    }
}

impl fmt::Display for MemberState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What storage says of one server, with our own time since it last changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberObservation {
    /// Its identity lease.
    pub lease: LeaseObservation,
    /// Its endpoint record.
    pub record: RecordObservation,
    /// Its stored document.
    pub document: DocumentObservation,
}

/// What is seen of an identity lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseObservation {
    /// There is one, and its renewals come in time.
    Valid,
    /// There is one that was not renewed for its duration, or never says so.
    Expired,
    /// There is none, for so long.
    Absent(Duration),
}

/// What is seen of an endpoint record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordObservation {
    /// There is one that holds an address.
    Present,
    /// There is none, for so long.
    Absent(Duration),
}

/// What is seen of a stored document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DocumentObservation {
    /// There is none that we can read.
    Missing,
    /// There is one.
    Present,
    /// There is one with the linger as its time to live.
    Lingering,
}

/// How long is long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberTimeouts {
    /// `--peer-linger`: how long a server that left is answered for with 503.
    pub linger: Duration,
    /// How long a server may have no record before it is taken for one that never will.
    pub mute_after: Duration,
}

impl MemberTimeouts {
    /// A clean restart takes seconds; a minute is enough for slow ones.
    pub const LINGER: Duration = Duration::from_secs(60);
    /// Real servers write their record at the latest when they are ready, which takes less than this.
    pub const MUTE_AFTER: Duration = Duration::from_secs(60);
}

impl Default for MemberTimeouts {
    fn default() -> Self {
        Self { linger: Self::LINGER, mute_after: Self::MUTE_AFTER }
    }
}

/// The state that follows.
pub fn derive_state(observation: MemberObservation, timeouts: MemberTimeouts) -> MemberState {
    use {DocumentObservation as Document, LeaseObservation as Lease, RecordObservation as Record};
    match (observation.lease, observation.record, observation.document) {
        (Lease::Expired, _, _) => MemberState::Gone,
        (Lease::Valid, Record::Present, Document::Present | Document::Lingering) => MemberState::Live,
        (Lease::Valid, Record::Absent(_), Document::Present | Document::Lingering) => MemberState::Suspect,
        (Lease::Valid, Record::Absent(since), Document::Missing) if since >= timeouts.mute_after => MemberState::Mute,
        (Lease::Valid, Record::Absent(_) | Record::Present, Document::Missing) => MemberState::Unknown,
        // Storage itself forgets the document in time, so every server forgets it at the same moment.
        (Lease::Absent(_), _, Document::Lingering) | (Lease::Absent(_), Record::Present, Document::Present) => {
            MemberState::Left
        }
        (Lease::Absent(since), Record::Absent(_), Document::Present) if since < timeouts.linger => MemberState::Left,
        (Lease::Absent(_), Record::Absent(_), Document::Present) | (Lease::Absent(_), _, Document::Missing) => {
            MemberState::Gone
        }
    }
}

/// A server of the cluster other than this one.
#[derive(Clone, Debug)]
pub struct Member {
    /// Its name.
    pub server: ServerId,
    /// What follows from storage.
    pub state: MemberState,
    /// Since when it is in this state.
    pub state_since: Instant,
    /// Its process, as the lease names it; `None` once the lease is gone.
    pub holder: Option<HolderIdentity>,
    /// Where it listens, as its record says.
    pub address: Option<Address>,
    /// What it serves, as far as known.
    pub document: Option<TrackedDocument>,
}

/// A document in storage, and since when we know it.
#[derive(Clone, Debug)]
pub struct TrackedDocument {
    /// The document, its holder and where it came from.
    pub stored: StoredDocument,
    /// What of storage to compare with when it is replaced.
    pub version: EntryVersion,
    /// When we first saw this content.
    pub since: Instant,
}

impl Member {
    /// What it serves, as far as known.
    pub fn server_document(&self) -> Option<&Arc<ServerDocument>> {
        self.document.as_ref().map(|document| &document.stored.document)
    }

    /// Whether it may serve more than we know: its document is not known, or is that of a former process.
    pub fn may_serve_more(&self) -> bool {
        match self.state {
            MemberState::Unknown | MemberState::Mute => true,
            MemberState::Live | MemberState::Suspect => !self.has_current_document(),
            MemberState::Left | MemberState::Gone => false,
        }
    }

    /// Whether it is to be asked over HTTP what it serves: it has a valid lease and does not publish by itself.
    pub fn needs_discovery_fetch(&self) -> bool {
        let publishes =
            self.document.as_ref().is_some_and(|document| document.stored.source == DocumentSource::Published);
        self.holder.is_some() && self.state != MemberState::Gone && !(publishes && self.has_current_document())
    }

    fn has_current_document(&self) -> bool {
        let holder = self.document.as_ref().map(|document| &document.stored.holder);
        holder.is_some() && holder == self.holder.as_ref()
    }
}

/// Whether two are the same for routing, discovery and asking; when they were first seen does not matter.
impl PartialEq for Member {
    fn eq(&self, other: &Self) -> bool {
        let of = |member: &Self| (member.state, member.holder.clone(), member.address.clone());
        self.server == other.server
            && of(self) == of(other)
            && match (&self.document, &other.document) {
                (None, None) => true,
                (Some(a), Some(b)) => a.version == b.version && a.stored == b.stored,
                (Some(_), None) | (None, Some(_)) => false,
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_secs(59);
    const LONG: Duration = Duration::from_secs(60);

    #[track_caller]
    fn check(lease: LeaseObservation, record: RecordObservation, document: DocumentObservation, expected: MemberState) {
        assert_eq!(derive_state(MemberObservation { lease, record, document }, MemberTimeouts::default()), expected);
    }

    #[test]
    fn member_with_lease_record_and_document_is_live() {
        for document in [DocumentObservation::Present, DocumentObservation::Lingering] {
            check(LeaseObservation::Valid, RecordObservation::Present, document, MemberState::Live);
        }
    }

    #[test]
    fn member_without_record_is_suspect() {
        for absent in [Duration::ZERO, LONG] {
            for document in [DocumentObservation::Present, DocumentObservation::Lingering] {
                check(LeaseObservation::Valid, RecordObservation::Absent(absent), document, MemberState::Suspect);
            }
        }
    }

    #[test]
    fn member_with_document_but_no_lease_has_left() {
        let absent = LeaseObservation::Absent;
        check(absent(SHORT), RecordObservation::Absent(LONG), DocumentObservation::Present, MemberState::Left);
        check(absent(LONG), RecordObservation::Present, DocumentObservation::Present, MemberState::Left);
        check(absent(LONG), RecordObservation::Absent(LONG), DocumentObservation::Lingering, MemberState::Left);
        check(absent(LONG), RecordObservation::Present, DocumentObservation::Lingering, MemberState::Left);
    }

    #[test]
    fn member_without_document_is_unknown() {
        check(LeaseObservation::Valid, RecordObservation::Present, DocumentObservation::Missing, MemberState::Unknown);
        check(
            LeaseObservation::Valid,
            RecordObservation::Absent(SHORT),
            DocumentObservation::Missing,
            MemberState::Unknown,
        );
    }

    #[test]
    fn member_with_only_a_lease_becomes_mute() {
        check(
            LeaseObservation::Valid,
            RecordObservation::Absent(LONG),
            DocumentObservation::Missing,
            MemberState::Mute,
        );
    }

    #[test]
    fn member_with_expired_or_long_absent_lease_is_gone() {
        for record in [RecordObservation::Present, RecordObservation::Absent(SHORT)] {
            for document in [DocumentObservation::Missing, DocumentObservation::Present, DocumentObservation::Lingering]
            {
                check(LeaseObservation::Expired, record, document, MemberState::Gone);
            }
        }
        check(
            LeaseObservation::Absent(LONG),
            RecordObservation::Absent(SHORT),
            DocumentObservation::Present,
            MemberState::Gone,
        );
        check(
            LeaseObservation::Absent(SHORT),
            RecordObservation::Absent(SHORT),
            DocumentObservation::Missing,
            MemberState::Gone,
        );
        check(
            LeaseObservation::Absent(SHORT),
            RecordObservation::Present,
            DocumentObservation::Missing,
            MemberState::Gone,
        );
    }
}
