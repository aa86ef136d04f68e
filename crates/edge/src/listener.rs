//! Connections: accepted, secured, and served until they end or the server stops.
//!
//! A connection lives on a worker, and so does what is answered at once: an object from memory, or whatever a peer sends. What
//! may take long to compute is answered by the runtime of the whole process, so that the other connections need not wait for it.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use api::{Target, Verb};
use futures_util::FutureExt as _;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::ServerConfig;
use tasks::{Tasks, Workers};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::task::JoinError;
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use transport::Watched;

use crate::call::{Connection, Gate, Local};
use crate::cork::Cork;
use crate::glance::{self, Glances};
use crate::pipeline::Pipeline;
use crate::sending::{self, Sending, StreamExecutor};
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
    async fn answer(self, connection: Arc<Connection>, request: Request) -> Result<Response, JoinError> {
        let Self { pipeline, process, tasks } = self;
        let response = if is_answered_at_once(request.method().as_str(), request.uri()) {
            pipeline.answer(&connection, request).await
        } else {
            let answering = async move { pipeline.answer(&connection, request).await };
            AbortOnDropHandle::new(tasks.spawn_on(&process, answering)).await?
        };
        sending::begin(&response);
        Ok(response)
    }
}

/// Whether no answer to this request needs more than a look into memory, if it is not somebody else's.
fn is_answered_at_once(method: &str, uri: &http::Uri) -> bool {
    let line = uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
    match Target::parse(method, line) {
        Ok(Target::Resource(resource)) => resource.verb == Verb::Get,
        // All others are pages that are written when they are asked for.
        Ok(Target::NonResource(path)) => AT_ONCE.iter().any(|prefix| path.path.starts_with(prefix)),
        Err(_) => true,
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
    let streams = StreamExecutor(answering.tasks.clone());
    let answer = move |request| answering.clone().answer(connection.clone(), request);
    if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
        let mut builder = hyper::server::conn::http2::Builder::new(streams);
        builder
            .timer(TokioTimer::new())
            .max_concurrent_streams(STREAMS_MAX)
            .max_header_list_size(HEADERS_MAX_BYTES)
            .max_send_buf_size(SEND_BUFFER_MAX)
            .keep_alive_interval(PING_INTERVAL)
            .keep_alive_timeout(PING_TIMEOUT);
        // Apart from the task that sends the answer: making one takes some ten kilobytes, which a watch would hold for an hour.
        let service = service_fn(move |request| Box::pin(answer(request)));
        let cork = Cork::new(stream);
        let mut connection = pin!(builder.serve_connection(TokioIo::new(cork.clone()), service));
        let mut stopping = pin!(stop.cancelled().fuse());
        return poll_fn(|context| {
            if stopping.as_mut().poll(context).is_ready() {
                connection.as_mut().graceful_shutdown();
            }
            let ended = connection.as_mut().poll(context).map_err(ConnectionError::from);
            match (&ended, cork.let_go(context)) {
                (Poll::Pending, Poll::Ready(Err(error))) => Poll::Ready(Err(error.into())),
                (Poll::Ready(_), _) | (Poll::Pending, Poll::Ready(Ok(())) | Poll::Pending) => ended,
            }
        })
        .await;
    }
    let mut builder = hyper::server::conn::http1::Builder::new();
    builder.timer(Glances).header_read_timeout(HEAD_TIMEOUT);
    let serving = builder.serve_connection(TokioIo::new(stream), service_fn(answer)).with_upgrades();
    let (mut connection, mut stopping) = (pin!(serving), pin!(stop.cancelled().fuse()));
    let mut glance = pin!(tokio::time::sleep(glance::INTERVAL));
    let mut sending = Sending::default();
    poll_fn(|context| {
        if stopping.as_mut().poll(context).is_ready() {
            connection.as_mut().graceful_shutdown();
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
    fn check(method: &str, line: &str, expected: bool) {
        let uri: http::Uri = line.parse().unwrap();
        assert_eq!(is_answered_at_once(method, &uri), expected, "{method} {line}");
    }

    #[test]
    fn what_may_take_long_is_not_answered_on_a_worker() {
        for line in ["/api/v1/namespaces/default", "/apis/apps/v1/namespaces/a/deployments/b", "/apis", "/api/v1"] {
            check("GET", line, true);
        }
        for line in ["/livez", "/readyz?verbose", "/version", "/healthz"] {
            check("GET", line, true);
        }
        for line in
            ["/api/v1/pods", "/api/v1/pods?watch=1", "/api/v1/watch/pods", "/metrics", "/openapi/v2", "/debug/peers"]
        {
            check("GET", line, false);
        }
        check("POST", "/api/v1/namespaces", false);
        check("PATCH", "/api/v1/namespaces/default", false);
        check("DELETE", "/api/v1/namespaces/default", false);
    }
}
