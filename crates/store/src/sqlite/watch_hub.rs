//! The watches of this process that are up to date, and how far they are.
//!
//! The tail reads every change once and gives it to all of them. A watch that cannot take it, because its receiver is
//! slow, leaves and reads history for itself until it has caught up. It may join again exactly when it has seen
//! everything that was given out so far; both sides of that comparison are behind one lock.

use std::collections::HashMap;

use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};

use crate::{Error, Key, Revision, StoreEvent, WatchBatch};

#[derive(Debug)]
pub(super) struct WatchHub {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Everything up to here was given out.
    delivered_through: Revision,
    watches: HashMap<u64, ActiveWatch>,
    next_id: u64,
    is_closed: bool,
}

/// A watch that has something to be fed with.
#[derive(Clone, Debug)]
pub(super) struct Subscription {
    pub(super) prefix: Key,
    /// Where it began.
    pub(super) from: Revision,
    pub(super) batches: mpsc::Sender<Result<WatchBatch, Error>>,
}

/// A watch that is up to date.
#[derive(Debug)]
struct ActiveWatch {
    subscription: Subscription,
    /// The first revision that it had not seen when it joined.
    next_revision: Revision,
    /// It was asked to tell when it has come so far.
    requested_progress: Option<Revision>,
    detached: oneshot::Sender<Revision>,
}

/// The place of a watch in the hub.
#[derive(Debug)]
pub(super) struct HubSlot {
    pub(super) id: u64,
    /// Resolves to the first revision not seen when the watch fell behind; to an error when it is over.
    pub(super) detached: oneshot::Receiver<Revision>,
}

/// Why a watch did not join.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum JoinError {
    /// There is history to read first.
    Behind,
    /// The store is closed.
    Closed,
}

impl WatchHub {
    pub(super) fn new(through: Revision) -> Self {
        let state = State { delivered_through: through, watches: HashMap::new(), next_id: 0, is_closed: false };
        Self { state: Mutex::new(state) }
    }

    pub(super) fn delivered_through(&self) -> Revision {
        self.state.lock().delivered_through
    }

    /// Joins a watch that has seen everything before `next`.
    pub(super) fn join(&self, subscription: &Subscription, next: Revision) -> Result<HubSlot, JoinError> {
        let mut state = self.state.lock();
        if state.is_closed {
            return Err(JoinError::Closed);
        }
        if next <= state.delivered_through {
            return Err(JoinError::Behind);
        }
        let (left, leaving) = oneshot::channel();
        let id = state.next_id;
        state.next_id += 1;
        state.watches.insert(
            id,
            ActiveWatch {
                subscription: subscription.clone(),
                next_revision: next,
                requested_progress: None,
                detached: left,
            },
        );
        Ok(HubSlot { id, detached: leaving })
    }

    pub(super) fn leave(&self, id: u64) {
        self.state.lock().watches.remove(&id);
    }

    /// Asks that a watch tells how far it is once it has come to `revision`.
    pub(super) fn request_progress(&self, id: u64, revision: Revision) {
        let mut state = self.state.lock();
        let through = state.delivered_through;
        let Some(joined) = state.watches.get_mut(&id) else { return };
        joined.requested_progress = Some(joined.requested_progress.unwrap_or_default().max(revision));
        if joined.deliver(&[], through).is_err() {
            state.detach(id, through);
        }
    }

    /// Gives out what happened after the last time and up to `through`.
    pub(super) fn deliver(&self, events: &[StoreEvent], through: Revision) {
        let mut state = self.state.lock();
        let before = std::mem::replace(&mut state.delivered_through, through);
        let cannot_take =
            |(id, joined): (&u64, &mut ActiveWatch)| joined.deliver(events, through).is_err().then_some(*id);
        let leaving: Vec<u64> = state.watches.iter_mut().filter_map(cannot_take).collect();
        for id in leaving {
            state.detach(id, before);
        }
    }

    /// Ends every watch that has not seen `oldest`: what it lacks is forgotten.
    pub(super) fn end_watches_before(&self, oldest: Revision) {
        let mut state = self.state.lock();
        let seen = std::mem::replace(&mut state.delivered_through, oldest);
        let error = Error::Compacted { requested: seen.next(), oldest };
        state.end_watches(|joined| joined.next_revision <= oldest, seen, &error);
    }

    /// Ends every watch. They can be begun again where they ended.
    pub(super) fn end_all_with(&self, error: &Error) {
        let mut state = self.state.lock();
        let seen = state.delivered_through;
        state.end_watches(|_| true, seen, error);
    }

    pub(super) fn is_closed(&self) -> bool {
        self.state.lock().is_closed
    }

    /// Ends every watch, and lets none join.
    pub(super) fn close(&self) {
        let mut state = self.state.lock();
        state.is_closed = true;
        state.watches.clear();
    }
}

impl State {
    /// Lets a watch read for itself from after `seen` on.
    fn detach(&mut self, id: u64, delivered: Revision) {
        if let Some(joined) = self.watches.remove(&id) {
            let _ = joined.detached.send(joined.next_revision.max(delivered.next()));
        }
    }

    /// Where the receiver has no room for the error, the watch reads for itself and meets it there.
    fn end_watches(&mut self, is_over: impl Fn(&ActiveWatch) -> bool, seen: Revision, error: &Error) {
        let over: Vec<u64> = self.watches.iter().filter(|(_, joined)| is_over(joined)).map(|(id, _)| *id).collect();
        for id in over {
            let is_told = |joined: &ActiveWatch| joined.subscription.batches.try_send(Err(error.clone())).is_ok();
            if self.watches.get(&id).is_some_and(is_told) {
                self.watches.remove(&id);
            } else {
                self.detach(id, seen);
            }
        }
    }
}

/// The receiver of a watch has no room.
struct ChannelFull;

impl ActiveWatch {
    fn deliver(&mut self, events: &[StoreEvent], through: Revision) -> Result<(), ChannelFull> {
        let is_news = |event: &&StoreEvent| {
            event.revision() >= self.next_revision && event.key().starts_with(&self.subscription.prefix)
        };
        let news: Vec<StoreEvent> = events.iter().filter(is_news).cloned().collect();
        let seen = through.max(Revision(self.next_revision.0.saturating_sub(1)));
        let is_answer = seen >= self.subscription.from && self.requested_progress.is_some_and(|asked| asked <= seen);
        if news.is_empty() && !is_answer {
            return Ok(());
        }
        self.subscription
            .batches
            .try_send(Ok(WatchBatch { events: news, complete_through: seen }))
            .map_err(|_| ChannelFull)?;
        if is_answer {
            self.requested_progress = None;
        }
        Ok(())
    }
}
