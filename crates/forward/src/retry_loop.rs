//! Sends a request to one candidate after another.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use http::Response;
use parking_lot::Mutex;
use smallvec::SmallVec;
use tasks::Commitment;
use tokio::time::Instant;

use super::attempt::ForwardAttempt;
use super::forwarded_head::ForwardedHead;
use super::forwarded_response::ForwardedBody;
use super::peer_set::{Peer, PeerSeat, SeatKind};
use super::replay::ReplayableBody;
use super::upgrade::ClientUpgrade;
use super::{
    Effect, Execution, FailedAttempts, ForwardError, ForwardRequest, ForwarderInner, Lifetime, PeerError, PeerFailure,
    error, seats,
};

/// A request and its candidates.
pub(super) struct RetryLoop<'a> {
    pub(super) forwarder: &'a Arc<ForwarderInner>,
    pub(super) forward_request: &'a ForwardRequest<'a>,
    /// The candidates in the order of attempts.
    pub(super) peers: SmallVec<[Arc<Peer>; 4]>,
    /// Index of the current attempt in `peers`.
    pub(super) current_peer: AtomicUsize,
    pub(super) head: ForwardedHead,
    pub(super) body: ReplayableBody,
    pub(super) client_upgrade: Mutex<Option<ClientUpgrade>>,
    /// True while a peer may execute the request.
    pub(super) is_sent: AtomicBool,
    /// Committed when the request is first sent; until then it is cancelled with its client.
    pub(super) commitment: Option<Arc<Commitment>>,
}

impl RetryLoop<'_> {
    /// Tries the candidates that have a free seat, then waits for the busy ones.
    pub(super) async fn run(&self) -> Result<Response<ForwardedBody>, ForwardError> {
        let mut history = AttemptHistory { failures: Vec::new(), execution: Execution::None };
        let mut busy: SmallVec<[usize; 4]> = SmallVec::new();
        // With a queue a busy peer is not a failure yet; the queue has its own metrics.
        let may_wait = self.forwarder.limits.queue.length_max > 0;
        for (number, peer) in self.peers.iter().enumerate() {
            let Some(seat) = peer.try_acquire_seat(self.seat_kind()) else {
                if !may_wait {
                    self.record_failure(peer, &PeerError::Busy);
                }
                history.failures.push(PeerFailure { id: peer.id().clone(), error: PeerError::Busy });
                busy.push(number);
                continue;
            };
            let others_left = number + 1 < self.peers.len() || !busy.is_empty();
            if let Some(response) = self.attempt_peer(number, seat, others_left, &mut history).await? {
                return Ok(response);
            }
        }
        while may_wait && !busy.is_empty() {
            let seat = self.wait_for_seat(&busy).await?;
            let Some(index) = busy.iter().position(|number| Arc::ptr_eq(&self.peers[*number], seat.peer())) else {
                break;
            };
            let number = busy.remove(index);
            if let Some(response) = self.attempt_peer(number, seat, !busy.is_empty(), &mut history).await? {
                return Ok(response);
            }
        }
        Err(history.take_error())
    }

    fn seat_kind(&self) -> SeatKind {
        match self.forward_request.lifetime {
            Lifetime::Until(_) => SeatKind::Short,
            Lifetime::LongRunning => SeatKind::Stream,
        }
    }

    /// Waits in the queues of these candidates until one has a free seat.
    async fn wait_for_seat(&self, busy: &[usize]) -> Result<PeerSeat, ForwardError> {
        let ForwarderInner { limits, flow_hasher, metrics, .. } = &**self.forwarder;
        let begun = Instant::now();
        let flow = flow_hasher.flow_for(self.forward_request.user, self.head.headers(), self.forward_request.client_ip);
        let peers = busy.iter().map(|number| &self.peers[*number]);
        let seat = seats::wait_for_seat(peers, flow, limits.queue).await.map_err(|rejection| {
            metrics.count_queue_rejection(rejection);
            ForwardError::Overloaded(rejection)
        })?;
        metrics.observe_queue_wait(seat.peer().id(), begun.elapsed());
        Ok(seat)
    }

    /// Tries one candidate; `None` if the next one may be tried.
    async fn attempt_peer(
        &self,
        peer_index: usize,
        seat: PeerSeat,
        has_more_candidates: bool,
        history: &mut AttemptHistory,
    ) -> Result<Option<Response<ForwardedBody>>, ForwardError> {
        let peer = &self.peers[peer_index];
        self.current_peer.store(peer_index, Ordering::Relaxed);
        let attempt = ForwardAttempt { retry_loop: self, peer, has_more_candidates };
        let (error, execution) = match attempt.run(seat).await {
            Ok(mut response) => {
                let failed_attempts = error::attempt_count(&history.failures);
                if failed_attempts > 0 {
                    response.extensions_mut().insert(FailedAttempts(failed_attempts));
                }
                return Ok(Some(response));
            }
            Err(failure) => failure,
        };
        if self.body.has_client_failed() {
            return Err(ForwardError::ClientAborted);
        }
        self.record_failure(peer, &error);
        history.failures.push(PeerFailure { id: peer.id().clone(), error });
        history.execution = self.relax_for_reads(execution);
        if history.execution != Execution::Unknown && self.body.can_replay() {
            return Ok(None);
        }
        Err(history.take_error())
    }

    /// The error when the deadline passes. A slow peer is counted in metrics but does not count as failed.
    pub(super) fn timeout_error(&self) -> ForwardError {
        if let Some(peer) = self.peers.get(self.current_peer.load(Ordering::Relaxed)) {
            self.forwarder.metrics.transport_failures.with_label_values(&[peer.id(), "timeout"]).inc();
        }
        let is_sent = self.is_sent.load(Ordering::Relaxed);
        let execution = if is_sent { Execution::Unknown } else { Execution::None };
        ForwardError::TimedOut { execution: self.relax_for_reads(execution) }
    }

    /// Counts a failed attempt and backs off from the peer where the failure is its own.
    pub(super) fn record_failure(&self, peer: &Peer, error: &PeerError) {
        self.forwarder.metrics.transport_failures.with_label_values(&[peer.id(), error.reason()]).inc();
        match error {
            PeerError::Busy | PeerError::NoUsableConnection => {}
            PeerError::Unauthorized | PeerError::NotServed => {
                (self.forward_request.mark_stale)(peer.id());
                peer.record_failure(error);
            }
            PeerError::Dial(_)
            | PeerError::ConnectionBroken(_)
            | PeerError::Unresponsive
            | PeerError::NotExecuted
            | PeerError::Redirect(_)
            | PeerError::UnexpectedUpgrade => peer.record_failure(error),
        }
    }

    /// A read whose outcome is unknown is harmless.
    pub(super) fn relax_for_reads(&self, execution: Execution) -> Execution {
        match (self.forward_request.effect, execution) {
            (Effect::Reads, Execution::Unknown) => Execution::Harmless,
            (Effect::Reads | Effect::Writes, other) => other,
        }
    }
}

/// The failed attempts of a request so far.
struct AttemptHistory {
    failures: Vec<PeerFailure>,
    /// Whether the last of them may have executed the request.
    execution: Execution,
}

impl AttemptHistory {
    fn take_error(&mut self) -> ForwardError {
        ForwardError::Failed { failures: std::mem::take(&mut self.failures), execution: self.execution }
    }
}
