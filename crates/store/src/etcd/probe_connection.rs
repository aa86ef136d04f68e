//! A dedicated connection for probes, on which one probe follows another.
//!
//! Every consistent read waits for a probe, so probes must be cheap. The general path through
//! [`EtcdMembers`](super::EtcdMembers) has a task per connection and one per request, each of which wakes the next;
//! here the probing task drives the connection itself. This path handles only success: on any failure it closes the
//! connection, and the probe takes the general path, which knows failover and deadlines.

use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use futures_util::future::poll_fn;
use h2::client::SendRequest;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri};
use prost::Message as _;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::bdp_ping_filter::BdpPingFilter;
use super::connection::{EtcdAddress, EtcdDialer};
use super::proto::{EtcdRequest as _, RangeRequest, RangeResponse};
use super::reads::{probe_request, response_revision};
use crate::contract::Revision;

/// The time after which a probe takes the general path.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);

/// A connection idle for this long may have been cut by a middlebox, so a new one is opened.
const IDLE_TIMEOUT: Duration = Duration::from_secs(20);

/// The wait before reopening a failed connection.
const REOPEN_DELAY: Duration = Duration::from_secs(5);

/// Responses to probes have some thirty bytes.
const RESPONSE_BYTES_MAX: usize = 1 << 10;

/// The prefix of a gRPC message: one byte for compression, four for the length.
const GRPC_PREFIX_BYTES: usize = 5;

/// The probe connection, open or not.
#[derive(Debug, Default)]
pub(super) struct ProbeConnection {
    state: ProbeConnectionState,
}

#[derive(Debug, Default)]
enum ProbeConnectionState {
    #[default]
    Closed,
    /// A background task is connecting.
    Opening(oneshot::Receiver<Result<OpenProbeConnection, String>>),
    Open(Box<OpenProbeConnection>),
    /// It failed and must not be reopened before this time.
    BackingOff(Instant),
}

#[derive(Clone, Debug)]
pub(super) struct EtcdProbeTarget {
    pub(super) address: EtcdAddress,
    /// The cluster id that the member must report.
    pub(super) cluster: u64,
}

impl ProbeConnection {
    /// Returns the current revision; `None` if the connection is not open or fails. Starts opening it if there is a
    /// target.
    pub(super) async fn probe(
        &mut self,
        target: impl FnOnce() -> Option<EtcdProbeTarget>,
        dialer: &EtcdDialer,
    ) -> Option<Revision> {
        self.advance_state(target, dialer);
        let ProbeConnectionState::Open(open) = &mut self.state else { return None };
        let answered = tokio::time::timeout(PROBE_TIMEOUT, open.probe()).await;
        let revision = answered.ok().flatten();
        if revision.is_none() {
            self.state = ProbeConnectionState::BackingOff(Instant::now() + REOPEN_DELAY);
        }
        revision
    }

    /// Takes over the result of a background connect, and starts one if the connection is closed, idle for too long, or
    /// past its backoff.
    fn advance_state(&mut self, target: impl FnOnce() -> Option<EtcdProbeTarget>, dialer: &EtcdDialer) {
        match &mut self.state {
            ProbeConnectionState::Open(open) if open.last_used.elapsed() < IDLE_TIMEOUT => return,
            ProbeConnectionState::BackingOff(until) if *until > Instant::now() => return,
            ProbeConnectionState::Opening(opening) => match opening.try_recv() {
                Ok(Ok(open)) => {
                    self.state = ProbeConnectionState::Open(Box::new(open));
                    return;
                }
                Ok(Err(reason)) => {
                    tracing::debug!(reason, "failed to open the etcd probe connection");
                    self.state = ProbeConnectionState::BackingOff(Instant::now() + REOPEN_DELAY);
                    return;
                }
                Err(oneshot::error::TryRecvError::Empty) => return,
                Err(oneshot::error::TryRecvError::Closed) => {}
            },
            ProbeConnectionState::Closed | ProbeConnectionState::Open(_) | ProbeConnectionState::BackingOff(_) => {}
        }
        self.state = target().map_or(ProbeConnectionState::Closed, |target| {
            ProbeConnectionState::Opening(open_in_background(target, dialer))
        });
    }
}

/// Connects in a background task, so that no probe waits for it.
fn open_in_background(
    target: EtcdProbeTarget,
    dialer: &EtcdDialer,
) -> oneshot::Receiver<Result<OpenProbeConnection, String>> {
    let (opened_tx, opened_rx) = oneshot::channel();
    let (dialing, limit) = (dialer.clone(), dialer.timeouts.connect);
    dialer.tasks.spawn_once("etcd probe connection", async move {
        let opened = tokio::time::timeout(limit, OpenProbeConnection::new(&target, &dialing)).await;
        // The receiver is gone if the store was closed.
        let _ = opened_tx.send(opened.unwrap_or_else(|_| Err("no connection before the deadline".to_owned())));
    });
    opened_rx
}

type H2Driver = Pin<Box<dyn Future<Output = Result<(), h2::Error>> + Send>>;

struct OpenProbeConnection {
    sender: SendRequest<Bytes>,
    connection: H2Driver,
    uri: Uri,
    headers: HeaderMap,
    message: Bytes,
    cluster: u64,
    last_used: Instant,
}

impl std::fmt::Debug for OpenProbeConnection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenProbeConnection")
            .field("uri", &self.uri)
            .field("used", &self.last_used)
            .finish_non_exhaustive()
    }
}

impl OpenProbeConnection {
    async fn new(target: &EtcdProbeTarget, dialer: &EtcdDialer) -> Result<Self, String> {
        let io = dialer.open_io(&target.address).await.map_err(|error| error.to_string())?;
        let handshake = h2::client::handshake(BdpPingFilter::new(io));
        let (sender, connection) = handshake.await.map_err(|error| error.to_string())?;
        let mut uri = target.address.origin.clone().into_parts();
        uri.path_and_query = Some(PathAndQuery::from_static(RangeRequest::PATH));
        let uri = Uri::from_parts(uri).map_err(|error| error.to_string())?;
        let header = |name, value| (HeaderName::from_static(name), HeaderValue::from_static(value));
        // `hasleader` makes a member without a leader fail at once.
        let headers =
            [header("content-type", "application/grpc"), header("te", "trailers"), header("hasleader", "true")];
        Ok(Self {
            sender,
            connection: Box::pin(connection),
            uri,
            headers: headers.into_iter().collect(),
            message: encode_probe(),
            cluster: target.cluster,
            last_used: Instant::now(),
        })
    }

    /// Sends one probe. `None`: it failed, and the connection must be closed.
    async fn probe(&mut self) -> Option<Revision> {
        let mut request = Request::new(());
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.uri.clone();
        *request.headers_mut() = self.headers.clone();
        let mut asking = pin!(unary_call(&mut self.sender, request, self.message.clone()));
        let connection = &mut self.connection;
        let answer = poll_fn(|context| {
            // The call queues frames, the connection writes and reads, and the call then sees the response.
            for _ in 0..2 {
                if let Poll::Ready(answer) = asking.as_mut().poll(context) {
                    return Poll::Ready(answer);
                }
                if connection.as_mut().poll(context).is_ready() {
                    return Poll::Ready(None);
                }
            }
            asking.as_mut().poll(context)
        });
        let answer = RangeResponse::decode(answer.await?).ok()?;
        self.last_used = Instant::now();
        (answer.header?.cluster_id == self.cluster).then(|| response_revision(&answer))
    }
}

/// Makes one unary gRPC call and returns the response message; `None` on any failure.
async fn unary_call(sender: &mut SendRequest<Bytes>, request: Request<()>, message: Bytes) -> Option<Bytes> {
    poll_fn(|context| sender.poll_ready(context)).await.ok()?;
    let (answer, mut body) = sender.send_request(request, false).ok()?;
    body.send_data(message, true).ok()?;
    let mut body = answer.await.ok()?.into_body();
    let mut message = BytesMut::new();
    while let Some(data) = body.data().await {
        let data = data.ok()?;
        body.flow_control().release_capacity(data.len()).ok()?;
        message.extend_from_slice(&data);
        if message.len() > RESPONSE_BYTES_MAX {
            return None;
        }
    }
    let trailers = body.trailers().await.ok()??;
    if trailers.get("grpc-status")? != "0" || message.len() < GRPC_PREFIX_BYTES || message[0] != 0 {
        return None;
    }
    Some(message.freeze().slice(GRPC_PREFIX_BYTES..))
}

fn encode_probe() -> Bytes {
    let request = probe_request();
    let mut message = BytesMut::new();
    message.put_u8(0);
    message.put_u32(u32::try_from(request.encoded_len()).expect("a probe request is a few bytes long"));
    request.encode(&mut message).expect("BytesMut grows as needed");
    message.freeze()
}
