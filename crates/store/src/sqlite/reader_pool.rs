//! The reader threads. SQLite calls block, so they must not run on the async runtime.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};

use crate::Error;
use crate::sqlite::fault::SqliteFault;
use crate::sqlite::files::FileGuard;
use crate::sqlite::revision_file::RevisionFile;

/// Queued reads; further callers wait for space.
const QUEUE_MAX: usize = 256;

/// The resources of one reader thread.
#[derive(Debug)]
pub(super) struct SqliteReader {
    pub(super) connection: Connection,
    pub(super) revision_file: Arc<RevisionFile>,
    pub(super) path: PathBuf,
    pub(super) file_guard: Arc<FileGuard>,
}

/// Sends reads to the reader threads.
#[derive(Clone, Debug)]
pub(super) struct ReaderPool {
    queue: mpsc::Sender<ReadMessage>,
    threads: usize,
}

enum ReadMessage {
    Read(Box<dyn FnOnce(&SqliteReader) + Send>),
    Stop,
}

impl fmt::Debug for ReadMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read(_) => "Read",
            Self::Stop => "Stop",
        })
    }
}

/// The queue that all reader threads share.
#[derive(Clone, Debug)]
pub(super) struct ReadQueue(Arc<Mutex<mpsc::Receiver<ReadMessage>>>);

impl ReaderPool {
    pub(super) fn new(threads: usize) -> (Self, ReadQueue) {
        let (queue, inbox) = mpsc::channel(QUEUE_MAX);
        (Self { queue, threads }, ReadQueue(Arc::new(Mutex::new(inbox))))
    }

    pub(super) async fn read<T, F>(&self, work: F) -> Result<T, Error>
    where
        F: FnOnce(&SqliteReader) -> Result<T, SqliteFault> + Send + 'static,
        T: Send + 'static,
    {
        let (answer, answered) = oneshot::channel();
        let read = move |reader: &SqliteReader| {
            if !answer.is_closed() {
                let _ = answer.send(work(reader).map_err(|fault| fault.into_error(&reader.path)));
            }
        };
        let closed = || Error::Unavailable { reason: "the store is closed".to_owned() };
        self.queue.send(ReadMessage::Read(Box::new(read))).await.map_err(|_| closed())?;
        answered.await.unwrap_or_else(|_| Err(closed()))
    }

    /// Stops the threads after the reads already queued.
    pub(super) async fn close(&self) {
        for _ in 0..self.threads {
            let _ = self.queue.send(ReadMessage::Stop).await;
        }
    }
}

impl ReadQueue {
    /// The loop of one reader thread.
    pub(super) fn run(&self, reader: &SqliteReader) {
        while let Some(ReadMessage::Read(read)) = self.next() {
            read(reader);
        }
    }

    fn next(&self) -> Option<ReadMessage> {
        self.0.lock().blocking_recv()
    }
}
