//! The up-to-date watches of this process.
//!
//! The log tailer reads every change once and delivers it to all of them. A watch whose consumer is too slow is
//! detached and reads the log itself until it has caught up. It may rejoin exactly when it has seen everything
//! delivered so far; both sides of that comparison are behind one lock.

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
    /// Everything up to this revision was delivered.
    delivered_through: Revision,
    watches: HashMap<u64, ActiveWatch>,
    next_id: u64,
    is_closed: bool,
}

/// The consumer of a watch, and what it wants.
#[derive(Clone, Debug)]
pub(super) struct Subscription {
    pub(super) prefix: Key,
    /// The first revision of the watch.
    pub(super) from: Revision,
    pub(super) batches: mpsc::Sender<Result<WatchBatch, Error>>,
}

#[derive(Debug)]
struct ActiveWatch {
    subscription: Subscription,
    /// The first revision that it had not seen when it joined.
    next_revision: Revision,
    /// Progress was requested up to this revision.
    requested_progress: Option<Revision>,
    detached: oneshot::Sender<Revision>,
}

/// The membership of a watch in the hub.
#[derive(Debug)]
pub(super) struct HubSlot {
    pub(super) id: u64,
    /// Resolves to the first unseen revision when the watch fell behind; to an error when it is over.
    pub(super) detached: oneshot::Receiver<Revision>,
}

/// The reason for which a watch cannot join.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum JoinError {
    /// It must read history first.
    Behind,
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

    /// Adds a watch that has seen everything before `next`.
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

    /// Requests a progress batch once the watch has reached `revision`.
    pub(super) fn request_progress(&self, id: u64, revision: Revision) {
        let mut state = self.state.lock();
        let through = state.delivered_through;
        let Some(joined) = state.watches.get_mut(&id) else { return };
        joined.requested_progress = Some(joined.requested_progress.unwrap_or_default().max(revision));
        if joined.deliver(&[], through).is_err() {
            state.detach(id, through);
        }
    }

    /// Delivers the changes since the last call up to `through`; detaches watches whose channel is full.
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

    /// Ends every watch that has not seen `oldest`, since the changes it lacks are compacted.
    pub(super) fn end_watches_before(&self, oldest: Revision) {
        let mut state = self.state.lock();
        let delivered_through = std::mem::replace(&mut state.delivered_through, oldest);
        let error = Error::Compacted { requested: delivered_through.next(), oldest };
        state.end_watches(|joined| joined.next_revision <= oldest, delivered_through, &error);
    }

    /// Ends every watch with `error`. Clients may resume them where they ended.
    pub(super) fn end_all_with(&self, error: &Error) {
        let mut state = self.state.lock();
        let delivered_through = state.delivered_through;
        state.end_watches(|_| true, delivered_through, error);
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
    /// Removes a watch, which then reads the log itself after `delivered`.
    fn detach(&mut self, id: u64, delivered: Revision) {
        if let Some(joined) = self.watches.remove(&id) {
            let _ = joined.detached.send(joined.next_revision.max(delivered.next()));
        }
    }

    /// Ends watches with an error. If the channel is full, the watch is detached and meets the error when it reads the
    /// log.
    fn end_watches(&mut self, is_over: impl Fn(&ActiveWatch) -> bool, delivered_through: Revision, error: &Error) {
        let over: Vec<u64> = self.watches.iter().filter(|(_, joined)| is_over(joined)).map(|(id, _)| *id).collect();
        for id in over {
            let is_told = |joined: &ActiveWatch| joined.subscription.batches.try_send(Err(error.clone())).is_ok();
            if self.watches.get(&id).is_some_and(is_told) {
                self.watches.remove(&id);
            } else {
                self.detach(id, delivered_through);
            }
        }
    }
}

struct ChannelFull;

impl ActiveWatch {
    fn deliver(&mut self, events: &[StoreEvent], through: Revision) -> Result<(), ChannelFull> {
        let is_news = |event: &&StoreEvent| {
            event.revision() >= self.next_revision && event.key().starts_with(&self.subscription.prefix)
        };
        let new_events: Vec<StoreEvent> = events.iter().filter(is_news).cloned().collect();
        let delivered_through = through.max(Revision(self.next_revision.0.saturating_sub(1)));
        let is_answer = delivered_through >= self.subscription.from
            && self.requested_progress.is_some_and(|asked| asked <= delivered_through);
        if new_events.is_empty() && !is_answer {
            return Ok(());
        }
        self.subscription
            .batches
            .try_send(Ok(WatchBatch { events: new_events, complete_through: delivered_through }))
            .map_err(|_| ChannelFull)?;
        if is_answer {
            self.requested_progress = None;
        }
        Ok(())
    }
}
