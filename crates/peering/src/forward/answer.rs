//! A peer's answer on its way to the client.

use std::future::Future as _;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::time::{Instant, Sleep};
use transport::peer::{BoxError, PeerBody};

use super::Span;
use super::peers::Seat;
use crate::identity::ServerId;

/// Which peer answered: in the extensions of every forwarded response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnsweredBy(pub ServerId);

/// The body of a forwarded response, passed on as it comes. Dropping it closes the connection to the peer, unless it was read
/// to its end.
#[derive(Debug)]
pub struct AnswerBody {
    /// What was read already, to judge the answer by.
    start: Bytes,
    rest: Option<PeerBody>,
    deadline: Option<Instant>,
    /// Only made when there is something to wait for.
    timer: Option<Pin<Box<Sleep>>>,
    /// Given back at the end.
    seat: Option<Seat>,
}

/// The time of the request was over before its answer was.
#[derive(Debug, thiserror::Error)]
#[error("the peer did not finish its answer in time")]
struct Overdue;

impl AnswerBody {
    pub(super) fn new(start: Bytes, rest: Option<PeerBody>, span: Span, seat: Seat) -> Self {
        let deadline = match span {
            Span::Until(deadline) => Some(deadline),
            Span::Open => None,
        };
        Self { start, rest, deadline, timer: None, seat: Some(seat) }
    }

    pub(super) fn empty() -> Self {
        Self { start: Bytes::new(), rest: None, deadline: None, timer: None, seat: None }
    }

    fn end(&mut self) {
        self.rest = None;
        self.timer = None;
        self.seat = None;
    }

    fn poll_overdue(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let Some(deadline) = self.deadline else { return Poll::Pending };
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
        timer.as_mut().poll(context)
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
                ready!(this.poll_overdue(context));
                this.end();
                return Poll::Ready(Some(Err(Overdue.into())));
            }
        };
        if !matches!(next, Some(Ok(_))) || rest.is_end_stream() {
            this.end();
        }
        Poll::Ready(next.map(|frame| frame.map_err(Into::into)))
    }

    fn is_end_stream(&self) -> bool {
        self.start.is_empty() && self.rest.as_ref().is_none_or(PeerBody::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let mut size = self.rest.as_ref().map_or_else(|| SizeHint::with_exact(0), PeerBody::size_hint);
        let start = self.start.len() as u64;
        if let Some(upper) = size.upper() {
            size.set_upper(upper + start);
        }
        size.set_lower(size.lower() + start);
        size
    }
}
