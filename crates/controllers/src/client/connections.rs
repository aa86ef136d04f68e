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

use super::{ApiError, pinned_certificate};

/// How many watches share a connection: well below the 250 streams that servers allow.
const WATCHES_PER_CONNECTION: usize = 100;
/// It is this machine.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

type Http2Sender = SendRequest<Full<Bytes>>;

/// Where the server is, and how it is known.
#[derive(Clone, Debug)]
pub struct ApiServerAddress {
    /// Where it listens.
    pub socket: SocketAddr,
    /// The certificate that it shows, PEM; read again for every connection.
    pub certificate: PathBuf,
}

/// Connections to one server, opened when they are needed.
pub struct ClientConnections {
    address: ApiServerAddress,
    authority: String,
    request_connection: Mutex<Option<Http2Sender>>,
    watch_connections: Mutex<Vec<WatchConnection>>,
    tasks: Tasks,
}

/// A connection for watches; each holds a clone of the seat.
struct WatchConnection {
    sender: Http2Sender,
    slot: WatchSlot,
}

/// Counts the watches on a connection.
pub(super) type WatchSlot = Arc<()>;

impl fmt::Debug for ClientConnections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientConnections").field("address", &self.address).finish_non_exhaustive()
    }
}

impl ClientConnections {
    /// No connection yet. Those to come are moved along by `tasks`.
    pub fn new(address: ApiServerAddress, tasks: Tasks) -> Arc<Self> {
        let authority = address.socket.to_string();
        Arc::new(Self {
            address,
            authority,
            request_connection: Mutex::default(),
            watch_connections: Mutex::default(),
            tasks,
        })
    }

    /// Host and port.
    pub(super) fn authority(&self) -> &str {
        &self.authority
    }

    /// Sends a short request.
    pub(super) async fn send_request(&self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, ApiError> {
        let mut sender = {
            let mut kept = self.request_connection.lock().await;
            match kept.as_ref().filter(|sender| !sender.is_closed()) {
                Some(sender) => sender.clone(),
                None => kept.insert(self.connect().await?).clone(),
            }
        };
        sender.send_request(request).await.map_err(no_response)
    }

    /// Sends a request whose answer lasts. The seat is to be held as long.
    pub(super) async fn open_watch(
        &self,
        request: Request<Full<Bytes>>,
    ) -> Result<(Response<Incoming>, WatchSlot), ApiError> {
        let (mut sender, seat) = {
            let mut connections = self.watch_connections.lock().await;
            connections.retain(|connection| !connection.sender.is_closed());
            let has_room =
                |connection: &&WatchConnection| Arc::strong_count(&connection.slot) <= WATCHES_PER_CONNECTION;
            match connections.iter().find(has_room) {
                Some(connection) => (connection.sender.clone(), connection.slot.clone()),
                None => {
                    let (sender, seat) = (self.connect().await?, WatchSlot::default());
                    connections.push(WatchConnection { sender: sender.clone(), slot: seat.clone() });
                    (sender, seat)
                }
            }
        };
        let response = sender.send_request(request).await.map_err(no_response)?;
        Ok((response, seat))
    }

    async fn connect(&self) -> Result<Http2Sender, ApiError> {
        let connecting = async {
            let tls = pinned_certificate::pinned_client_config(&self.address.certificate)?;
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
            .map_err(ApiError::NoResponse)?;
        let stop = self.tasks.stop_token();
        self.tasks.spawn_once("controllers-connection", async move {
            if let Some(Err(error)) = stop.run_until_cancelled(connection).await {
                tracing::debug!(%error, "a connection of the controllers ended");
            }
        });
        Ok(sender)
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it is what map_err gives")]
fn no_response(error: hyper::Error) -> ApiError {
    ApiError::NoResponse(error.to_string())
}
