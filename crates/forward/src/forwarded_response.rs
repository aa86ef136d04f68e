//! The response of a peer on its way to the client.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio_util::sync::CancellationToken;
use transport::peer::{BoxError, PeerBody};

use super::Lifetime;
use super::bandwidth::ThrottledBody;
use super::peer_set::{Peer, PeerSeat};

/// The id of the candidate that answered: in the extensions of every forwarded response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RespondingPeer(pub Arc<str>);

/// The number of failed attempts before this response: in its extensions, unless 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailedAttempts(pub usize);

/// The body of a forwarded response. Dropping it before its end cancels the request at the peer.
pub struct ForwardedBody {
    /// What was read for classification.
    buffered: Bytes,
    remaining: Option<ThrottledBody<PeerBody>>,
    lifetime: Lifetime,
    /// Ends a long-running response when this server stops.
    stream_stop: CancellationToken,
    /// Ends the wait for a deadline or an unresponsive peer. Created on the first `Pending`.
    abort_future: Option<AbortFuture>,
    /// Released at the end of the body.
    peer_seat: Option<PeerSeat>,
}

type AbortFuture = Pin<Box<dyn Future<Output = AbortReason> + Send>>;

/// Why the rest of a response is not waited for.
#[derive(Debug, thiserror::Error)]
enum AbortReason {
    #[error("the peer did not finish its answer in time")]
    DeadlineExceeded,
    #[error("the peer does not answer any more")]
    PeerUnresponsive,
    /// Not an error: the body ends, and the client reconnects to another server.
    #[error("this server stops")]
    ServerStopping,
}

impl ForwardedBody {
    pub(super) fn new(
        buffered: Bytes,
        remaining: Option<PeerBody>,
        lifetime: Lifetime,
        stream_stop: &CancellationToken,
        seat: PeerSeat,
    ) -> Self {
        let rest = remaining.map(|rest| ThrottledBody::new(rest, seat.peer().bandwidth()));
        Self {
            buffered,
            remaining: rest,
            lifetime,
            stream_stop: stream_stop.clone(),
            abort_future: None,
            peer_seat: Some(seat),
        }
    }

    pub(super) fn empty() -> Self {
        let ending = CancellationToken::new();
        Self {
            buffered: Bytes::new(),
            remaining: None,
            lifetime: Lifetime::LongRunning,
            stream_stop: ending,
            abort_future: None,
            peer_seat: None,
        }
    }

    /// Gives the connection and the place at the peer back at the end of the body, before the body is dropped.
    fn release(&mut self) {
        self.remaining = None;
        self.abort_future = None;
        self.peer_seat = None;
    }

    fn poll_abort(&mut self, context: &mut Context<'_>) -> Poll<AbortReason> {
        let Some(seat) = &self.peer_seat else { return Poll::Pending };
        let guard = self
            .abort_future
            .get_or_insert_with(|| abort_future(self.lifetime, seat.peer().clone(), self.stream_stop.clone()));
        guard.as_mut().poll(context)
    }
}

fn abort_future(lifetime: Lifetime, peer: Arc<Peer>, stream_stop: CancellationToken) -> AbortFuture {
    match lifetime {
        Lifetime::Until(deadline) => Box::pin(async move {
            tokio::time::sleep_until(deadline).await;
            AbortReason::DeadlineExceeded
        }),
        Lifetime::LongRunning => Box::pin(async move {
            match stream_stop.run_until_cancelled(peer.wait_until_unresponsive()).await {
                Some(()) => AbortReason::PeerUnresponsive,
                None => AbortReason::ServerStopping,
            }
        }),
    }
}

impl fmt::Debug for ForwardedBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ForwardedBody")
            .field("remaining", &self.remaining)
            .field("lifetime", &self.lifetime)
            .finish_non_exhaustive()
    }
}

impl Body for ForwardedBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        if !this.buffered.is_empty() {
            return Poll::Ready(Some(Ok(Frame::data(std::mem::take(&mut this.buffered)))));
        }
        let Some(remaining) = &mut this.remaining else { return Poll::Ready(None) };
        let next = match Pin::new(&mut *remaining).poll_frame(context) {
            Poll::Ready(next) => next,
            Poll::Pending => {
                let abort_reason = ready!(this.poll_abort(context));
                this.release();
                return Poll::Ready(match abort_reason {
                    AbortReason::ServerStopping => None,
                    AbortReason::DeadlineExceeded | AbortReason::PeerUnresponsive => Some(Err(abort_reason.into())),
                });
            }
        };
        if !matches!(next, Some(Ok(_))) || remaining.is_end_stream() {
            this.release();
        }
        Poll::Ready(next.map(|frame| frame.map_err(Into::into)))
    }

    fn is_end_stream(&self) -> bool {
        self.buffered.is_empty() && self.remaining.as_ref().is_none_or(ThrottledBody::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let mut size = self.remaining.as_ref().map_or_else(|| SizeHint::with_exact(0), ThrottledBody::size_hint);
        let start = self.buffered.len() as u64;
        if let Some(upper) = size.upper() {
            size.set_upper(upper + start);
        }
        size.set_lower(size.lower() + start);
        size
    }
}
