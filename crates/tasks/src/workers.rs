//! Threads with a runtime each, for what is short and frequent.
//!
//! What begins on a worker stays there, with all that it waits for: no queue is shared, nothing is handed from thread to thread,
//! and a thread that has something to do does not wake others to share it. The price is that whatever computes for long holds up
//! everything else on its worker, so that belongs on the runtime of the whole process.

use std::cell::Cell;
use std::io;
use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio_util::sync::{CancellationToken, DropGuard};

/// Sooner than what requests wait for.
const TICK_INTERVAL: Duration = Duration::from_secs(1);

thread_local! {
    static CURRENT_RUNTIME: Cell<RuntimeIndex> = const { Cell::new(RuntimeIndex(0)) };
}

/// Which runtime a thread belongs to: that of the whole process, or that of a worker. What waits for a socket does so in the
/// runtime that the socket was opened in, and is woken soonest there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuntimeIndex(usize);

impl RuntimeIndex {
    /// The number of the runtime that this thread belongs to.
    pub fn current() -> Self {
        CURRENT_RUNTIME.get()
    }

    /// Whether it is that of a worker.
    pub fn is_worker(self) -> bool {
        self.0 > 0
    }

    /// How many numbers there are.
    pub fn count() -> usize {
        1 + worker_count()
    }

    /// Less than [`RuntimeIndex::count`].
    pub fn index(self) -> usize {
        self.0
    }
}

/// As many as the machine has cores for us. Asked once: it may change under a running process.
fn worker_count() -> usize {
    static COUNT: LazyLock<usize> = LazyLock::new(|| std::thread::available_parallelism().map_or(1, NonZero::get));
    *COUNT
}

/// Workers, as many as the machine has cores for us. They end when this is dropped and their last place is free.
#[derive(Debug)]
pub struct Workers {
    workers: Vec<Arc<Worker>>,
    /// Where ties are broken, so that the first worker does not get every second connection of a server that has few.
    next_worker: AtomicUsize,
    stop: Arc<DropGuard>,
}

#[derive(Debug)]
struct Worker {
    runtime: Handle,
    /// How much it has been given that is not over.
    load: AtomicUsize,
}

/// A place on a worker, for as long as something runs there.
#[derive(Debug)]
pub struct WorkerSlot {
    worker: Arc<Worker>,
    _stop: Arc<DropGuard>,
}

impl Workers {
    /// Starts the threads.
    pub fn start() -> io::Result<Self> {
        let stop = CancellationToken::new();
        let workers =
            (1..=worker_count()).map(|number| Worker::start(number, stop.clone())).collect::<Result<_, _>>()?;
        Ok(Self { workers, next_worker: AtomicUsize::new(0), stop: Arc::new(stop.drop_guard()) })
    }

    /// A place on the worker that has the least to do.
    pub fn acquire_slot(&self) -> WorkerSlot {
        let first = self.next_worker.fetch_add(1, Ordering::Relaxed);
        let candidates = (0..self.workers.len()).map(|at| &self.workers[(first + at) % self.workers.len()]);
        let worker = candidates.min_by_key(|worker| worker.load.load(Ordering::Relaxed));
        let worker = worker.expect("a machine has a core").clone();
        worker.load.fetch_add(1, Ordering::Relaxed);
        WorkerSlot { worker, _stop: self.stop.clone() }
    }
}

impl Worker {
    fn start(number: usize, stop: CancellationToken) -> io::Result<Arc<Self>> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let worker = Self { runtime: runtime.handle().clone(), load: AtomicUsize::new(0) };
        std::thread::Builder::new().name(format!("worker {number}")).spawn(move || {
            CURRENT_RUNTIME.set(RuntimeIndex(number));
            runtime.block_on(tick_until(stop));
        })?;
        Ok(Arc::new(worker))
    }
}

/// Wakes a worker every second, for nothing but this: a timer that is set while none is due sooner makes its runtime interrupt
/// its own sleep, by a call of the kernel for almost every request. With a tick before it, no request's timer is the first.
async fn tick_until(stop: CancellationToken) {
    while stop.run_until_cancelled(tokio::time::sleep(TICK_INTERVAL)).await.is_some() {}
}

impl WorkerSlot {
    pub(crate) fn runtime(&self) -> &Handle {
        &self.worker.runtime
    }
}

impl Drop for WorkerSlot {
    fn drop(&mut self) {
        self.worker.load.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Tasks;

    #[tokio::test]
    async fn workers_share_tasks_evenly_and_tasks_stay_on_their_worker() {
        let (workers, tasks) = (Workers::start().unwrap(), Tasks::new());
        let (sender, mut seen) = tokio::sync::mpsc::unbounded_channel();
        let all_are_placed = CancellationToken::new();
        let count = workers.workers.len();
        for _ in 0..2 * count {
            let (sender, all_are_placed) = (sender.clone(), all_are_placed.clone());
            tasks.spawn_once_on_worker(workers.acquire_slot(), "look", async move {
                let begun = RuntimeIndex::current();
                all_are_placed.cancelled().await;
                assert_eq!(RuntimeIndex::current(), begun);
                sender.send(begun.0).unwrap();
            });
        }
        drop(sender);
        all_are_placed.cancel();
        let mut numbers = Vec::new();
        while let Some(number) = seen.recv().await {
            numbers.push(number);
        }
        numbers.sort_unstable();
        let twice_each: Vec<_> = (1..=count).flat_map(|number| [number; 2]).collect();
        assert_eq!(numbers, twice_each);
        assert_eq!(RuntimeIndex::current(), RuntimeIndex(0));
    }

    #[tokio::test]
    async fn slot_keeps_worker_alive_after_workers_are_dropped() {
        let (workers, tasks) = (Workers::start().unwrap(), Tasks::new());
        let (sender, seen) = tokio::sync::oneshot::channel();
        let place = workers.acquire_slot();
        drop(workers);
        tasks.spawn_once_on_worker(place, "late", async move {
            tokio::time::sleep(Duration::from_millis(10)).await;
            sender.send(()).unwrap();
        });
        assert_eq!(seen.await, Ok(()));
    }

    #[tokio::test]
    async fn slot_is_released_when_its_task_ends() {
        let (workers, tasks) = (Workers::start().unwrap(), Tasks::new());
        let of_all = || workers.workers.iter().map(|worker| worker.load.load(Ordering::Relaxed)).sum::<usize>();
        tasks.spawn_once_on_worker(workers.acquire_slot(), "wait", {
            let stop = tasks.stop_token();
            async move { stop.cancelled().await }
        });
        assert_eq!(of_all(), 1);
        assert_eq!(tasks.stop(Duration::from_secs(60)).await, Ok(()));
        assert_eq!(of_all(), 0);
    }
}
