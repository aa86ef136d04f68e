//! The HTTP/2 connections to one peer.
//!
//! Streams go to the first connection with room, so that later ones drain and are closed. If all are full, one waiter
//! dials and the other waiters share the result.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use super::dial::DialError;
use super::h2_connection::{H2Connection, STREAMS_MAX, StreamPermit};
use super::http1_connection::Http1Connection;

/// The open connections and the dials in progress.
#[derive(Default)]
pub(super) struct H2ConnectionSet {
    state: Mutex<State>,
    /// True if the peer negotiated HTTP/1.1 on the last dial.
    http1_only: AtomicBool,
}

#[derive(Default)]
struct State {
    connections: Vec<Arc<H2Connection>>,
    pending_dials: Vec<PendingDial>,
    /// The stream limit of the last connection.
    last_stream_capacity: Option<usize>,
}

struct PendingDial {
    progress: watch::Receiver<DialProgress>,
    /// The number of requests waiting for this dial.
    waiters: usize,
}

/// The state of a dial.
#[derive(Clone)]
pub(super) enum DialProgress {
    /// Not finished; if the sender is gone, the dial was cancelled.
    Pending,
    /// Connected, or the peer turned out to support only HTTP/1.1.
    Done,
    /// The dial failed.
    Failed(Arc<DialError>),
}

/// The protocol that a new connection negotiated.
pub(super) enum NegotiatedConnection {
    /// Multiplexed connection.
    Http2(Arc<H2Connection>),
    /// Connection for one request at a time.
    Http1(Http1Connection),
}

/// How a request gets its stream.
pub(super) enum StreamAcquisition<'a> {
    /// A stream is reserved.
    Acquired(StreamPermit),
    /// Wait for another request's dial.
    WaitForDial(watch::Receiver<DialProgress>),
    /// Dial a connection.
    Dial(DialGuard<'a>),
}

impl H2ConnectionSet {
    /// Reports whether the peer supports only HTTP/1.1.
    pub(super) fn is_http1_only(&self) -> bool {
        self.http1_only.load(Ordering::Relaxed)
    }

    /// Reserves a stream on an open connection.
    pub(super) fn try_acquire(&self, generation: u64) -> Option<StreamPermit> {
        self.state.lock().try_acquire(generation)
    }

    /// Reserves a stream, joins a dial in progress, or starts one.
    pub(super) fn acquire(&self, generation: u64) -> StreamAcquisition<'_> {
        let mut state = self.state.lock();
        if let Some(place) = state.try_acquire(generation) {
            return StreamAcquisition::Acquired(place);
        }
        let (sender, updates) = watch::channel(DialProgress::Pending);
        if !self.is_http1_only() {
            let room = state.last_stream_capacity.unwrap_or(STREAMS_MAX);
            if let Some(opening) = state.pending_dials.iter_mut().find(|opening| opening.waiters < room) {
                opening.waiters += 1;
                return StreamAcquisition::WaitForDial(opening.progress.clone());
            }
            state.pending_dials.push(PendingDial { progress: updates, waiters: 1 });
        }
        StreamAcquisition::Dial(DialGuard { connection_set: self, progress: sender })
    }

    /// Closes connections that have had no streams for `idle_timeout`, and forgets those that accept no new ones.
    pub(super) fn close_expired(&self, generation: u64, idle_timeout: Duration) {
        let now = Instant::now();
        let is_closed = |shared: &mut Arc<H2Connection>| {
            !shared.accepts_streams(generation) || shared.idle_duration(now).is_some_and(|idle| idle >= idle_timeout)
        };
        let closed: Vec<_> = self.state.lock().connections.extract_if(.., is_closed).collect();
        drop(closed);
    }

    /// Returns the number of connections that accept new streams.
    pub(super) fn len(&self) -> usize {
        self.state.lock().connections.len()
    }
}

impl State {
    fn try_acquire(&mut self, generation: u64) -> Option<StreamPermit> {
        // Open streams keep a removed connection alive; this list is for new streams.
        self.connections.retain(|shared| shared.accepts_streams(generation));
        self.connections.iter().find_map(H2Connection::try_acquire_stream)
    }
}

/// Waits until a dial has finished or was cancelled.
pub(super) async fn wait_for_dial(mut updates: watch::Receiver<DialProgress>) -> DialProgress {
    match updates.wait_for(|updates| !matches!(updates, DialProgress::Pending)).await {
        Ok(updates) => updates.clone(),
        Err(_) => DialProgress::Pending,
    }
}

/// A dial in progress. Dropping it without a result hands the dial to another waiter.
pub(super) struct DialGuard<'a> {
    connection_set: &'a H2ConnectionSet,
    progress: watch::Sender<DialProgress>,
}

impl DialGuard<'_> {
    /// Adds the connection to the set and reserves a stream on it for the caller.
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

    /// Records that the peer supports only HTTP/1.1; every waiter then dials its own connection.
    pub(super) fn complete_http1(self) {
        self.connection_set.http1_only.store(true, Ordering::Relaxed);
        self.progress.send_replace(DialProgress::Done);
    }

    /// Passes the error on to all waiters.
    pub(super) fn fail(self, error: &DialError) {
        self.progress.send_replace(DialProgress::Failed(Arc::new(error.clone_for_waiter())));
    }
}

impl Drop for DialGuard<'_> {
    fn drop(&mut self) {
        let updates = self.progress.subscribe();
        self.connection_set.state.lock().pending_dials.retain(|opening| !opening.progress.same_channel(&updates));
    }
}
