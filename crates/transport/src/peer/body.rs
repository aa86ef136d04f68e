//! Request bodies sent to peers and response bodies received from them.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::RecvStream;
use http::HeaderMap;
use http::header::CONTENT_LENGTH;
use http_body::{Body, Frame, SizeHint};

use super::error::PeerConnectionError;
use super::h2_connection::StreamPermit;
use super::http1_connection::Http1Connection;
use super::pool::ConnectionPool;

/// Any error of a request body.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The body of a request to a peer.
#[derive(Default)]
pub struct RequestBody(Option<Pin<Box<dyn Body<Data = Bytes, Error = BoxError> + Send>>>);

impl RequestBody {
    /// Returns an empty body.
    pub const fn empty() -> Self {
        Self(None)
    }

    /// Wraps a body that is streamed to the peer.
    pub fn new(body: impl Body<Data = Bytes, Error = BoxError> + Send + 'static) -> Self {
        if body.is_end_stream() { Self(None) } else { Self(Some(Box::pin(body))) }
    }
}

impl fmt::Debug for RequestBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "RequestBody(..)" } else { "RequestBody(empty)" })
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match &mut self.get_mut().0 {
            Some(body) => body.as_mut().poll_frame(context),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.0.as_ref().is_none_or(|body| body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        self.0.as_ref().map_or_else(|| SizeHint::with_exact(0), |body| body.size_hint())
    }
}

/// The streamed body of a peer's response. Reading it to the end returns the connection to the pool; dropping it
/// earlier closes an HTTP/1.1 connection or resets an HTTP/2 stream.
#[derive(Debug)]
pub struct PeerBody {
    incoming: ResponseStream,
    /// `None` once the end is reached.
    connection: Option<BodyConnection>,
}

/// The unread rest of the response.
#[derive(Debug)]
enum ResponseStream {
    Http1(hyper::body::Incoming),
    Http2(Http2Body),
}

/// A response that is one stream of an HTTP/2 connection.
#[derive(Debug)]
struct Http2Body {
    stream: RecvStream,
    /// Bytes left, if the response has a Content-Length.
    remaining: Option<u64>,
}

/// The connection that a response arrives on.
#[derive(Debug)]
pub(super) enum BodyConnection {
    /// An exclusive connection and the pool to return it to.
    Http1(Http1Connection, Arc<ConnectionPool>),
    /// A stream on a shared connection.
    Http2 { _permit: StreamPermit },
}

impl PeerBody {
    /// Wraps the body of an HTTP/1.1 response.
    pub(super) fn from_http1(
        incoming: hyper::body::Incoming,
        connection: Http1Connection,
        pool: Arc<ConnectionPool>,
    ) -> Self {
        let carrier = Some(BodyConnection::Http1(connection, pool));
        let mut body = Self { incoming: ResponseStream::Http1(incoming), connection: carrier };
        body.release_if_ended();
        body
    }

    /// Wraps the body of a 101 response, whose connection never returns to the pool.
    pub(super) fn from_upgrade(
        incoming: hyper::body::Incoming,
        connection: Http1Connection,
        pool: Arc<ConnectionPool>,
    ) -> Self {
        Self { incoming: ResponseStream::Http1(incoming), connection: Some(BodyConnection::Http1(connection, pool)) }
    }

    /// Wraps the body of an HTTP/2 response.
    pub(super) fn from_http2(stream: RecvStream, headers: &HeaderMap, permit: StreamPermit) -> Self {
        let left = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        let incoming = ResponseStream::Http2(Http2Body { stream, remaining: left });
        let mut body = Self { incoming, connection: Some(BodyConnection::Http2 { _permit: permit }) };
        body.release_if_ended();
        body
    }

    /// Takes the HTTP/1.1 connection out of the body, for an upgrade.
    pub(super) fn into_connection(mut self) -> Option<Http1Connection> {
        match self.connection.take()? {
            BodyConnection::Http1(connection, _) => Some(connection),
            BodyConnection::Http2 { .. } => None,
        }
    }

    fn release_if_ended(&mut self) {
        if self.is_end_stream() {
            self.release_connection();
        }
    }

    /// Returns an HTTP/1.1 connection to the pool, or releases the HTTP/2 stream.
    fn release_connection(&mut self) {
        match self.connection.take() {
            Some(BodyConnection::Http1(connection, pool)) => pool.return_idle(connection),
            Some(BodyConnection::Http2 { .. }) | None => {}
        }
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, PeerConnectionError>>> {
        match &mut self.incoming {
            ResponseStream::Http1(incoming) => {
                Pin::new(incoming).poll_frame(context).map_err(PeerConnectionError::from)
            }
            ResponseStream::Http2(stream) => stream.poll_next(context).map_err(PeerConnectionError::from),
        }
    }

    /// Polls an HTTP/1.1 connection and returns true; HTTP/2 connections are driven by their own task.
    fn drive(&mut self, context: &mut Context<'_>) -> bool {
        match &mut self.connection {
            Some(BodyConnection::Http1(connection, _)) => {
                connection.drive(context);
                true
            }
            Some(BodyConnection::Http2 { .. }) | None => false,
        }
    }
}

impl Body for PeerBody {
    type Data = Bytes;
    type Error = PeerConnectionError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, PeerConnectionError>>> {
        let this = self.get_mut();
        let mut next = this.poll_next(context);
        // The first poll registered interest in more data; now read from the socket and poll again.
        if next.is_pending() && this.drive(context) {
            next = this.poll_next(context);
        }
        match &next {
            Poll::Ready(None) => this.release_connection(),
            // A body of known length ends with its last bytes; the consumer may never poll again.
            Poll::Ready(Some(Ok(_))) => this.release_if_ended(),
            Poll::Ready(Some(Err(_))) => this.connection = None,
            Poll::Pending => {}
        }
        next
    }

    fn is_end_stream(&self) -> bool {
        match &self.incoming {
            ResponseStream::Http1(incoming) => incoming.is_end_stream(),
            ResponseStream::Http2(stream) => stream.stream.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.incoming {
            ResponseStream::Http1(incoming) => incoming.size_hint(),
            ResponseStream::Http2(stream) if stream.stream.is_end_stream() => SizeHint::with_exact(0),
            ResponseStream::Http2(stream) => stream.remaining.map_or_else(SizeHint::default, SizeHint::with_exact),
        }
    }
}

impl Http2Body {
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        loop {
            return Poll::Ready(match ready!(self.stream.poll_data(context)) {
                // Skip the empty frame that may end an HTTP/2 response.
                Some(Ok(bytes)) if bytes.is_empty() => continue,
                Some(Ok(bytes)) => {
                    // Reopen the flow-control window. This cannot fail: the capacity was received.
                    let _ = self.stream.flow_control().release_capacity(bytes.len());
                    self.remaining = self.remaining.map(|left| left.saturating_sub(bytes.len() as u64));
                    Some(Ok(Frame::data(bytes)))
                }
                Some(Err(error)) => Some(Err(error)),
                None => ready!(self.stream.poll_trailers(context))?.map(|trailers| Ok(Frame::trailers(trailers))),
            });
        }
    }
}
