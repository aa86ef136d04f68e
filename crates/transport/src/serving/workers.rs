//! Worker threads with a single-threaded runtime each.

use std::cell::Cell;
use std::io;
use std::num::NonZero;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tasks::Tasks;
use tokio::runtime::Handle;
use tokio_util::sync::{CancellationToken, DropGuard};

thread_local! {
    static CURRENT_RUNTIME: Cell<RuntimeIndex> = const { Cell::new(RuntimeIndex(0)) };
}

/// The runtime that a thread belongs to: 0 is the process-wide one, others are workers. A socket is polled by the
/// runtime it was registered with, and wakes tasks fastest there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RuntimeIndex(usize);

impl RuntimeIndex {
    /// Returns the runtime of the current thread.
    pub(crate) fn current() -> Self {
        CURRENT_RUNTIME.get()
    }

    /// Reports whether this is a worker's runtime.
    pub(crate) fn is_worker(self) -> bool {
        self.0 > 0
    }
}

/// One worker per available core. Workers end when this is dropped and their last slot is released.
#[derive(Debug)]
pub(crate) struct Workers {
    workers: Vec<Arc<Worker>>,
    /// Rotates the first candidate, so that ties do not always go to the first worker.
    next_worker: AtomicUsize,
    stop: Arc<DropGuard>,
}

#[derive(Debug)]
struct Worker {
    runtime: Handle,
    /// The number of slots in use.
    load: AtomicUsize,
}

/// A slot on a worker, held while a task runs there.
#[derive(Debug)]
struct WorkerSlot {
    worker: Arc<Worker>,
    _stop: Arc<DropGuard>,
}

impl Workers {
    /// Starts the worker threads.
    pub(crate) fn start() -> io::Result<Self> {
        let stop = CancellationToken::new();
        let count = std::thread::available_parallelism().map_or(1, NonZero::get);
        let workers = (1..=count).map(|number| Worker::start(number, stop.clone())).collect::<Result<_, _>>()?;
        Ok(Self { workers, next_worker: AtomicUsize::new(0), stop: Arc::new(stop.drop_guard()) })
    }

    /// Starts a one-shot task of `tasks` on the least loaded worker.
    pub(crate) fn spawn(&self, tasks: &Tasks, name: &'static str, work: impl Future<Output = ()> + Send + 'static) {
        let slot = self.acquire_slot();
        let runtime = slot.worker.runtime.clone();
        tasks.spawn_once_on(&runtime, name, slot, work);
    }

    fn acquire_slot(&self) -> WorkerSlot {
        let first = self.next_worker.fetch_add(1, Ordering::Relaxed);
        let candidates = (0..self.workers.len()).map(|at| &self.workers[(first + at) % self.workers.len()]);
        let worker = candidates.min_by_key(|worker| worker.load.load(Ordering::Relaxed));
        let worker = worker.expect("there is at least one worker").clone();
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
            runtime.block_on(stop.cancelled());
        })?;
        Ok(Arc::new(worker))
    }
}

impl Drop for WorkerSlot {
    fn drop(&mut self) {
        self.worker.load.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn workers_share_tasks_evenly_and_tasks_stay_on_their_worker() {
        let (workers, tasks) = (Workers::start().unwrap(), Tasks::new());
        let (sender, mut seen) = tokio::sync::mpsc::unbounded_channel();
        let all_are_placed = CancellationToken::new();
        let count = workers.workers.len();
        for _ in 0..2 * count {
            let (sender, all_are_placed) = (sender.clone(), all_are_placed.clone());
            workers.spawn(&tasks, "look", async move {
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
        workers.spawn(&tasks, "late", async move {
            tokio::time::sleep(Duration::from_millis(10)).await;
            sender.send(()).unwrap();
        });
        drop(workers);
        assert_eq!(seen.await, Ok(()));
    }

    #[tokio::test]
    async fn slot_is_released_when_its_task_ends() {
        let (workers, tasks) = (Workers::start().unwrap(), Tasks::new());
        let of_all = || workers.workers.iter().map(|worker| worker.load.load(Ordering::Relaxed)).sum::<usize>();
        workers.spawn(&tasks, "wait", {
            let stop = tasks.stop_token();
            async move { stop.cancelled().await }
        });
        assert_eq!(of_all(), 1);
        assert_eq!(tasks.stop(Duration::from_secs(60)).await, Ok(()));
        assert_eq!(of_all(), 0);
    }
}
