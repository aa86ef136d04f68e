//! A peer's answer on its way to the client.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio_util::sync::CancellationToken;
use transport::peer::{BoxError, PeerBody};

use super::Span;
use super::bandwidth::Metered;
use super::peers::{Peer, Seat};
use crate::identity::ServerId;

/// Which peer answered: in the extensions of every forwarded response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnsweredBy(pub ServerId);

/// How many peers were tried in vain before: in the extensions of a forwarded response, if there were any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retried(pub usize);

/// The body of a forwarded response, passed on as it comes. Dropping it tells the peer to stop, unless it was read
/// to its end.
pub struct AnswerBody {
    /// What was read already, to judge the answer by.
    start: Bytes,
    rest: Option<Metered<PeerBody>>,
    span: Span,
    /// Ends what is open when this server stops.
    ending: CancellationToken,
    /// Ends the wait for a peer that will not go on. Only made when there is something to wait for.
    guard: Option<Guard>,
    /// Given back at the end.
    seat: Option<Seat>,
}

type Guard = Pin<Box<dyn Future<Output = BrokenOff> + Send>>;

/// Why the rest of an answer is not waited for.
#[derive(Debug, thiserror::Error)]
enum BrokenOff {
    #[error("the peer did not finish its answer in time")]
    Overdue,
    #[error("the peer does not answer any more")]
    Silent,
    /// No fault of anybody: the client comes back to another server.
    #[error("this server stops")]
    Stopping,
}

impl AnswerBody {
    pub(super) fn new(
        start: Bytes,
        rest: Option<PeerBody>,
        span: Span,
        ending: &CancellationToken,
        seat: Seat,
    ) -> Self {
        let rest = rest.map(|rest| Metered::new(rest, seat.peer().bandwidth()));
        Self { start, rest, span, ending: ending.clone(), guard: None, seat: Some(seat) }
    }

    pub(super) fn empty() -> Self {
        let ending = CancellationToken::new();
        Self { start: Bytes::new(), rest: None, span: Span::Open, ending, guard: None, seat: None }
    }

    fn end(&mut self) {
        self.rest = None;
        self.guard = None;
        self.seat = None;
    }

    fn poll_broken_off(&mut self, context: &mut Context<'_>) -> Poll<BrokenOff> {
        let Some(seat) = &self.seat else { return Poll::Pending };
        let guard = self.guard.get_or_insert_with(|| guard(self.span, seat.peer().clone(), self.ending.clone()));
        guard.as_mut().poll(context)
    }
}

fn guard(span: Span, peer: Arc<Peer>, ending: CancellationToken) -> Guard {
    match span {
        Span::Until(deadline) => Box::pin(async move {
            tokio::time::sleep_until(deadline).await;
            BrokenOff::Overdue
        }),
        Span::Open => Box::pin(async move {
            match ending.run_until_cancelled(peer.falls_silent()).await {
                Some(()) => BrokenOff::Silent,
                None => BrokenOff::Stopping,
            }
        }),
    }
}

impl fmt::Debug for AnswerBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnswerBody").field("rest", &self.rest).field("span", &self.span).finish_non_exhaustive()
    }
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        if !this.start.is_empty() {
            return Poll::Ready(Some(Ok(Frame::data(std::mem::take(&mut this.start)))));
        }
        let Some(rest) = &mut this.rest else { return Poll::Ready(None) };
        let next = match Pin::new(&mut *rest).poll_frame(context) {
            Poll::Ready(next) => next,
            Poll::Pending => {
                let broken_off = ready!(this.poll_broken_off(context));
                this.end();
                return Poll::Ready(match broken_off {
                    BrokenOff::Stopping => None,
                    BrokenOff::Overdue | BrokenOff::Silent => Some(Err(broken_off.into())),
                });
            }
        };
        if !matches!(next, Some(Ok(_))) || rest.is_end_stream() {
            this.end();
        }
        Poll::Ready(next.map(|frame| frame.map_err(Into::into)))
    }

    fn is_end_stream(&self) -> bool {
        self.start.is_empty() && self.rest.as_ref().is_none_or(Metered::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let mut size = self.rest.as_ref().map_or_else(|| SizeHint::with_exact(0), Metered::size_hint);
        let start = self.start.len() as u64;
        if let Some(upper) = size.upper() {
            size.set_upper(upper + start);
        }
        size.set_lower(size.lower() + start);
        size
    }
}
