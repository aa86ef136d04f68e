//! One HTTP/2 connection that many answers share.
//!
//! It moves by itself, in tasks that end with the last answer and the pool's hold on it. An answer that nobody reads fills its own
//! window and no more: all windows together fit into that of the connection, so that the others go on.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::Bytes;
use h2::client::{Connection, SendRequest};
use h2::{Ping, PingPong, RecvStream};
use http::header::HOST;
use http::uri::{Authority, Scheme};
use http::{Request, Response, Uri, Version};
use hyper::rt::Executor as _;
use hyper_util::rt::TokioExecutor;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::dial::ByteStream;

/// How many answers share a connection, if the peer allows as many: kube-apiserver allows 100 or 250, by release.
pub(super) const STREAMS_MAX: usize = 100;
/// How much of an answer is on its way or waits to be read. One round trip of a millisecond moves 64 MB/s with it; a reader
/// that has stopped holds no more than this.
pub(super) const STREAM_WINDOW: u32 = 64 << 10;
/// More than all places together can hold, so that it never is what an answer waits for. Half of it is also what h2 lets small
/// unread frames cost before it gives up the connection: short lines of many logs that nobody reads.
const CONNECTION_WINDOW: u32 = 128 << 20;
/// How often a connection is asked whether its other end is there, and for how long it may take: Kubernetes' settings.
const PING_INTERVAL: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(15);
/// Header lists of answers beyond this are refused.
const HEADERS_MAX_BYTES: u32 = 256 << 10;
/// Who gives up after so long has not changed its mind: the connection may be cut.
const CANCEL_SUSPECT_AFTER: Duration = Duration::from_secs(1);

/// A connection that carries many answers at once.
pub(super) struct H2Connection {
    sender: SendRequest<Bytes>,
    /// How many the peer allows at once; none any more once the connection has ended.
    peer_streams_max: Arc<AtomicUsize>,
    /// Whether a request has failed on it. What it carries goes on; what is new goes elsewhere.
    is_retired: AtomicBool,
    /// The reading of the certificates that it was opened with.
    generation: u64,
    usage: Mutex<StreamUsage>,
}

struct StreamUsage {
    open_streams: usize,
    /// Since when nothing was taken.
    idle_since: Instant,
}

impl fmt::Debug for H2Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let taken = self.usage.lock().open_streams;
        f.debug_struct("H2Connection").field("taken", &taken).finish_non_exhaustive()
    }
}

impl H2Connection {
    /// Speaks HTTP/2 over a connection, and waits until the peer has said how many answers it allows.
    pub(super) async fn new(stream: impl ByteStream + 'static, generation: u64) -> io::Result<Arc<Self>> {
        let mut builder = h2::client::Builder::new();
        builder
            .enable_push(false)
            // None before its settings have come: what is one too many would be refused, or wait.
            .initial_max_send_streams(0)
            .initial_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_header_list_size(HEADERS_MAX_BYTES)
            // Events may still come for watches that were given up, and that is nobody's fault.
            .max_concurrent_reset_streams(STREAMS_MAX)
            .max_local_error_reset_streams(None);
        let (sender, mut connection) = builder.handshake(stream).await.map_err(io::Error::other)?;
        poll_fn(|context| poll_peer_settings(&mut connection, context)).await?;
        let allowed = Arc::new(AtomicUsize::new(connection.max_concurrent_send_streams()));
        TokioExecutor::new().execute(drive_connection(connection, allowed.clone()));
        let usage = Mutex::new(StreamUsage { open_streams: 0, idle_since: Instant::now() });
        Ok(Arc::new(Self { sender, peer_streams_max: allowed, is_retired: AtomicBool::new(false), generation, usage }))
    }

    /// Whether it may take new requests, by what is known now.
    pub(super) fn accepts_streams(&self, generation: u64) -> bool {
        // Not ready: the peer has said farewell.
        let is_ready = |mut sender: SendRequest<Bytes>| {
            matches!(sender.poll_ready(&mut Context::from_waker(Waker::noop())), Poll::Ready(Ok(())))
        };
        let is_spent = self.is_retired.load(Ordering::Relaxed) || self.peer_streams_max.load(Ordering::Relaxed) == 0;
        self.generation == generation && !is_spent && is_ready(self.sender.clone())
    }

    /// How many answers it has room for when it is empty.
    pub(super) fn stream_capacity(&self) -> usize {
        self.peer_streams_max.load(Ordering::Relaxed).min(STREAMS_MAX)
    }

    /// A place on it; `None` if it is full.
    pub(super) fn try_acquire_stream(self: &Arc<Self>) -> Option<StreamPermit> {
        let mut usage = self.usage.lock();
        if usage.open_streams >= self.stream_capacity() {
            return None;
        }
        usage.open_streams += 1;
        drop(usage);
        Some(StreamPermit(self.clone()))
    }

    /// For how long it has carried nothing; `None` if it does.
    pub(super) fn idle_duration(&self, now: Instant) -> Option<Duration> {
        let usage = self.usage.lock();
        (usage.open_streams == 0).then(|| now.saturating_duration_since(usage.idle_since))
    }
}

/// A place for one answer on a shared connection, free again when dropped.
#[derive(Debug)]
pub(super) struct StreamPermit(Arc<H2Connection>);

impl StreamPermit {
    /// Sends a request and waits for the head of its answer. Dropping either takes back the request.
    pub(super) async fn send(&self, request: Request<()>) -> Result<Response<RecvStream>, h2::Error> {
        let mut waiting = ResponseWait { connection: &self.0, since: Instant::now(), is_complete: false };
        let answer = match self.0.sender.clone().send_request(to_http2_request(request), true) {
            Ok((answer, _)) => answer.await,
            Err(error) => Err(error),
        };
        waiting.is_complete = true;
        if answer.is_err() {
            self.0.is_retired.store(true, Ordering::Relaxed);
        }
        answer
    }
}

/// Somebody who waits for an answer.
struct ResponseWait<'a> {
    connection: &'a H2Connection,
    since: Instant,
    is_complete: bool,
}

impl Drop for ResponseWait<'_> {
    fn drop(&mut self) {
        // The others may go on to wait, but nobody else is to begin.
        if !self.is_complete && self.since.elapsed() >= CANCEL_SUSPECT_AFTER {
            self.connection.is_retired.store(true, Ordering::Relaxed);
        }
    }
}

impl Drop for StreamPermit {
    fn drop(&mut self) {
        let mut usage = self.0.usage.lock();
        usage.open_streams -= 1;
        if usage.open_streams == 0 {
            usage.idle_since = Instant::now();
        }
    }
}

/// Whether the peer's settings have come.
fn poll_peer_settings<S: ByteStream>(
    connection: &mut Connection<S>,
    context: &mut Context<'_>,
) -> Poll<io::Result<()>> {
    match Pin::new(&mut *connection).poll(context) {
        Poll::Ready(Ok(())) => Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
        Poll::Ready(Err(error)) => Poll::Ready(Err(io::Error::other(error))),
        Poll::Pending if connection.max_concurrent_send_streams() > 0 => Poll::Ready(Ok(())),
        Poll::Pending => Poll::Pending,
    }
}

/// Moves a connection along until its end, or until the peer does not answer pings any more.
async fn drive_connection<S: ByteStream>(mut connection: Connection<S>, allowed: Arc<AtomicUsize>) {
    let pings = connection.ping_pong();
    let mut courtesy = YieldBeforeFlush::default();
    let moving = poll_fn(|context| {
        ready!(courtesy.poll(context));
        let polled = Pin::new(&mut connection).poll(context);
        allowed.store(connection.max_concurrent_send_streams(), Ordering::Relaxed);
        polled
    });
    tokio::select! {
        // Whoever waits for an answer is told of an error by the answer.
        _ended = moving => {}
        () = wait_for_ping_timeout(pings) => {}
    }
    allowed.store(0, Ordering::Relaxed);
}

/// Lets all others who live here have their turn first, and those whom the network has something for: what they ask then travels
/// together, and costs both ends one look instead of several.
#[derive(Default)]
struct YieldBeforeFlush {
    has_yielded: bool,
}

impl YieldBeforeFlush {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.has_yielded = !self.has_yielded;
        // Not ready at the first look, and it has us looked at again after everybody else.
        if self.has_yielded { pin!(tokio::task::yield_now()).poll(context) } else { Poll::Ready(()) }
    }
}

/// Returns when the peer lets a ping wait for too long.
async fn wait_for_ping_timeout(pings: Option<PingPong>) {
    let Some(mut pings) = pings else { return std::future::pending().await };
    loop {
        tokio::time::sleep(PING_INTERVAL).await;
        if !matches!(tokio::time::timeout(PING_TIMEOUT, pings.ping(Ping::opaque())).await, Ok(Ok(_))) {
            return;
        }
    }
}

/// The form of a request in HTTP/2, which names the host with the target and not in a header.
fn to_http2_request(mut request: Request<()>) -> Request<()> {
    *request.version_mut() = Version::HTTP_2;
    let host = request.headers_mut().remove(HOST);
    let Some(authority) = host.and_then(|host| Authority::from_maybe_shared(host).ok()) else { return request };
    let mut parts = std::mem::take(request.uri_mut()).into_parts();
    parts.scheme = Some(Scheme::HTTPS);
    parts.authority = Some(authority);
    *request.uri_mut() = Uri::from_parts(parts).unwrap_or_default();
    request
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[tokio::test]
    async fn yield_before_flush_lets_other_tasks_run_first() {
        let order = RefCell::new(Vec::new());
        let mut courtesy = YieldBeforeFlush::default();
        for _ in 0..2 {
            let moving = async {
                poll_fn(|context| courtesy.poll(context)).await;
                order.borrow_mut().push("the connection");
            };
            let asking = async { order.borrow_mut().push("a request") };
            tokio::join!(biased; moving, asking);
        }
        assert_eq!(*order.borrow(), ["a request", "the connection"].repeat(2));
    }
}
