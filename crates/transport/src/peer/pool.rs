//! The connections to one peer.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::{Request, Response, StatusCode};
use http_body::Body as _;
use parking_lot::Mutex;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tasks::RuntimeIndex;
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

/// What every peer's certificate must be for (KEP-4020 and kube-apiserver): one name for all, since addresses change.
const SERVER_NAME: &str = "kubernetes.default.svc";

/// How much is read at once of what shares a connection: a record of TLS and what comes with it.
const READ_BUFFER_BYTES: usize = 20 << 10;

/// How connections to peers are opened.
#[derive(Debug)]
pub struct Connector {
    tls: Reloading<ClientTls>,
    dialer: Dialer,
    server_name: ServerName<'static>,
}

impl Connector {
    /// Opens connections this way, with these certificates.
    pub fn new(tls: Reloading<ClientTls>, dialer: Dialer) -> Self {
        let server_name = ServerName::try_from(SERVER_NAME).expect("it is a name");
        Self { tls, dialer, server_name }
    }

    /// The same, to servers whose certificates are for another name.
    pub fn with_server_name(self, server_name: ServerName<'static>) -> Self {
        Self { server_name, ..self }
    }

    /// A connection that carries one request at a time.
    async fn connect_http1(&self, host: &str, port: u16) -> Result<Http1Connection, DialError> {
        let tls = self.tls.get();
        let RawConnection { stream, socket } = self.dialer.dial(host, port).await?;
        http1_handshake(self.tls_handshake(&tls.http1_config, stream).await?, socket, tls.generation).await
    }

    /// A connection that answers share, if the peer can; otherwise one that carries one request at a time.
    async fn connect_http2_or_http1(&self, host: &str, port: u16) -> Result<NegotiatedConnection, DialError> {
        let tls = self.tls.get();
        let RawConnection { stream, socket } = self.dialer.dial(host, port).await?;
        // rustls reads little at once, and answers come many at once.
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

/// How many idle connections are kept, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct PoolLimits {
    /// What is more than this is closed when its request is over.
    pub idle_max: usize,
    /// What was idle for longer is closed.
    pub idle_timeout: Duration,
}

impl PoolLimits {
    /// As many short requests to one peer at once find a connection; more than kube-apiserver's 25, since here each connection
    /// carries only one.
    pub const IDLE_MAX: usize = 100;
    /// Less than the 32 s after which the other side closes a quiet connection: a request should not meet its end.
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
    /// The one that was used last is at the end, and is used first.
    idle: Mutex<Vec<Http1Connection>>,
    /// Those that lasting answers share.
    long_running: H2ConnectionSet,
    /// Those that brief answers share, of each worker its own.
    short_by_runtime: Box<[H2ConnectionSet]>,
    opened: AtomicU64,
    reused: AtomicU64,
}

impl fmt::Debug for ConnectionPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectionPool").field("host", &self.host).field("port", &self.port).finish_non_exhaustive()
    }
}

/// What shares connections with its like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamClass {
    /// Answers that last, such as watches: a connection each would cost more than the answer.
    LongRunning,
    /// Answers that are short and come soon: what several of them say travels together. They share with those of the same
    /// worker, so that nobody has to be woken elsewhere.
    Short,
}

/// How often connections were opened, and how often one was used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolStats {
    /// New connections.
    pub opened: u64,
    /// Requests that found one.
    pub reused: u64,
}

impl ConnectionPool {
    /// A pool without connections to a peer that listens there.
    pub fn new(connector: Arc<Connector>, host: &str, port: u16, limits: PoolLimits) -> Arc<Self> {
        Arc::new(Self {
            connector,
            host: host.into(),
            port,
            limits,
            idle: Mutex::default(),
            long_running: H2ConnectionSet::default(),
            short_by_runtime: (0..RuntimeIndex::count()).map(|_| H2ConnectionSet::default()).collect(),
            opened: AtomicU64::new(0),
            reused: AtomicU64::new(0),
        })
    }

    /// An idle connection that seems to be alive, the last used first.
    pub fn take_idle(self: &Arc<Self>) -> Option<PooledConnection> {
        let generation = self.connector.tls.get().generation;
        let now = Instant::now();
        loop {
            let mut connection = self.pop_idle()?;
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

    /// The last used of those that are at home here; of all if there is none, because a new one costs more than to move it.
    fn pop_idle(&self) -> Option<Http1Connection> {
        let mut idle = self.idle.lock();
        match idle.iter().rposition(Http1Connection::is_on_current_runtime) {
            Some(at) => Some(idle.remove(at)),
            None => idle.pop(),
        }
    }

    /// A place on a connection that others use too; or what [`ConnectionPool::take_idle`] gives, if the peer does not let answers share
    /// connections.
    pub fn take_stream(self: &Arc<Self>, class: StreamClass) -> Option<PooledConnection> {
        let streams = self.h2_connections(class);
        if streams.is_http1_only() {
            return self.take_idle();
        }
        let place = streams.try_acquire(self.connector.tls.get().generation)?;
        self.reused.fetch_add(1, Ordering::Relaxed);
        Some(PooledConnection { lease: ConnectionLease::Http2(place), is_reused: true })
    }

    /// A new connection, within `limit`.
    pub async fn open(self: &Arc<Self>, timeout: Duration) -> Result<PooledConnection, DialError> {
        let connecting = self.connector.connect_http1(&self.host, self.port);
        let connection = tokio::time::timeout(timeout, connecting).await.map_err(|_| DialError::TimedOut)??;
        self.opened.fetch_add(1, Ordering::Relaxed);
        Ok(PooledConnection { lease: ConnectionLease::Http1(connection, self.clone()), is_reused: false })
    }

    /// A place on a new connection within `limit`. One that somebody else is just opening is waited for, as long as it will
    /// have room.
    pub async fn open_stream(
        self: &Arc<Self>,
        class: StreamClass,
        timeout: Duration,
    ) -> Result<PooledConnection, DialError> {
        let connecting = self.acquire_or_dial_stream(self.h2_connections(class));
        let way = tokio::time::timeout(timeout, connecting).await.map_err(|_| DialError::TimedOut)??;
        Ok(PooledConnection { lease: way, is_reused: false })
    }

    fn h2_connections(&self, class: StreamClass) -> &H2ConnectionSet {
        match class {
            StreamClass::LongRunning => &self.long_running,
            StreamClass::Short => &self.short_by_runtime[RuntimeIndex::current().index()],
        }
    }

    fn all_h2_connections(&self) -> impl Iterator<Item = &H2ConnectionSet> {
        std::iter::once(&self.long_running).chain(&self.short_by_runtime)
    }

    async fn acquire_or_dial_stream(self: &Arc<Self>, streams: &H2ConnectionSet) -> Result<ConnectionLease, DialError> {
        loop {
            let opener = match streams.acquire(self.connector.tls.get().generation) {
                StreamAcquisition::Acquired(place) => return Ok(ConnectionLease::Http2(place)),
                StreamAcquisition::WaitForDial(news) => match wait_for_dial(news).await {
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

    /// Closes what has been idle for too long, or was opened with certificates that have changed since.
    pub fn close_expired(&self) {
        let generation = self.connector.tls.get().generation;
        let now = Instant::now();
        let age_max = self.limits.idle_timeout;
        let is_old = |connection: &mut Http1Connection| {
            now.saturating_duration_since(connection.idle_since) >= age_max || connection.generation != generation
        };
        let closed: Vec<_> = self.idle.lock().extract_if(.., is_old).collect();
        drop(closed);
        self.all_h2_connections().for_each(|streams| streams.close_expired(generation, age_max));
    }

    /// How many connections are idle.
    pub fn idle_count(&self) -> usize {
        self.idle.lock().len()
    }

    /// How many connections answers share.
    pub fn h2_connection_count(&self) -> usize {
        self.all_h2_connections().map(H2ConnectionSet::len).sum()
    }

    /// How requests were served so far.
    pub fn stats(&self) -> PoolStats {
        PoolStats { opened: self.opened.load(Ordering::Relaxed), reused: self.reused.load(Ordering::Relaxed) }
    }

    #[cfg(test)]
    pub(super) fn usable_idle_count(&self) -> usize {
        self.idle.lock().iter().filter(|connection| connection.is_open_and_idle()).count()
    }

    /// Takes back a connection whose answer was read to its end. One that cannot carry another request is closed.
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

/// A connection taken for one request, or a place on one.
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

/// Why a request was not answered.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct SendError {
    /// What the connection says.
    #[source]
    pub error: PeerConnectionError,
    /// The request, if nothing of it was sent. Otherwise nobody knows what became of it.
    pub unsent: Option<Box<Request<RequestBody>>>,
}

impl PooledConnection {
    /// Whether it has carried a request before. Such a connection may have been closed by the peer while we were about to send.
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

    /// Sends a request, whose target must be a path and which must name a host, and waits for the head of the answer. Has no
    /// time limit; dropping it closes the connection, or takes back the request on one that is shared, which carries no bodies
    /// of requests.
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
                    // Nobody knows whether the peer has seen it.
                    Err(error) => Err(SendError { error: error.into(), unsent: None }),
                }
            }
        }
    }
}
