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
use tasks::WorkerNumber;
use tokio::io::BufReader;
use tokio::time::Instant;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::body::{PeerBody, RequestBody};
use super::connection::{Connection, Unanswered};
use super::dial::{DialError, Dialed, Dialer, Stream};
use super::error::LineError;
use super::shared::{Place, Shared};
use super::socket::Socket;
use super::streams::{News, Opened, Streams, Turn, heard};
use super::tls::{ClientTls, HTTP2};
use crate::Watched;

/// What every peer's certificate must be for (KEP-4020 and kube-apiserver): one name for all, since addresses change.
const SERVER_NAME: &str = "kubernetes.default.svc";

/// How much is read at once of what shares a connection: a record of TLS and what comes with it.
const READ_AHEAD: usize = 20 << 10;

/// How connections to peers are opened.
#[derive(Debug)]
pub struct Connector {
    tls: Watched<ClientTls>,
    dialer: Dialer,
    server_name: ServerName<'static>,
}

impl Connector {
    /// Opens connections this way, with these certificates.
    pub fn new(tls: Watched<ClientTls>, dialer: Dialer) -> Self {
        let server_name = ServerName::try_from(SERVER_NAME).expect("it is a name");
        Self { tls, dialer, server_name }
    }

    /// The same, to servers whose certificates are for another name.
    pub fn with_server_name(self, server_name: ServerName<'static>) -> Self {
        Self { server_name, ..self }
    }

    /// A connection that carries one request at a time.
    async fn connect(&self, host: &str, port: u16) -> Result<Connection, DialError> {
        let tls = self.tls.get();
        let Dialed { stream, socket } = self.dialer.dial(host, port).await?;
        own(self.secure(&tls.config, stream).await?, socket, tls.generation).await
    }

    /// A connection that answers share, if the peer can; otherwise one that carries one request at a time.
    async fn connect_to_share(&self, host: &str, port: u16) -> Result<Opened, DialError> {
        let tls = self.tls.get();
        let Dialed { stream, socket } = self.dialer.dial(host, port).await?;
        // rustls reads little at once, and answers come many at once.
        let stream = Box::new(BufReader::with_capacity(READ_AHEAD, stream));
        let stream = self.secure(&tls.sharing, stream).await?;
        if stream.get_ref().1.alpn_protocol() == Some(HTTP2) {
            Ok(Opened::Shared(Shared::new(stream, tls.generation).await.map_err(DialError::Unreachable)?))
        } else {
            Ok(Opened::Own(own(stream, socket, tls.generation).await?))
        }
    }

    async fn secure(
        &self,
        config: &Arc<ClientConfig>,
        stream: Box<dyn Stream>,
    ) -> Result<TlsStream<Box<dyn Stream>>, DialError> {
        let connector = TlsConnector::from(config.clone());
        connector.connect(self.server_name.clone(), stream).await.map_err(DialError::Tls)
    }
}

async fn own(stream: impl Stream + 'static, socket: Socket, generation: u64) -> Result<Connection, DialError> {
    let connection = Connection::new(stream, socket, generation).await;
    connection.map_err(|error| DialError::Unreachable(std::io::Error::other(error)))
}

/// How many idle connections are kept, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct PoolLimits {
    /// What is more than this is closed when its request is over.
    pub idle_max: usize,
    /// What was idle for longer is closed.
    pub idle_age_max: Duration,
}

impl PoolLimits {
    /// As many short requests to one peer at once find a connection; more than kube-apiserver's 25, since here each connection
    /// carries only one.
    pub const IDLE_MAX: usize = 100;
    /// Less than the 32 s after which the other side closes a quiet connection: a request should not meet its end.
    pub const IDLE_AGE_MAX: Duration = Duration::from_secs(25);
}

impl Default for PoolLimits {
    fn default() -> Self {
        Self { idle_max: Self::IDLE_MAX, idle_age_max: Self::IDLE_AGE_MAX }
    }
}

/// The connections to one peer.
pub struct Pool {
    connector: Arc<Connector>,
    host: Box<str>,
    port: u16,
    limits: PoolLimits,
    /// The one that was used last is at the end, and is used first.
    idle: Mutex<Vec<Connection>>,
    /// Those that lasting answers share.
    lasting: Streams,
    /// Those that brief answers share, of each worker its own.
    brief: Box<[Streams]>,
    opened: AtomicU64,
    reused: AtomicU64,
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("host", &self.host).field("port", &self.port).finish_non_exhaustive()
    }
}

/// What shares connections with its like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// Answers that last, such as watches: a connection each would cost more than the answer.
    Lasting,
    /// Answers that are short and come soon: what several of them say travels together. They share with those of the same
    /// worker, so that nobody has to be woken elsewhere.
    Brief,
}

/// How often connections were opened, and how often one was used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServedBy {
    /// New connections.
    pub opened: u64,
    /// Requests that found one.
    pub reused: u64,
}

impl Pool {
    /// A pool without connections to a peer that listens there.
    pub fn new(connector: Arc<Connector>, host: &str, port: u16, limits: PoolLimits) -> Arc<Self> {
        Arc::new(Self {
            connector,
            host: host.into(),
            port,
            limits,
            idle: Mutex::default(),
            lasting: Streams::default(),
            brief: (0..WorkerNumber::count()).map(|_| Streams::default()).collect(),
            opened: AtomicU64::new(0),
            reused: AtomicU64::new(0),
        })
    }

    /// An idle connection that seems to be alive, the last used first.
    pub fn take(self: &Arc<Self>) -> Option<Line> {
        let generation = self.connector.tls.get().generation;
        let now = Instant::now();
        loop {
            let mut connection = self.pop()?;
            let is_young = now.saturating_duration_since(connection.idle_since) < self.limits.idle_age_max;
            if is_young && connection.generation == generation && connection.is_quiet() && connection.settle() {
                self.reused.fetch_add(1, Ordering::Relaxed);
                return Some(Line { way: Way::Own(connection, self.clone()), is_reused: true });
            }
        }
    }

    /// The last used of those that are at home here; of all if there is none, because a new one costs more than to move it.
    fn pop(&self) -> Option<Connection> {
        let mut idle = self.idle.lock();
        match idle.iter().rposition(Connection::is_at_home) {
            Some(at) => Some(idle.remove(at)),
            None => idle.pop(),
        }
    }

    /// A place on a connection that others use too; or what [`Pool::take`] gives, if the peer does not let answers share
    /// connections.
    pub fn take_shared(self: &Arc<Self>, sharing: Sharing) -> Option<Line> {
        let streams = self.streams(sharing);
        if streams.are_apart() {
            return self.take();
        }
        let place = streams.place(self.connector.tls.get().generation)?;
        self.reused.fetch_add(1, Ordering::Relaxed);
        Some(Line { way: Way::Shared(place), is_reused: true })
    }

    /// A new connection, within `limit`.
    pub async fn open(self: &Arc<Self>, limit: Duration) -> Result<Line, DialError> {
        let connecting = self.connector.connect(&self.host, self.port);
        let connection = tokio::time::timeout(limit, connecting).await.map_err(|_| DialError::TimedOut)??;
        self.opened.fetch_add(1, Ordering::Relaxed);
        Ok(Line { way: Way::Own(connection, self.clone()), is_reused: false })
    }

    /// A place on a new connection within `limit`. One that somebody else is just opening is waited for, as long as it will
    /// have room.
    pub async fn open_shared(self: &Arc<Self>, sharing: Sharing, limit: Duration) -> Result<Line, DialError> {
        let connecting = self.way_to_share(self.streams(sharing));
        let way = tokio::time::timeout(limit, connecting).await.map_err(|_| DialError::TimedOut)??;
        Ok(Line { way, is_reused: false })
    }

    fn streams(&self, sharing: Sharing) -> &Streams {
        match sharing {
            Sharing::Lasting => &self.lasting,
            Sharing::Brief => &self.brief[WorkerNumber::here().index()],
        }
    }

    fn all_streams(&self) -> impl Iterator<Item = &Streams> {
        std::iter::once(&self.lasting).chain(&self.brief)
    }

    async fn way_to_share(self: &Arc<Self>, streams: &Streams) -> Result<Way, DialError> {
        loop {
            let opener = match streams.turn(self.connector.tls.get().generation) {
                Turn::Take(place) => return Ok(Way::Shared(place)),
                Turn::Wait(news) => match heard(news).await {
                    News::Failed(error) => return Err(error.again()),
                    News::Opened | News::None => continue,
                },
                Turn::Open(opener) => opener,
            };
            let opened = self.connector.connect_to_share(&self.host, self.port).await;
            if opened.is_ok() {
                self.opened.fetch_add(1, Ordering::Relaxed);
            }
            match opened {
                Ok(Opened::Shared(shared)) => {
                    let place = opener.opened(shared);
                    let none = || DialError::Unreachable(std::io::ErrorKind::ConnectionRefused.into());
                    return place.map(Way::Shared).ok_or_else(none);
                }
                Ok(Opened::Own(connection)) => {
                    opener.found_apart();
                    return Ok(Way::Own(connection, self.clone()));
                }
                Err(error) => {
                    opener.failed(&error);
                    return Err(error);
                }
            }
        }
    }

    /// Closes what has been idle for too long, or was opened with certificates that have changed since.
    pub fn sweep(&self) {
        let generation = self.connector.tls.get().generation;
        let now = Instant::now();
        let age_max = self.limits.idle_age_max;
        let is_old = |connection: &mut Connection| {
            now.saturating_duration_since(connection.idle_since) >= age_max || connection.generation != generation
        };
        let closed: Vec<_> = self.idle.lock().extract_if(.., is_old).collect();
        drop(closed);
        self.all_streams().for_each(|streams| streams.sweep(generation, age_max));
    }

    /// How many connections are idle.
    pub fn idle(&self) -> usize {
        self.idle.lock().len()
    }

    /// How many connections answers share.
    pub fn shared(&self) -> usize {
        self.all_streams().map(Streams::len).sum()
    }

    /// How requests were served so far.
    pub fn served_by(&self) -> ServedBy {
        ServedBy { opened: self.opened.load(Ordering::Relaxed), reused: self.reused.load(Ordering::Relaxed) }
    }

    #[cfg(test)]
    pub(super) fn idle_and_quiet(&self) -> usize {
        self.idle.lock().iter().filter(|connection| connection.is_quiet()).count()
    }

    /// Takes back a connection whose answer was read to its end. One that cannot carry another request is closed.
    pub(super) fn put(&self, mut connection: Connection) {
        if connection.generation != self.connector.tls.get().generation || !connection.is_free() {
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
pub struct Line {
    way: Way,
    is_reused: bool,
}

#[derive(Debug)]
enum Way {
    Own(Connection, Arc<Pool>),
    Shared(Place),
}

/// Why a request was not answered.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct SendError {
    /// What the connection says.
    #[source]
    pub error: LineError,
    /// The request, if nothing of it was sent. Otherwise nobody knows what became of it.
    pub unsent: Option<Box<Request<RequestBody>>>,
}

impl Line {
    /// Whether it has carried a request before. Such a connection may have been closed by the peer while we were about to send.
    pub fn is_reused(&self) -> bool {
        self.is_reused
    }

    #[cfg(test)]
    pub(super) fn is_quiet(&self) -> bool {
        match &self.way {
            Way::Own(connection, _) => connection.is_quiet(),
            Way::Shared(_) => false,
        }
    }

    /// Sends a request, whose target must be a path and which must name a host, and waits for the head of the answer. Has no
    /// time limit; dropping it closes the connection, or takes back the request on one that is shared, which carries no bodies
    /// of requests.
    pub async fn send(self, request: Request<RequestBody>) -> Result<Response<PeerBody>, SendError> {
        match self.way {
            Way::Own(mut connection, pool) => match connection.send(request).await {
                Ok(response) if response.status() == StatusCode::SWITCHING_PROTOCOLS => {
                    Ok(response.map(|incoming| PeerBody::of_upgrade(incoming, connection, pool)))
                }
                Ok(response) => Ok(response.map(|incoming| PeerBody::own(incoming, connection, pool))),
                Err(Unanswered { error, unsent }) => {
                    Err(SendError { error: error.into(), unsent: unsent.map(Box::new) })
                }
            },
            Way::Shared(place) => {
                let (head, body) = request.into_parts();
                if !body.is_end_stream() {
                    let unsent = Some(Box::new(Request::from_parts(head, body)));
                    return Err(SendError { error: LineError::Bodied, unsent });
                }
                match place.send(Request::from_parts(head, ())).await {
                    Ok(response) => {
                        let (head, stream) = response.into_parts();
                        let body = PeerBody::shared(stream, &head.headers, place);
                        Ok(Response::from_parts(head, body))
                    }
                    // Nobody knows whether the peer has seen it.
                    Err(error) => Err(SendError { error: error.into(), unsent: None }),
                }
            }
        }
    }
}
