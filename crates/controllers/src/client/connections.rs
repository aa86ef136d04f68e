//! The HTTP/2 connections to the server, shared by all identities.
//!
//! Short requests use one connection and watches others, so that a request never waits for a stream that a watch
//! occupies.

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
use transport::peer::ClientTlsFiles;

use super::{ApiError, pinned_certificate};

/// Watches per connection: well below the 250 streams that servers allow.
const WATCHES_PER_CONNECTION: usize = 100;
/// Generous, since the server runs on the same machine.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

type Http2Sender = SendRequest<Full<Bytes>>;

/// The address of the server, and how it is verified.
#[derive(Clone, Debug)]
pub struct ApiServerAddress {
    /// The address that it listens on.
    pub socket: SocketAddr,
    /// What its serving certificate must be.
    pub trust: ServerTrust,
}

/// How the serving certificate of a server is verified. Files are in PEM, and read again for every connection.
#[derive(Clone, Debug)]
pub enum ServerTrust {
    /// It is the certificate in this file, as that of this process itself.
    Certificate(PathBuf),
    /// An authority in this file issued it for the address.
    Authority(PathBuf),
}

/// Connections to one server, opened on demand.
pub struct ClientConnections {
    address: ApiServerAddress,
    authority: String,
    request_connection: Mutex<Option<Http2Sender>>,
    watch_connections: Mutex<Vec<WatchConnection>>,
    tasks: Tasks,
}

/// A connection for watches; each watch holds a clone of the slot.
struct WatchConnection {
    sender: Http2Sender,
    slot: WatchSlot,
}

/// Its reference count is the number of watches on a connection.
pub(super) type WatchSlot = Arc<()>;

impl fmt::Debug for ClientConnections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientConnections").field("address", &self.address).finish_non_exhaustive()
    }
}

impl ClientConnections {
    /// Creates the pool without connections. Connections run on `tasks`.
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

    pub(super) fn authority(&self) -> &str {
        &self.authority
    }

    /// Sends a short request on the shared connection.
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

    /// Sends a watch request. The caller must hold the slot for as long as the response lasts.
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
            let tls = match &self.address.trust {
                ServerTrust::Certificate(file) => Arc::new(pinned_certificate::pinned_client_config(file)?),
                ServerTrust::Authority(file) => {
                    let files = ClientTlsFiles { ca_bundle: file.clone(), client_certificate: None };
                    files.load().map_err(|error| error.to_string())?.http2_config()
                }
            };
            let stream = TcpStream::connect(self.address.socket).await.map_err(|error| error.to_string())?;
            stream.set_nodelay(true).map_err(|error| error.to_string())?;
            let name = ServerName::from(self.address.socket.ip());
            let stream = TlsConnector::from(tls).connect(name, stream).await;
            let stream = TokioIo::new(stream.map_err(|error| error.to_string())?);
            http2::handshake(TokioExecutor::new(), stream).await.map_err(|error| error.to_string())
        };
        let (sender, connection) = tokio::time::timeout(CONNECT_TIMEOUT, connecting)
            .await
            .unwrap_or_else(|_| Err("no connection before the timeout".to_owned()))
            .map_err(ApiError::NoResponse)?;
        let stop = self.tasks.stop_token();
        self.tasks.spawn_once("controllers-connection", async move {
            if let Some(Err(error)) = stop.run_until_cancelled(connection).await {
                tracing::debug!(%error, "controller connection failed");
            }
        });
        Ok(sender)
    }
}

#[expect(clippy::needless_pass_by_value, reason = "map_err passes it by value")]
fn no_response(error: hyper::Error) -> ApiError {
    ApiError::NoResponse(error.to_string())
}
