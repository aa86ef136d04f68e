//! One HTTP/1.1 connection, moved along by whoever uses it.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use http::header::UPGRADE;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tasks::RuntimeIndex;
use tokio::time::Instant;

use super::body::RequestBody;
use super::dial::ByteStream;
use super::socket::Socket;

/// A connection that carries one request at a time.
pub(super) struct Http1Connection {
    sender: SendRequest<RequestBody>,
    /// Reads and writes whenever it is polled; gone once the connection has ended.
    driver: Option<Pin<Box<dyn Future<Output = hyper::Result<()>> + Send>>>,
    socket: Socket,
    /// Where its socket is watched over.
    runtime: RuntimeIndex,
    /// The reading of the certificates that it was opened with.
    pub(super) generation: u64,
    /// Whether a request asked to take it over. Servers hijack such a connection and close it, also if they refuse the upgrade.
    is_upgrade_requested: bool,
    /// Since when nothing has travelled on it.
    pub(super) idle_since: Instant,
}

impl fmt::Debug for Http1Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Http1Connection").field("socket", &self.socket).finish_non_exhaustive()
    }
}

/// Why there is no answer.
pub(super) struct Http1SendError {
    pub(super) error: hyper::Error,
    /// The request, if nothing of it was written.
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

    /// Sends a request and waits for the head of its answer. Dropped before that, it leaves a connection that is of no more use.
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

    /// Moves bytes in both directions, as far as that is possible now.
    pub(super) fn drive(&mut self, context: &mut Context<'_>) {
        drive(&mut self.driver, context);
    }

    /// Whether it has carried its request and its answer to their ends and can carry another one.
    pub(super) fn is_reusable(&mut self) -> bool {
        // The end of an answer is noticed by one more look. Nobody needs to be woken: it is looked at again before it is used.
        self.drive(&mut Context::from_waker(Waker::noop()));
        !self.is_upgrade_requested && self.driver.is_some() && self.sender.is_ready()
    }

    /// Whether its socket is watched over by the runtime of this thread.
    pub(super) fn is_on_current_runtime(&self) -> bool {
        self.runtime == RuntimeIndex::current()
    }

    /// Settles where it is about to be used. `false`: it cannot, and is of no more use.
    pub(super) fn move_to_current_runtime(&mut self) -> bool {
        if !self.is_on_current_runtime() {
            self.runtime = RuntimeIndex::current();
            return self.socket.move_to_current_runtime().is_ok();
        }
        true
    }

    /// Whether it can still be used after it was idle.
    pub(super) fn is_open_and_idle(&self) -> bool {
        self.socket.is_open_and_idle()
    }
}

fn drive(driver: &mut Option<Pin<Box<dyn Future<Output = hyper::Result<()>> + Send>>>, context: &mut Context<'_>) {
    if let Some(running) = driver
        && let Poll::Ready(_ended) = running.as_mut().poll(context)
    {
        // Whoever waits for an answer is told of an error by the answer. Dropping the driver hands back what was not sent.
        *driver = None;
    }
}
