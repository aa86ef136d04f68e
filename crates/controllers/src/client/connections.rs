//! The connections to the server, shared by all identities.
//!
//! HTTP/2: short requests on one connection, watches on others, so that a request never waits for a stream that a watch holds.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::ServerName;
use tasks::Tasks;
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio_rustls::TlsConnector;

use super::{CallError, own_certificate};

/// How many watches share a connection: well below the 250 streams that servers allow.
const WATCHES_PER_CONNECTION: usize = 100;
/// It is this machine.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

type Sender = SendRequest<Full<Bytes>>;

/// Where the server is, and how it is known.
#[derive(Clone, Debug)]
pub struct Address {
    /// Where it listens.
    pub socket: SocketAddr,
    /// The certificate that it shows, PEM; read again for every connection.
    pub certificate: PathBuf,
}

/// Connections to one server, opened when they are needed.
pub struct Connections {
    address: Address,
    authority: String,
    requests: Mutex<Option<Sender>>,
    watches: Mutex<Vec<Shared>>,
    tasks: Tasks,
}

/// A connection for watches; each holds a clone of the seat.
struct Shared {
    sender: Sender,
    seat: Seat,
}

/// Counts the watches on a connection.
pub(super) type Seat = Arc<()>;

impl fmt::Debug for Connections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connections").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Connections {
    /// No connection yet. Those to come are moved along by `tasks`.
    pub fn new(address: Address, tasks: Tasks) -> Arc<Self> {
        let authority = address.socket.to_string();
        Arc::new(Self { address, authority, requests: Mutex::default(), watches: Mutex::default(), tasks })
    }

    /// Host and port.
    pub(super) fn authority(&self) -> &str {
        &self.authority
    }

    /// Sends a short request.
    pub(super) async fn send(&self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, CallError> {
        let mut sender = {
            let mut kept = self.requests.lock().await;
            match kept.as_ref().filter(|sender| !sender.is_closed()) {
                Some(sender) => sender.clone(),
                None => kept.insert(self.connect().await?).clone(),
            }
        };
        sender.send_request(request).await.map_err(unanswered)
    }

    /// Sends a request whose answer lasts. The seat is to be held as long.
    pub(super) async fn watch(&self, request: Request<Full<Bytes>>) -> Result<(Response<Incoming>, Seat), CallError> {
        let (mut sender, seat) = {
            let mut connections = self.watches.lock().await;
            connections.retain(|connection| !connection.sender.is_closed());
            let has_room = |connection: &&Shared| Arc::strong_count(&connection.seat) <= WATCHES_PER_CONNECTION;
            match connections.iter().find(has_room) {
                Some(connection) => (connection.sender.clone(), connection.seat.clone()),
                None => {
                    let (sender, seat) = (self.connect().await?, Seat::default());
                    connections.push(Shared { sender: sender.clone(), seat: seat.clone() });
                    (sender, seat)
                }
            }
        };
        let response = sender.send_request(request).await.map_err(unanswered)?;
        Ok((response, seat))
    }

    async fn connect(&self) -> Result<Sender, CallError> {
        let connecting = async {
            let tls = own_certificate::trusting(&self.address.certificate)?;
            let stream = TcpStream::connect(self.address.socket).await.map_err(|error| error.to_string())?;
            stream.set_nodelay(true).map_err(|error| error.to_string())?;
            let name = ServerName::from(self.address.socket.ip());
            let stream = TlsConnector::from(Arc::new(tls)).connect(name, stream).await;
            let stream = TokioIo::new(stream.map_err(|error| error.to_string())?);
            http2::handshake(TokioExecutor::new(), stream).await.map_err(|error| error.to_string())
        };
        let (sender, connection) = tokio::time::timeout(CONNECT_TIMEOUT, connecting)
            .await
            .unwrap_or_else(|_| Err("no connection in time".to_owned()))
            .map_err(CallError::Unanswered)?;
        let stop = self.tasks.stopping();
        self.tasks.spawn_once("controllers-connection", async move {
            if let Some(Err(error)) = stop.run_until_cancelled(connection).await {
                tracing::debug!(%error, "a connection of the controllers ended");
            }
        });
        Ok(sender)
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it is what map_err gives")]
fn unanswered(error: hyper::Error) -> CallError {
    CallError::Unanswered(error.to_string())
}
