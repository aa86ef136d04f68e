//! One candidate's turn.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use http::{Method, Request, Response};
use tokio::time::Instant;
use transport::peer::{Line, PeerBody, Pool, RequestBody, SendError, Sharing};

use super::answer::{AnswerBody, AnsweredBy};
use super::peers::{Peer, Pinged, Seat, SeatKind};
use super::{Effect, Fault, Round, Span, head, judge, upgrade};
use crate::status::Execution;

/// How a candidate failed, and whether it may have executed the request.
pub(super) type Failed = (Fault, Execution);

/// How a request travels.
#[derive(Clone, Copy)]
enum Carriage {
    /// On a connection that carries nothing else meanwhile.
    Alone,
    /// Beside others of its kind: it does no harm to send it again if a connection is given up.
    Shared(Sharing),
    /// On a connection that never comes back.
    HandedOver,
}

/// A request and the candidate whose turn it is.
pub(super) struct Attempt<'a> {
    pub(super) round: &'a Round<'a>,
    pub(super) peer: &'a Arc<Peer>,
    /// Whether somebody else can be tried after it.
    pub(super) others_left: bool,
}

impl Attempt<'_> {
    pub(super) async fn run(&self, seat: Seat) -> Result<Response<AnswerBody>, Failed> {
        let started = Instant::now();
        let response = self.send(Self::request).await?;
        self.peer.duration.observe(started.elapsed().as_secs_f64());
        let judged = self.judge(response).await?;
        self.peer.answered();
        self.round.body.forget();
        Ok(self.answer(judged, seat))
    }

    async fn judge(&self, response: Response<PeerBody>) -> Result<judge::Judged, Failed> {
        let lens = judge::Lens {
            asked_for_upgrade: self.round.head.is_upgrade,
            origin: self.round.call.origin,
            is_vouched_for: self.round.call.user.is_vouched_for(),
            patience: self.round.shared.limits.patience,
        };
        if self.round.head.method == Method::HEAD && lens.reads_body_of(&response) {
            // Boxed, because every request would carry the room for what hardly one of them does.
            lens.judge(Box::pin(self.send(Self::body_probe)).await?).await?;
            return Ok(judge::whole(response));
        }
        lens.judge(response).await
    }

    fn request(&self) -> Request<RequestBody> {
        self.round.head.request(&self.peer.host, self.round.body.body(self.peer.bandwidth()))
    }

    /// A GET of the same target, sent after a HEAD whose response can only be classified by its body. The HEAD itself is sent as
    /// it came: turned into a GET it would transfer whole lists, open watches, and change `Content-Length`.
    fn body_probe(&self) -> Request<RequestBody> {
        self.round.head.get(&self.peer.host)
    }

    /// Sends a request on a connection that there is or on a new one, and waits for the head of an answer.
    async fn send(&self, make: fn(&Self) -> Request<RequestBody>) -> Result<Response<PeerBody>, Failed> {
        let pool = self.pool()?;
        let carriage = self.carriage();
        let found = match carriage {
            Carriage::Alone => pool.take(),
            Carriage::Shared(sharing) => pool.take_shared(sharing),
            Carriage::HandedOver => None,
        };
        if let Some(line) = found {
            match self.send_on(line, make(self)).await {
                Ok(response) => return Ok(response),
                // The peer has closed an idle connection, as it may. If that lost nothing, a new one is worth a try.
                Err((Fault::Broken(_), execution))
                    if self.round.softened(execution) != Execution::Unknown && self.round.body.can_be_sent() => {}
                Err(failed) => return Err(failed),
            }
        }
        let line = self.open(pool, carriage).await?;
        self.send_on(line, make(self)).await
    }

    fn pool(&self) -> Result<&Arc<Pool>, Failed> {
        self.peer.pool_for(self.round.call.user).ok_or((Fault::NoWay, Execution::None))
    }

    async fn open(&self, pool: &Arc<Pool>, carriage: Carriage) -> Result<Line, Failed> {
        let limits = &self.round.shared.limits;
        let limit =
            if self.others_left { limits.connect_timeout.min(limits.ping_timeout) } else { limits.connect_timeout };
        // Boxed, because every request would carry the room for what hardly one of them does.
        let opened = match carriage {
            Carriage::Shared(sharing) => Box::pin(pool.open_shared(sharing, limit)).await,
            Carriage::Alone | Carriage::HandedOver => Box::pin(pool.open(limit)).await,
        };
        opened.map_err(|error| (error.into(), Execution::None))
    }

    fn carriage(&self) -> Carriage {
        let Round { head, call, body, .. } = self.round;
        match (call.span, call.effect) {
            _ if head.is_upgrade => Carriage::HandedOver,
            (Span::Open, Effect::Reads) if body.is_empty() => Carriage::Shared(Sharing::Lasting),
            (Span::Until(_), Effect::Reads) if body.is_empty() && call.is_brief && self.peer.is_sought() => {
                Carriage::Shared(Sharing::Brief)
            }
            (Span::Open | Span::Until(_), Effect::Reads | Effect::Writes) => Carriage::Alone,
        }
    }

    async fn send_on(&self, line: Line, request: Request<RequestBody>) -> Result<Response<PeerBody>, Failed> {
        if let Some(commitment) = &self.round.commitment {
            commitment.commit().await;
        }
        self.round.is_sent.store(true, Ordering::Relaxed);
        let sent = self.wait(pin!(line.send(request))).await;
        sent.inspect_err(|(_, execution)| {
            self.round.is_sent.store(*execution == Execution::Unknown, Ordering::Relaxed);
        })
    }

    /// Waits for the head of an answer. A peer that is silent for long is pinged, and a slow one that answers is left alone.
    async fn wait(
        &self,
        mut sending: Pin<&mut impl Future<Output = Result<Response<PeerBody>, SendError>>>,
    ) -> Result<Response<PeerBody>, Failed> {
        let answered = |sent: Result<_, SendError>| {
            sent.map_err(|SendError { error, unsent }| {
                let execution = if unsent.is_some() { Execution::None } else { Execution::Unknown };
                (Fault::Broken(error), execution)
            })
        };
        loop {
            if let Ok(sent) = tokio::time::timeout(self.round.shared.limits.patience, &mut sending).await {
                return answered(sent);
            }
            tokio::select! {
                biased;
                sent = &mut sending => return answered(sent),
                found = self.peer.ping() => match (found, self.round.call.effect) {
                    (Pinged::Alive, _) => {}
                    (Pinged::Deaf, Effect::Reads) => return Err((Fault::Deaf, Execution::Unknown)),
                    // It was sent, so it stays; but others need not go there.
                    (Pinged::Deaf, Effect::Writes) => {
                        self.round.note(self.peer, &Fault::Deaf);
                        return answered(sending.await);
                    }
                },
            }
        }
    }

    fn answer(&self, judged: judge::Judged, seat: Seat) -> Response<AnswerBody> {
        let by = AnsweredBy(self.peer.server().clone());
        let mut response = match judged {
            judge::Judged::Switched(response) => self.switched(response),
            judge::Judged::Answer(response) => {
                let (mut head, (start, rest)) = response.into_parts();
                let span = self.round.call.span;
                head::clean_answer(&mut head, self.round.shared.cross_origin);
                Response::from_parts(head, AnswerBody::new(start, rest, span, &self.round.shared.ending, seat))
            }
        };
        response.extensions_mut().insert(by);
        response
    }

    /// Hands both ends to a task, which carries bytes between them.
    fn switched(&self, response: Response<PeerBody>) -> Response<AnswerBody> {
        let (mut head, peer_end) = transport::peer::PeerEnd::of(response);
        head::clean_answer(&mut head, self.round.shared.cross_origin);
        let client_end = self.round.upgrade.lock().take();
        if let Some(client_end) = client_end {
            let shared = self.round.shared;
            upgrade::join(client_end, peer_end, self.peer.seat(SeatKind::Stream), &shared.tasks, shared.ending.clone());
        }
        Response::from_parts(head, AnswerBody::empty())
    }
}
