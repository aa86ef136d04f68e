//! The first sync: over when everything is listed and every member's document is known or was tried once.

use std::collections::HashSet;
use std::time::Duration;

use tokio::time::Instant;

use crate::identity::ServerId;
use crate::members::Member;
use crate::view::FirstSync;

/// Tracks the first sync.
#[derive(Debug)]
pub(super) struct FirstSyncTracker {
    pub(super) presence_listed: bool,
    pub(super) addresses_listed: bool,
    pub(super) documents_listed: bool,
    timeout: Duration,
    listed_at: Option<Instant>,
    attempted: HashSet<ServerId>,
    is_over: bool,
}

impl FirstSyncTracker {
    pub(super) fn new(timeout: Duration) -> Self {
        Self {
            presence_listed: false,
            addresses_listed: false,
            documents_listed: false,
            timeout,
            listed_at: None,
            attempted: HashSet::new(),
            is_over: false,
        }
    }

    /// Records that a document was fetched or tried.
    pub(super) fn record_attempt(&mut self, server: ServerId) {
        if !self.is_over {
            self.attempted.insert(server);
        }
    }

    pub(super) fn all_listed(&self) -> bool {
        self.presence_listed && self.addresses_listed && self.documents_listed
    }

    /// Returns whether the first sync is over; it stays over.
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

    /// When the first sync ends by its timeout.
    pub(super) fn deadline(&self, state: FirstSync) -> Option<Instant> {
        match state {
            FirstSync::Pending => self.listed_at.map(|listed_at| listed_at + self.timeout),
            FirstSync::Over => None,
        }
    }
}
