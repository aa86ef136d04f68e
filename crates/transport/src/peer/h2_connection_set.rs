//! The connections to one peer that answers share.
//!
//! The first that has room is used, so that the last ones run empty and are closed. If none has, one is opened, by one of those
//! who wait for it; how that ends is told to all of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use super::dial::DialError;
use super::h2_connection::{H2Connection, STREAMS_MAX, StreamPermit};
use super::http1_connection::Http1Connection;

/// Shared connections, and those that will be.
#[derive(Default)]
pub(super) struct H2ConnectionSet {
    state: Mutex<State>,
    /// Whether the peer did not want HTTP/2 when it was last asked.
    http1_only: AtomicBool,
}

#[derive(Default)]
struct State {
    connections: Vec<Arc<H2Connection>>,
    pending_dials: Vec<PendingDial>,
    /// How many the peer allowed on the last connection.
    last_stream_capacity: Option<usize>,
}

struct PendingDial {
    progress: watch::Receiver<DialProgress>,
    /// How many wait for it.
    waiters: usize,
}

/// What has become of an opening.
#[derive(Clone)]
pub(super) enum DialProgress {
    /// Nothing yet; and nothing at all if whoever opened it went away.
    Pending,
    /// There is a connection, or it is known that everybody needs one.
    Done,
    /// There is none.
    Failed(Arc<DialError>),
}

/// What a connection turned out to be.
pub(super) enum NegotiatedConnection {
    /// One for many answers.
    Http2(Arc<H2Connection>),
    /// One for a single request.
    Http1(Http1Connection),
}

/// What somebody who needs a place does next.
pub(super) enum StreamAcquisition<'a> {
    /// Takes it.
    Acquired(StreamPermit),
    /// Waits for what somebody else is opening.
    WaitForDial(watch::Receiver<DialProgress>),
    /// Opens a connection.
    Dial(DialGuard<'a>),
}

impl H2ConnectionSet {
    /// Whether every answer needs a connection of its own.
    pub(super) fn is_http1_only(&self) -> bool {
        self.http1_only.load(Ordering::Relaxed)
    }

    /// A place on a connection that there is.
    pub(super) fn try_acquire(&self, generation: u64) -> Option<StreamPermit> {
        self.state.lock().try_acquire(generation)
    }

    /// What to do for a place.
    pub(super) fn acquire(&self, generation: u64) -> StreamAcquisition<'_> {
        let mut state = self.state.lock();
        if let Some(place) = state.try_acquire(generation) {
            return StreamAcquisition::Acquired(place);
        }
        let (sender, news) = watch::channel(DialProgress::Pending);
        if !self.is_http1_only() {
            let room = state.last_stream_capacity.unwrap_or(STREAMS_MAX);
            if let Some(opening) = state.pending_dials.iter_mut().find(|opening| opening.waiters < room) {
                opening.waiters += 1;
                return StreamAcquisition::WaitForDial(opening.progress.clone());
            }
            state.pending_dials.push(PendingDial { progress: news, waiters: 1 });
        }
        StreamAcquisition::Dial(DialGuard { connection_set: self, progress: sender })
    }

    /// Closes what has carried nothing for so long, and lets go of what takes nothing any more.
    pub(super) fn close_expired(&self, generation: u64, idle_timeout: Duration) {
        let now = Instant::now();
        let is_closed = |shared: &mut Arc<H2Connection>| {
            !shared.accepts_streams(generation) || shared.idle_duration(now).is_some_and(|idle| idle >= idle_timeout)
        };
        let closed: Vec<_> = self.state.lock().connections.extract_if(.., is_closed).collect();
        drop(closed);
    }

    /// How many connections take new answers.
    pub(super) fn len(&self) -> usize {
        self.state.lock().connections.len()
    }
}

impl State {
    fn try_acquire(&mut self, generation: u64) -> Option<StreamPermit> {
        // What a connection carries keeps it; here it is only for what is new.
        self.connections.retain(|shared| shared.accepts_streams(generation));
        self.connections.iter().find_map(H2Connection::try_acquire_stream)
    }
}

/// Waits for what becomes of an opening.
pub(super) async fn wait_for_dial(mut news: watch::Receiver<DialProgress>) -> DialProgress {
    match news.wait_for(|news| !matches!(news, DialProgress::Pending)).await {
        Ok(news) => news.clone(),
        Err(_) => DialProgress::Pending,
    }
}

/// Somebody who opens a connection, for itself and for those who wait.
pub(super) struct DialGuard<'a> {
    connection_set: &'a H2ConnectionSet,
    progress: watch::Sender<DialProgress>,
}

impl DialGuard<'_> {
    /// There is a connection, and the first place on it for who opened it.
    pub(super) fn complete_http2(self, shared: Arc<H2Connection>) -> Option<StreamPermit> {
        let place = shared.try_acquire_stream();
        let mut state = self.connection_set.state.lock();
        state.last_stream_capacity = Some(shared.stream_capacity());
        state.connections.push(shared);
        drop(state);
        self.connection_set.http1_only.store(false, Ordering::Relaxed);
        self.progress.send_replace(DialProgress::Done);
        place
    }

    /// The peer does not want HTTP/2, so that everybody opens a connection.
    pub(super) fn complete_http1(self) {
        self.connection_set.http1_only.store(true, Ordering::Relaxed);
        self.progress.send_replace(DialProgress::Done);
    }

    /// There is no connection, for anybody who waited.
    pub(super) fn fail(self, error: &DialError) {
        self.progress.send_replace(DialProgress::Failed(Arc::new(error.clone_for_waiter())));
    }
}

impl Drop for DialGuard<'_> {
    fn drop(&mut self) {
        let news = self.progress.subscribe();
        self.connection_set.state.lock().pending_dials.retain(|opening| !opening.progress.same_channel(&news));
    }
}
