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
const TICK: Duration = Duration::from_secs(1);

thread_local! {
    static NUMBER: Cell<WorkerNumber> = const { Cell::new(WorkerNumber(0)) };
}

/// Which runtime a thread belongs to: that of the whole process, or that of a worker. What waits for a socket does so in the
/// runtime that the socket was opened in, and is woken soonest there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkerNumber(usize);

impl WorkerNumber {
    /// The number of the runtime that this thread belongs to.
    pub fn here() -> Self {
        NUMBER.get()
    }

    /// Whether it is that of a worker.
    pub fn is_worker(self) -> bool {
        self.0 > 0
    }

    /// How many numbers there are.
    pub fn count() -> usize {
        1 + workers()
    }

    /// Less than [`WorkerNumber::count`].
    pub fn index(self) -> usize {
        self.0
    }
}

/// As many as the machine has cores for us. Asked once: it may change under a running process.
fn workers() -> usize {
    static COUNT: LazyLock<usize> = LazyLock::new(|| std::thread::available_parallelism().map_or(1, NonZero::get));
    *COUNT
}

/// Workers, as many as the machine has cores for us. They end when this is dropped and their last place is free.
#[derive(Debug)]
pub struct Workers {
    workers: Vec<Arc<Worker>>,
    /// Where ties are broken, so that the first worker does not get every second connection of a server that has few.
    next: AtomicUsize,
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
pub struct Place {
    worker: Arc<Worker>,
    _stop: Arc<DropGuard>,
}

impl Workers {
    /// Starts the threads.
    pub fn start() -> io::Result<Self> {
        let stop = CancellationToken::new();
        let workers = (1..=workers()).map(|number| Worker::start(number, stop.clone())).collect::<Result<_, _>>()?;
        Ok(Self { workers, next: AtomicUsize::new(0), stop: Arc::new(stop.drop_guard()) })
    }

    /// A place on the worker that has the least to do.
    pub fn place(&self) -> Place {
        let first = self.next.fetch_add(1, Ordering::Relaxed);
        let in_turn = (0..self.workers.len()).map(|at| &self.workers[(first + at) % self.workers.len()]);
        let worker = in_turn.min_by_key(|worker| worker.load.load(Ordering::Relaxed));
        let worker = worker.expect("a machine has a core").clone();
        worker.load.fetch_add(1, Ordering::Relaxed);
        Place { worker, _stop: self.stop.clone() }
    }
}

impl Worker {
    fn start(number: usize, stop: CancellationToken) -> io::Result<Arc<Self>> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let worker = Self { runtime: runtime.handle().clone(), load: AtomicUsize::new(0) };
        std::thread::Builder::new().name(format!("worker {number}")).spawn(move || {
            NUMBER.set(WorkerNumber(number));
            runtime.block_on(tick_until(stop));
        })?;
        Ok(Arc::new(worker))
    }
}

/// Wakes a worker every second, for nothing but this: a timer that is set while none is due sooner makes its runtime interrupt
/// its own sleep, by a call of the kernel for almost every request. With a tick before it, no request's timer is the first.
async fn tick_until(stop: CancellationToken) {
    while stop.run_until_cancelled(tokio::time::sleep(TICK)).await.is_some() {}
}

impl Place {
    pub(crate) fn runtime(&self) -> &Handle {
        &self.worker.runtime
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.worker.load.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Tasks;

    #[tokio::test]
    async fn every_worker_gets_as_much_as_the_others_and_keeps_it() {
        let (workers, tasks) = (Workers::start().unwrap(), Tasks::new());
        let (sender, mut seen) = tokio::sync::mpsc::unbounded_channel();
        let all_are_placed = CancellationToken::new();
        let count = workers.workers.len();
        for _ in 0..2 * count {
            let (sender, all_are_placed) = (sender.clone(), all_are_placed.clone());
            tasks.spawn_once_at(workers.place(), "look", async move {
                let begun = WorkerNumber::here();
                all_are_placed.cancelled().await;
                assert_eq!(WorkerNumber::here(), begun);
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
        assert_eq!(WorkerNumber::here(), WorkerNumber(0));
    }

    #[tokio::test]
    async fn who_has_a_place_keeps_its_worker_alive() {
        let (workers, tasks) = (Workers::start().unwrap(), Tasks::new());
        let (sender, seen) = tokio::sync::oneshot::channel();
        let place = workers.place();
        drop(workers);
        tasks.spawn_once_at(place, "late", async move {
            tokio::time::sleep(Duration::from_millis(10)).await;
            sender.send(()).unwrap();
        });
        assert_eq!(seen.await, Ok(()));
    }

    #[tokio::test]
    async fn a_place_is_free_again_when_its_task_is_over() {
        let (workers, tasks) = (Workers::start().unwrap(), Tasks::new());
        let of_all = || workers.workers.iter().map(|worker| worker.load.load(Ordering::Relaxed)).sum::<usize>();
        tasks.spawn_once_at(workers.place(), "wait", {
            let stop = tasks.stopping();
            async move { stop.cancelled().await }
        });
        assert_eq!(of_all(), 1);
        assert_eq!(tasks.stop(Duration::from_secs(60)).await, Ok(()));
        assert_eq!(of_all(), 0);
    }
}
