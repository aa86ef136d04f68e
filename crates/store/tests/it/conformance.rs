//! One suite for every backend: what a store must do, whatever it is made of.
//!
//! A backend implements [`Harness`] and calls [`conformance_tests!`]. Each check has its own prefix of the store, so that
//! the checks of a group can share one; each group gets a fresh store, because compaction forgets everybody's history.
//! A check returns what is wrong instead of panicking: `broken.rs` proves with it that a faulty store is found out.

pub(crate) mod check_fixture;
pub(crate) mod compaction;
pub(crate) mod history;
pub(crate) mod model;
pub(crate) mod reads;
pub(crate) mod replay;
pub(crate) mod transactions;
pub(crate) mod ttl;
pub(crate) mod watches;
pub(crate) mod workload;

use std::sync::Arc;

use futures_util::future::{BoxFuture, join_all};
use store::Store;

use self::check_fixture::CheckFixture;

/// What a check found: `Err` says which promise is broken, and how.
pub(crate) type CheckResult = anyhow::Result<()>;

/// One store, alive as long as this is.
pub(crate) trait Harness: Send + Sync {
    /// Opens the store once more, as another server would.
    fn open(&self) -> BoxFuture<'_, Arc<dyn Store>>;

    /// The size of a value that is too large for the store in any case.
    fn oversized_value_bytes(&self) -> usize;
}

/// A named check.
pub(crate) type Check = (&'static str, for<'a> fn(&'a CheckFixture) -> BoxFuture<'a, CheckResult>);

/// The checks of a group, by the names of their functions.
macro_rules! checks {
    ($($check:ident),* $(,)?) => {
        &[$((stringify!($check), |stage| Box::pin($check(stage)))),*]
    };
}
pub(crate) use checks;

/// Whether the checks of a group follow each other or overlap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExecutionOrder {
    /// Each has the store for itself while it runs.
    Sequential,
    /// They wait for the clock of the store rather than for its work.
    Concurrent,
}

/// Runs a group and panics with everything it found.
pub(crate) async fn run_checks(harness: &dyn Harness, checks: &[Check], order: ExecutionOrder) {
    let run_one = |(name, check): &Check| {
        let (name, check) = (*name, *check);
        async move {
            let stage = CheckFixture::new(harness, name).await;
            check(&stage).await.err().map(|violation| format!("{name}: {violation:#}"))
        }
    };
    let mut violations = Vec::new();
    match order {
        ExecutionOrder::Sequential => {
            for check in checks {
                violations.extend(run_one(check).await);
            }
        }
        ExecutionOrder::Concurrent => {
            violations.extend(join_all(checks.iter().map(run_one)).await.into_iter().flatten())
        }
    }
    assert!(
        violations.is_empty(),
        "{} of {} checks failed:\n{}",
        violations.len(),
        checks.len(),
        violations.join("\n")
    );
}

/// The whole suite as tests of the enclosing module; `$start` is an expression that makes a [`Harness`], with `.await`.
macro_rules! conformance_tests {
    ($start:expr) => {
        $crate::conformance::conformance_tests!(@group $start, reads, Sequential);
        $crate::conformance::conformance_tests!(@group $start, transactions, Sequential);
        $crate::conformance::conformance_tests!(@group $start, watches, Sequential);
        $crate::conformance::conformance_tests!(@group $start, ttl, Concurrent);
        $crate::conformance::conformance_tests!(@group $start, compaction, Sequential);

        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn matches_the_model() {
            let harness = $start;
            $crate::conformance::workload::check_random_workloads(&harness).await;
        }
    };
    (@group $start:expr, $group:ident, $order:ident) => {
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $group() {
            let harness = $start;
            let order = $crate::conformance::ExecutionOrder::$order;
            $crate::conformance::run_checks(&harness, $crate::conformance::$group::CHECKS, order).await;
        }
    };
}
pub(crate) use conformance_tests;
