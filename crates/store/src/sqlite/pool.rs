//! The threads that read. SQLite blocks, so nothing of it runs on the threads of the async runtime.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};

use crate::Error;
use crate::sqlite::fault::Fault;
use crate::sqlite::files::Opened;
use crate::sqlite::revision_file::RevisionFile;

/// How many reads may wait before the next one waits to be let in.
const QUEUE_MAX: usize = 256;

/// What a read has at hand.
#[derive(Debug)]
pub(super) struct Reader {
    pub(super) connection: Connection,
    pub(super) revisions: Arc<RevisionFile>,
    pub(super) path: PathBuf,
    pub(super) opened: Arc<Opened>,
}

/// Gives reads to the threads.
#[derive(Clone, Debug)]
pub(super) struct Pool {
    queue: mpsc::Sender<Message>,
    threads: usize,
}

enum Message {
    Read(Box<dyn FnOnce(&Reader) + Send>),
    Stop,
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read(_) => "Read",
            Self::Stop => "Stop",
        })
    }
}

/// What all threads of a pool take from.
#[derive(Clone, Debug)]
pub(super) struct Queue(Arc<Mutex<mpsc::Receiver<Message>>>);

impl Pool {
    pub(super) fn new(threads: usize) -> (Self, Queue) {
        let (queue, inbox) = mpsc::channel(QUEUE_MAX);
        (Self { queue, threads }, Queue(Arc::new(Mutex::new(inbox))))
    }

    pub(super) async fn read<T, F>(&self, work: F) -> Result<T, Error>
    where
        F: FnOnce(&Reader) -> Result<T, Fault> + Send + 'static,
        T: Send + 'static,
    {
        let (answer, answered) = oneshot::channel();
        let read = move |reader: &Reader| {
            if !answer.is_closed() {
                let _ = answer.send(work(reader).map_err(|fault| fault.told(&reader.path)));
            }
        };
        let closed = || Error::Unavailable { reason: "the store is closed".to_owned() };
        self.queue.send(Message::Read(Box::new(read))).await.map_err(|_| closed())?;
        answered.await.unwrap_or_else(|_| Err(closed()))
    }

    /// No more reads are taken; those that wait are still answered.
    pub(super) async fn close(&self) {
        for _ in 0..self.threads {
            let _ = self.queue.send(Message::Stop).await;
        }
    }
}

impl Queue {
    /// One of the threads.
    pub(super) fn run(&self, reader: &Reader) {
        while let Some(Message::Read(read)) = self.next() {
            read(reader);
        }
    }

    fn next(&self) -> Option<Message> {
        self.0.lock().blocking_recv()
    }
}
