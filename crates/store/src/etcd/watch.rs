//! A watch that outlives its connections.
//!
//! Each watch is one gRPC stream. When the stream is lost, another is opened, at another etcd if need be, after the last
//! revision that was delivered, for as long as somebody listens.

mod batch_assembler;

use std::sync::Arc;
use std::time::Duration;

use tasks::Backoff;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use self::batch_assembler::BatchAssembler;
use super::EtcdClient;
use super::connection::{ConnectionPurpose, EtcdConnection};
use super::failure::classify_status;
use super::proto::{WatchCreateRequest, WatchProgressRequest, WatchRequest, WatchRequestUnion, WatchResponse};
use super::reads::{range_begin, range_end, revision_from_wire, revision_to_wire};
use super::version::EtcdVersion;
use crate::contract::{Error, Key, Revision, Watch, WatchBatch};

/// Batches that wait to be read; then we read no more from etcd, and it holds the events back.
const BATCHES_MAX: usize = 64;

/// The pauses before a lost stream is opened again; they grow until one is.
const PAUSES: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(1));

/// How often a wanted progress is asked for until it comes: etcd leaves requests unanswered while a watch catches up. This is
/// what kube-apiserver does.
const PROGRESS_REQUEST_INTERVAL: Duration = Duration::from_millis(100);

impl EtcdClient {
    /// Begins a watch, which needs no etcd to be there yet.
    pub(super) fn watch(self: &Arc<Self>, prefix: Key, from: Revision) -> Watch {
        let (batches, delivered) = mpsc::channel(BATCHES_MAX);
        let (asking, requests) = mpsc::channel(1);
        let watcher = Watcher {
            client: self.clone(),
            prefix,
            assembler: BatchAssembler::new(from),
            batches,
            progress_requests: requests,
            is_progress_requested: false,
            pauses: PAUSES,
        };
        self.tasks.spawn_once("etcd watch", watcher.run(self.tasks.stop_token()));
        Watch::new(delivered, asking)
    }

    /// The oldest revision that can be read: a watch from the first one is told so when it is refused.
    pub(super) async fn oldest_revision(&self) -> Option<Revision> {
        let (_, link) = self.members.stream_connection(ConnectionPurpose::Watches).await.ok()?;
        // A single key that nobody changes; only the refusal matters.
        let request = WatchCreateRequest { key: vec![0].into(), start_revision: 1, ..WatchCreateRequest::default() };
        let (orders, outgoing) = mpsc::channel(1);
        orders.try_send(watch_request(WatchRequestUnion::Create(request))).ok()?;
        let asking = async {
            let mut answers = link.open_stream(receiver_stream(outgoing)).await.ok()?;
            while let Ok(Some(answer)) = answers.message().await {
                if answer.compact_revision > 0 {
                    return Some(revision_from_wire(answer.compact_revision));
                }
            }
            None
        };
        timeout(self.timeouts.connect, asking).await.ok().flatten()
    }
}

/// The task behind a [`Watch`].
struct Watcher {
    client: Arc<EtcdClient>,
    prefix: Key,
    assembler: BatchAssembler,
    batches: mpsc::Sender<Result<WatchBatch, Error>>,
    progress_requests: mpsc::Receiver<()>,
    /// Asked for and not told yet.
    is_progress_requested: bool,
    pauses: Backoff,
}

/// Why a stream came to its end.
enum StreamEnd {
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
                let end = self.run_stream().await;
                if let StreamEnd::Lost(reason) = &end {
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
            if matches!(end, StreamEnd::Over) {
                return;
            }
        }
    }

    /// One stream, from its opening to its end.
    async fn run_stream(&mut self) -> StreamEnd {
        let (index, link) = match self.client.members.stream_connection(ConnectionPurpose::Watches).await {
            Ok(linked) => linked,
            Err(reason) => return StreamEnd::Lost(reason),
        };
        let end = self.run_stream_on(index, &link).await;
        if let StreamEnd::Lost(reason) = end {
            self.client.members.report_stream_failure(index, &link);
            return StreamEnd::Lost(self.client.members.describe_failure(index, &reason));
        }
        end
    }

    async fn run_stream_on(&mut self, index: usize, link: &EtcdConnection) -> StreamEnd {
        self.assembler.start_new_stream();
        let (orders, outgoing) = mpsc::channel(2);
        if orders.try_send(watch_request(WatchRequestUnion::Create(self.create_request()))).is_err() {
            return StreamEnd::Lost("the stream takes no orders".to_owned());
        }
        let patience = self.client.timeouts.connect;
        let mut answers = match timeout(patience, link.open_stream(receiver_stream(outgoing))).await {
            Ok(Ok(answers)) => answers,
            Ok(Err(status)) => return StreamEnd::Lost(classify_status(&status).into_reason()),
            Err(_) => return StreamEnd::Lost(format!("no watch within {patience:?}")),
        };
        let answers_progress = link.version.is_some_and(EtcdVersion::supports_progress_requests);
        let mut next_ask = Instant::now();
        loop {
            // An etcd that cannot answer is not asked: the answer of an old one could be wrong.
            self.is_progress_requested &= answers_progress;
            let answer = tokio::select! {
                answer = answers.message() => answer,
                Some(()) = self.progress_requests.recv() => {
                    self.is_progress_requested = true;
                    continue;
                }
                () = tokio::time::sleep_until(next_ask), if self.is_progress_requested => {
                    next_ask = Instant::now() + PROGRESS_REQUEST_INTERVAL;
                    // A full queue holds such a request already.
                    let _ = orders.try_send(watch_request(WatchRequestUnion::Progress(WatchProgressRequest {})));
                    continue;
                }
            };
            let answer = match answer {
                Ok(Some(answer)) => answer,
                Ok(None) => return StreamEnd::Lost("etcd closed the watch".to_owned()),
                Err(status) => return StreamEnd::Lost(classify_status(&status).into_reason()),
            };
            if answer.created && !answer.canceled {
                self.pauses.reset();
                self.client.members.report_stream_success(index);
            }
            if let Some(end) = self.handle_response(answer).await {
                return end;
            }
        }
    }

    fn create_request(&self) -> WatchCreateRequest {
        WatchCreateRequest {
            key: range_begin(&self.prefix),
            range_end: range_end(&self.prefix),
            start_revision: revision_to_wire(self.assembler.resume_revision()),
            progress_notify: true,
            fragment: true,
        }
    }

    /// Delivers what an answer completes; `Some`: it was the last.
    async fn handle_response(&mut self, response: WatchResponse) -> Option<StreamEnd> {
        if response.compact_revision > 0 {
            let oldest = revision_from_wire(response.compact_revision);
            let error = Error::Compacted { requested: self.assembler.next_revision(), oldest };
            // If nobody listens any more, nobody needs it.
            let _ = self.batches.send(Err(error)).await;
            return Some(StreamEnd::Over);
        }
        if response.canceled {
            return Some(StreamEnd::Lost(format!("etcd refused the watch: {}", response.cancel_reason)));
        }
        let batch = if response.created {
            // Its revision is that of the store and says nothing about what was delivered.
            None
        } else if response.events.is_empty() {
            let batch = self.assembler.add_progress(revision_from_wire(response.header.unwrap_or_default().revision));
            self.is_progress_requested &= batch.is_none();
            batch
        } else {
            self.assembler.add_events(response)
        };
        match batch {
            Some(batch) => self.batches.send(Ok(batch)).await.is_err().then_some(StreamEnd::Over),
            None => None,
        }
    }
}

fn watch_request(order: WatchRequestUnion) -> WatchRequest {
    WatchRequest { request_union: Some(order) }
}

/// The receiving end of a channel as a stream.
fn receiver_stream<T: Send + 'static>(mut channel: mpsc::Receiver<T>) -> impl futures_util::Stream<Item = T> + Send {
    futures_util::stream::poll_fn(move |context| channel.poll_recv(context))
}
