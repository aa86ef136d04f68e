//! The members of the cluster and their states, which follow from storage alone.
//!
//! Lease, endpoint record and stored document decide; what this server observes on connections never does. So all servers that
//! see the same storage draw the same conclusion. Time is our own monotonic time since we saw something change.

mod book;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

pub use book::{Book, Chore, Content, FoundDocument};

use crate::documents::{ServerDocument, Source, StoredDocument};
use crate::endpoints::Address;
use crate::identity::{HolderIdentity, ServerId};
use crate::ports::Version;

/// Whether a member can be asked to serve something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
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

impl State {
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

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What storage says of one server, with our own time since it last changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Evidence {
    /// Its identity lease.
    pub lease: LeaseSight,
    /// Its endpoint record.
    pub record: RecordSight,
    /// Its stored document.
    pub document: DocumentSight,
}

/// What is seen of an identity lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseSight {
    /// There is one, and its renewals come in time.
    Valid,
    /// There is one that was not renewed for its duration, or never says so.
    Expired,
    /// There is none, for so long.
    Absent(Duration),
}

/// What is seen of an endpoint record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordSight {
    /// There is one that holds an address.
    Present,
    /// There is none, for so long.
    Absent(Duration),
}

/// What is seen of a stored document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DocumentSight {
    /// There is none that we can read.
    Unknown,
    /// There is one.
    Known,
    /// There is one with the linger as its time to live.
    Leaving,
}

/// How long is long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// `--peer-linger`: how long a server that left is answered for with 503.
    pub linger: Duration,
    /// How long a server may have no record before it is taken for one that never will.
    pub mute_after: Duration,
}

impl Patience {
    /// A clean restart takes seconds; a minute is enough for slow ones.
    pub const LINGER: Duration = Duration::from_secs(60);
    /// Real servers write their record at the latest when they are ready, which takes less than this.
    pub const MUTE_AFTER: Duration = Duration::from_secs(60);
}

impl Default for Patience {
    fn default() -> Self {
        Self { linger: Self::LINGER, mute_after: Self::MUTE_AFTER }
    }
}

/// The state that follows.
pub fn state_of(evidence: Evidence, patience: Patience) -> State {
    use {DocumentSight as Document, LeaseSight as Lease, RecordSight as Record};
    match (evidence.lease, evidence.record, evidence.document) {
        (Lease::Expired, _, _) => State::Gone,
        (Lease::Valid, Record::Present, Document::Known | Document::Leaving) => State::Live,
        (Lease::Valid, Record::Absent(_), Document::Known | Document::Leaving) => State::Suspect,
        (Lease::Valid, Record::Absent(since), Document::Unknown) if since >= patience.mute_after => State::Mute,
        (Lease::Valid, Record::Absent(_) | Record::Present, Document::Unknown) => State::Unknown,
        // Storage itself forgets the document in time, so every server forgets it at the same moment.
        (Lease::Absent(_), _, Document::Leaving) | (Lease::Absent(_), Record::Present, Document::Known) => State::Left,
        (Lease::Absent(since), Record::Absent(_), Document::Known) if since < patience.linger => State::Left,
        (Lease::Absent(_), Record::Absent(_), Document::Known) | (Lease::Absent(_), _, Document::Unknown) => {
            State::Gone
        }
    }
}

/// A server of the cluster other than this one.
#[derive(Clone, Debug)]
pub struct Member {
    /// Its name.
    pub server: ServerId,
    /// What follows from storage.
    pub state: State,
    /// Since when it is in this state.
    pub since: Instant,
    /// Its process, as the lease names it; `None` once the lease is gone.
    pub holder: Option<HolderIdentity>,
    /// Where it listens, as its record says.
    pub address: Option<Address>,
    /// What it serves, as far as known.
    pub document: Option<KnownDocument>,
}

/// A document in storage, and since when we know it.
#[derive(Clone, Debug)]
pub struct KnownDocument {
    /// The document, its holder and where it came from.
    pub stored: StoredDocument,
    /// What of storage to compare with when it is replaced.
    pub version: Version,
    /// When we first saw this content.
    pub since: Instant,
}

impl Member {
    /// What it serves, as far as known.
    pub fn served(&self) -> Option<&Arc<ServerDocument>> {
        self.document.as_ref().map(|document| &document.stored.document)
    }

    /// Whether it may serve more than we know: its document is not known, or is that of a former process.
    pub fn is_unheard(&self) -> bool {
        match self.state {
            State::Unknown | State::Mute => true,
            State::Live | State::Suspect => !self.has_current_document(),
            State::Left | State::Gone => false,
        }
    }

    /// Whether it is to be asked over HTTP what it serves: it has a valid lease and does not publish by itself.
    pub fn is_to_be_asked(&self) -> bool {
        let publishes = self.document.as_ref().is_some_and(|document| document.stored.source == Source::Published);
        self.holder.is_some() && self.state != State::Gone && !(publishes && self.has_current_document())
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
    fn check(lease: LeaseSight, record: RecordSight, document: DocumentSight, expected: State) {
        assert_eq!(state_of(Evidence { lease, record, document }, Patience::default()), expected);
    }

    #[test]
    fn live_has_lease_record_and_document() {
        for document in [DocumentSight::Known, DocumentSight::Leaving] {
            check(LeaseSight::Valid, RecordSight::Present, document, State::Live);
        }
    }

    #[test]
    fn suspect_lacks_the_record_alone() {
        for absent in [Duration::ZERO, LONG] {
            for document in [DocumentSight::Known, DocumentSight::Leaving] {
                check(LeaseSight::Valid, RecordSight::Absent(absent), document, State::Suspect);
            }
        }
    }

    #[test]
    fn left_lacks_the_lease_and_still_has_a_document() {
        let absent = LeaseSight::Absent;
        check(absent(SHORT), RecordSight::Absent(LONG), DocumentSight::Known, State::Left);
        check(absent(LONG), RecordSight::Present, DocumentSight::Known, State::Left);
        check(absent(LONG), RecordSight::Absent(LONG), DocumentSight::Leaving, State::Left);
        check(absent(LONG), RecordSight::Present, DocumentSight::Leaving, State::Left);
    }

    #[test]
    fn unknown_has_a_lease_and_no_document_yet() {
        check(LeaseSight::Valid, RecordSight::Present, DocumentSight::Unknown, State::Unknown);
        check(LeaseSight::Valid, RecordSight::Absent(SHORT), DocumentSight::Unknown, State::Unknown);
    }

    #[test]
    fn mute_has_a_lease_and_nothing_else_for_long() {
        check(LeaseSight::Valid, RecordSight::Absent(LONG), DocumentSight::Unknown, State::Mute);
    }

    #[test]
    fn gone_is_expired_or_absent_for_long_or_never_known() {
        for record in [RecordSight::Present, RecordSight::Absent(SHORT)] {
            for document in [DocumentSight::Unknown, DocumentSight::Known, DocumentSight::Leaving] {
                check(LeaseSight::Expired, record, document, State::Gone);
            }
        }
        check(LeaseSight::Absent(LONG), RecordSight::Absent(SHORT), DocumentSight::Known, State::Gone);
        check(LeaseSight::Absent(SHORT), RecordSight::Absent(SHORT), DocumentSight::Unknown, State::Gone);
        check(LeaseSight::Absent(SHORT), RecordSight::Present, DocumentSight::Unknown, State::Gone);
    }
}
