//! One request and its candidates, from the first try to the last.

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
    Effect, FailedAttempts, ForwardError, ForwardRequest, ForwarderInner, Lifetime, PeerError, PeerFailure, error,
    seats,
};
use crate::status::Execution;

/// One request and its candidates.
pub(super) struct RetryLoop<'a> {
    pub(super) forwarder: &'a Arc<ForwarderInner>,
    pub(super) forward_request: &'a ForwardRequest<'a>,
    /// The candidates, as they are tried.
    pub(super) peers: SmallVec<[Arc<Peer>; 4]>,
    /// Which of them is tried now.
    pub(super) current_peer: AtomicUsize,
    pub(super) head: ForwardedHead,
    pub(super) body: ReplayableBody,
    pub(super) client_upgrade: Mutex<Option<ClientUpgrade>>,
    /// Whether the request is with a peer now.
    pub(super) is_sent: AtomicBool,
    /// Until it is sent, the request is cancelled with its client.
    pub(super) commitment: Option<Arc<Commitment>>,
}

impl RetryLoop<'_> {
    /// Tries one candidate after the other, and then those that had no room as soon as they have.
    pub(super) async fn run(&self) -> Result<Response<ForwardedBody>, ForwardError> {
        let mut history = AttemptHistory { failures: Vec::new(), execution: Execution::None };
        let mut busy: SmallVec<[usize; 4]> = SmallVec::new();
        // Who waits is counted there, and is no failure yet.
        let may_wait = self.forwarder.limits.queue.length_max > 0;
        for (number, peer) in self.peers.iter().enumerate() {
            let Some(seat) = peer.try_acquire_seat(self.seat_kind()) else {
                if !may_wait {
                    self.record_failure(peer, &PeerError::Busy);
                }
                history.failures.push(PeerFailure { server: peer.server().clone(), error: PeerError::Busy });
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

    /// Waits, behind others if need be, until one of these candidates has room.
    async fn wait_for_seat(&self, busy: &[usize]) -> Result<PeerSeat, ForwardError> {
        let ForwarderInner { limits, flow_hasher: flows, metrics, .. } = &**self.forwarder;
        let begun = Instant::now();
        let flow = flows.flow_for(self.forward_request.user, self.head.headers(), self.forward_request.client_ip);
        let peers = busy.iter().map(|number| &self.peers[*number]);
        let seat = seats::wait_for_seat(peers, flow, limits.queue).await.map_err(|rejection| {
            metrics.count_queue_rejection(rejection);
            ForwardError::Overloaded(rejection)
        })?;
        metrics.observe_queue_wait(seat.peer().server(), begun.elapsed());
        Ok(seat)
    }

    /// Tries a candidate that has room; `None` if the next may be tried.
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
        history.failures.push(PeerFailure { server: peer.server().clone(), error });
        history.execution = self.relax_for_reads(execution);
        if history.execution != Execution::Unknown && self.body.can_replay() {
            return Ok(None);
        }
        Err(history.take_error())
    }

    /// The time is over. Whoever has the request now is slow, which is counted and no reason to pass it over.
    pub(super) fn timeout_error(&self) -> ForwardError {
        if let Some(peer) = self.peers.get(self.current_peer.load(Ordering::Relaxed)) {
            self.forwarder.metrics.transport_failures.with_label_values(&[peer.server().as_str(), "timeout"]).inc();
        }
        let is_sent = self.is_sent.load(Ordering::Relaxed);
        let execution = if is_sent { Execution::Unknown } else { Execution::None };
        ForwardError::TimedOut { execution: self.relax_for_reads(execution) }
    }

    /// What a failure means for the next ones who want to go there.
    pub(super) fn record_failure(&self, peer: &Peer, error: &PeerError) {
        self.forwarder.metrics.transport_failures.with_label_values(&[peer.server().as_str(), error.reason()]).inc();
        match error {
            PeerError::Busy | PeerError::NoUsableConnection => {}
            PeerError::Unauthorized | PeerError::NotServed => {
                (self.forward_request.mark_stale)(peer.server());
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

    /// What was sent and only reads does no harm, whatever became of it.
    pub(super) fn relax_for_reads(&self, execution: Execution) -> Execution {
        match (self.forward_request.effect, execution) {
            (Effect::Reads, Execution::Unknown) => Execution::Harmless,
            (Effect::Reads | Effect::Writes, other) => other,
        }
    }
}

/// How the candidates of a request have failed so far.
struct AttemptHistory {
    failures: Vec<PeerFailure>,
    /// What may have become of the request at the last of them.
    execution: Execution,
}

impl AttemptHistory {
    fn take_error(&mut self) -> ForwardError {
        ForwardError::Failed { failures: std::mem::take(&mut self.failures), execution: self.execution }
    }
}
