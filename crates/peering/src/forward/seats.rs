//! The places for requests at one peer, and the wait for one.
//!
//! A request that finds a place takes it with one atomic step. Where there is a limit, and it is reached, requests wait in a
//! [`FairQueue`], each at every peer that could answer it; whoever leaves a place gives it to the one that is next. What lasts, as
//! a watch does, is counted apart and has no limit, so that it never keeps a short request waiting.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use prometheus::IntGauge;
use smallvec::SmallVec;
use tokio::sync::oneshot;

use super::peer_set::Peer;
use super::queue::{FairQueue, Flow, QueueLimits, QueueRejection, Ticket};

/// What a request is to the peer's load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SeatKind {
    /// It comes to its end by itself, and counts against the limit.
    Short,
    /// It stays: a watch would hold its place for an hour.
    Stream,
}

/// The places at one peer.
#[derive(Debug)]
pub(super) struct PeerSeats {
    in_flight: AtomicUsize,
    streams: AtomicUsize,
    in_flight_max: Option<usize>,
    /// How many wait: most requests need to know no more of the queue than that there is nobody.
    waiter_count: AtomicUsize,
    queue: Mutex<FairQueue<Arc<Waiter>>>,
    /// The same, for who looks; `None` where nobody ever waits.
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

    /// How many short requests and how many others have a place.
    pub(super) fn occupied(&self) -> (usize, usize) {
        (self.in_flight.load(Ordering::Relaxed), self.streams.load(Ordering::Relaxed))
    }

    fn counter(&self, kind: SeatKind) -> &AtomicUsize {
        match kind {
            SeatKind::Short => &self.in_flight,
            SeatKind::Stream => &self.streams,
        }
    }

    /// Nobody who comes now may be served before somebody who waits.
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
    /// A place for a request; `None` if there are as many as are allowed, or others wait for one.
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
        // In one order with the count of those who wait: whoever finds no place is seen waiting by whoever leaves one.
        let one_more = |count: usize| (count < limit).then_some(count + 1);
        self.seats.in_flight.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_more).ok()?;
        Some(PeerSeat { peer: self.clone(), kind: SeatKind::Short })
    }

    /// Gives the places that are free to those who are next.
    fn grant_free_seats(self: &Arc<Self>) {
        let Some(limit) = self.seats.in_flight_max else { return };
        while self.seats.has_waiters() {
            let Some(mut seat) = self.acquire_seat_below(limit) else { return };
            // Nobody, if they all found a place elsewhere meanwhile.
            while let Some(waiter) = self.seats.update_queue(FairQueue::pop) {
                match waiter.grant(seat) {
                    Ok(()) => break,
                    Err(back) => seat = back,
                }
            }
        }
    }
}

/// A request's place among those of a peer, free again when dropped.
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

/// A request that waits, known to the queues of all peers that could answer it. Once none of them knows it any more, its wait
/// is over.
#[derive(Debug)]
struct Waiter(Mutex<Option<oneshot::Sender<PeerSeat>>>);

impl Waiter {
    /// Gives it a place, or that back if it has one or does not wait any longer.
    fn grant(&self, seat: PeerSeat) -> Result<(), PeerSeat> {
        let sender = self.0.lock().take();
        match sender {
            Some(sender) => sender.send(seat),
            None => Err(seat),
        }
    }
}

/// Where a request waits; out of all queues when dropped.
struct QueueTickets(SmallVec<[(Arc<Peer>, Ticket); 4]>);

impl Drop for QueueTickets {
    fn drop(&mut self) {
        for (peer, ticket) in &self.0 {
            peer.seats.update_queue(|queue| queue.remove(*ticket));
        }
    }
}

/// Waits for a place at any of these peers.
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
            // Who was pushed out is told by the end of its last reference.
            Ok(joined) => tickets.0.push((peer.clone(), joined.ticket)),
            Err(reason) => rejection = reason,
        }
    }
    drop(waiter);
    if tickets.0.is_empty() {
        return Err(rejection);
    }
    for (peer, _) in &tickets.0 {
        // A place may have become free before we were seen waiting.
        peer.grant_free_seats();
    }
    match tokio::time::timeout(limits.wait_max, granted).await {
        Ok(Ok(seat)) => Ok(seat),
        Ok(Err(_)) => Err(QueueRejection::Evicted),
        Err(_) => Err(QueueRejection::TimedOut),
    }
}
