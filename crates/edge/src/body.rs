//! Bodies: finished bytes, several of them, a stream, or what a peer sends.

use std::any::Any;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::Incoming;
use peering::forward::AnswerBody;
use tokio::sync::mpsc;
use transport::peer::BoxError;

use crate::access_log::Entry;

/// The body of a response. An enum rather than a boxed trait object, because a get should cost no allocation for it.
#[derive(Debug, Default)]
pub enum Body {
    /// Nothing.
    #[default]
    Empty,
    /// Bytes that were made once and are shared.
    Full(Bytes),
    /// Several such, sent one after another: a list.
    Parts {
        /// What is left to send.
        parts: std::vec::IntoIter<Bytes>,
        /// How many bytes that is.
        left: u64,
    },
    /// Bytes as they come, each sent at once: a watch. Ends when the sender is gone.
    Stream(mpsc::Receiver<Bytes>),
    /// What a peer is sending.
    Peer(Box<AnswerBody>),
    /// Another body, and something that is dropped when it ends.
    Guarded {
        /// What is sent.
        body: Box<Body>,
        /// What lasts as long.
        guard: Box<dyn Any + Send + Sync>,
    },
    /// Another body, whose bytes are counted.
    Logged {
        /// What is sent.
        body: Box<Body>,
        /// The line that says how much it was.
        entry: Box<Entry>,
    },
}

impl Body {
    /// Several byte strings as one body.
    pub fn parts(parts: Vec<Bytes>) -> Self {
        let left = parts.iter().map(|part| part.len() as u64).sum();
        Self::Parts { parts: parts.into_iter(), left }
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
            Self::Parts { parts, left } => {
                let part = parts.find(|part| !part.is_empty());
                *left -= part.as_ref().map_or(0, |part| part.len() as u64);
                part
            }
            Self::Stream(parts) => std::task::ready!(parts.poll_recv(context)),
            Self::Peer(answer) => return Pin::new(&mut **answer).poll_frame(context),
            Self::Guarded { body, .. } => return Pin::new(&mut **body).poll_frame(context),
            Self::Logged { body, entry } => {
                let next = std::task::ready!(Pin::new(&mut **body).poll_frame(context));
                if let Some(data) = next.as_ref().and_then(|frame| frame.as_ref().ok()?.data_ref()) {
                    entry.count(data.len());
                }
                return Poll::Ready(next);
            }
        };
        Poll::Ready(next.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Parts { left, .. } => *left == 0,
            Self::Full(_) | Self::Stream(_) => false,
            Self::Peer(answer) => answer.is_end_stream(),
            Self::Guarded { body, .. } | Self::Logged { body, .. } => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            Self::Full(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Self::Parts { left, .. } => SizeHint::with_exact(*left),
            Self::Stream(_) => SizeHint::default(),
            Self::Peer(answer) => answer.size_hint(),
            Self::Guarded { body, .. } | Self::Logged { body, .. } => body.size_hint(),
        }
    }
}

/// Why a request's body could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadBodyError {
    /// It is longer than is allowed.
    #[error("limit is {limit}")]
    TooLarge {
        /// How long it may be.
        limit: usize,
    },
    /// The client went away or broke off.
    #[error("the request body could not be read: {0}")]
    Broken(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// Reads a whole body of at most `limit` bytes.
pub async fn read_whole(body: Incoming, limit: usize) -> Result<Bytes, ReadBodyError> {
    match Limited::new(body, limit).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(ReadBodyError::TooLarge { limit }),
        Err(error) => Err(ReadBodyError::Broken(error)),
    }
}
