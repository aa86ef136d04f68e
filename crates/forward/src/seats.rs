//! The in-flight seats of one peer, and the wait for one.
//!
//! A request takes a free seat with one atomic operation. At the limit requests wait in a [`FairQueue`], each in the queues of
//! all its candidates; a released seat goes to the next one. Long-running requests are counted apart and have no limit, so that
//! they never delay short ones.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use prometheus::IntGauge;
use smallvec::SmallVec;
use tokio::sync::oneshot;

use super::peer_set::Peer;
use super::queue::{FairQueue, Flow, QueueLimits, QueueRejection, Ticket};

/// Whether a request counts against the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SeatKind {
    /// A short request counts.
    Short,
    /// A long-running request does not: a watch would hold its seat for an hour.
    Stream,
}

/// The seats of one peer.
#[derive(Debug)]
pub(super) struct PeerSeats {
    in_flight: AtomicUsize,
    streams: AtomicUsize,
    in_flight_max: Option<usize>,
    /// The length of the queue. Read without the lock of the queue.
    waiter_count: AtomicUsize,
    queue: Mutex<FairQueue<Arc<Waiter>>>,
    /// The same as a metric; `None` without a limit.
    queue_length_gauge: Option<IntGauge>,
}

impl PeerSeats {
    pub(super) fn new(in_flight_max: Option<usize>, limits: QueueLimits, queue_length_gauge: Option<IntGauge>) -> Self {
        Self {
            in_flight: AtomicUsize::new(0),
            streams: AtomicUsize::new(0),
            in_flight_max,
            waiter_count: AtomicUsize::new(0),
            queue: Mutex::new(FairQueue::new(limits)),
            queue_length_gauge,
        }
    }

    /// The numbers of short and of long-running requests in flight.
    pub(super) fn occupied(&self) -> (usize, usize) {
        (self.in_flight.load(Ordering::Relaxed), self.streams.load(Ordering::Relaxed))
    }

    fn counter(&self, kind: SeatKind) -> &AtomicUsize {
        match kind {
            SeatKind::Short => &self.in_flight,
            SeatKind::Stream => &self.streams,
        }
    }

    /// True if requests wait: a new request must queue behind them.
    fn has_waiters(&self) -> bool {
        self.waiter_count.load(Ordering::SeqCst) > 0
    }

    fn update_queue<R>(&self, change: impl FnOnce(&mut FairQueue<Arc<Waiter>>) -> R) -> R {
        let mut queue = self.queue.lock();
        let result = change(&mut queue);
        self.waiter_count.store(queue.len(), Ordering::SeqCst);
        if let Some(length) = &self.queue_length_gauge {
            length.set(i64::try_from(queue.len()).unwrap_or(i64::MAX));
        }
        result
    }
}

impl Peer {
    /// Takes a seat; `None` at the limit, or if other requests wait for one.
    pub(super) fn try_acquire_seat(self: &Arc<Self>, kind: SeatKind) -> Option<PeerSeat> {
        match (kind, self.seats.in_flight_max) {
            (SeatKind::Short, Some(_)) if self.seats.has_waiters() => None,
            (SeatKind::Short, Some(limit)) => self.acquire_seat_below(limit),
            (SeatKind::Short, None) | (SeatKind::Stream, _) => {
                self.seats.counter(kind).fetch_add(1, Ordering::Relaxed);
                Some(PeerSeat { peer: self.clone(), kind })
            }
        }
    }

    fn acquire_seat_below(self: &Arc<Self>, limit: usize) -> Option<PeerSeat> {
        // Sequentially consistent with `waiter_count`: a request that finds no seat is seen waiting by the one that releases a
        // seat.
        let one_more = |count: usize| (count < limit).then_some(count + 1);
        self.seats.in_flight.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_more).ok()?;
        Some(PeerSeat { peer: self.clone(), kind: SeatKind::Short })
    }

    /// Gives free seats to the next requests in the queue.
    fn grant_free_seats(self: &Arc<Self>) {
        let Some(limit) = self.seats.in_flight_max else { return };
        while self.seats.has_waiters() {
            let Some(mut seat) = self.acquire_seat_below(limit) else { return };
            // Skips requests that got a seat elsewhere meanwhile.
            while let Some(waiter) = self.seats.update_queue(FairQueue::pop) {
                match waiter.grant(seat) {
                    Ok(()) => break,
                    Err(back) => seat = back,
                }
            }
        }
    }
}

/// A seat of a peer, released when dropped.
#[derive(Debug)]
pub(super) struct PeerSeat {
    peer: Arc<Peer>,
    kind: SeatKind,
}

impl PeerSeat {
    pub(super) fn peer(&self) -> &Arc<Peer> {
        &self.peer
    }
}

impl Drop for PeerSeat {
    fn drop(&mut self) {
        self.peer.seats.counter(self.kind).fetch_sub(1, Ordering::SeqCst);
        if self.kind == SeatKind::Short && self.peer.seats.has_waiters() {
            self.peer.grant_free_seats();
        }
    }
}

/// A waiting request, shared by the queues of all its candidates. When the last queue drops it, the wait ends.
#[derive(Debug)]
struct Waiter(Mutex<Option<oneshot::Sender<PeerSeat>>>);

impl Waiter {
    /// Hands a seat to the request; returns the seat if the request has one already or stopped waiting.
    fn grant(&self, seat: PeerSeat) -> Result<(), PeerSeat> {
        let sender = self.0.lock().take();
        match sender {
            Some(sender) => sender.send(seat),
            None => Err(seat),
        }
    }
}

/// The queues in which a request waits; dropping removes it from all of them.
struct QueueTickets(SmallVec<[(Arc<Peer>, Ticket); 4]>);

impl Drop for QueueTickets {
    fn drop(&mut self) {
        for (peer, ticket) in &self.0 {
            peer.seats.update_queue(|queue| queue.remove(*ticket));
        }
    }
}

/// Waits for a seat at any of these peers.
pub(super) async fn wait_for_seat<'a>(
    peers: impl Iterator<Item = &'a Arc<Peer>>,
    flow: Flow,
    limits: QueueLimits,
) -> Result<PeerSeat, QueueRejection> {
    let (sender, granted) = oneshot::channel();
    let waiter = Arc::new(Waiter(Mutex::new(Some(sender))));
    let mut tickets = QueueTickets(SmallVec::new());
    let mut rejection = QueueRejection::QueueFull;
    for peer in peers {
        match peer.seats.update_queue(|queue| queue.push(flow, waiter.clone())) {
            // An evicted request learns of it when its last reference is dropped.
            Ok(joined) => tickets.0.push((peer.clone(), joined.ticket)),
            Err(reason) => rejection = reason,
        }
    }
    drop(waiter);
    if tickets.0.is_empty() {
        return Err(rejection);
    }
    for (peer, _) in &tickets.0 {
        // A seat may have been released before the request was in the queue.
        peer.grant_free_seats();
    }
    match tokio::time::timeout(limits.wait_max, granted).await {
        Ok(Ok(seat)) => Ok(seat),
        Ok(Err(_)) => Err(QueueRejection::Evicted),
        Err(_) => Err(QueueRejection::TimedOut),
    }
}
