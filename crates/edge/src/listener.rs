//! Connections: accepted, secured, and served until they end or the server stops.
//!
//! A connection stays on one thread ([`Acceptor`]), and so do cheap requests: a get from memory, discovery, health. Requests that
//! may compute for long run on the runtime of the whole process, so that other connections of the thread do not wait for them.

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
use tasks::{Commitment, Tasks};
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::task::JoinError;
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;
use transport::Reloading;
use transport::serving::{Acceptor, WriteCoalescer};

use crate::graceful_stop::{StopMonitor, StopStep};
use crate::handler::{AccessControl, CachedConnection, ClientConnection, LocalHandler};
use crate::pipeline::Pipeline;
use crate::request_framing::FramingError;
use crate::seats::is_mutating;
use crate::send_limit::{self, SendMonitor, StreamExecutor};
use crate::{Request, Response};

/// The timeout of a TLS handshake, as in Go's servers.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// The timeout of a request head.
const HEAD_TIMEOUT: Duration = Duration::from_secs(32);
/// The interval at which a connection checks whether its client reads; no send limit is exceeded by more.
const SEND_CHECK_INTERVAL: Duration = Duration::from_secs(4);
/// HTTP/2 streams per connection, as in kube-apiserver.
const STREAMS_MAX: u32 = 250;
/// The largest header list that is accepted; Go's default.
const HEADERS_MAX_BYTES: u32 = 1 << 20;
/// Header lines of an HTTP/1.1 request; hyper's default is 100. A forwarded request has one line per group of its user, and Active
/// Directory allows 1,015 groups.
const HEADER_LINES_MAX: usize = 1_100;
/// Interval and timeout of HTTP/2 pings on idle connections.
const PING_INTERVAL: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(15);

/// Prefixes of pages that are cheap enough to serve on the connection's thread: discovery, health and version.
const INLINE_PATHS: [&str; 5] = ["/api", "/livez", "/readyz", "/healthz", "/version"];

/// The send buffer of one HTTP/2 stream: 250 streams that the client does not read stay below 32 MiB. hyper's default is 400 KiB.
const SEND_BUFFER_MAX: usize = 128 << 10;

/// Accepts connections until `stop`, which also tells every connection to finish its requests. Stopping `tasks` waits for the
/// connections.
pub async fn run<G: AccessControl, L: LocalHandler<G::Caller>>(
    acceptor: Acceptor,
    tls: Reloading<ServerConfig>,
    pipeline: Arc<Pipeline<G, L>>,
    tasks: Tasks,
    stop: CancellationToken,
) {
    let service = ConnectionService { pipeline, process_runtime: Handle::current(), tasks: tasks.clone() };
    let closing = stop.clone();
    let serve = move |stream, client| {
        let (acceptor, service, stop) = (TlsAcceptor::from(tls.get()), service.clone(), closing.clone());
        async move {
            if let Err(error) = serve_connection(stream, client, acceptor, service, stop).await {
                tracing::debug!(%client, %error, "connection ended early");
            }
        }
    };
    acceptor.run(&tasks, &stop, serve).await;
}

/// What a connection needs to serve its requests.
struct ConnectionService<G, L> {
    pipeline: Arc<Pipeline<G, L>>,
    /// The runtime of the whole process.
    process_runtime: Handle,
    /// The tasks of all connections; stopping them waits for every request.
    tasks: Tasks,
}

impl<G, L> Clone for ConnectionService<G, L> {
    fn clone(&self) -> Self {
        Self {
            pipeline: self.pipeline.clone(),
            process_runtime: self.process_runtime.clone(),
            tasks: self.tasks.clone(),
        }
    }
}

impl<G: AccessControl, L: LocalHandler<G::Caller>> ConnectionService<G, L> {
    async fn handle(
        self,
        connection: Arc<CachedConnection<G::ConnectionCache>>,
        mut request: Request,
    ) -> Result<Response, JoinError> {
        if let Some(error) = FramingError::find(&request) {
            tracing::debug!(client = %connection.client.client_address, ?error, "request rejected");
            return Ok(error.to_response(request.version()));
        }
        let uri = request.uri().clone();
        let path_and_query = uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
        let target = Target::parse(request.method().as_str(), path_and_query);
        let mode = target.as_ref().map_or(ExecutionMode::Inline, ExecutionMode::for_target);
        let Self { pipeline, process_runtime: process, tasks } = self;
        let response = if mode == ExecutionMode::Inline {
            pipeline.handle(&connection, &target, request).await
        } else {
            let commitment = Arc::new(Commitment::default());
            if mode == ExecutionMode::Committing {
                request.extensions_mut().insert(commitment.clone());
            }
            let target = target.map(Target::into_owned);
            let handling = async move { pipeline.handle(&connection, &target, request).await };
            tasks.spawn_cancellable(&process, commitment, handling).await?
        };
        send_limit::set_send_limit(&response);
        Ok(response)
    }
}

/// Where a request is executed, and what happens to it when its client disconnects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ExecutionMode {
    /// On the connection's own thread, because it is cheap: a get, discovery, health. Cancelled with the client.
    Inline,
    /// On the runtime of the process. Cancelled with the client.
    Spawned,
    /// On the runtime of the process. Cancelled with the client until the write is handed to storage or a peer; then it runs to
    /// its end or deadline, so that the audit log records the outcome.
    Committing,
}

impl ExecutionMode {
    fn for_target(target: &Target<'_>) -> Self {
        match target {
            Target::Resource(resource) if resource.verb == Verb::Get => Self::Inline,
            Target::Resource(_) if is_mutating(target) && !target.is_long_running() => Self::Committing,
            Target::Resource(_) => Self::Spawned,
            Target::NonResource(page) if INLINE_PATHS.iter().any(|prefix| page.path.starts_with(prefix)) => {
                Self::Inline
            }
            // Other pages are rendered per request.
            Target::NonResource(_) => Self::Spawned,
        }
    }
}

type ConnectionError = Box<dyn std::error::Error + Send + Sync>;

async fn serve_connection<G: AccessControl, L: LocalHandler<G::Caller>>(
    stream: TcpStream,
    client_address: SocketAddr,
    acceptor: TlsAcceptor,
    service: ConnectionService<G, L>,
    stop: CancellationToken,
) -> Result<(), ConnectionError> {
    stream.set_nodelay(true)?;
    let stream = tokio::time::timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream))
        .await
        .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    let client = client_connection(&stream, client_address);
    let connection = Arc::new(CachedConnection { client, cache: Default::default() });
    if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
        serve_http2(stream, connection, service, stop).await
    } else {
        serve_http1(stream, connection, service, stop).await
    }
}

async fn serve_http2<G: AccessControl, L: LocalHandler<G::Caller>>(
    stream: TlsStream<TcpStream>,
    connection: Arc<CachedConnection<G::ConnectionCache>>,
    connection_service: ConnectionService<G, L>,
    stop: CancellationToken,
) -> Result<(), ConnectionError> {
    let mut builder = hyper::server::conn::http2::Builder::new(StreamExecutor(connection_service.tasks.clone()));
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(HEADERS_MAX_BYTES)
        .max_send_buf_size(SEND_BUFFER_MAX)
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT);
    // Boxed apart from the task that sends the response: the future has some ten kilobytes, which a watch would hold for an hour.
    let service = service_fn(move |request| Box::pin(connection_service.clone().handle(connection.clone(), request)));
    let coalescer = WriteCoalescer::new(stream);
    let mut connection = pin!(builder.serve_connection(TokioIo::new(coalescer.clone()), service));
    let mut stopping = StopMonitor::new(&stop);
    poll_fn(|context| {
        match stopping.poll(context) {
            StopStep::Continue => {}
            StopStep::Finish => connection.as_mut().graceful_shutdown(),
            StopStep::Close => return Poll::Ready(Err(io::Error::from(io::ErrorKind::TimedOut).into())),
        }
        let ended = connection.as_mut().poll(context).map_err(ConnectionError::from);
        match (&ended, coalescer.poll_flush_buffered(context)) {
            (Poll::Pending, Poll::Ready(Err(error))) => Poll::Ready(Err(error.into())),
            (Poll::Ready(_), _) | (Poll::Pending, Poll::Ready(Ok(())) | Poll::Pending) => ended,
        }
    })
    .await
}

async fn serve_http1<G: AccessControl, L: LocalHandler<G::Caller>>(
    stream: TlsStream<TcpStream>,
    connection: Arc<CachedConnection<G::ConnectionCache>>,
    connection_service: ConnectionService<G, L>,
    stop: CancellationToken,
) -> Result<(), ConnectionError> {
    let mut builder = hyper::server::conn::http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT).max_headers(HEADER_LINES_MAX);
    let service = service_fn(move |request| connection_service.clone().handle(connection.clone(), request));
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service).with_upgrades());
    let mut stopping = StopMonitor::new(&stop);
    let mut send_check = pin!(tokio::time::sleep(SEND_CHECK_INTERVAL));
    let mut sending = SendMonitor::default();
    poll_fn(|context| {
        match stopping.poll(context) {
            StopStep::Continue => {}
            StopStep::Finish => connection.as_mut().graceful_shutdown(),
            StopStep::Close => return Poll::Ready(Err(io::Error::from(io::ErrorKind::TimedOut).into())),
        }
        while send_check.as_mut().poll(context).is_ready() {
            let now = Instant::now();
            if sending.is_overdue(now) {
                return Poll::Ready(Err(io::Error::from(io::ErrorKind::TimedOut).into()));
            }
            send_check.as_mut().reset(now + SEND_CHECK_INTERVAL);
        }
        let ended = connection.as_mut().poll(context).map_err(ConnectionError::from);
        sending.take_send_limit();
        ended
    })
    .await
}

fn client_connection(stream: &TlsStream<TcpStream>, client_address: SocketAddr) -> ClientConnection {
    let certificates = stream.get_ref().1.peer_certificates().unwrap_or_default();
    let certificates = certificates.iter().map(|certificate| certificate.clone().into_owned()).collect();
    ClientConnection { client_address, certificates, sticky_peer: Mutex::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(method: &str, line: &str, expected: ExecutionMode) {
        let target = Target::parse(method, line).unwrap();
        assert_eq!(ExecutionMode::for_target(&target), expected, "{method} {line}");
    }

    #[test]
    fn only_cheap_requests_are_executed_inline() {
        for line in ["/api/v1/namespaces/default", "/apis/apps/v1/namespaces/a/deployments/b", "/apis", "/api/v1"] {
            check("GET", line, ExecutionMode::Inline);
        }
        for line in ["/livez", "/readyz?verbose", "/version", "/healthz"] {
            check("GET", line, ExecutionMode::Inline);
        }
        for line in
            ["/api/v1/pods", "/api/v1/pods?watch=1", "/api/v1/watch/pods", "/metrics", "/openapi/v2", "/debug/peers"]
        {
            check("GET", line, ExecutionMode::Spawned);
        }
    }

    #[test]
    fn short_writes_commit() {
        check("POST", "/api/v1/namespaces", ExecutionMode::Committing);
        check("PATCH", "/api/v1/namespaces/default", ExecutionMode::Committing);
        check("DELETE", "/api/v1/namespaces/default", ExecutionMode::Committing);
        check("DELETE", "/api/v1/namespaces/default/pods", ExecutionMode::Committing);
        check("PUT", "/api/v1/namespaces/default/pods/p/status", ExecutionMode::Committing);
        check("POST", "/api/v1/namespaces/default/pods/p/exec", ExecutionMode::Spawned);
        check("POST", "/api/v1/namespaces/default/pods/p/proxy", ExecutionMode::Spawned);
        check("POST", "/elsewhere", ExecutionMode::Spawned);
    }
}
