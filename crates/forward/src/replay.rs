//! A request body that can be sent again until more than a limit of it was sent.
//!
//! The body is streamed, never buffered first. Sent chunks are kept by reference, up to the limit, until a peer has answered,
//! because a peer that executed nothing may have read part of them.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use transport::peer::{BoxError, RequestBody};

use super::bandwidth::{Bandwidth, ThrottledBody};

/// Objects in etcd have at most 1.5 MB; longer bodies are sent once.
const REPLAY_BYTES_MAX: usize = 2 << 20;

/// The body of a request, shared by the attempts to send it; `None` if it is empty.
pub(super) struct ReplayableBody(Option<Arc<Mutex<BodySource>>>);

struct BodySource {
    remaining: Pin<Box<dyn Body<Data = Bytes, Error = BoxError> + Send>>,
    buffered: Vec<Bytes>,
    buffered_bytes: usize,
    has_ended: bool,
    state: ReplayState,
    /// Size of the whole body.
    size: SizeHint,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReplayState {
    /// All sent chunks are kept.
    Replayable,
    /// Some sent chunks were dropped.
    Discarded,
    /// The client failed to send the rest.
    ClientFailed,
}

impl ReplayableBody {
    pub(super) fn new<B>(body: B) -> Self
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        if body.is_end_stream() {
            return Self(None);
        }
        let size = body.size_hint();
        let rest = Box::pin(http_body_util::BodyExt::map_err(body, Into::into));
        let source = BodySource {
            remaining: rest,
            buffered: Vec::new(),
            buffered_bytes: 0,
            has_ended: false,
            state: ReplayState::Replayable,
            size,
        };
        Self(Some(Arc::new(Mutex::new(source))))
    }

    /// True if the request has no body.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// True if the body can be sent from its beginning.
    pub(super) fn can_replay(&self) -> bool {
        self.state() == ReplayState::Replayable
    }

    /// True if the client failed to send the rest.
    pub(super) fn has_client_failed(&self) -> bool {
        self.state() == ReplayState::ClientFailed
    }

    /// The body from its beginning, for one attempt.
    pub(super) fn new_body(&self, bandwidth: Option<&Arc<Bandwidth>>) -> RequestBody {
        match &self.0 {
            None => RequestBody::empty(),
            Some(source) => {
                RequestBody::new(ThrottledBody::new(ReplayReader { source: source.clone(), position: 0 }, bandwidth))
            }
        }
    }

    /// Drops the kept chunks: the body is not sent again.
    pub(super) fn discard(&self) {
        if let Some(source) = &self.0 {
            source.lock().discard();
        }
    }

    fn state(&self) -> ReplayState {
        self.0.as_ref().map_or(ReplayState::Replayable, |source| source.lock().state)
    }
}

impl BodySource {
    fn discard(&mut self) {
        if self.state == ReplayState::Replayable {
            self.state = ReplayState::Discarded;
        }
        self.buffered = Vec::new();
    }

    fn buffer(&mut self, bytes: &Bytes) {
        self.buffered_bytes += bytes.len();
        if self.buffered_bytes > REPLAY_BYTES_MAX {
            self.discard();
        }
        if self.state == ReplayState::Replayable {
            self.buffered.push(bytes.clone());
        }
    }
}

/// The position of one attempt in the body.
struct ReplayReader {
    source: Arc<Mutex<BodySource>>,
    position: usize,
}

impl Body for ReplayReader {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        let mut source = this.source.lock();
        if let Some(bytes) = source.buffered.get(this.position) {
            this.position += 1;
            return Poll::Ready(Some(Ok(Frame::data(bytes.clone()))));
        }
        while !source.has_ended {
            match ready!(source.remaining.as_mut().poll_frame(context)) {
                None => source.has_ended = true,
                Some(Ok(frame)) => {
                    // Trailers are dropped: `Trailer` is a hop-by-hop header.
                    let Ok(bytes) = frame.into_data() else { continue };
                    source.buffer(&bytes);
                    this.position += 1;
                    return Poll::Ready(Some(Ok(Frame::data(bytes))));
                }
                Some(Err(error)) => {
                    source.state = ReplayState::ClientFailed;
                    source.has_ended = true;
                    return Poll::Ready(Some(Err(error)));
                }
            }
        }
        Poll::Ready(None)
    }

    fn size_hint(&self) -> SizeHint {
        self.source.lock().size
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::{BodyExt as _, StreamBody};

    use super::*;

    fn replayable_body(parts: Vec<Result<&'static str, BoxError>>) -> ReplayableBody {
        let frames = parts.into_iter().map(|part| part.map(|text| Frame::data(Bytes::from_static(text.as_bytes()))));
        ReplayableBody::new(StreamBody::new(futures_util::stream::iter(frames)))
    }

    async fn read_frames(body: &mut RequestBody, frames: usize) -> String {
        let mut text = String::new();
        for _ in 0..frames {
            let frame = body.frame().await.unwrap().unwrap();
            text.push_str(std::str::from_utf8(frame.data_ref().unwrap()).unwrap());
        }
        text
    }

    #[tokio::test]
    async fn partly_sent_body_is_replayed_from_the_start() {
        let replay = replayable_body(vec![Ok("a"), Ok("b"), Ok("c")]);
        let mut first = replay.new_body(None);
        assert_eq!(read_frames(&mut first, 2).await, "ab");
        drop(first);
        let mut second = replay.new_body(None);
        assert_eq!(read_frames(&mut second, 1).await, "a");
        drop(second);
        for _ in 0..2 {
            assert_eq!(replay.new_body(None).collect().await.unwrap().to_bytes(), "abc");
        }
        assert!(replay.can_replay());
        replay.discard();
        assert!(!replay.can_replay());
    }

    #[tokio::test]
    async fn body_over_limit_is_not_replayable() {
        let long = "x".repeat(REPLAY_BYTES_MAX);
        let replay = replayable_body(vec![Ok(String::leak(long)), Ok("y")]);
        let mut body = replay.new_body(None);
        read_frames(&mut body, 1).await;
        assert!(replay.can_replay());
        assert_eq!(read_frames(&mut body, 1).await, "y");
        assert!(!replay.can_replay() && !replay.has_client_failed());
    }

    #[tokio::test]
    async fn client_abort_is_reported_as_client_failure() {
        let replay = replayable_body(vec![Ok("a"), Err("gone".into())]);
        replay.new_body(None).collect().await.unwrap_err();
        assert!(replay.has_client_failed() && !replay.can_replay());
    }

    #[tokio::test]
    async fn empty_body_is_always_replayable() {
        let replay = ReplayableBody::new(http_body_util::Empty::<Bytes>::new());
        assert!(replay.new_body(None).is_end_stream());
        replay.discard();
        assert!(replay.can_replay());
    }
}
