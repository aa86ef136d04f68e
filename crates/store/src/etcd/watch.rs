//! A watch that outlives its connections.
//!
//! Each watch is one gRPC stream. When the stream is lost, another is opened, at another etcd if need be, after the last
//! revision that was delivered, for as long as somebody listens.

mod assembly;

use std::sync::Arc;
use std::time::Duration;

use tasks::Backoff;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use self::assembly::Assembly;
use super::Client;
use super::failure::judge;
use super::link::{Link, Purpose};
use super::proto::{WatchCreateRequest, WatchOrder, WatchProgressRequest, WatchRequest, WatchResponse};
use super::reads::{from_wire, range_begin, range_end, to_wire};
use super::version::Version;
use crate::contract::{Batch, Error, Key, Revision, Watch};

/// Batches that wait to be read; then we read no more from etcd, and it holds the events back.
const BATCHES_MAX: usize = 64;

/// The pauses before a lost stream is opened again; they grow until one is.
const PAUSES: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(1));

/// How often a wanted progress is asked for until it comes: etcd leaves requests unanswered while a watch catches up. This is
/// what kube-apiserver does.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);

impl Client {
    /// Begins a watch, which needs no etcd to be there yet.
    pub(super) fn watch(self: &Arc<Self>, prefix: Key, from: Revision) -> Watch {
        let (batches, delivered) = mpsc::channel(BATCHES_MAX);
        let (asking, requests) = mpsc::channel(1);
        let watcher = Watcher {
            client: self.clone(),
            prefix,
            assembly: Assembly::new(from),
            batches,
            requests,
            is_progress_wanted: false,
            pauses: PAUSES,
        };
        self.tasks.spawn_once("etcd watch", watcher.run(self.tasks.stopping()));
        Watch::new(delivered, asking)
    }

    /// The oldest revision that can be read: a watch from the first one is told so when it is refused.
    pub(super) async fn oldest(&self) -> Option<Revision> {
        let (_, link) = self.members.stream_link(Purpose::Watches).await.ok()?;
        // A single key that nobody changes; only the refusal matters.
        let request = WatchCreateRequest { key: vec![0].into(), start_revision: 1, ..WatchCreateRequest::default() };
        let (orders, outgoing) = mpsc::channel(1);
        orders.try_send(order(WatchOrder::Create(request))).ok()?;
        let asking = async {
            let mut answers = link.stream(stream_of(outgoing)).await.ok()?;
            while let Ok(Some(answer)) = answers.message().await {
                if answer.compact_revision > 0 {
                    return Some(from_wire(answer.compact_revision));
                }
            }
            None
        };
        timeout(self.timeouts.connect, asking).await.ok().flatten()
    }
}

/// The task behind a [`Watch`].
struct Watcher {
    client: Arc<Client>,
    prefix: Key,
    assembly: Assembly,
    batches: mpsc::Sender<Result<Batch, Error>>,
    requests: mpsc::Receiver<()>,
    /// Asked for and not told yet.
    is_progress_wanted: bool,
    pauses: Backoff,
}

/// Why a stream came to its end.
enum End {
    /// The watch is over.
    Over,
    /// It can be resumed.
    Lost(String),
}

impl Watcher {
    async fn run(mut self, stop: CancellationToken) {
        let listener = self.batches.clone();
        loop {
            let following = async {
                let end = self.follow().await;
                if let End::Lost(reason) = &end {
                    let pause = self.pauses.next_wait();
                    tracing::debug!(prefix = ?self.prefix, reason, ?pause, "a watch of etcd is resumed");
                    tokio::time::sleep(pause).await;
                }
                end
            };
            let end = tokio::select! {
                end = following => end,
                () = stop.cancelled() => return,
                () = listener.closed() => return,
            };
            if matches!(end, End::Over) {
                return;
            }
        }
    }

    /// One stream, from its opening to its end.
    async fn follow(&mut self) -> End {
        let (index, link) = match self.client.members.stream_link(Purpose::Watches).await {
            Ok(linked) => linked,
            Err(reason) => return End::Lost(reason),
        };
        let end = self.follow_on(index, &link).await;
        if let End::Lost(reason) = end {
            self.client.members.stream_failed(index, &link);
            return End::Lost(self.client.members.named(index, &reason));
        }
        end
    }

    async fn follow_on(&mut self, index: usize, link: &Link) -> End {
        self.assembly.restart();
        let (orders, outgoing) = mpsc::channel(2);
        if orders.try_send(order(WatchOrder::Create(self.create_request()))).is_err() {
            return End::Lost("the stream takes no orders".to_owned());
        }
        let patience = self.client.timeouts.connect;
        let mut answers = match timeout(patience, link.stream(stream_of(outgoing))).await {
            Ok(Ok(answers)) => answers,
            Ok(Err(status)) => return End::Lost(judge(&status).into_reason()),
            Err(_) => return End::Lost(format!("no watch within {patience:?}")),
        };
        let answers_progress = link.version.is_some_and(Version::answers_progress);
        let mut next_ask = Instant::now();
        loop {
            // An etcd that cannot answer is not asked: the answer of an old one could be wrong.
            self.is_progress_wanted &= answers_progress;
            let answer = tokio::select! {
                answer = answers.message() => answer,
                Some(()) = self.requests.recv() => {
                    self.is_progress_wanted = true;
                    continue;
                }
                () = tokio::time::sleep_until(next_ask), if self.is_progress_wanted => {
                    next_ask = Instant::now() + PROGRESS_INTERVAL;
                    // A full queue holds such a request already.
                    let _ = orders.try_send(order(WatchOrder::Progress(WatchProgressRequest {})));
                    continue;
                }
            };
            let answer = match answer {
                Ok(Some(answer)) => answer,
                Ok(None) => return End::Lost("etcd closed the watch".to_owned()),
                Err(status) => return End::Lost(judge(&status).into_reason()),
            };
            if answer.created && !answer.canceled {
                self.pauses.reset();
                self.client.members.stream_succeeded(index);
            }
            if let Some(end) = self.take(answer).await {
                return end;
            }
        }
    }

    fn create_request(&self) -> WatchCreateRequest {
        WatchCreateRequest {
            key: range_begin(&self.prefix),
            range_end: range_end(&self.prefix),
            start_revision: to_wire(self.assembly.resume_at()),
            progress_notify: true,
            fragment: true,
        }
    }

    /// Delivers what an answer completes; `Some`: it was the last.
    async fn take(&mut self, answer: WatchResponse) -> Option<End> {
        if answer.compact_revision > 0 {
            let oldest = from_wire(answer.compact_revision);
            let error = Error::Compacted { requested: self.assembly.next(), oldest };
            // If nobody listens any more, nobody needs it.
            let _ = self.batches.send(Err(error)).await;
            return Some(End::Over);
        }
        if answer.canceled {
            return Some(End::Lost(format!("etcd refused the watch: {}", answer.cancel_reason)));
        }
        let batch = if answer.created {
            // Its revision is that of the store and says nothing about what was delivered.
            None
        } else if answer.events.is_empty() {
            let batch = self.assembly.progress(from_wire(answer.header.unwrap_or_default().revision));
            self.is_progress_wanted &= batch.is_none();
            batch
        } else {
            self.assembly.events(answer)
        };
        match batch {
            Some(batch) => self.batches.send(Ok(batch)).await.is_err().then_some(End::Over),
            None => None,
        }
    }
}

fn order(order: WatchOrder) -> WatchRequest {
    WatchRequest { order: Some(order) }
}

/// The receiving end of a channel as a stream.
fn stream_of<T: Send + 'static>(mut channel: mpsc::Receiver<T>) -> impl futures_util::Stream<Item = T> + Send {
    futures_util::stream::poll_fn(move |context| channel.poll_recv(context))
}
