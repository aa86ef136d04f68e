//! One connection to one etcd member.
//!
//! The backend manages connections itself instead of using a pool, because a write must know two facts that a pool
//! hides: whether its request was sent at all, and that the member had responded on this connection before.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::Stream;
use futures_util::future::BoxFuture;
use http::uri::PathAndQuery;
use http::{Request, Response, Uri};
use hyper::body::Incoming;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::pki_types::ServerName;
use tasks::Tasks;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio_rustls::TlsConnector;
use tonic::body::Body;
use tonic::client::{Grpc, GrpcService};
use tonic::{Status, Streaming};
use tonic_prost::ProstCodec;

use super::Timeouts;
use super::failure::{UnsentRequest, classify_status, format_error_chain};
use super::proto::{EtcdRequest, StatusRequest};
use super::version::EtcdVersion;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A connection, and the channel that reports why it failed.
type NewConnection = (SendRequest<Body>, oneshot::Receiver<String>);

/// The use of a connection. Watches have a connection of their own, so that a flood of events delays no request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnectionPurpose {
    Requests,
    Watches,
}

/// Bytes of unread events per watch that etcd may send ahead; bounds the memory of a slow watch.
const WATCH_WINDOW_BYTES: u32 = 1 << 20;

/// HTTP/2's maximum: only the window of each stream limits it, so that a slow watch never blocks the others.
const CONNECTION_WINDOW_BYTES: u32 = (1 << 31) - 1;

/// The address of an etcd member, from `--etcd-servers`.
#[derive(Clone, Debug)]
pub(super) struct EtcdAddress {
    /// Scheme and authority, for request URIs.
    pub(super) origin: Uri,
    /// Host name or IP address, without brackets.
    pub(super) host: String,
    pub(super) port: u16,
    /// The name that the server certificate must be valid for; `None`: no TLS.
    pub(super) tls_name: Option<ServerName<'static>>,
}

impl fmt::Display for EtcdAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // `Uri` displays an empty path as a slash.
        f.write_str(self.origin.to_string().trim_end_matches('/'))
    }
}

/// A plain or a TLS stream.
pub(super) trait IoStream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> IoStream for T {}

#[derive(Clone)]
pub(super) struct EtcdDialer {
    pub(super) tls: Option<TlsConnector>,
    pub(super) timeouts: Timeouts,
    pub(super) tasks: Tasks,
}

impl EtcdDialer {
    /// Connects, and sends a status request: a connection on which the member does not respond counts as failed.
    pub(super) async fn dial(
        &self,
        address: &EtcdAddress,
        purpose: ConnectionPurpose,
    ) -> Result<EtcdConnection, String> {
        let limit = self.timeouts.connect;
        match tokio::time::timeout(limit, self.dial_without_timeout(address, purpose)).await {
            Ok(dialed) => dialed.map_err(|reason| format!("cannot connect: {reason}")),
            Err(_) => Err(format!("no response on a new connection within {limit:?}")),
        }
    }

    async fn dial_without_timeout(
        &self,
        address: &EtcdAddress,
        purpose: ConnectionPurpose,
    ) -> Result<EtcdConnection, String> {
        let (sender, ended) = self.connect(address, purpose).await.map_err(|error| format_error_chain(&*error))?;
        let mut link = EtcdConnection {
            sender,
            origin: address.origin.clone(),
            version: None,
            cluster: 0,
            is_retired: Arc::default(),
        };
        let status = match link.unary(tonic::Request::new(StatusRequest {})).await {
            Ok(status) => status,
            // The request reports only that the connection is closed; the connection task knows why.
            Err(_) if link.sender.is_closed() => {
                let reason = ended.await.unwrap_or("etcd closed the connection".to_owned());
                // etcd rejects a client certificate only after the client side of the TLS handshake has finished, if it
                // says so at all.
                let hint = "; etcd may not accept our certificate, see --etcd-certfile";
                return Err(if address.tls_name.is_some() { reason + hint } else { reason });
            }
            Err(status) => return Err(classify_status(&status).into_reason()),
        };
        link.version = EtcdVersion::parse(&status.version);
        link.cluster = status.header.unwrap_or_default().cluster_id;
        Ok(link)
    }

    async fn connect(&self, address: &EtcdAddress, purpose: ConnectionPurpose) -> Result<NewConnection, BoxError> {
        self.handshake(self.open_io(address).await?, purpose).await
    }

    /// Opens a TCP or TLS connection without any HTTP/2 exchange.
    pub(super) async fn open_io(&self, address: &EtcdAddress) -> Result<Box<dyn IoStream>, BoxError> {
        let tcp = TcpStream::connect((address.host.as_str(), address.port)).await?;
        tcp.set_nodelay(true)?;
        Ok(match (&self.tls, &address.tls_name) {
            (Some(tls), Some(name)) => Box::new(tls.connect(name.clone(), tcp).await?),
            _ => Box::new(tcp),
        })
    }

    async fn handshake(&self, io: Box<dyn IoStream>, purpose: ConnectionPurpose) -> Result<NewConnection, BoxError> {
        let mut builder = Builder::new(TaskExecutor(self.tasks.clone()));
        builder
            .timer(TokioTimer::new())
            .keep_alive_interval(self.timeouts.keep_alive_interval)
            .keep_alive_timeout(self.timeouts.keep_alive_timeout);
        if purpose == ConnectionPurpose::Watches {
            builder
                .initial_stream_window_size(WATCH_WINDOW_BYTES)
                .initial_connection_window_size(CONNECTION_WINDOW_BYTES);
        }
        let (sender, connection) = builder.handshake(TokioIo::new(io)).await?;
        let stop = self.tasks.stop_token();
        let (closed_tx, closed_rx) = oneshot::channel();
        self.tasks.spawn_once("etcd connection", async move {
            tokio::select! {
                ended = connection => {
                    if let Err(error) = ended {
                        tracing::debug!(error = &error as &dyn std::error::Error, "etcd connection failed");
                        // The receiver is dropped once the connection has been set up.
                        let _ = closed_tx.send(format_error_chain(&error));
                    }
                }
                () = stop.cancelled() => {}
            }
        });
        Ok((sender, closed_rx))
    }
}

impl fmt::Debug for EtcdDialer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdDialer").field("timeouts", &self.timeouts).finish_non_exhaustive()
    }
}

/// A connection on which a member has responded. Clones share the connection.
#[derive(Clone, Debug)]
pub(super) struct EtcdConnection {
    sender: SendRequest<Body>,
    origin: Uri,
    /// The version of the member; `None` if it cannot be parsed.
    pub(super) version: Option<EtcdVersion>,
    pub(super) cluster: u64,
    is_retired: Arc<AtomicBool>,
}

impl EtcdConnection {
    /// True if the next request must open another connection.
    pub(super) fn is_unusable(&self) -> bool {
        self.sender.is_closed() || self.is_retired.load(Ordering::Relaxed)
    }

    /// Excludes the connection from new requests; those in flight go on.
    pub(super) fn retire(&self) {
        self.is_retired.store(true, Ordering::Relaxed);
    }

    /// Sends a request and awaits its response without a local time limit: `timeout` is only sent to etcd as the gRPC
    /// deadline.
    pub(super) async fn send<C: EtcdRequest>(&self, message: C, timeout: Duration) -> Result<C::Response, Status> {
        let mut request = tonic::Request::new(message);
        request.set_timeout(timeout);
        require_leader(&mut request);
        self.unary(request).await
    }

    pub(super) async fn open_stream<C: EtcdRequest>(
        &self,
        messages: impl Stream<Item = C> + Send + 'static,
    ) -> Result<Streaming<C::Response>, Status> {
        let mut request = tonic::Request::new(messages);
        require_leader(&mut request);
        let codec = ProstCodec::<C, C::Response>::default();
        let answers = self.grpc_client::<C>().streaming(request, PathAndQuery::from_static(C::PATH), codec).await?;
        Ok(answers.into_inner())
    }

    async fn unary<C: EtcdRequest>(&self, request: tonic::Request<C>) -> Result<C::Response, Status> {
        let codec = ProstCodec::<C, C::Response>::default();
        let answer = self.grpc_client::<C>().unary(request, PathAndQuery::from_static(C::PATH), codec).await?;
        Ok(answer.into_inner())
    }

    fn grpc_client<C: EtcdRequest>(&self) -> Grpc<GrpcSender> {
        Grpc::with_origin(GrpcSender(self.sender.clone()), self.origin.clone())
            .max_decoding_message_size(C::RESPONSE_BYTES_MAX)
    }
}

/// Makes a member without a leader fail at once instead of waiting for an election.
fn require_leader<Message>(request: &mut tonic::Request<Message>) {
    request.metadata_mut().insert("hasleader", tonic::metadata::MetadataValue::from_static("true"));
}

/// Sends gRPC requests on a connection and marks those that were never sent as [`UnsentRequest`].
struct GrpcSender(SendRequest<Body>);

impl GrpcService<Body> for GrpcSender {
    type ResponseBody = Incoming;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<Incoming>, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        // HTTP/2 accepts requests at any time; on a closed connection `call` fails with an unsent request.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let sending = self.0.try_send_request(request);
        Box::pin(async move {
            sending.await.map_err(|mut failed| match failed.take_message() {
                Some(_) => UnsentRequest(failed.into_error()).into(),
                None => failed.into_error().into(),
            })
        })
    }
}

/// Spawns hyper's tasks in the [`Tasks`] of the store.
#[derive(Clone)]
struct TaskExecutor(Tasks);

impl<Work> hyper::rt::Executor<Work> for TaskExecutor
where
    Work: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, work: Work) {
        self.0.spawn_once("etcd request body", work);
    }
}
