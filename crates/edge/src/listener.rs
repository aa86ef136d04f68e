//! Connections: accepted, secured, and served until they end or the server stops.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::ServerConfig;
use tasks::Tasks;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;
use transport::Watched;

use crate::call::{Connection, Gate, Local};
use crate::pipeline::Pipeline;

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

/// Accepts connections until `stop`, then asks every connection to finish what it has begun. Returns when the last is
/// handed over; `tasks` waits for them.
pub async fn run<G: Gate, L: Local<G::Caller>>(
    listener: TcpListener,
    tls: Watched<ServerConfig>,
    pipeline: Arc<Pipeline<G, L>>,
    tasks: Tasks,
    stop: CancellationToken,
) {
    while let Some(accepted) = stop.run_until_cancelled(listener.accept()).await {
        match accepted {
            Ok((stream, peer)) => {
                let acceptor = TlsAcceptor::from(tls.get());
                let pipeline = pipeline.clone();
                let stop = stop.clone();
                tasks.spawn_once("connection", async move {
                    if let Err(error) = serve(stream, peer, acceptor, pipeline, stop).await {
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

type ConnectionError = Box<dyn std::error::Error + Send + Sync>;

async fn serve<G: Gate, L: Local<G::Caller>>(
    stream: TcpStream,
    peer: SocketAddr,
    acceptor: TlsAcceptor,
    pipeline: Arc<Pipeline<G, L>>,
    stop: CancellationToken,
) -> Result<(), ConnectionError> {
    stream.set_nodelay(true)?;
    let stream = tokio::time::timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream))
        .await
        .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    let connection = Arc::new(connection_of(&stream, peer));
    let answer = move |request| {
        let (pipeline, connection) = (pipeline.clone(), connection.clone());
        async move { Ok::<_, std::convert::Infallible>(pipeline.answer(&connection, request).await) }
    };
    if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
        let mut builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .max_concurrent_streams(STREAMS_MAX)
            .max_header_list_size(HEADERS_MAX_BYTES)
            .keep_alive_interval(PING_INTERVAL)
            .keep_alive_timeout(PING_TIMEOUT);
        // Apart from the task that sends the answer: making one takes some ten kilobytes, which a watch would hold for an hour.
        let service = service_fn(move |request| Box::pin(answer(request)));
        let mut connection = std::pin::pin!(builder.serve_connection(TokioIo::new(stream), service));
        tokio::select! {
            ended = connection.as_mut() => return Ok(ended?),
            () = stop.cancelled() => connection.as_mut().graceful_shutdown(),
        }
        return Ok(connection.await?);
    }
    let mut builder = hyper::server::conn::http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT);
    let serving = builder.serve_connection(TokioIo::new(stream), service_fn(answer)).with_upgrades();
    let mut connection = std::pin::pin!(serving);
    tokio::select! {
        ended = connection.as_mut() => return Ok(ended?),
        () = stop.cancelled() => connection.as_mut().graceful_shutdown(),
    }
    Ok(connection.await?)
}

fn connection_of(stream: &TlsStream<TcpStream>, peer: SocketAddr) -> Connection {
    let certificates = stream.get_ref().1.peer_certificates().unwrap_or_default();
    let certificates = certificates.iter().map(|certificate| certificate.clone().into_owned()).collect();
    Connection { peer, certificates, memory: Mutex::default(), sticks_to: Mutex::default() }
}
