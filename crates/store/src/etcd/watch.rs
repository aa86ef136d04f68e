//! A watch that survives the loss of its connection.
//!
//! Each watch is one gRPC stream. When the stream is lost, the watcher opens another, on another member if necessary,
//! after the last delivered revision, until the consumer drops the watch.

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

/// Delivered batches that the consumer has not read; when full, the watcher stops reading and etcd holds events back.
const BATCHES_MAX: usize = 64;

/// The backoff before a lost stream is reopened; reset once a stream is established.
const PAUSES: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(1));

/// The interval of repeated progress requests: etcd ignores them while a watch catches up. As in kube-apiserver.
const PROGRESS_REQUEST_INTERVAL: Duration = Duration::from_millis(100);

impl EtcdClient {
    /// Starts a watch; etcd need not be reachable yet.
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

    /// The oldest readable revision, which etcd reports when it rejects a watch from revision 1.
    pub(super) async fn oldest_revision(&self) -> Option<Revision> {
        let (_, link) = self.members.stream_connection(ConnectionPurpose::Watches).await.ok()?;
        // A single key that never changes; only the rejection matters.
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

/// The task that feeds a [`Watch`].
struct Watcher {
    client: Arc<EtcdClient>,
    prefix: Key,
    assembler: BatchAssembler,
    batches: mpsc::Sender<Result<WatchBatch, Error>>,
    progress_requests: mpsc::Receiver<()>,
    /// Requested by the consumer and not yet reported.
    is_progress_requested: bool,
    pauses: Backoff,
}

enum StreamEnd {
    Over,
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
                    tracing::debug!(prefix = ?self.prefix, reason, ?pause, "resuming etcd watch");
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

    /// Runs one stream from its opening to its end.
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
            return StreamEnd::Lost("cannot send the watch request".to_owned());
        }
        let timeout_after = self.client.timeouts.connect;
        let mut answers = match timeout(timeout_after, link.open_stream(receiver_stream(outgoing))).await {
            Ok(Ok(answers)) => answers,
            Ok(Err(status)) => return StreamEnd::Lost(classify_status(&status).into_reason()),
            Err(_) => return StreamEnd::Lost(format!("no watch stream within {timeout_after:?}")),
        };
        let answers_progress = link.version.is_some_and(EtcdVersion::supports_progress_requests);
        let mut next_ask = Instant::now();
        loop {
            // Progress requests go only to versions that answer them correctly.
            self.is_progress_requested &= answers_progress;
            let answer = tokio::select! {
                answer = answers.message() => answer,
                Some(()) = self.progress_requests.recv() => {
                    self.is_progress_requested = true;
                    continue;
                }
                () = tokio::time::sleep_until(next_ask), if self.is_progress_requested => {
                    next_ask = Instant::now() + PROGRESS_REQUEST_INTERVAL;
                    // A full queue already holds a progress request.
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

    /// Delivers the batch that a response completes; `Some`: the stream has ended.
    async fn handle_response(&mut self, response: WatchResponse) -> Option<StreamEnd> {
        if response.compact_revision > 0 {
            let oldest = revision_from_wire(response.compact_revision);
            let error = Error::Compacted { requested: self.assembler.next_revision(), oldest };
            // A closed channel means that the consumer dropped the watch.
            let _ = self.batches.send(Err(error)).await;
            return Some(StreamEnd::Over);
        }
        if response.canceled {
            return Some(StreamEnd::Lost(format!("etcd canceled the watch: {}", response.cancel_reason)));
        }
        let batch = if response.created {
            // The revision of a `created` response is that of the store and says nothing about delivered events.
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

fn receiver_stream<T: Send + 'static>(mut channel: mpsc::Receiver<T>) -> impl futures_util::Stream<Item = T> + Send {
    futures_util::stream::poll_fn(move |context| channel.poll_recv(context))
}
