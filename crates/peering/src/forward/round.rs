//! One request and its candidates, from the first try to the last.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use http::Response;
use parking_lot::Mutex;
use smallvec::SmallVec;
use tasks::Commitment;
use tokio::time::Instant;

use super::answer::AnswerBody;
use super::attempt::Attempt;
use super::head::Head;
use super::peers::{Peer, Seat, SeatKind};
use super::replay::Replay;
use super::upgrade::ClientEnd;
use super::{Call, Effect, Failure, Fault, ForwardError, Retried, Shared, Span, error, seats};
use crate::status::Execution;

/// One request and its candidates.
pub(super) struct Round<'a> {
    pub(super) shared: &'a Arc<Shared>,
    pub(super) call: &'a Call<'a>,
    /// The candidates, as they are tried.
    pub(super) peers: SmallVec<[Arc<Peer>; 4]>,
    /// Which of them is tried now.
    pub(super) trying: AtomicUsize,
    pub(super) head: Head,
    pub(super) body: Replay,
    pub(super) upgrade: Mutex<Option<ClientEnd>>,
    /// Whether the request is with a peer now.
    pub(super) is_sent: AtomicBool,
    /// Until it is sent, the request is cancelled with its client.
    pub(super) commitment: Option<Arc<Commitment>>,
}

impl Round<'_> {
    /// Tries one candidate after the other, and then those that had no room as soon as they have.
    pub(super) async fn run(&self) -> Result<Response<AnswerBody>, ForwardError> {
        let mut tried = Tried { failures: Vec::new(), execution: Execution::None };
        let mut busy: SmallVec<[usize; 4]> = SmallVec::new();
        // Who waits is counted there, and is no failure yet.
        let may_wait = self.shared.limits.queue.length_max > 0;
        for (number, peer) in self.peers.iter().enumerate() {
            let Some(seat) = peer.seat(self.kind()) else {
                if !may_wait {
                    self.note(peer, &Fault::Busy);
                }
                tried.failures.push(Failure { server: peer.server().clone(), fault: Fault::Busy });
                busy.push(number);
                continue;
            };
            let others_left = number + 1 < self.peers.len() || !busy.is_empty();
            if let Some(response) = self.try_one(number, seat, others_left, &mut tried).await? {
                return Ok(response);
            }
        }
        while may_wait && !busy.is_empty() {
            let seat = self.wait_for_seat(&busy).await?;
            let Some(index) = busy.iter().position(|number| Arc::ptr_eq(&self.peers[*number], seat.peer())) else {
                break;
            };
            let number = busy.remove(index);
            if let Some(response) = self.try_one(number, seat, !busy.is_empty(), &mut tried).await? {
                return Ok(response);
            }
        }
        Err(tried.take_error())
    }

    fn kind(&self) -> SeatKind {
        match self.call.span {
            Span::Until(_) => SeatKind::Short,
            Span::Open => SeatKind::Stream,
        }
    }

    /// Waits, behind others if need be, until one of these candidates has room.
    async fn wait_for_seat(&self, busy: &[usize]) -> Result<Seat, ForwardError> {
        let Shared { limits, flows, metrics, .. } = &**self.shared;
        let begun = Instant::now();
        let flow = flows.of(self.call.user, self.head.headers(), self.call.client);
        let peers = busy.iter().map(|number| &self.peers[*number]);
        let seat = seats::wait(peers, flow, limits.queue).await.map_err(|refusal| {
            metrics.count_refused(refusal);
            ForwardError::Overloaded(refusal)
        })?;
        metrics.observe_wait(seat.peer().server(), begun.elapsed());
        Ok(seat)
    }

    /// Tries a candidate that has room; `None` if the next may be tried.
    async fn try_one(
        &self,
        number: usize,
        seat: Seat,
        others_left: bool,
        tried: &mut Tried,
    ) -> Result<Option<Response<AnswerBody>>, ForwardError> {
        let peer = &self.peers[number];
        self.trying.store(number, Ordering::Relaxed);
        let attempt = Attempt { round: self, peer, others_left };
        let (fault, execution) = match attempt.run(seat).await {
            Ok(mut response) => {
                let before = error::tries(&tried.failures);
                if before > 0 {
                    response.extensions_mut().insert(Retried(before));
                }
                return Ok(Some(response));
            }
            Err(failed) => failed,
        };
        if self.body.has_failed() {
            return Err(ForwardError::ClientGone);
        }
        self.note(peer, &fault);
        tried.failures.push(Failure { server: peer.server().clone(), fault });
        tried.execution = self.softened(execution);
        if tried.execution != Execution::Unknown && self.body.can_be_sent() {
            return Ok(None);
        }
        Err(tried.take_error())
    }

    /// The time is over. Whoever has the request now is slow, which is counted and no reason to pass it over.
    pub(super) fn timed_out(&self) -> ForwardError {
        if let Some(peer) = self.peers.get(self.trying.load(Ordering::Relaxed)) {
            self.shared.metrics.transport_failures.with_label_values(&[peer.server().as_str(), "timeout"]).inc();
        }
        let is_sent = self.is_sent.load(Ordering::Relaxed);
        let execution = if is_sent { Execution::Unknown } else { Execution::None };
        ForwardError::TimedOut { execution: self.softened(execution) }
    }

    /// What a failure means for the next ones who want to go there.
    pub(super) fn note(&self, peer: &Peer, fault: &Fault) {
        self.shared.metrics.transport_failures.with_label_values(&[peer.server().as_str(), fault.reason()]).inc();
        match fault {
            Fault::Busy | Fault::NoWay => {}
            Fault::Unauthorized | Fault::NotServed => {
                (self.call.doubt)(peer.server());
                peer.failed(fault);
            }
            Fault::Dial(_)
            | Fault::Broken(_)
            | Fault::Deaf
            | Fault::HandedBack
            | Fault::Redirect(_)
            | Fault::UnaskedUpgrade => peer.failed(fault),
        }
    }

    /// What was sent and only reads does no harm, whatever became of it.
    pub(super) fn softened(&self, execution: Execution) -> Execution {
        match (self.call.effect, execution) {
            (Effect::Reads, Execution::Unknown) => Execution::Harmless,
            (Effect::Reads | Effect::Writes, other) => other,
        }
    }
}

/// How the candidates of a request have failed so far.
struct Tried {
    failures: Vec<Failure>,
    /// What may have become of the request at the last of them.
    execution: Execution,
}

impl Tried {
    fn take_error(&mut self) -> ForwardError {
        ForwardError::Failed { failures: std::mem::take(&mut self.failures), execution: self.execution }
    }
}
