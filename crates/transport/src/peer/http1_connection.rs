//! An HTTP/1.1 connection, polled by the request that uses it.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use http::header::UPGRADE;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::time::Instant;

use super::body::RequestBody;
use super::dial::ByteStream;
use super::socket::Socket;
use crate::serving::RuntimeIndex;

/// A connection that carries one request at a time.
pub(super) struct Http1Connection {
    sender: SendRequest<RequestBody>,
    /// The connection's I/O future; `None` once it has ended.
    driver: Option<Pin<Box<dyn Future<Output = hyper::Result<()>> + Send>>>,
    socket: Socket,
    /// The runtime that its socket is registered with.
    runtime: RuntimeIndex,
    /// The generation of the TLS files that it was opened with.
    pub(super) generation: u64,
    /// True if a request asked for an upgrade. Servers hijack such a connection and close it even if they refuse.
    is_upgrade_requested: bool,
    /// When the last response ended.
    pub(super) idle_since: Instant,
}

impl fmt::Debug for Http1Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Http1Connection").field("socket", &self.socket).finish_non_exhaustive()
    }
}

/// A failed request.
pub(super) struct Http1SendError {
    pub(super) error: hyper::Error,
    /// The request, if none of it was written.
    pub(super) unsent: Option<Request<RequestBody>>,
}

impl Http1Connection {
    pub(super) async fn new(
        stream: impl ByteStream + 'static,
        socket: Socket,
        generation: u64,
    ) -> Result<Self, hyper::Error> {
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        let driver = Some(Box::pin(connection.with_upgrades()) as Pin<Box<_>>);
        Ok(Self {
            sender,
            driver,
            socket,
            runtime: RuntimeIndex::current(),
            generation,
            is_upgrade_requested: false,
            idle_since: Instant::now(),
        })
    }

    /// Sends a request and awaits the response head. If the future is dropped earlier, the connection is unusable.
    pub(super) async fn send(&mut self, request: Request<RequestBody>) -> Result<Response<Incoming>, Http1SendError> {
        self.is_upgrade_requested |= request.headers().contains_key(UPGRADE);
        let mut answer = pin!(self.sender.try_send_request(request));
        let driver = &mut self.driver;
        let answered = poll_fn(|context| {
            drive(driver, context);
            answer.as_mut().poll(context)
        });
        answered.await.map_err(|mut fault| {
            let unsent = fault.take_message();
            Http1SendError { error: fault.into_error(), unsent }
        })
    }

    /// Reads and writes as much as possible without blocking.
    pub(super) fn drive(&mut self, context: &mut Context<'_>) {
        drive(&mut self.driver, context);
    }

    /// Reports whether request and response are complete and the connection can carry another request.
    pub(super) fn is_reusable(&mut self) -> bool {
        // hyper notices the end of a response only when polled again. No waker is needed: the caller checks again
        // before reuse.
        self.drive(&mut Context::from_waker(Waker::noop()));
        !self.is_upgrade_requested && self.driver.is_some() && self.sender.is_ready()
    }

    /// Registers the socket with this thread's runtime; on `false` the connection is unusable.
    pub(super) fn move_to_current_runtime(&mut self) -> bool {
        if self.runtime != RuntimeIndex::current() {
            self.runtime = RuntimeIndex::current();
            return self.socket.move_to_current_runtime().is_ok();
        }
        true
    }

    /// Reports whether the peer has neither closed the idle connection nor sent unexpected data.
    pub(super) fn is_open_and_idle(&self) -> bool {
        self.socket.is_open_and_idle()
    }
}

fn drive(driver: &mut Option<Pin<Box<dyn Future<Output = hyper::Result<()>> + Send>>>, context: &mut Context<'_>) {
    if let Some(running) = driver
        && let Poll::Ready(_ended) = running.as_mut().poll(context)
    {
        // The pending response reports the error. Dropping the driver returns an unsent request.
        *driver = None;
    }
}
