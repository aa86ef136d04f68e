//! The lane for probes: a connection that nobody else uses, on which one probe follows another.
//!
//! Every consistent read waits for a probe, so that a probe should cost little. The general way to ask etcd has a task for
//! each connection and one for each request, and each wakes the next; here whoever probes moves the connection along itself.
//! Only the good case is handled: whatever else happens, the lane is closed, and the probe is asked the general way, which
//! knows about failing etcds and deadlines.

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

/// For how long a probe waits before it is asked the general way. An etcd that takes longer has other troubles.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);

/// A lane that was quiet for so long may have been cut by something in between.
const IDLE_TIMEOUT: Duration = Duration::from_secs(20);

/// For how long nobody tries to open a lane after one failed.
const REOPEN_DELAY: Duration = Duration::from_secs(5);

/// Answers to probes have some thirty bytes.
const RESPONSE_BYTES_MAX: usize = 1 << 10;

/// What gRPC puts before a message: that it is not compressed, and its length.
const GRPC_PREFIX_BYTES: usize = 5;

/// The way for probes, open or not.
#[derive(Debug, Default)]
pub(super) struct ProbeConnection {
    state: ProbeConnectionState,
}

#[derive(Debug, Default)]
enum ProbeConnectionState {
    #[default]
    Closed,
    /// Somebody is at it.
    Opening(oneshot::Receiver<Result<OpenProbeConnection, String>>),
    Open(Box<OpenProbeConnection>),
    /// It failed, and is not to be opened before then.
    BackingOff(Instant),
}

/// An etcd to probe.
#[derive(Clone, Debug)]
pub(super) struct EtcdProbeTarget {
    pub(super) address: EtcdAddress,
    /// The cluster that it must belong to.
    pub(super) cluster: u64,
}

impl ProbeConnection {
    /// The current revision; `None` if the lane cannot tell. Opens it for the next probe, if there is a target.
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

    /// Goes on to what has become of the state meanwhile.
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
                    tracing::debug!(reason, "no connection to etcd for probes alone");
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

/// Opens a lane in the background, so that no probe waits for it.
fn open_in_background(
    target: EtcdProbeTarget,
    dialer: &EtcdDialer,
) -> oneshot::Receiver<Result<OpenProbeConnection, String>> {
    let (tell, told) = oneshot::channel();
    let (dialing, limit) = (dialer.clone(), dialer.timeouts.connect);
    dialer.tasks.spawn_once("etcd probe lane", async move {
        let opened = tokio::time::timeout(limit, OpenProbeConnection::new(&target, &dialing)).await;
        // Who does not wait any more has no use for it.
        let _ = tell.send(opened.unwrap_or_else(|_| Err("no answer in time".to_owned())));
    });
    told
}

type H2Driver = Pin<Box<dyn Future<Output = Result<(), h2::Error>> + Send>>;

/// An open lane.
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
        // The last one makes an etcd that has lost its leader say so at once.
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

    /// Asks once. `None`: it did not go well, and the connection is of no more use.
    async fn probe(&mut self) -> Option<Revision> {
        let mut request = Request::new(());
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.uri.clone();
        *request.headers_mut() = self.headers.clone();
        let mut asking = pin!(unary_call(&mut self.sender, request, self.message.clone()));
        let connection = &mut self.connection;
        let answer = poll_fn(|context| {
            // The exchange says what it wants sent, the connection sends and reads, and the exchange looks at what came.
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

/// One gRPC call: the message of a good answer.
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

/// A probe as gRPC sends it.
fn encode_probe() -> Bytes {
    let request = probe_request();
    let mut message = BytesMut::new();
    message.put_u8(0);
    message.put_u32(u32::try_from(request.encoded_len()).expect("some bytes"));
    request.encode(&mut message).expect("it grows");
    message.freeze()
}
