//! The members of the cluster and their states, which follow from the observations of their source alone.
//!
//! Presence, address and document decide; what this server sees on connections never does. In a server they come from lease,
//! endpoint record and stored document, so that all servers on one storage derive the same states. Time is our own monotonic
//! time since a change was seen.

mod tracker;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use api::Address;
use tokio::time::Instant;

pub use tracker::{CleanupAction, DocumentContent, MemberTracker, ObservedDocument};

use crate::documents::{DocumentSource, ServerDocument, StoredDocument};
use crate::identity::{HolderIdentity, IdentityLease, ServerId};
use crate::ports::EntryVersion;

/// Whether requests can be sent to a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MemberState {
    /// Present, with address and document: requests are forwarded to it.
    Live,
    /// Present, but without address: it may have crashed and may come back.
    Suspect,
    /// No longer present; its document lingers.
    Left,
    /// Present, but its document is not known yet.
    Unknown,
    /// Present, but without document or address for long: a server that does not take part.
    Mute,
    /// Expired, or absent for longer than the linger: no longer a member.
    Gone,
}

impl MemberState {
    /// Every state, in the order of metrics.
    pub const ALL: [Self; 6] = [Self::Live, Self::Suspect, Self::Left, Self::Unknown, Self::Mute, Self::Gone];

    /// The word in logs, metrics and `/debug/peers`.
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

/// What makes a server a member, as the source of observations sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemberPresence {
    /// The server holds this identity lease, which expires by our own clock unless the server renews it.
    Leased(IdentityLease),
    /// An inspector checks the server: it stays a member until the source removes it.
    Inspected(HolderIdentity),
}

impl MemberPresence {
    /// The process of the server.
    pub fn holder(&self) -> &HolderIdentity {
        match self {
            Self::Leased(lease) => &lease.holder,
            Self::Inspected(holder) => holder,
        }
    }

    /// The lease, if the presence depends on one.
    fn lease(&self) -> Option<&IdentityLease> {
        match self {
            Self::Leased(lease) => Some(lease),
            Self::Inspected(_) => None,
        }
    }
}

/// What is known of one server, with our own time since it last changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberObservation {
    /// Whether the server is present.
    pub presence: PresenceObservation,
    /// Whether requests can be sent to it.
    pub address: AddressObservation,
    /// Whether its document is known.
    pub document: DocumentObservation,
}

/// Whether a server is present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PresenceObservation {
    /// It is, and its lease, if it has one, is renewed in time.
    Valid,
    /// Its lease was not renewed for its duration, or has no duration.
    Expired,
    /// It has been absent for this long.
    Absent(Duration),
}

/// Whether the address of a server is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressObservation {
    /// It is.
    Present,
    /// It has been absent for this long.
    Absent(Duration),
}

/// Whether the document of a server is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DocumentObservation {
    /// It is not known, or cannot be read.
    Missing,
    /// It is known.
    Present,
    /// It is known and has the linger as its time to live.
    Lingering,
}

/// The times after which states change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberTimeouts {
    /// `--peer-linger`: how long requests for resources of a server that left get 503.
    pub linger: Duration,
    /// How long a server may have no address before it counts as one that does not take part.
    pub mute_after: Duration,
}

impl MemberTimeouts {
    /// A restart takes seconds; a minute covers slow ones.
    pub const LINGER: Duration = Duration::from_secs(60);
    /// kube-apiserver writes its record by the time it is ready, which takes less than this.
    pub const MUTE_AFTER: Duration = Duration::from_secs(60);
}

impl Default for MemberTimeouts {
    fn default() -> Self {
        Self { linger: Self::LINGER, mute_after: Self::MUTE_AFTER }
    }
}

/// Derives the state of a server.
pub fn derive_state(observation: MemberObservation, timeouts: MemberTimeouts) -> MemberState {
    use {AddressObservation as Record, DocumentObservation as Document, PresenceObservation as Lease};
    match (observation.presence, observation.address, observation.document) {
        (Lease::Expired, _, _) => MemberState::Gone,
        (Lease::Valid, Record::Present, Document::Present | Document::Lingering) => MemberState::Live,
        (Lease::Valid, Record::Absent(_), Document::Present | Document::Lingering) => MemberState::Suspect,
        (Lease::Valid, Record::Absent(since), Document::Missing) if since >= timeouts.mute_after => MemberState::Mute,
        (Lease::Valid, Record::Absent(_) | Record::Present, Document::Missing) => MemberState::Unknown,
        // Storage removes the document at the end of its time to live, so all servers forget it at the same moment.
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
    /// The id of the server.
    pub server: ServerId,
    /// The derived state.
    pub state: MemberState,
    /// When the state last changed.
    pub state_since: Instant,
    /// The process of the server; `None` if it is not present.
    pub holder: Option<HolderIdentity>,
    /// Where it listens, if requests may be sent to it.
    pub address: Option<Address>,
    /// What it serves, if that is known.
    pub document: Option<TrackedDocument>,
}

/// A document and the time since when it is known.
#[derive(Clone, Debug)]
pub struct TrackedDocument {
    /// The document, its holder and its source.
    pub stored: StoredDocument,
    /// The version to compare with when it is replaced.
    pub version: EntryVersion,
    /// When this content was first seen.
    pub since: Instant,
}

impl Member {
    /// What it serves, if that is known.
    pub fn server_document(&self) -> Option<&Arc<ServerDocument>> {
        self.document.as_ref().map(|document| &document.stored.document)
    }

    /// True if it may serve more than is known: its document is missing, or is that of a former process.
    pub fn may_serve_more(&self) -> bool {
        match self.state {
            MemberState::Unknown | MemberState::Mute => true,
            MemberState::Live | MemberState::Suspect => !self.has_current_document(),
            MemberState::Left | MemberState::Gone => false,
        }
    }

    /// True if its document has to be fetched: it is present and does not publish its document.
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

/// Compares what matters to routing, discovery and fetching; times do not.
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
    fn check(
        lease: PresenceObservation,
        record: AddressObservation,
        document: DocumentObservation,
        expected: MemberState,
    ) {
        assert_eq!(
            derive_state(MemberObservation { presence: lease, address: record, document }, MemberTimeouts::default()),
            expected
        );
    }

    #[test]
    fn member_with_lease_record_and_document_is_live() {
        for document in [DocumentObservation::Present, DocumentObservation::Lingering] {
            check(PresenceObservation::Valid, AddressObservation::Present, document, MemberState::Live);
        }
    }

    #[test]
    fn member_without_record_is_suspect() {
        for absent in [Duration::ZERO, LONG] {
            for document in [DocumentObservation::Present, DocumentObservation::Lingering] {
                check(PresenceObservation::Valid, AddressObservation::Absent(absent), document, MemberState::Suspect);
            }
        }
    }

    #[test]
    fn member_with_document_but_no_lease_has_left() {
        let absent = PresenceObservation::Absent;
        check(absent(SHORT), AddressObservation::Absent(LONG), DocumentObservation::Present, MemberState::Left);
        check(absent(LONG), AddressObservation::Present, DocumentObservation::Present, MemberState::Left);
        check(absent(LONG), AddressObservation::Absent(LONG), DocumentObservation::Lingering, MemberState::Left);
        check(absent(LONG), AddressObservation::Present, DocumentObservation::Lingering, MemberState::Left);
    }

    #[test]
    fn member_without_document_is_unknown() {
        check(
            PresenceObservation::Valid,
            AddressObservation::Present,
            DocumentObservation::Missing,
            MemberState::Unknown,
        );
        check(
            PresenceObservation::Valid,
            AddressObservation::Absent(SHORT),
            DocumentObservation::Missing,
            MemberState::Unknown,
        );
    }

    #[test]
    fn member_with_only_a_lease_becomes_mute() {
        check(
            PresenceObservation::Valid,
            AddressObservation::Absent(LONG),
            DocumentObservation::Missing,
            MemberState::Mute,
        );
    }

    #[test]
    fn member_with_expired_or_long_absent_lease_is_gone() {
        for record in [AddressObservation::Present, AddressObservation::Absent(SHORT)] {
            for document in [DocumentObservation::Missing, DocumentObservation::Present, DocumentObservation::Lingering]
            {
                check(PresenceObservation::Expired, record, document, MemberState::Gone);
            }
        }
        check(
            PresenceObservation::Absent(LONG),
            AddressObservation::Absent(SHORT),
            DocumentObservation::Present,
            MemberState::Gone,
        );
        check(
            PresenceObservation::Absent(SHORT),
            AddressObservation::Absent(SHORT),
            DocumentObservation::Missing,
            MemberState::Gone,
        );
        check(
            PresenceObservation::Absent(SHORT),
            AddressObservation::Present,
            DocumentObservation::Missing,
            MemberState::Gone,
        );
    }
}
