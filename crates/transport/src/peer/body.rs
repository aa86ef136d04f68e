//! Bodies on their way to a peer and back.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use super::connection::Connection;
use super::pool::Pool;
use super::shared::Place;

/// Whatever went wrong with a body.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The body of a request to a peer.
#[derive(Default)]
pub struct RequestBody(Option<Pin<Box<dyn Body<Data = Bytes, Error = BoxError> + Send>>>);

impl RequestBody {
    /// None.
    pub const fn empty() -> Self {
        Self(None)
    }

    /// This one, sent as it comes.
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

/// The body of a peer's answer, as it comes. Read to its end, it returns the connection to the pool; dropped before, it closes
/// the connection, or takes itself off one that it shares.
#[derive(Debug)]
pub struct PeerBody {
    incoming: Incoming,
    /// Gone once the end was reached.
    carrier: Option<Carrier>,
}

/// What an answer comes over.
#[derive(Debug)]
pub(super) enum Carrier {
    /// A connection of its own, and where that belongs.
    Own(Connection, Arc<Pool>),
    /// A place on one that others use too.
    Shared { _place: Place },
}

impl PeerBody {
    pub(super) fn new(incoming: Incoming, carrier: Carrier) -> Self {
        let mut body = Self { incoming, carrier: Some(carrier) };
        body.release_at_end();
        body
    }

    /// An answer that hands the connection over: it never goes back.
    pub(super) fn of_upgrade(incoming: Incoming, carrier: Carrier) -> Self {
        Self { incoming, carrier: Some(carrier) }
    }

    pub(super) fn into_connection(mut self) -> Option<Connection> {
        match self.carrier.take()? {
            Carrier::Own(connection, _) => Some(connection),
            Carrier::Shared { .. } => None,
        }
    }

    fn release_at_end(&mut self) {
        if self.incoming.is_end_stream() {
            self.release();
        }
    }

    fn release(&mut self) {
        match self.carrier.take() {
            Some(Carrier::Own(connection, pool)) => pool.put(connection),
            Some(Carrier::Shared { .. }) | None => {}
        }
    }

    /// What comes next. HTTP/2 may end an answer with an empty frame, which is for nobody.
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        loop {
            let next = Pin::new(&mut self.incoming).poll_frame(context);
            let is_empty = |frame: &Frame<Bytes>| frame.data_ref().is_some_and(Bytes::is_empty);
            if !matches!(&next, Poll::Ready(Some(Ok(frame))) if is_empty(frame)) {
                return next;
            }
        }
    }

    /// Moves a connection of its own along. One that is shared moves by itself.
    fn drive(&mut self, context: &mut Context<'_>) {
        match &mut self.carrier {
            Some(Carrier::Own(connection, _)) => connection.drive(context),
            Some(Carrier::Shared { .. }) | None => {}
        }
    }
}

impl Body for PeerBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let this = self.get_mut();
        let mut next = this.poll_next(context);
        if next.is_pending() {
            // The look above said that we want more; now it can be read, and looked for again.
            this.drive(context);
            next = this.poll_next(context);
        }
        match &next {
            Poll::Ready(None) => this.release(),
            // A body of known length has ended with its last bytes, and the server that passes it on may never ask for more.
            Poll::Ready(Some(Ok(_))) => this.release_at_end(),
            Poll::Ready(Some(Err(_))) => this.carrier = None,
            Poll::Pending => {}
        }
        next
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}
