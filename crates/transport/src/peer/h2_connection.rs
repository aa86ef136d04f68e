//! A multiplexed HTTP/2 connection to a peer.
//!
//! A task drives the connection; it ends with the last stream and the pool's reference. An unread response fills only
//! its own flow-control window: the connection's window exceeds the sum of all stream windows, so the other streams
//! continue.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
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

/// Limit on streams per connection; the peer may allow fewer. kube-apiserver allows 100 or 250, by release.
pub(super) const STREAMS_MAX: usize = 100;
/// Flow-control window per stream, in bytes: about 64 MB/s at a round trip of 1 ms. A stalled reader buffers no more
/// than this.
pub(super) const STREAM_WINDOW: u32 = 64 << 10;
/// Flow-control window per connection. Larger than all stream windows together, so that it never blocks a stream. h2
/// closes a connection when small unread frames cost half of it, so it must be large enough for many unread log
/// streams.
const CONNECTION_WINDOW: u32 = 128 << 20;
/// Interval and timeout of HTTP/2 pings; Kubernetes' values.
const PING_INTERVAL: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(15);
/// Limit on the size of a response's header list.
const HEADERS_MAX_BYTES: u32 = 256 << 10;
/// A request cancelled after this wait suggests a dead connection: open no new streams on it.
const CANCEL_SUSPECT_AFTER: Duration = Duration::from_secs(1);

/// A multiplexed connection.
pub(super) struct H2Connection {
    sender: SendRequest<Bytes>,
    /// The peer's stream limit; 0 once the connection is closed.
    peer_streams_max: Arc<AtomicUsize>,
    /// Set after a failed request. Open streams continue; new requests use another connection.
    is_retired: AtomicBool,
    /// The generation of the TLS files that it was opened with.
    generation: u64,
    usage: Mutex<StreamUsage>,
}

struct StreamUsage {
    open_streams: usize,
    /// When the last stream closed.
    idle_since: Instant,
}

impl fmt::Debug for H2Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let taken = self.usage.lock().open_streams;
        f.debug_struct("H2Connection").field("taken", &taken).finish_non_exhaustive()
    }
}

impl H2Connection {
    /// Performs the HTTP/2 handshake and waits for the peer's SETTINGS frame, which has its stream limit.
    pub(super) async fn new(stream: impl ByteStream + 'static, generation: u64) -> io::Result<Arc<Self>> {
        let mut builder = h2::client::Builder::new();
        builder
            .enable_push(false)
            // Open no stream before the peer's SETTINGS arrive: excess streams would be refused or queued.
            .initial_max_send_streams(0)
            .initial_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_header_list_size(HEADERS_MAX_BYTES)
            // Cancelled watches may still receive frames; do not count these as protocol errors.
            .max_concurrent_reset_streams(STREAMS_MAX)
            .max_local_error_reset_streams(None);
        let (sender, mut connection) = builder.handshake(stream).await.map_err(io::Error::other)?;
        poll_fn(|context| poll_peer_settings(&mut connection, context)).await?;
        let allowed = Arc::new(AtomicUsize::new(connection.max_concurrent_send_streams()));
        TokioExecutor::new().execute(drive_connection(connection, allowed.clone()));
        let usage = Mutex::new(StreamUsage { open_streams: 0, idle_since: Instant::now() });
        Ok(Arc::new(Self { sender, peer_streams_max: allowed, is_retired: AtomicBool::new(false), generation, usage }))
    }

    /// Reports whether new streams may be opened.
    pub(super) fn accepts_streams(&self, generation: u64) -> bool {
        // Not ready after a GOAWAY.
        let is_ready = |mut sender: SendRequest<Bytes>| {
            matches!(sender.poll_ready(&mut Context::from_waker(Waker::noop())), Poll::Ready(Ok(())))
        };
        let is_spent = self.is_retired.load(Ordering::Relaxed) || self.peer_streams_max.load(Ordering::Relaxed) == 0;
        self.generation == generation && !is_spent && is_ready(self.sender.clone())
    }

    /// Returns the total number of streams that the connection can carry.
    pub(super) fn stream_capacity(&self) -> usize {
        self.peer_streams_max.load(Ordering::Relaxed).min(STREAMS_MAX)
    }

    /// Reserves a stream; `None` if the connection is full.
    pub(super) fn try_acquire_stream(self: &Arc<Self>) -> Option<StreamPermit> {
        let mut usage = self.usage.lock();
        if usage.open_streams >= self.stream_capacity() {
            return None;
        }
        usage.open_streams += 1;
        drop(usage);
        Some(StreamPermit(self.clone()))
    }

    /// Returns how long the connection has had no streams; `None` if it has some.
    pub(super) fn idle_duration(&self, now: Instant) -> Option<Duration> {
        let usage = self.usage.lock();
        (usage.open_streams == 0).then(|| now.saturating_duration_since(usage.idle_since))
    }
}

/// A reserved stream on a connection, released when dropped.
#[derive(Debug)]
pub(super) struct StreamPermit(Arc<H2Connection>);

impl StreamPermit {
    /// Sends a request and awaits the response head. Dropping the future or the response resets the stream.
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

/// Detects on drop that a pending request is cancelled.
struct ResponseWait<'a> {
    connection: &'a H2Connection,
    since: Instant,
    is_complete: bool,
}

impl Drop for ResponseWait<'_> {
    fn drop(&mut self) {
        // Open streams continue; only new ones avoid this connection.
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

/// Completes when the peer's SETTINGS have arrived.
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

/// Drives a connection until it closes or a ping times out.
async fn drive_connection<S: ByteStream>(mut connection: Connection<S>, allowed: Arc<AtomicUsize>) {
    let pings = connection.ping_pong();
    let moving = poll_fn(|context| {
        let polled = Pin::new(&mut connection).poll(context);
        allowed.store(connection.max_concurrent_send_streams(), Ordering::Relaxed);
        polled
    });
    tokio::select! {
        // Each stream reports the connection's error itself.
        _ended = moving => {}
        () = wait_for_ping_timeout(pings) => {}
    }
    allowed.store(0, Ordering::Relaxed);
}

/// Completes when a ping is not answered within `PING_TIMEOUT`.
async fn wait_for_ping_timeout(pings: Option<PingPong>) {
    let Some(mut pings) = pings else { return std::future::pending().await };
    loop {
        tokio::time::sleep(PING_INTERVAL).await;
        if !matches!(tokio::time::timeout(PING_TIMEOUT, pings.ping(Ping::opaque())).await, Ok(Ok(_))) {
            return;
        }
    }
}

/// Converts a request to HTTP/2 form: the Host header becomes the `:authority` pseudo-header.
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
