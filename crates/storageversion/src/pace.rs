//! How long to wait before the next try.

use std::time::Duration;

use fastrand::Rng;

/// The first wait after a failure, and the longest.
const FAILED_FIRST: Duration = Duration::from_millis(100);
const FAILED_LAST: Duration = Duration::from_secs(5);
/// The first wait after somebody else was quicker, about as long as a commit takes, and the longest: with a hundred servers
/// at one object, as long as it takes to let all others pass.
const CONFLICT_FIRST: Duration = Duration::from_millis(2);
const CONFLICT_LAST: Duration = Duration::from_millis(256);

/// Somewhere between nothing and a limit that doubles: those who met at an object do not meet again.
pub(crate) fn after_conflict(conflicts: u32, rng: &mut Rng) -> Duration {
    let limit = CONFLICT_FIRST.saturating_mul(1 << conflicts.min(16)).min(CONFLICT_LAST);
    limit.mul_f64(rng.f64())
}

/// Between half and all of a wait that doubles.
pub(crate) fn after_failure(failures: u32, rng: &mut Rng) -> Duration {
    let limit = FAILED_FIRST.saturating_mul(1 << failures.min(16)).min(FAILED_LAST);
    limit.mul_f64(0.5 + rng.f64() / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_last() {
        let mut rng = Rng::with_seed(7);
        for (count, most) in [(0, 100), (1, 200), (5, 3200), (6, 5000), (u32::MAX, 5000)] {
            let (wait, most) = (after_failure(count, &mut rng), Duration::from_millis(most));
            assert!(most / 2 <= wait && wait <= most, "{count}: {wait:?}");
        }
        for (count, most) in [(0, 2), (3, 16), (7, 256), (u32::MAX, 256)] {
            assert!(after_conflict(count, &mut rng) <= Duration::from_millis(most), "{count}");
        }
    }
}
