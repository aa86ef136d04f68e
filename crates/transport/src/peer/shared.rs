//! One HTTP/2 connection that many answers share.
//!
//! It moves by itself, in tasks that end with the last answer and the pool's hold on it. An answer that nobody reads fills its own
//! window and no more: all windows together fit into that of the connection, so that the others go on.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::header::HOST;
use http::uri::{Authority, Scheme};
use http::{Request, Response, Uri};
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper::rt::Executor;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::body::RequestBody;
use super::connection::Unanswered;
use super::dial::Stream;

/// How many answers share a connection, if the peer allows as many: kube-apiserver allows 100 or 250, by release.
pub(super) const PLACES_MAX: usize = 100;
/// How much of an answer is on its way or waits to be read. One round trip of a millisecond moves 64 MB/s with it; a reader
/// that has stopped holds no more than this.
pub(super) const PLACE_WINDOW: u32 = 64 << 10;
/// More than all places together can hold, so that it never is what an answer waits for. Half of it is also what h2 lets small
/// unread frames cost before it gives up the connection: short lines of many logs that nobody reads.
const CONNECTION_WINDOW: u32 = 128 << 20;
/// How often a connection is asked whether its other end is there, and for how long it may take: Kubernetes' settings.
const PING_INTERVAL: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(15);

/// A connection that carries many answers at once.
pub(super) struct Shared {
    sender: SendRequest<RequestBody>,
    /// How many the peer allows at once.
    allowed: Arc<AtomicUsize>,
    /// Whether a request has failed on it. What it carries goes on; what is new goes elsewhere.
    is_spent: AtomicBool,
    /// The reading of the certificates that it was opened with.
    generation: u64,
    usage: Mutex<Usage>,
}

struct Usage {
    taken: usize,
    /// Since when nothing was taken.
    idle_since: Instant,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let taken = self.usage.lock().unwrap_or_else(PoisonError::into_inner).taken;
        f.debug_struct("Shared").field("taken", &taken).finish_non_exhaustive()
    }
}

impl Shared {
    /// Speaks HTTP/2 over a connection, and waits until the peer has said how many answers it allows.
    pub(super) async fn new(stream: impl Stream + 'static, generation: u64) -> io::Result<Arc<Self>> {
        let moved = Arc::new(Notify::new());
        let mut builder = http2::Builder::new(Spawner(moved.clone()));
        builder
            .timer(TokioTimer::new())
            // None before its settings have come: what is one too many would be refused, or wait.
            .initial_max_send_streams(0)
            .initial_stream_window_size(PLACE_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .keep_alive_interval(PING_INTERVAL)
            .keep_alive_timeout(PING_TIMEOUT)
            // Events may still come for watches that were given up, and that is nobody's fault.
            .max_concurrent_reset_streams(PLACES_MAX)
            .max_local_error_reset_streams(None);
        let (sender, mut connection) = builder.handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
        while connection.current_max_send_streams() == 0 {
            tokio::select! {
                () = moved.notified() => {}
                ended = &mut connection => return Err(match ended {
                    Ok(()) => io::Error::from(io::ErrorKind::UnexpectedEof),
                    Err(error) => io::Error::other(error),
                }),
            }
        }
        let allowed = Arc::new(AtomicUsize::new(connection.current_max_send_streams()));
        let told = allowed.clone();
        TokioExecutor::new().execute(async move {
            loop {
                told.store(connection.current_max_send_streams(), Ordering::Relaxed);
                tokio::select! {
                    // Whoever waits for an answer is told of an error by the answer.
                    _ended = &mut connection => return,
                    // It is looked at whenever something came, or a farewell would be noticed by the next request only.
                    () = moved.notified() => {}
                }
            }
        });
        let usage = Mutex::new(Usage { taken: 0, idle_since: Instant::now() });
        Ok(Arc::new(Self { sender, allowed, is_spent: AtomicBool::new(false), generation, usage }))
    }

    /// Whether it may take new requests, by what is known now.
    pub(super) fn is_open(&self, generation: u64) -> bool {
        self.generation == generation && !self.is_spent.load(Ordering::Relaxed) && !self.sender.is_closed()
    }

    /// How many answers it has room for when it is empty.
    pub(super) fn room(&self) -> usize {
        self.allowed.load(Ordering::Relaxed).min(PLACES_MAX)
    }

    /// A place on it; `None` if it is full.
    pub(super) fn place(self: &Arc<Self>) -> Option<Place> {
        let mut usage = self.usage();
        if usage.taken >= self.room() {
            return None;
        }
        usage.taken += 1;
        drop(usage);
        Some(Place(self.clone()))
    }

    /// For how long it has carried nothing; `None` if it does.
    pub(super) fn idle_for(&self, now: Instant) -> Option<Duration> {
        let usage = self.usage();
        (usage.taken == 0).then(|| now.saturating_duration_since(usage.idle_since))
    }

    fn usage(&self) -> std::sync::MutexGuard<'_, Usage> {
        self.usage.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place for one answer on a shared connection, free again when dropped.
#[derive(Debug)]
pub(super) struct Place(Arc<Shared>);

impl Place {
    /// Sends a request and waits for the head of its answer. Dropping either takes back the request.
    pub(super) async fn send(&self, request: Request<RequestBody>) -> Result<Response<Incoming>, Unanswered> {
        let sending = self.0.sender.clone().try_send_request(with_authority(request));
        sending.await.map_err(|mut fault| {
            self.0.is_spent.store(true, Ordering::Relaxed);
            let unsent = fault.take_message();
            Unanswered { error: fault.into_error(), unsent }
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut usage = self.0.usage();
        usage.taken -= 1;
        if usage.taken == 0 {
            usage.idle_since = Instant::now();
        }
    }
}

/// The form of a target in HTTP/2, which names the host with it and not in a header.
fn with_authority(mut request: Request<RequestBody>) -> Request<RequestBody> {
    let host = request.headers().get(HOST).and_then(|host| Authority::try_from(host.as_bytes()).ok());
    let Some(authority) = host else { return request };
    let mut parts = std::mem::take(request.uri_mut()).into_parts();
    parts.scheme = Some(Scheme::HTTPS);
    parts.authority = Some(authority);
    *request.uri_mut() = Uri::from_parts(parts).unwrap_or_default();
    request.headers_mut().remove(HOST);
    request
}

/// Runs what a connection consists of, and tells after every step that something may have changed.
#[derive(Clone)]
struct Spawner(Arc<Notify>);

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Spawner {
    fn execute(&self, work: F) {
        let moved = self.0.clone();
        TokioExecutor::new().execute(async move {
            let mut work = pin!(work);
            poll_fn(|context| {
                let polled = work.as_mut().poll(context);
                moved.notify_one();
                polled
            })
            .await;
        });
    }
}
