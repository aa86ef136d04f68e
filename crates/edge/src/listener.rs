//! Connections: accepted, secured, and served until they end or the server stops.
//!
//! A connection lives on a worker, and so does what is answered at once: an object from memory, or whatever a peer sends. What
//! may take long to compute is answered by the runtime of the whole process, so that the other connections need not wait for it.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use api::{Target, Verb};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use rustls::ServerConfig;
use tasks::{Commitment, Tasks, Workers};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::task::JoinError;
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;
use transport::Watched;

use crate::call::{Connection, Gate, Local};
use crate::cork::Cork;
use crate::glance::{self, Glances};
use crate::pipeline::Pipeline;
use crate::seats::is_mutating;
use crate::sending::{self, Sending, StreamExecutor};
use crate::stopping::{Stop, Stopping};
use crate::{Request, Response};

/// Clients that have not finished their handshake by then are sent away; Go's servers wait as long.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// A client must send its whole request head within this time.
const HEAD_TIMEOUT: Duration = Duration::from_secs(32);
/// kube-apiserver's number of streams per connection.
const STREAMS_MAX: u32 = 250;
/// Header lists beyond this are refused; Go's default.
const HEADERS_MAX_BYTES: u32 = 1 << 20;
/// The pause after a failed accept: out of file descriptors, it would otherwise spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// How often an idle HTTP/2 connection is asked whether it still lives, and how long it may take to answer.
const PING_INTERVAL: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(15);

/// Paths of documents that are ready to be sent, and of what is looked at every second.
const AT_ONCE: [&str; 5] = ["/api", "/livez", "/readyz", "/healthz", "/version"];

/// What one HTTP/2 stream may have in its send buffer: 250 streams that are not read stay below 32 MiB. hyper's default is 400 KiB.
const SEND_BUFFER_MAX: usize = 128 << 10;

/// Accepts connections until `stop`, then asks every connection to finish what it has begun. Returns when the last is
/// handed over; `tasks` waits for them.
pub async fn run<G: Gate, L: Local<G::Caller>>(
    listener: TcpListener,
    tls: Watched<ServerConfig>,
    pipeline: Arc<Pipeline<G, L>>,
    workers: Workers,
    tasks: Tasks,
    stop: CancellationToken,
) {
    let answering = Answering { pipeline, process: Handle::current(), tasks: tasks.clone() };
    while let Some(accepted) = stop.run_until_cancelled(listener.accept()).await {
        // Out of one runtime's sight, to be watched over by another.
        match accepted.and_then(|(stream, peer)| Ok((stream.into_std()?, peer))) {
            Ok((stream, peer)) => {
                let acceptor = TlsAcceptor::from(tls.get());
                let (answering, stop) = (answering.clone(), stop.clone());
                tasks.spawn_once_at(workers.place(), "connection", async move {
                    if let Err(error) = serve(stream, peer, acceptor, answering, stop).await {
                        tracing::debug!(%peer, %error, "a connection ended early");
                    }
                });
            }
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// How requests are answered, and where.
struct Answering<G, L> {
    pipeline: Arc<Pipeline<G, L>>,
    /// The runtime of the whole process.
    process: Handle,
    /// The family of the connections: stopping it waits for every request.
    tasks: Tasks,
}

impl<G, L> Clone for Answering<G, L> {
    fn clone(&self) -> Self {
        Self { pipeline: self.pipeline.clone(), process: self.process.clone(), tasks: self.tasks.clone() }
    }
}

impl<G: Gate, L: Local<G::Caller>> Answering<G, L> {
    async fn answer(self, connection: Arc<Connection>, mut request: Request) -> Result<Response, JoinError> {
        let execution = Execution::of(request.method().as_str(), request.uri());
        let Self { pipeline, process, tasks } = self;
        let response = if execution == Execution::Inline {
            pipeline.answer(&connection, request).await
        } else {
            let commitment = Arc::new(Commitment::default());
            if execution == Execution::Committing {
                request.extensions_mut().insert(commitment.clone());
            }
            let answering = async move { pipeline.answer(&connection, request).await };
            tasks.spawn_cancellable(&process, commitment, answering).await?
        };
        sending::begin(&response);
        Ok(response)
    }
}

/// Where a request is executed, and what happens to it when its client disconnects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Execution {
    /// On the connection's own thread, because it is cheap: a get, discovery, health. Cancelled with the client.
    Inline,
    /// On the runtime of the process. Cancelled with the client.
    Spawned,
    /// The same until it is handed to storage or a peer, and from then on to its own end or deadline: the write may happen
    /// anyway, and the audit log must say what became of it.
    Committing,
}

impl Execution {
    fn of(method: &str, uri: &http::Uri) -> Self {
        let line = uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
        match Target::parse(method, line) {
            Ok(Target::Resource(resource)) if resource.verb == Verb::Get => Self::Inline,
            Ok(target @ Target::Resource(_)) if is_mutating(&target) && !target.is_long_running() => Self::Committing,
            Ok(Target::Resource(_)) => Self::Spawned,
            Ok(Target::NonResource(page)) if AT_ONCE.iter().any(|prefix| page.path.starts_with(prefix)) => Self::Inline,
            // All others are pages that are written when they are asked for.
            Ok(Target::NonResource(_)) => Self::Spawned,
            Err(_) => Self::Inline,
        }
    }
}

type ConnectionError = Box<dyn std::error::Error + Send + Sync>;

async fn serve<G: Gate, L: Local<G::Caller>>(
    stream: std::net::TcpStream,
    peer: SocketAddr,
    acceptor: TlsAcceptor,
    answering: Answering<G, L>,
    stop: CancellationToken,
) -> Result<(), ConnectionError> {
    let stream = TcpStream::from_std(stream)?;
    stream.set_nodelay(true)?;
    let stream = tokio::time::timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream))
        .await
        .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    let connection = Arc::new(connection_of(&stream, peer));
    if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
        serve_http2(stream, connection, answering, stop).await
    } else {
        serve_http1(stream, connection, answering, stop).await
    }
}

async fn serve_http2<G: Gate, L: Local<G::Caller>>(
    stream: TlsStream<TcpStream>,
    connection: Arc<Connection>,
    answering: Answering<G, L>,
    stop: CancellationToken,
) -> Result<(), ConnectionError> {
    let mut builder = hyper::server::conn::http2::Builder::new(StreamExecutor(answering.tasks.clone()));
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(HEADERS_MAX_BYTES)
        .max_send_buf_size(SEND_BUFFER_MAX)
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT);
    // Apart from the task that sends the answer: making one takes some ten kilobytes, which a watch would hold for an hour.
    let service = service_fn(move |request| Box::pin(answering.clone().answer(connection.clone(), request)));
    let cork = Cork::new(stream);
    let mut connection = pin!(builder.serve_connection(TokioIo::new(cork.clone()), service));
    let mut stopping = Stopping::new(&stop);
    poll_fn(|context| {
        match stopping.poll(context) {
            Stop::No => {}
            Stop::Finish => connection.as_mut().graceful_shutdown(),
            Stop::Close => return Poll::Ready(Err(io::Error::from(io::ErrorKind::TimedOut).into())),
        }
        let ended = connection.as_mut().poll(context).map_err(ConnectionError::from);
        match (&ended, cork.let_go(context)) {
            (Poll::Pending, Poll::Ready(Err(error))) => Poll::Ready(Err(error.into())),
            (Poll::Ready(_), _) | (Poll::Pending, Poll::Ready(Ok(())) | Poll::Pending) => ended,
        }
    })
    .await
}

async fn serve_http1<G: Gate, L: Local<G::Caller>>(
    stream: TlsStream<TcpStream>,
    connection: Arc<Connection>,
    answering: Answering<G, L>,
    stop: CancellationToken,
) -> Result<(), ConnectionError> {
    let mut builder = hyper::server::conn::http1::Builder::new();
    builder.timer(Glances).header_read_timeout(HEAD_TIMEOUT);
    let service = service_fn(move |request| answering.clone().answer(connection.clone(), request));
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service).with_upgrades());
    let mut stopping = Stopping::new(&stop);
    let mut glance = pin!(tokio::time::sleep(glance::INTERVAL));
    let mut sending = Sending::default();
    poll_fn(|context| {
        match stopping.poll(context) {
            Stop::No => {}
            Stop::Finish => connection.as_mut().graceful_shutdown(),
            Stop::Close => return Poll::Ready(Err(io::Error::from(io::ErrorKind::TimedOut).into())),
        }
        while glance.as_mut().poll(context).is_ready() {
            let now = Instant::now();
            if sending.is_overdue(now) {
                return Poll::Ready(Err(io::Error::from(io::ErrorKind::TimedOut).into()));
            }
            glance.as_mut().reset(now + glance::INTERVAL);
        }
        let ended = connection.as_mut().poll(context).map_err(ConnectionError::from);
        sending.note_begun();
        ended
    })
    .await
}

fn connection_of(stream: &TlsStream<TcpStream>, peer: SocketAddr) -> Connection {
    let certificates = stream.get_ref().1.peer_certificates().unwrap_or_default();
    let certificates = certificates.iter().map(|certificate| certificate.clone().into_owned()).collect();
    Connection { peer, certificates, memory: Mutex::default(), sticks_to: Mutex::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(method: &str, line: &str, expected: Execution) {
        let uri: http::Uri = line.parse().unwrap();
        assert_eq!(Execution::of(method, &uri), expected, "{method} {line}");
    }

    #[test]
    fn only_cheap_requests_are_executed_inline() {
        for line in ["/api/v1/namespaces/default", "/apis/apps/v1/namespaces/a/deployments/b", "/apis", "/api/v1"] {
            check("GET", line, Execution::Inline);
        }
        for line in ["/livez", "/readyz?verbose", "/version", "/healthz"] {
            check("GET", line, Execution::Inline);
        }
        for line in
            ["/api/v1/pods", "/api/v1/pods?watch=1", "/api/v1/watch/pods", "/metrics", "/openapi/v2", "/debug/peers"]
        {
            check("GET", line, Execution::Spawned);
        }
    }

    #[test]
    fn short_writes_commit() {
        check("POST", "/api/v1/namespaces", Execution::Committing);
        check("PATCH", "/api/v1/namespaces/default", Execution::Committing);
        check("DELETE", "/api/v1/namespaces/default", Execution::Committing);
        check("DELETE", "/api/v1/namespaces/default/pods", Execution::Committing);
        check("PUT", "/api/v1/namespaces/default/pods/p/status", Execution::Committing);
        check("POST", "/api/v1/namespaces/default/pods/p/exec", Execution::Spawned);
        check("POST", "/api/v1/namespaces/default/pods/p/proxy", Execution::Spawned);
        check("POST", "/elsewhere", Execution::Spawned);
    }
}
