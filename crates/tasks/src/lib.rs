//! Supervised background tasks.
//!
//! Libraries do not call `tokio::spawn`; they get a [`Tasks`] handle, which names every task, stops and joins them all,
//! and reports the first that panics or returns early: a server with a dead refresh loop must not look healthy.
//! [`Backoff`] paces retries.

mod backoff;
mod cancellable;

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use backoff::{Backoff, jittered};
pub use cancellable::{Cancellable, Commitment};

/// A group of tasks that stop together. Clones share the group.
#[derive(Clone, Debug)]
pub struct Tasks {
    tracker: TaskTracker,
    stop: CancellationToken,
    failure: Arc<watch::Sender<Option<TaskFailure>>>,
}

/// A task that ended although it was not stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskFailure {
    /// The name given to [`Tasks::spawn`].
    pub task: &'static str,
    /// How the task ended.
    pub kind: TaskFailureKind,
}

/// How a task failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskFailureKind {
    /// The task returned before the group was stopped.
    ReturnedEarly,
    /// The task panicked.
    Panicked,
}

impl Tasks {
    /// Creates an empty group.
    pub fn new() -> Self {
        let (failure, _) = watch::channel(None);
        Self { tracker: TaskTracker::new(), stop: CancellationToken::new(), failure: Arc::new(failure) }
    }

    /// Starts a task that runs until the token is cancelled. Returning earlier or panicking is a [`TaskFailure`].
    pub fn spawn<Run, Running>(&self, task: &'static str, run: Run)
    where
        Run: FnOnce(CancellationToken) -> Running,
        Running: Future<Output = ()> + Send + 'static,
    {
        self.spawn_tracked(&Handle::current(), (), task, run(self.stop.clone()), ExpectedEnd::OnStop);
    }

    /// Starts a task that may complete by itself; only a panic is a [`TaskFailure`].
    pub fn spawn_once(&self, task: &'static str, work: impl Future<Output = ()> + Send + 'static) {
        self.spawn_tracked(&Handle::current(), (), task, work, ExpectedEnd::OnCompletion);
    }

    /// Like [`Tasks::spawn_once`], on another runtime. `held` is dropped when the task ends, before it is joined.
    pub fn spawn_once_on(
        &self,
        runtime: &Handle,
        task: &'static str,
        held: impl Send + 'static,
        work: impl Future<Output = ()> + Send + 'static,
    ) {
        self.spawn_tracked(runtime, held, task, work, ExpectedEnd::OnCompletion);
    }

    /// Starts work that [`Tasks::stop`] waits for; its result or panic is reported through the handle only. Dropping
    /// the handle does not stop it.
    pub fn spawn_on<T: Send + 'static>(
        &self,
        runtime: &Handle,
        work: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        self.tracker.spawn_on(work, runtime)
    }

    /// Returns the token that stops all tasks of the group.
    pub fn stop_token(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// Waits for the first failure; pending while there is none.
    pub async fn wait_for_failure(&self) -> TaskFailure {
        let mut failures = self.failure.subscribe();
        loop {
            if let Some(failure) = failures.borrow_and_update().clone() {
                return failure;
            }
            // The sender is in `self`, so this cannot fail.
            if failures.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Stops all tasks and waits at most `grace` for them.
    pub async fn stop(&self, grace: Duration) -> Result<(), StopTimeoutError> {
        self.stop.cancel();
        self.tracker.close();
        match tokio::time::timeout(grace, self.tracker.wait()).await {
            Ok(()) => Ok(()),
            Err(_) => Err(StopTimeoutError { tasks: self.tracker.len() }),
        }
    }

    /// Spawns a task whose guard reports a failure on drop if the task panics or returns early.
    fn spawn_tracked(
        &self,
        runtime: &Handle,
        held: impl Send + 'static,
        task: &'static str,
        work: impl Future<Output = ()> + Send + 'static,
        expected_end: ExpectedEnd,
    ) {
        let reporter = FailureReporter {
            task,
            expected_end,
            stop: self.stop.clone(),
            failure: self.failure.clone(),
            // Stays so unless `work` returns.
            kind: TaskFailureKind::Panicked,
        };
        // Boxed, because an async block stores a captured future twice, and a connection's future is large.
        let work = Box::pin(work);
        let guarded = async move {
            let mut reporter = reporter;
            work.await;
            reporter.kind = TaskFailureKind::ReturnedEarly;
            drop(held);
        };
        self.tracker.spawn_on(guarded, runtime);
    }
}

impl Default for Tasks {
    fn default() -> Self {
        Self::new()
    }
}

/// Some tasks did not stop within the grace period.
#[derive(Debug, PartialEq, Eq)]
pub struct StopTimeoutError {
    /// The number of tasks still running.
    pub tasks: usize,
}

impl std::fmt::Display for StopTimeoutError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} background tasks did not stop within the grace period", self.tasks)
    }
}

impl std::error::Error for StopTimeoutError {}

enum ExpectedEnd {
    OnStop,
    OnCompletion,
}

/// Reports from `drop`, which also runs when the task panics.
struct FailureReporter {
    task: &'static str,
    expected_end: ExpectedEnd,
    stop: CancellationToken,
    failure: Arc<watch::Sender<Option<TaskFailure>>>,
    kind: TaskFailureKind,
}

impl Drop for FailureReporter {
    fn drop(&mut self) {
        let expected = match (&self.kind, &self.expected_end) {
            (TaskFailureKind::ReturnedEarly, ExpectedEnd::OnCompletion) => true,
            (TaskFailureKind::ReturnedEarly, ExpectedEnd::OnStop) => self.stop.is_cancelled(),
            // Dropping a runtime drops unfinished tasks without a panic; only unwinding counts as one.
            (TaskFailureKind::Panicked, _) => !std::thread::panicking(),
        };
        if expected {
            return;
        }
        let failure = TaskFailure { task: self.task, kind: self.kind.clone() };
        tracing::error!(task = self.task, kind = ?self.kind, "background task failed");
        self.failure.send_if_modified(|first| {
            let is_first = first.is_none();
            if is_first {
                *first = Some(failure);
            }
            is_first
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn task_that_returns_early_is_reported_as_failure() {
        let tasks = Tasks::new();
        tasks.spawn("refresh", |_stop| async {});
        assert_eq!(
            tasks.wait_for_failure().await,
            TaskFailure { task: "refresh", kind: TaskFailureKind::ReturnedEarly }
        );
    }

    #[tokio::test]
    async fn panic_in_one_shot_task_is_reported_as_failure() {
        let tasks = Tasks::new();
        tasks.spawn_once("fine", async {});
        tasks.spawn_once("broken", async { panic!("on purpose") });
        assert_eq!(tasks.wait_for_failure().await, TaskFailure { task: "broken", kind: TaskFailureKind::Panicked });
    }

    #[tokio::test]
    async fn stop_joins_task_without_reporting_failure() {
        let tasks = Tasks::new();
        tasks.spawn("loop", |stop| async move { stop.cancelled().await });
        assert_eq!(tasks.stop(Duration::from_secs(60)).await, Ok(()));
        assert!(tasks.failure.borrow().is_none());
    }

    #[tokio::test]
    async fn stop_waits_for_work_whose_handle_was_dropped() {
        let tasks = Tasks::new();
        let (finish, finished) = tokio::sync::oneshot::channel::<()>();
        drop(tasks.spawn_on(&Handle::current(), async { drop(finished.await) }));
        assert_eq!(tasks.stop(Duration::ZERO).await, Err(StopTimeoutError { tasks: 1 }));
        finish.send(()).unwrap();
        assert_eq!(tasks.stop(Duration::from_secs(60)).await, Ok(()));
        let failing = tasks.spawn_on(&Handle::current(), async { panic!("on purpose") });
        assert!(failing.await.unwrap_err().is_panic());
        assert!(tasks.failure.borrow().is_none(), "the panic is reported to the caller only");
    }

    #[tokio::test(start_paused = true)]
    async fn stop_times_out_with_count_of_running_tasks() {
        let tasks = Tasks::new();
        tasks.spawn("deaf", |_stop| std::future::pending());
        assert_eq!(tasks.stop(Duration::from_secs(5)).await, Err(StopTimeoutError { tasks: 1 }));
    }
}
