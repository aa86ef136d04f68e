//! The body of a request, which can be sent again as long as little enough of it was sent.
//!
//! It is sent as it comes, never gathered first. What was sent is remembered (by reference, up to a limit) until a peer has
//! answered, because a peer that executed nothing may have read part of it.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use transport::peer::{BoxError, RequestBody};

use super::bandwidth::{Bandwidth, Metered};

/// Objects in etcd have at most 1.5 MB; what is longer is sent once.
const REMEMBERED_MAX: usize = 2 << 20;

/// A body that outlives the attempts to send it.
pub(super) struct Replay(Option<Arc<Mutex<Source>>>);

struct Source {
    rest: Pin<Box<dyn Body<Data = Bytes, Error = BoxError> + Send>>,
    remembered: Vec<Bytes>,
    remembered_bytes: usize,
    has_ended: bool,
    state: State,
    /// Of the whole.
    size: SizeHint,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// All that was sent is remembered.
    Remembering,
    /// Something that was sent is not.
    Forgotten,
    /// The client broke off.
    Failed,
}

impl Replay {
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
        let source = Source {
            rest,
            remembered: Vec::new(),
            remembered_bytes: 0,
            has_ended: false,
            state: State::Remembering,
            size,
        };
        Self(Some(Arc::new(Mutex::new(source))))
    }

    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Whether it can be sent, or sent again, from its beginning.
    pub(super) fn can_be_sent(&self) -> bool {
        self.state() == State::Remembering
    }

    /// Whether the client broke off.
    pub(super) fn has_failed(&self) -> bool {
        self.state() == State::Failed
    }

    /// The body from its beginning, for one attempt.
    pub(super) fn body(&self, bandwidth: Option<&Arc<Bandwidth>>) -> RequestBody {
        match &self.0 {
            None => RequestBody::empty(),
            Some(source) => RequestBody::new(Metered::new(Reading { source: source.clone(), position: 0 }, bandwidth)),
        }
    }

    /// It will not be sent again.
    pub(super) fn forget(&self) {
        if let Some(source) = &self.0 {
            source.lock().forget();
        }
    }

    fn state(&self) -> State {
        self.0.as_ref().map_or(State::Remembering, |source| source.lock().state)
    }
}

impl Source {
    fn forget(&mut self) {
        if self.state == State::Remembering {
            self.state = State::Forgotten;
        }
        self.remembered = Vec::new();
    }

    fn remember(&mut self, bytes: &Bytes) {
        self.remembered_bytes += bytes.len();
        if self.remembered_bytes > REMEMBERED_MAX {
            self.forget();
        }
        if self.state == State::Remembering {
            self.remembered.push(bytes.clone());
        }
    }
}

/// One attempt's way through the body.
struct Reading {
    source: Arc<Mutex<Source>>,
    position: usize,
}

impl Body for Reading {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        let mut source = this.source.lock();
        if let Some(bytes) = source.remembered.get(this.position) {
            this.position += 1;
            return Poll::Ready(Some(Ok(Frame::data(bytes.clone()))));
        }
        while !source.has_ended {
            match ready!(source.rest.as_mut().poll_frame(context)) {
                None => source.has_ended = true,
                Some(Ok(frame)) => {
                    // Trailers are announced by a header that concerns one connection only.
                    let Ok(bytes) = frame.into_data() else { continue };
                    source.remember(&bytes);
                    this.position += 1;
                    return Poll::Ready(Some(Ok(Frame::data(bytes))));
                }
                Some(Err(error)) => {
                    source.state = State::Failed;
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

    fn replay(parts: Vec<Result<&'static str, BoxError>>) -> Replay {
        let frames = parts.into_iter().map(|part| part.map(|text| Frame::data(Bytes::from_static(text.as_bytes()))));
        Replay::new(StreamBody::new(futures_util::stream::iter(frames)))
    }

    async fn read(body: &mut RequestBody, frames: usize) -> String {
        let mut text = String::new();
        for _ in 0..frames {
            let frame = body.frame().await.unwrap().unwrap();
            text.push_str(std::str::from_utf8(frame.data_ref().unwrap()).unwrap());
        }
        text
    }

    #[tokio::test]
    async fn a_body_that_was_sent_in_part_is_sent_again_whole() {
        let replay = replay(vec![Ok("a"), Ok("b"), Ok("c")]);
        let mut first = replay.body(None);
        assert_eq!(read(&mut first, 2).await, "ab");
        drop(first);
        let mut second = replay.body(None);
        assert_eq!(read(&mut second, 1).await, "a");
        drop(second);
        for _ in 0..2 {
            assert_eq!(replay.body(None).collect().await.unwrap().to_bytes(), "abc");
        }
        assert!(replay.can_be_sent());
        replay.forget();
        assert!(!replay.can_be_sent());
    }

    #[tokio::test]
    async fn a_long_body_is_sent_once() {
        let long = "x".repeat(REMEMBERED_MAX);
        let replay = replay(vec![Ok(String::leak(long)), Ok("y")]);
        let mut body = replay.body(None);
        read(&mut body, 1).await;
        assert!(replay.can_be_sent());
        assert_eq!(read(&mut body, 1).await, "y");
        assert!(!replay.can_be_sent() && !replay.has_failed());
    }

    #[tokio::test]
    async fn a_client_that_breaks_off_is_not_the_peers_fault() {
        let replay = replay(vec![Ok("a"), Err("gone".into())]);
        replay.body(None).collect().await.unwrap_err();
        assert!(replay.has_failed() && !replay.can_be_sent());
    }

    #[tokio::test]
    async fn no_body_can_be_sent_any_number_of_times() {
        let replay = Replay::new(http_body_util::Empty::<Bytes>::new());
        assert!(replay.body(None).is_end_stream());
        replay.forget();
        assert!(replay.can_be_sent());
    }
}
