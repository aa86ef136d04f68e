//! One attempt to send a request to one candidate.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use http::{Method, Request, Response};
use tokio::time::Instant;
use transport::peer::{ConnectionPool, PeerBody, PooledConnection, RequestBody, SendError, StreamClass};

use super::forwarded_response::{ForwardedBody, RespondingPeer};
use super::peer_set::{Peer, PeerSeat, PingResult, SeatKind};
use super::{Effect, Execution, Lifetime, PeerError, RetryLoop, classify, forwarded_head, upgrade};

/// How a candidate failed, and whether it may have executed the request.
pub(super) type AttemptFailure = (PeerError, Execution);

/// The kind of connection that carries a request.
#[derive(Clone, Copy)]
enum ConnectionMode {
    /// A connection that carries nothing else meanwhile.
    Exclusive,
    /// A stream of a shared HTTP/2 connection. Only for requests that may be sent again if the connection fails.
    Multiplexed(StreamClass),
    /// A new connection that leaves the pool for good.
    Upgrade,
}

/// A request and the candidate that it is sent to.
pub(super) struct ForwardAttempt<'a> {
    pub(super) retry_loop: &'a RetryLoop<'a>,
    pub(super) peer: &'a Arc<Peer>,
    /// Shortens the connect timeout.
    pub(super) has_more_candidates: bool,
}

impl ForwardAttempt<'_> {
    pub(super) async fn run(&self, seat: PeerSeat) -> Result<Response<ForwardedBody>, AttemptFailure> {
        let started = Instant::now();
        let response = self.send(Self::request).await?;
        self.peer.response_duration.observe(started.elapsed().as_secs_f64());
        let classified = self.classify(response).await?;
        self.peer.record_success();
        self.retry_loop.body.discard();
        Ok(self.build_response(classified, seat))
    }

    async fn classify(&self, response: Response<PeerBody>) -> Result<classify::ClassifiedResponse, AttemptFailure> {
        let classifier = classify::ResponseClassifier {
            is_upgrade: self.retry_loop.head.is_upgrade,
            origin: self.retry_loop.forward_request.origin,
            is_vouched_for: self.retry_loop.forward_request.user.is_vouched_for(),
            body_timeout: self.retry_loop.forwarder.limits.silence_timeout,
        };
        if self.retry_loop.head.method == Method::HEAD && classifier.needs_body(&response) {
            // Boxed: rarely needed, and it would enlarge the future of every request.
            classifier.classify(Box::pin(self.send(Self::body_probe)).await?).await?;
            return Ok(classify::pass_through(response));
        }
        classifier.classify(response).await
    }

    fn request(&self) -> Request<RequestBody> {
        self.retry_loop.head.build_request(&self.peer.host, self.retry_loop.body.new_body(self.peer.bandwidth()))
    }

    /// A GET of the same target, sent after a HEAD whose response can only be classified by its body. The HEAD itself is sent as
    /// it came: turned into a GET it would transfer whole lists, open watches, and change `Content-Length`.
    fn body_probe(&self) -> Request<RequestBody> {
        self.retry_loop.head.build_get_request(&self.peer.host)
    }

    /// Sends a request on a pooled connection or a new one, and waits for the head of the response.
    async fn send(&self, make: fn(&Self) -> Request<RequestBody>) -> Result<Response<PeerBody>, AttemptFailure> {
        let pool = self.user_pool()?;
        let mode = self.connection_mode();
        let pooled = match mode {
            ConnectionMode::Exclusive => pool.take_idle(),
            ConnectionMode::Multiplexed(sharing) => pool.take_stream(sharing),
            ConnectionMode::Upgrade => None,
        };
        if let Some(connection) = pooled {
            match self.send_over(connection, make(self)).await {
                Ok(response) => return Ok(response),
                // The peer may close idle connections at any time. If the request may be sent again, open a new connection.
                Err((PeerError::ConnectionBroken(_), execution))
                    if self.retry_loop.relax_for_reads(execution) != Execution::Unknown
                        && self.retry_loop.body.can_replay() => {}
                Err(failed) => return Err(failed),
            }
        }
        let connection = self.open_connection(pool, mode).await?;
        self.send_over(connection, make(self)).await
    }

    fn user_pool(&self) -> Result<&Arc<ConnectionPool>, AttemptFailure> {
        self.peer.pool_for(self.retry_loop.forward_request.user).ok_or((PeerError::NoUsableConnection, Execution::None))
    }

    /// Opens a connection. While there are other candidates, one that is slow to connect is given up as early as one that
    /// does not answer pings.
    async fn open_connection(
        &self,
        pool: &Arc<ConnectionPool>,
        mode: ConnectionMode,
    ) -> Result<PooledConnection, AttemptFailure> {
        let limits = &self.retry_loop.forwarder.limits;
        let timeout = if self.has_more_candidates {
            limits.connect_timeout.min(limits.ping_timeout)
        } else {
            limits.connect_timeout
        };
        // Boxed: rarely needed, and it would enlarge the future of every request.
        let opened = match mode {
            ConnectionMode::Multiplexed(sharing) => Box::pin(pool.open_stream(sharing, timeout)).await,
            ConnectionMode::Exclusive | ConnectionMode::Upgrade => Box::pin(pool.open(timeout)).await,
        };
        opened.map_err(|error| (error.into(), Execution::None))
    }

    fn connection_mode(&self) -> ConnectionMode {
        let RetryLoop { head, forward_request, body, .. } = self.retry_loop;
        match (forward_request.lifetime, forward_request.effect) {
            _ if head.is_upgrade => ConnectionMode::Upgrade,
            (Lifetime::LongRunning, Effect::Reads) if body.is_empty() => {
                ConnectionMode::Multiplexed(StreamClass::LongRunning)
            }
            (Lifetime::Until(_), Effect::Reads)
                if body.is_empty() && forward_request.has_short_response && self.peer.should_multiplex() =>
            {
                ConnectionMode::Multiplexed(StreamClass::Short)
            }
            (Lifetime::LongRunning | Lifetime::Until(_), Effect::Reads | Effect::Writes) => ConnectionMode::Exclusive,
        }
    }

    async fn send_over(
        &self,
        connection: PooledConnection,
        request: Request<RequestBody>,
    ) -> Result<Response<PeerBody>, AttemptFailure> {
        if let Some(commitment) = &self.retry_loop.commitment {
            commitment.commit().await;
        }
        self.retry_loop.is_sent.store(true, Ordering::Relaxed);
        let sent = self.wait_for_head(pin!(connection.send(request))).await;
        sent.inspect_err(|(_, execution)| {
            self.retry_loop.is_sent.store(*execution == Execution::Unknown, Ordering::Relaxed);
        })
    }

    /// Waits for the head of the response. A silent peer is pinged; as long as it answers pings, the request keeps waiting.
    async fn wait_for_head(
        &self,
        mut sending: Pin<&mut impl Future<Output = Result<Response<PeerBody>, SendError>>>,
    ) -> Result<Response<PeerBody>, AttemptFailure> {
        let answered = |sent: Result<_, SendError>| {
            sent.map_err(|SendError { error, unsent }| {
                let execution = if unsent.is_some() { Execution::None } else { Execution::Unknown };
                (PeerError::ConnectionBroken(error), execution)
            })
        };
        loop {
            if let Ok(sent) = tokio::time::timeout(self.retry_loop.forwarder.limits.silence_timeout, &mut sending).await
            {
                return answered(sent);
            }
            tokio::select! {
                biased;
                sent = &mut sending => return answered(sent),
                pinged = self.peer.ping() => match (pinged, self.retry_loop.forward_request.effect) {
                    (PingResult::Alive, _) => {}
                    (PingResult::Unresponsive, Effect::Reads) => return Err((PeerError::Unresponsive, Execution::Unknown)),
                    // A write that was sent is not sent again; later requests prefer other peers.
                    (PingResult::Unresponsive, Effect::Writes) => {
                        self.retry_loop.record_failure(self.peer, &PeerError::Unresponsive);
                        return answered(sending.await);
                    }
                },
            }
        }
    }

    fn build_response(&self, classified: classify::ClassifiedResponse, seat: PeerSeat) -> Response<ForwardedBody> {
        let responding_peer = RespondingPeer(self.peer.id().clone());
        let mut response = match classified {
            classify::ClassifiedResponse::Upgrade(response) => self.start_tunnel(response),
            classify::ClassifiedResponse::Response(response) => {
                let (mut head, (start, rest)) = response.into_parts();
                let lifetime = self.retry_loop.forward_request.lifetime;
                forwarded_head::clean_response_head(&mut head, self.retry_loop.forwarder.cors_headers);
                Response::from_parts(
                    head,
                    ForwardedBody::new(start, rest, lifetime, &self.retry_loop.forwarder.stream_stop, seat),
                )
            }
        };
        response.extensions_mut().insert(responding_peer);
        response
    }

    /// Starts a task that copies bytes between both upgraded connections.
    fn start_tunnel(&self, response: Response<PeerBody>) -> Response<ForwardedBody> {
        let (mut head, peer_end) = transport::peer::PeerUpgrade::from_response(response);
        forwarded_head::clean_response_head(&mut head, self.retry_loop.forwarder.cors_headers);
        let client_end = self.retry_loop.client_upgrade.lock().take();
        if let Some(client_end) = client_end {
            let shared = self.retry_loop.forwarder;
            upgrade::spawn_tunnel(
                client_end,
                peer_end,
                self.peer.try_acquire_seat(SeatKind::Stream),
                &shared.tasks,
                shared.stream_stop.clone(),
            );
        }
        Response::from_parts(head, ForwardedBody::empty())
    }
}
