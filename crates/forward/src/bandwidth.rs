//! The limit on bytes per second to and from one peer.
//!
//! A leaky bucket delays chunks in the order in which they arrive. Each stream has at most one chunk waiting, so streams take
//! turns: a watch waits for one chunk of each concurrent download. No bytes are dropped.

use std::num::NonZeroU64;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use prometheus::Counter;
use tokio::time::{Instant, Sleep};

/// A burst after an idle time: as many bytes as the limit allows in this time pass at once.
const BURST_WINDOW: Duration = Duration::from_secs(1);

/// The bytes that passed ahead of the rate.
#[derive(Clone, Copy, Debug)]
struct LeakyBucket {
    bytes_per_second: NonZeroU64,
    /// When the bucket is empty again.
    drained_at: Instant,
}

impl LeakyBucket {
    /// Adds a chunk and returns when it may pass.
    fn reserve(&mut self, bytes: usize, now: Instant) -> Instant {
        let first = self.drained_at.max(now);
        self.drained_at = first + self.drain_time(bytes);
        first.checked_sub(BURST_WINDOW).map_or(now, |when| when.max(now))
    }

    fn drain_time(&self, bytes: usize) -> Duration {
        const NANOS: u128 = 1_000_000_000;
        let nanos = bytes as u128 * NANOS / u128::from(self.bytes_per_second.get());
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

/// The limit of one peer, shared by request and response bodies.
#[derive(Debug)]
pub(super) struct Bandwidth {
    bucket: Mutex<LeakyBucket>,
    /// Total delay of all chunks.
    waited_seconds: Counter,
}

impl Bandwidth {
    pub(super) fn new(bytes_per_second: NonZeroU64, held: Counter) -> Self {
        Self { bucket: Mutex::new(LeakyBucket { bytes_per_second, drained_at: Instant::now() }), waited_seconds: held }
    }

    /// When a chunk may pass; `None` for immediately.
    fn reserve(&self, bytes: usize) -> Option<Instant> {
        let now = Instant::now();
        let when = self.bucket.lock().reserve(bytes, now);
        let wait = when.duration_since(now);
        if wait.is_zero() {
            return None;
        }
        self.waited_seconds.inc_by(wait.as_secs_f64());
        Some(when)
    }

    /// Waits until a chunk may pass.
    pub(super) async fn wait_for(&self, bytes: usize) {
        if let Some(when) = self.reserve(bytes) {
            tokio::time::sleep_until(when).await;
        }
    }
}

/// A body whose chunks are delayed by the limit, if there is one.
#[derive(Debug)]
pub(super) struct ThrottledBody<B> {
    body: B,
    bandwidth: Option<Arc<Bandwidth>>,
    delayed: Option<DelayedChunk>,
}

/// A chunk that is delayed.
#[derive(Debug)]
struct DelayedChunk {
    bytes: Bytes,
    until: Pin<Box<Sleep>>,
}

impl<B> ThrottledBody<B> {
    pub(super) fn new(body: B, bandwidth: Option<&Arc<Bandwidth>>) -> Self {
        Self { body, bandwidth: bandwidth.cloned(), delayed: None }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for ThrottledBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = self.get_mut();
        let Some(bandwidth) = &this.bandwidth else { return Pin::new(&mut this.body).poll_frame(context) };
        if this.delayed.is_none() {
            let frame = match ready!(Pin::new(&mut this.body).poll_frame(context)) {
                Some(Ok(frame)) => frame,
                ended => return Poll::Ready(ended),
            };
            let when = frame.data_ref().and_then(|bytes| bandwidth.reserve(bytes.len()));
            match (when, frame.into_data()) {
                (Some(when), Ok(bytes)) => {
                    this.delayed = Some(DelayedChunk { bytes, until: Box::pin(tokio::time::sleep_until(when)) });
                }
                (None, Ok(bytes)) => return Poll::Ready(Some(Ok(Frame::data(bytes)))),
                (_, Err(other)) => return Poll::Ready(Some(Ok(other))),
            }
        }
        if let Some(held) = &mut this.delayed {
            ready!(held.until.as_mut().poll(context));
        }
        Poll::Ready(this.delayed.take().map(|held| Ok(Frame::data(held.bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.delayed.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let mut size = self.body.size_hint();
        let held = self.delayed.as_ref().map_or(0, |held| held.bytes.len() as u64);
        if let Some(upper) = size.upper() {
            size.set_upper(upper + held);
        }
        size.set_lower(size.lower() + held);
        size
    }
}

#[cfg(test)]
mod tests;
