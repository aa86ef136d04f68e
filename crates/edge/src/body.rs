//! Response bodies: bytes, several byte strings, a stream, or the body of a forwarded response.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use forward::ForwardedBody;
use futures_util::Stream;
use http_body::{Frame, SizeHint};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::Incoming;
use transport::peer::BoxError;

use crate::RequestRecord;
use crate::seats::{Seat, SendLimit};

/// The largest chunk of a body with a seat. hyper buffers a whole chunk even if the client reads only part of it, and the seat must
/// not be free while most of a large body is buffered.
const CHUNK_MAX: usize = 64 << 10;

/// The body of a response. An enum and not a boxed trait object, so that a get allocates nothing for it.
#[derive(Debug, Default)]
pub enum Body {
    /// No bytes.
    #[default]
    Empty,
    /// Bytes, possibly shared with a cache.
    Full(Bytes),
    /// Several byte strings in sequence: a list.
    Parts {
        /// The parts that are not sent yet.
        parts: std::vec::IntoIter<Bytes>,
        /// Their length in bytes.
        remaining: u64,
    },
    /// Chunks that are made when the client can take them: a watch.
    Stream(PullStream),
    /// The body of a forwarded response.
    Peer(Box<ForwardedBody>),
    /// Another body that occupies an in-flight seat until it is sent.
    Seated {
        /// What is sent.
        body: Box<Body>,
        /// The rest of the last chunk, beyond `CHUNK_MAX`.
        remaining_chunk: Bytes,
        /// Freed when the body is dropped.
        seat: Arc<Seat>,
    },
    /// Another body, whose bytes the record counts. The record ends when the body is dropped.
    Recorded {
        /// What is sent.
        body: Box<Body>,
        /// The record of the request.
        record: RequestRecord,
    },
}

/// A stream of chunks.
pub struct PullStream(Pin<Box<dyn Stream<Item = Bytes> + Send>>);

impl fmt::Debug for PullStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pulled")
    }
}

impl Body {
    /// A body whose chunks are made when the client can take them.
    pub fn from_stream(chunks: impl Stream<Item = Bytes> + Send + 'static) -> Self {
        Self::Stream(PullStream(Box::pin(chunks)))
    }

    pub(crate) fn with_seat(body: Self, seat: Arc<Seat>) -> Self {
        Self::Seated { body: Box::new(body), remaining_chunk: Bytes::new(), seat }
    }

    /// True if the bytes exist for this response alone, false if the cache or a page shares them.
    pub(crate) fn is_exclusive(&self) -> bool {
        match self {
            Self::Empty => false,
            Self::Full(bytes) => bytes.is_unique(),
            Self::Parts { .. } | Self::Stream(_) | Self::Peer(_) => true,
            Self::Seated { body, .. } | Self::Recorded { body, .. } => body.is_exclusive(),
        }
    }

    /// The limit by which this body must be sent; `None` without a seat.
    pub(crate) fn send_limit(&self) -> Option<SendLimit> {
        match self {
            Self::Seated { seat, .. } => Some(SendLimit::for_seat(seat)),
            Self::Recorded { body, .. } => body.send_limit(),
            Self::Empty | Self::Full(_) | Self::Parts { .. } | Self::Stream(_) | Self::Peer(_) => None,
        }
    }

    /// Several byte strings as one body.
    pub fn from_parts(parts: Vec<Bytes>) -> Self {
        let left = parts.iter().map(|part| part.len() as u64).sum();
        Self::Parts { parts: parts.into_iter(), remaining: left }
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Self {
        if bytes.is_empty() { Self::Empty } else { Self::Full(bytes) }
    }
}

impl From<Vec<u8>> for Body {
    fn from(bytes: Vec<u8>) -> Self {
        Bytes::from(bytes).into()
    }
}

impl From<String> for Body {
    fn from(text: String) -> Self {
        Bytes::from(text).into()
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        let next = match this {
            Self::Empty => None,
            Self::Full(bytes) => {
                let bytes = std::mem::take(bytes);
                *this = Self::Empty;
                Some(bytes)
            }
            Self::Parts { parts, remaining: left } => {
                let part = parts.find(|part| !part.is_empty());
                *left -= part.as_ref().map_or(0, |part| part.len() as u64);
                part
            }
            Self::Stream(pieces) => std::task::ready!(pieces.0.as_mut().poll_next(context)),
            Self::Peer(answer) => return Pin::new(&mut **answer).poll_frame(context),
            Self::Seated { body, remaining_chunk, .. } => {
                if remaining_chunk.is_empty() {
                    match std::task::ready!(Pin::new(&mut **body).poll_frame(context))
                        .map(|next| next.map(Frame::into_data))
                    {
                        Some(Ok(Ok(bytes))) => *remaining_chunk = bytes,
                        Some(Ok(Err(frame))) => return Poll::Ready(Some(Ok(frame))),
                        Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                        None => return Poll::Ready(None),
                    }
                }
                Some(remaining_chunk.split_to(remaining_chunk.len().min(CHUNK_MAX)))
            }
            Self::Recorded { body, record } => {
                let next = std::task::ready!(Pin::new(&mut **body).poll_frame(context));
                if let Some(data) = next.as_ref().and_then(|frame| frame.as_ref().ok()?.data_ref()) {
                    record.count_bytes(data.len());
                }
                return Poll::Ready(next);
            }
        };
        Poll::Ready(next.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Parts { remaining: left, .. } => *left == 0,
            Self::Full(_) | Self::Stream(_) => false,
            Self::Peer(answer) => answer.is_end_stream(),
            Self::Seated { body, remaining_chunk, .. } => remaining_chunk.is_empty() && body.is_end_stream(),
            Self::Recorded { body, .. } => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            Self::Full(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Self::Parts { remaining: left, .. } => SizeHint::with_exact(*left),
            Self::Stream(_) => SizeHint::default(),
            Self::Peer(answer) => answer.size_hint(),
            Self::Seated { body, remaining_chunk, .. } => {
                extend_size_hint(&body.size_hint(), remaining_chunk.len() as u64)
            }
            Self::Recorded { body, .. } => body.size_hint(),
        }
    }
}

fn extend_size_hint(hint: &SizeHint, extra: u64) -> SizeHint {
    let mut extended = SizeHint::new();
    extended.set_lower(hint.lower().saturating_add(extra));
    if let Some(upper) = hint.upper().and_then(|upper| upper.checked_add(extra)) {
        extended.set_upper(upper);
    }
    extended
}

/// The failure to read a request body.
#[derive(Debug, thiserror::Error)]
pub enum ReadBodyError {
    /// The body exceeds the limit.
    #[error("limit is {limit}")]
    TooLarge {
        /// The limit in bytes.
        limit: usize,
    },
    /// The client disconnected or sent an incomplete body.
    #[error("the request body could not be read: {0}")]
    Interrupted(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// Reads a whole body of at most `limit` bytes.
pub async fn read_body(body: Incoming, limit: usize) -> Result<Bytes, ReadBodyError> {
    match Limited::new(body, limit).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(ReadBodyError::TooLarge { limit }),
        Err(error) => Err(ReadBodyError::Interrupted(error)),
    }
}
