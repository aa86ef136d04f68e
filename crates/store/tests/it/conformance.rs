//! The conformance suite: the contract of the store, checked on every backend.
//!
//! A backend implements [`Harness`] and calls [`conformance_tests!`]. Each check has a key prefix of its own, so that
//! the checks of a group can share a store; each group gets a fresh store, because compaction affects all prefixes. A
//! check returns the violation instead of panicking, so that `faulty_store.rs` can prove that it finds faults.

pub(crate) mod check_fixture;
pub(crate) mod compaction;
pub(crate) mod computed;
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

/// The result of a check: the error names the broken rule of the contract, and how it was broken.
pub(crate) type CheckResult = anyhow::Result<()>;

/// One store, which lives as long as the harness.
pub(crate) trait Harness: Send + Sync {
    /// Opens another client of the store, as another server would.
    fn open(&self) -> BoxFuture<'_, Arc<dyn Store>>;

    /// The size of a value that exceeds every limit of the store.
    fn oversized_value_bytes(&self) -> usize;
}

pub(crate) type Check = (&'static str, for<'a> fn(&'a CheckFixture) -> BoxFuture<'a, CheckResult>);

/// The checks of a group, by function name.
macro_rules! checks {
    ($($check:ident),* $(,)?) => {
        &[$((stringify!($check), |stage| Box::pin($check(stage)))),*]
    };
}
pub(crate) use checks;

/// Whether the checks of a group run one after another or overlap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExecutionOrder {
    /// Each check has the store to itself.
    Sequential,
    /// For checks that mostly wait for time to pass.
    Concurrent,
}

/// Runs a group and panics with all violations.
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

/// Defines the whole suite as tests of the enclosing module; `$start` is an expression that creates a [`Harness`], with
/// `.await`.
macro_rules! conformance_tests {
    ($start:expr) => {
        $crate::conformance::conformance_tests!(@group $start, reads, Sequential);
        $crate::conformance::conformance_tests!(@group $start, transactions, Sequential);
        $crate::conformance::conformance_tests!(@group $start, computed, Sequential);
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
