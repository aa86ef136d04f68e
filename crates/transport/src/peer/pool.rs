//! The connection pool of one peer.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::{Request, Response, StatusCode};
use http_body::Body as _;
use parking_lot::Mutex;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::BufReader;
use tokio::time::Instant;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::body::{PeerBody, RequestBody};
use super::dial::{ByteStream, DialError, Dialer, RawConnection};
use super::error::PeerConnectionError;
use super::h2_connection::{H2Connection, StreamPermit};
use super::h2_connection_set::{DialProgress, H2ConnectionSet, NegotiatedConnection, StreamAcquisition, wait_for_dial};
use super::http1_connection::{Http1Connection, Http1SendError};
use super::socket::Socket;
use super::tls::{ALPN_HTTP2, ClientTls};
use crate::Reloading;

/// The name in every peer's serving certificate, as in KEP-4020 and kube-apiserver; addresses change.
const SERVER_NAME: &str = "kubernetes.default.svc";

/// Read buffer of multiplexed connections: one TLS record (16 KiB) and some of the next.
const READ_BUFFER_BYTES: usize = 20 << 10;

/// Dials peers and performs the TLS handshake.
#[derive(Debug)]
pub struct Connector {
    tls: Reloading<ClientTls>,
    dialer: Dialer,
    server_name: ServerName<'static>,
}

impl Connector {
    /// Creates a connector with these certificates and this route.
    pub fn new(tls: Reloading<ClientTls>, dialer: Dialer) -> Self {
        let server_name = ServerName::try_from(SERVER_NAME).expect("a valid DNS name");
        Self { tls, dialer, server_name }
    }

    /// Expects another name in the servers' certificates.
    pub fn with_server_name(self, server_name: ServerName<'static>) -> Self {
        Self { server_name, ..self }
    }

    /// Opens a connection for one request at a time.
    async fn connect_http1(&self, host: &str, port: u16) -> Result<Http1Connection, DialError> {
        let tls = self.tls.get();
        let RawConnection { stream, socket } = self.dialer.dial(host, port).await?;
        http1_handshake(self.tls_handshake(&tls.http1_config, stream).await?, socket, tls.generation).await
    }

    /// Opens a multiplexed connection if the peer negotiates HTTP/2, else one for a single request at a time.
    async fn connect_http2_or_http1(&self, host: &str, port: u16) -> Result<NegotiatedConnection, DialError> {
        let tls = self.tls.get();
        let RawConnection { stream, socket } = self.dialer.dial(host, port).await?;
        // rustls reads small pieces; many responses arrive at once.
        let stream = Box::new(BufReader::with_capacity(READ_BUFFER_BYTES, stream));
        let stream = self.tls_handshake(&tls.http2_config, stream).await?;
        if stream.get_ref().1.alpn_protocol() == Some(ALPN_HTTP2) {
            Ok(NegotiatedConnection::Http2(
                H2Connection::new(stream, tls.generation).await.map_err(DialError::Unreachable)?,
            ))
        } else {
            Ok(NegotiatedConnection::Http1(http1_handshake(stream, socket, tls.generation).await?))
        }
    }

    async fn tls_handshake(
        &self,
        config: &Arc<ClientConfig>,
        stream: Box<dyn ByteStream>,
    ) -> Result<TlsStream<Box<dyn ByteStream>>, DialError> {
        let connector = TlsConnector::from(config.clone());
        connector.connect(self.server_name.clone(), stream).await.map_err(DialError::Tls)
    }
}

async fn http1_handshake(
    stream: impl ByteStream + 'static,
    socket: Socket,
    generation: u64,
) -> Result<Http1Connection, DialError> {
    let connection = Http1Connection::new(stream, socket, generation).await;
    connection.map_err(|error| DialError::Unreachable(std::io::Error::other(error)))
}

/// Limits on idle connections.
#[derive(Clone, Copy, Debug)]
pub struct PoolLimits {
    /// A connection beyond this number is closed when its request ends.
    pub idle_max: usize,
    /// A connection idle for longer is closed.
    pub idle_timeout: Duration,
}

impl PoolLimits {
    /// Enough for 100 concurrent short requests per peer. kube-apiserver's default is 25 but for HTTP/2; here each
    /// connection carries one request.
    pub const IDLE_MAX: usize = 100;
    /// Below the 32 s after which the server side closes an idle connection, so that requests do not race with the
    /// close.
    pub const IDLE_TIMEOUT: Duration = Duration::from_secs(25);
}

impl Default for PoolLimits {
    fn default() -> Self {
        Self { idle_max: Self::IDLE_MAX, idle_timeout: Self::IDLE_TIMEOUT }
    }
}

/// The connections to one peer.
pub struct ConnectionPool {
    connector: Arc<Connector>,
    host: Box<str>,
    port: u16,
    limits: PoolLimits,
    /// Stack order: the most recently used is last and is reused first.
    idle: Mutex<Vec<Http1Connection>>,
    /// HTTP/2 connections for long-running streams.
    long_running: H2ConnectionSet,
    /// HTTP/2 connections for short requests.
    short: H2ConnectionSet,
    opened: AtomicU64,
    reused: AtomicU64,
}

impl fmt::Debug for ConnectionPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectionPool").field("host", &self.host).field("port", &self.port).finish_non_exhaustive()
    }
}

/// Classes of streams that do not share connections with each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamClass {
    /// Long-running responses such as watches.
    LongRunning,
    /// Short responses, batched into fewer packets.
    Short,
}

/// Counters of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolStats {
    /// Connections opened.
    pub opened: u64,
    /// Requests sent on an existing connection.
    pub reused: u64,
}

impl ConnectionPool {
    /// Creates an empty pool for a peer's address.
    pub fn new(connector: Arc<Connector>, host: &str, port: u16, limits: PoolLimits) -> Arc<Self> {
        Arc::new(Self {
            connector,
            host: host.into(),
            port,
            limits,
            idle: Mutex::default(),
            long_running: H2ConnectionSet::default(),
            short: H2ConnectionSet::default(),
            opened: AtomicU64::new(0),
            reused: AtomicU64::new(0),
        })
    }

    /// Takes an idle HTTP/1.1 connection that is still open, the most recently used first.
    pub fn take_idle(self: &Arc<Self>) -> Option<PooledConnection> {
        let generation = self.connector.tls.get().generation;
        let now = Instant::now();
        loop {
            let mut connection = self.idle.lock().pop()?;
            let is_young = now.saturating_duration_since(connection.idle_since) < self.limits.idle_timeout;
            if is_young
                && connection.generation == generation
                && connection.is_open_and_idle()
                && connection.move_to_current_runtime()
            {
                self.reused.fetch_add(1, Ordering::Relaxed);
                return Some(PooledConnection {
                    lease: ConnectionLease::Http1(connection, self.clone()),
                    is_reused: true,
                });
            }
        }
    }

    /// Reserves a stream on an open HTTP/2 connection; for a peer without HTTP/2, same as
    /// [`ConnectionPool::take_idle`].
    pub fn take_stream(self: &Arc<Self>, class: StreamClass) -> Option<PooledConnection> {
        let streams = self.h2_connections(class);
        if streams.is_http1_only() {
            return self.take_idle();
        }
        let place = streams.try_acquire(self.connector.tls.get().generation)?;
        self.reused.fetch_add(1, Ordering::Relaxed);
        Some(PooledConnection { lease: ConnectionLease::Http2(place), is_reused: true })
    }

    /// Dials a new HTTP/1.1 connection.
    pub async fn open(self: &Arc<Self>, timeout: Duration) -> Result<PooledConnection, DialError> {
        let connecting = self.connector.connect_http1(&self.host, self.port);
        let connection = tokio::time::timeout(timeout, connecting).await.map_err(|_| DialError::TimedOut)??;
        self.opened.fetch_add(1, Ordering::Relaxed);
        Ok(PooledConnection { lease: ConnectionLease::Http1(connection, self.clone()), is_reused: false })
    }

    /// Reserves a stream on a new HTTP/2 connection, joining a dial in progress if that connection will have room.
    pub async fn open_stream(
        self: &Arc<Self>,
        class: StreamClass,
        timeout: Duration,
    ) -> Result<PooledConnection, DialError> {
        let connecting = self.acquire_or_dial_stream(self.h2_connections(class));
        let dialed = tokio::time::timeout(timeout, connecting).await.map_err(|_| DialError::TimedOut)??;
        Ok(PooledConnection { lease: dialed, is_reused: false })
    }

    fn h2_connections(&self, class: StreamClass) -> &H2ConnectionSet {
        match class {
            StreamClass::LongRunning => &self.long_running,
            StreamClass::Short => &self.short,
        }
    }

    fn all_h2_connections(&self) -> [&H2ConnectionSet; 2] {
        [&self.long_running, &self.short]
    }

    /// Reserves a stream, dialing a connection or waiting for a dial in progress if none has room.
    async fn acquire_or_dial_stream(self: &Arc<Self>, streams: &H2ConnectionSet) -> Result<ConnectionLease, DialError> {
        loop {
            let opener = match streams.acquire(self.connector.tls.get().generation) {
                StreamAcquisition::Acquired(place) => return Ok(ConnectionLease::Http2(place)),
                StreamAcquisition::WaitForDial(stream_updates) => match wait_for_dial(stream_updates).await {
                    DialProgress::Failed(error) => return Err(error.clone_for_waiter()),
                    DialProgress::Done | DialProgress::Pending => continue,
                },
                StreamAcquisition::Dial(opener) => opener,
            };
            let opened = self.connector.connect_http2_or_http1(&self.host, self.port).await;
            if opened.is_ok() {
                self.opened.fetch_add(1, Ordering::Relaxed);
            }
            match opened {
                Ok(NegotiatedConnection::Http2(shared)) => {
                    let place = opener.complete_http2(shared);
                    let none = || DialError::Unreachable(std::io::ErrorKind::ConnectionRefused.into());
                    return place.map(ConnectionLease::Http2).ok_or_else(none);
                }
                Ok(NegotiatedConnection::Http1(connection)) => {
                    opener.complete_http1();
                    return Ok(ConnectionLease::Http1(connection, self.clone()));
                }
                Err(error) => {
                    opener.fail(&error);
                    return Err(error);
                }
            }
        }
    }

    /// Closes connections that are idle for too long or were opened with outdated TLS files. Called periodically.
    pub fn close_expired(&self) {
        let generation = self.connector.tls.get().generation;
        let now = Instant::now();
        let age_max = self.limits.idle_timeout;
        let is_old = |connection: &mut Http1Connection| {
            now.saturating_duration_since(connection.idle_since) >= age_max || connection.generation != generation
        };
        let closed: Vec<_> = self.idle.lock().extract_if(.., is_old).collect();
        drop(closed);
        for streams in self.all_h2_connections() {
            streams.close_expired(generation, age_max);
        }
    }

    /// Returns host and port of the peer.
    pub fn address(&self) -> (&str, u16) {
        (&self.host, self.port)
    }

    /// Returns the number of idle HTTP/1.1 connections.
    pub fn idle_count(&self) -> usize {
        self.idle.lock().len()
    }

    /// Returns the number of HTTP/2 connections that accept streams.
    pub fn h2_connection_count(&self) -> usize {
        self.all_h2_connections().map(H2ConnectionSet::len).iter().sum()
    }

    /// Returns the counters.
    pub fn stats(&self) -> PoolStats {
        PoolStats { opened: self.opened.load(Ordering::Relaxed), reused: self.reused.load(Ordering::Relaxed) }
    }

    #[cfg(test)]
    pub(super) fn usable_idle_count(&self) -> usize {
        self.idle.lock().iter().filter(|connection| connection.is_open_and_idle()).count()
    }

    /// Takes back a connection whose response was read to the end; closes it if it cannot be reused.
    pub(super) fn return_idle(&self, mut connection: Http1Connection) {
        if connection.generation != self.connector.tls.get().generation || !connection.is_reusable() {
            return;
        }
        connection.idle_since = Instant::now();
        let mut idle = self.idle.lock();
        if idle.len() < self.limits.idle_max {
            idle.push(connection);
        }
    }
}

/// A connection, or a stream on one, taken for one request.
#[derive(Debug)]
pub struct PooledConnection {
    lease: ConnectionLease,
    is_reused: bool,
}

#[derive(Debug)]
enum ConnectionLease {
    Http1(Http1Connection, Arc<ConnectionPool>),
    Http2(StreamPermit),
}

/// Why a request got no response.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct SendError {
    /// The connection's error.
    #[source]
    pub error: PeerConnectionError,
    /// The request, if none of it was sent. If `None`, the peer may have executed it.
    pub unsent: Option<Box<Request<RequestBody>>>,
}

impl PooledConnection {
    /// Reports whether the connection carried requests before. The peer may be closing such a connection just now.
    pub fn is_reused(&self) -> bool {
        self.is_reused
    }

    #[cfg(test)]
    pub(super) fn is_open_and_idle(&self) -> bool {
        match &self.lease {
            ConnectionLease::Http1(connection, _) => connection.is_open_and_idle(),
            ConnectionLease::Http2(_) => false,
        }
    }

    /// Sends a request and awaits the response head. The target must be a path and the Host header must be set; on an
    /// HTTP/2 stream the body must be empty. Applies no timeout; dropping the future closes the connection or resets
    /// the stream.
    pub async fn send(self, request: Request<RequestBody>) -> Result<Response<PeerBody>, SendError> {
        match self.lease {
            ConnectionLease::Http1(mut connection, pool) => match connection.send(request).await {
                Ok(response) if response.status() == StatusCode::SWITCHING_PROTOCOLS => {
                    Ok(response.map(|incoming| PeerBody::from_upgrade(incoming, connection, pool)))
                }
                Ok(response) => Ok(response.map(|incoming| PeerBody::from_http1(incoming, connection, pool))),
                Err(Http1SendError { error, unsent }) => {
                    Err(SendError { error: error.into(), unsent: unsent.map(Box::new) })
                }
            },
            ConnectionLease::Http2(place) => {
                let (head, body) = request.into_parts();
                if !body.is_end_stream() {
                    let unsent = Some(Box::new(Request::from_parts(head, body)));
                    return Err(SendError { error: PeerConnectionError::BodyNotAllowed, unsent });
                }
                match place.send(Request::from_parts(head, ())).await {
                    Ok(response) => {
                        let (head, stream) = response.into_parts();
                        let body = PeerBody::from_http2(stream, &head.headers, place);
                        Ok(Response::from_parts(head, body))
                    }
                    // The peer may or may not have received the request.
                    Err(error) => Err(SendError { error: error.into(), unsent: None }),
                }
            }
        }
    }
}
