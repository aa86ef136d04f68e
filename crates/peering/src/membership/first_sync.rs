//! The first sync: over when everything was listed and every member was heard, or at least tried.

use std::collections::HashSet;
use std::time::Duration;

use tokio::time::Instant;

use crate::identity::ServerId;
use crate::members::Member;
use crate::view::FirstSync;

/// Watches over the first sync.
#[derive(Debug)]
pub(super) struct FirstSyncTracker {
    pub(super) leases_listed: bool,
    pub(super) records_listed: bool,
    pub(super) documents_listed: bool,
    timeout: Duration,
    listed_at: Option<Instant>,
    attempted: HashSet<ServerId>,
    is_over: bool,
}

impl FirstSyncTracker {
    pub(super) fn new(timeout: Duration) -> Self {
        Self {
            leases_listed: false,
            records_listed: false,
            documents_listed: false,
            timeout,
            listed_at: None,
            attempted: HashSet::new(),
            is_over: false,
        }
    }

    /// A server was asked, with whatever result.
    pub(super) fn record_attempt(&mut self, server: ServerId) {
        if !self.is_over {
            self.attempted.insert(server);
        }
    }

    pub(super) fn all_listed(&self) -> bool {
        self.leases_listed && self.records_listed && self.documents_listed
    }

    /// Whether it is over; once it is, it stays so.
    pub(super) fn update(&mut self, members: &[Member], now: Instant) -> FirstSync {
        if !self.is_over && self.all_listed() {
            let listed_at = *self.listed_at.get_or_insert(now);
            let is_known_or_attempted =
                |member: &Member| !member.may_serve_more() || self.attempted.contains(&member.server);
            self.is_over = now >= listed_at + self.timeout || members.iter().all(is_known_or_attempted);
            if self.is_over {
                self.attempted = HashSet::new();
            }
        }
        if self.is_over { FirstSync::Over } else { FirstSync::Pending }
    }

    /// When waiting alone ends it.
    pub(super) fn deadline(&self, state: FirstSync) -> Option<Instant> {
        match state {
            FirstSync::Pending => self.listed_at.map(|listed_at| listed_at + self.timeout),
            FirstSync::Over => None,
        }
    }
}
