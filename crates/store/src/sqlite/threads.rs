//! The named threads of a store: spawned, supervised and joined.

use std::io;
use std::thread::JoinHandle;

use parking_lot::Mutex;
use tasks::Tasks;
use tokio_util::sync::CancellationToken;

#[derive(Debug)]
pub(super) struct StoreThreads {
    running: Mutex<Vec<JoinHandle<()>>>,
    /// Cancelled before the threads are asked to stop.
    stop_expected: CancellationToken,
    /// Cancelled when any thread has ended.
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

    /// Fails a task of `tasks` if a thread ends without having been asked to, so that the server does not seem healthy.
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

    /// Makes the end of a thread no failure from now on.
    pub(super) fn expect_stop(&self) {
        self.stop_expected.cancel();
    }

    /// Joins all threads, which must have been asked to stop.
    pub(super) async fn join(&self) {
        let threads = std::mem::take(&mut *self.running.lock());
        let join = move || threads.into_iter().filter_map(|thread| thread.join().err()).count();
        match tokio::task::spawn_blocking(join).await {
            Ok(0) => {}
            Ok(panicked) => tracing::error!(panicked, "store threads panicked"),
            Err(error) => tracing::error!(%error, "failed to join store threads"),
        }
    }
}
