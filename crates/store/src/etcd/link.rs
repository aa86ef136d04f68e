//! One connection to one etcd.
//!
//! Connections are ours rather than a pool's, because a write needs to know two things that a pool hides: whether its
//! request was sent at all, and that the etcd at the other end had answered before the request was entrusted to it.

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
use super::failure::{Unsent, explain, judge};
use super::proto::{Call, StatusRequest};
use super::version::Version;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A connection, and why it ended badly.
type Connected = (SendRequest<Body>, oneshot::Receiver<String>);

/// What a connection is for. Watches have their own, so that a flood of events delays no request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Requests that are answered once.
    Requests,
    /// Streams of events.
    Watches,
}

/// Unread events of one watch that etcd may send ahead, which bounds our memory per slow watch.
const WATCH_WINDOW_BYTES: u32 = 1 << 20;

/// The most that HTTP/2 allows: only the window of each watch holds it back, so that a slow one never stops the others.
const CONNECTION_WINDOW_BYTES: u32 = (1 << 31) - 1;

/// Where an etcd listens, as given by `--etcd-servers`.
#[derive(Clone, Debug)]
pub(super) struct Address {
    /// Scheme and authority, for requests.
    pub(super) origin: Uri,
    /// The name or the address, without brackets.
    pub(super) host: String,
    pub(super) port: u16,
    /// Whom the certificate must be for; `None`: no TLS.
    pub(super) tls_name: Option<ServerName<'static>>,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the slash that an URI without a path is shown with.
        f.write_str(self.origin.to_string().trim_end_matches('/'))
    }
}

/// Plain or TLS.
pub(super) trait Io: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Io for T {}

/// Makes connections.
#[derive(Clone)]
pub(super) struct Dialer {
    pub(super) tls: Option<TlsConnector>,
    pub(super) timeouts: Timeouts,
    pub(super) tasks: Tasks,
}

impl Dialer {
    /// Connects and asks who is there: a connection on which nobody answers is none.
    pub(super) async fn dial(&self, address: &Address, purpose: Purpose) -> Result<Link, String> {
        let limit = self.timeouts.connect;
        match tokio::time::timeout(limit, self.dial_unbounded(address, purpose)).await {
            Ok(dialed) => dialed.map_err(|reason| format!("cannot connect: {reason}")),
            Err(_) => Err(format!("no answer within {limit:?} to a new connection")),
        }
    }

    async fn dial_unbounded(&self, address: &Address, purpose: Purpose) -> Result<Link, String> {
        let (sender, ended) = self.connect(address, purpose).await.map_err(|error| explain(&*error))?;
        let mut link =
            Link { sender, origin: address.origin.clone(), version: None, cluster: 0, is_given_up: Arc::default() };
        let status = match link.unary(tonic::Request::new(StatusRequest {})).await {
            Ok(status) => status,
            // The request knows that the connection has ended, and the connection knows why.
            Err(_) if link.sender.is_closed() => {
                let reason = ended.await.unwrap_or("etcd closed the connection".to_owned());
                // A certificate that etcd does not accept is told after our side of the handshake is done, if at all.
                let hint = "; etcd may not accept our certificate, see --etcd-certfile";
                return Err(if address.tls_name.is_some() { reason + hint } else { reason });
            }
            Err(status) => return Err(judge(&status).into_reason()),
        };
        link.version = Version::parse(&status.version);
        link.cluster = status.header.unwrap_or_default().cluster_id;
        Ok(link)
    }

    async fn connect(&self, address: &Address, purpose: Purpose) -> Result<Connected, BoxError> {
        self.handshake(self.stream(address).await?, purpose).await
    }

    /// A connection on which nothing was said yet.
    pub(super) async fn stream(&self, address: &Address) -> Result<Box<dyn Io>, BoxError> {
        let tcp = TcpStream::connect((address.host.as_str(), address.port)).await?;
        tcp.set_nodelay(true)?;
        Ok(match (&self.tls, &address.tls_name) {
            (Some(tls), Some(name)) => Box::new(tls.connect(name.clone(), tcp).await?),
            _ => Box::new(tcp),
        })
    }

    async fn handshake(&self, io: Box<dyn Io>, purpose: Purpose) -> Result<Connected, BoxError> {
        let mut builder = Builder::new(Spawn(self.tasks.clone()));
        builder
            .timer(TokioTimer::new())
            .keep_alive_interval(self.timeouts.keep_alive_interval)
            .keep_alive_timeout(self.timeouts.keep_alive_timeout);
        if purpose == Purpose::Watches {
            builder
                .initial_stream_window_size(WATCH_WINDOW_BYTES)
                .initial_connection_window_size(CONNECTION_WINDOW_BYTES);
        }
        let (sender, connection) = builder.handshake(TokioIo::new(io)).await?;
        let stop = self.tasks.stopping();
        let (tell, told) = oneshot::channel();
        self.tasks.spawn_once("etcd connection", async move {
            tokio::select! {
                ended = connection => {
                    if let Err(error) = ended {
                        tracing::debug!(error = &error as &dyn std::error::Error, "a connection to etcd ended");
                        // Only who made the connection asks, and only at the beginning.
                        let _ = tell.send(explain(&error));
                    }
                }
                () = stop.cancelled() => {}
            }
        });
        Ok((sender, told))
    }
}

impl fmt::Debug for Dialer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dialer").field("timeouts", &self.timeouts).finish_non_exhaustive()
    }
}

/// A connection on which an etcd has answered. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct Link {
    sender: SendRequest<Body>,
    origin: Uri,
    /// Of the etcd at the other end; `None`: it says something that we do not understand.
    pub(super) version: Option<Version>,
    /// The cluster that it is a member of.
    pub(super) cluster: u64,
    is_given_up: Arc<AtomicBool>,
}

impl Link {
    /// Whether the next who needs a connection should make another.
    pub(super) fn is_spent(&self) -> bool {
        self.sender.is_closed() || self.is_given_up.load(Ordering::Relaxed)
    }

    /// Entrusts nothing more to it; who uses it keeps it.
    pub(super) fn give_up(&self) {
        self.is_given_up.store(true, Ordering::Relaxed);
    }

    /// Sends a request and waits for its answer, without a limit of our own: `timeout` is what etcd is told.
    pub(super) async fn call<C: Call>(&self, message: C, timeout: Duration) -> Result<C::Answer, Status> {
        let mut request = tonic::Request::new(message);
        request.set_timeout(timeout);
        require_leader(&mut request);
        self.unary(request).await
    }

    /// Opens a stream of messages both ways.
    pub(super) async fn stream<C: Call>(
        &self,
        messages: impl Stream<Item = C> + Send + 'static,
    ) -> Result<Streaming<C::Answer>, Status> {
        let mut request = tonic::Request::new(messages);
        require_leader(&mut request);
        let codec = ProstCodec::<C, C::Answer>::default();
        let answers = self.grpc::<C>().streaming(request, PathAndQuery::from_static(C::PATH), codec).await?;
        Ok(answers.into_inner())
    }

    async fn unary<C: Call>(&self, request: tonic::Request<C>) -> Result<C::Answer, Status> {
        let codec = ProstCodec::<C, C::Answer>::default();
        let answer = self.grpc::<C>().unary(request, PathAndQuery::from_static(C::PATH), codec).await?;
        Ok(answer.into_inner())
    }

    fn grpc<C: Call>(&self) -> Grpc<Sender> {
        Grpc::with_origin(Sender(self.sender.clone()), self.origin.clone())
            .max_decoding_message_size(C::ANSWER_BYTES_MAX)
    }
}

/// Makes an etcd that has lost its leader say so at once instead of waiting for one.
fn require_leader<Message>(request: &mut tonic::Request<Message>) {
    request.metadata_mut().insert("hasleader", tonic::metadata::MetadataValue::from_static("true"));
}

/// Carries gRPC over a connection and marks what never left.
struct Sender(SendRequest<Body>);

impl GrpcService<Body> for Sender {
    type ResponseBody = Incoming;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<Incoming>, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        // HTTP/2 takes requests at any time; a closed connection is told by the call, as an unsent request.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let sending = self.0.try_send_request(request);
        Box::pin(async move {
            sending.await.map_err(|mut failed| match failed.take_message() {
                Some(_) => Unsent(failed.into_error()).into(),
                None => failed.into_error().into(),
            })
        })
    }
}

/// Lets hyper start its tasks in our family.
#[derive(Clone)]
struct Spawn(Tasks);

impl<Work> hyper::rt::Executor<Work> for Spawn
where
    Work: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, work: Work) {
        self.0.spawn_once("etcd request body", work);
    }
}
