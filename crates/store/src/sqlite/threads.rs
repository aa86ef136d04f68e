//! The threads of a store: named, watched over, and joined.

use std::io;
use std::thread::JoinHandle;

use parking_lot::Mutex;
use tasks::Tasks;
use tokio_util::sync::CancellationToken;

#[derive(Debug)]
pub(super) struct StoreThreads {
    running: Mutex<Vec<JoinHandle<()>>>,
    /// Set before the threads are told to end.
    stop_expected: CancellationToken,
    /// Set when one has ended.
    ended: CancellationToken,
}

impl StoreThreads {
    pub(super) fn new() -> Self {
        let (may_end, ended) = (CancellationToken::new(), CancellationToken::new());
        Self { running: Mutex::default(), stop_expected: may_end, ended }
    }

    pub(super) fn spawn(&self, name: &'static str, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let ended = self.ended.clone().drop_guard();
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            let _ended = ended;
            run();
        })?;
        self.running.lock().push(thread);
        Ok(())
    }

    /// A thread that ends unasked must not look like a healthy store: the task that watches over them ends, too.
    pub(super) fn supervise(&self, tasks: &Tasks) {
        let (may_end, ended) = (self.stop_expected.clone(), self.ended.clone());
        tasks.spawn("sqlite threads", |stop| async move {
            tokio::select! {
                () = stop.cancelled() => return,
                () = ended.cancelled() => {}
            }
            if may_end.is_cancelled() {
                stop.cancelled().await;
            }
        });
    }

    /// From here on it is no failure that one ends.
    pub(super) fn expect_stop(&self) {
        self.stop_expected.cancel();
    }

    /// Waits for all of them. They must have been told to end.
    pub(super) async fn join(&self) {
        let threads = std::mem::take(&mut *self.running.lock());
        let join = move || threads.into_iter().filter_map(|thread| thread.join().err()).count();
        match tokio::task::spawn_blocking(join).await {
            Ok(0) => {}
            Ok(panicked) => tracing::error!(panicked, "threads of the store panicked"),
            Err(error) => tracing::error!(%error, "the threads of the store could not be joined"),
        }
    }
}
