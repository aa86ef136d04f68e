//! How long to wait before the next try.

use std::time::Duration;

use fastrand::Rng;

/// The first wait after a failure, and the longest.
const FAILED_FIRST: Duration = Duration::from_millis(100);
const FAILED_LAST: Duration = Duration::from_secs(5);
/// The least that a write is taken to last, and the longest wait after somebody else was quicker: long enough for a crowd of
/// servers at one object to pass one by one.
const WRITE_LEAST: Duration = Duration::from_millis(1);
const CONFLICT_LAST: Duration = Duration::from_secs(1);

/// Somewhere between nothing and a limit that doubles, measured by how long a write lasts: of all that wait for the same commit
/// one wins, so that those who met must not meet in the next one again.
pub(crate) fn after_conflict(conflicts: u32, write: Duration, rng: &mut Rng) -> Duration {
    let limit = write.max(WRITE_LEAST).saturating_mul(2 << conflicts.min(16)).min(CONFLICT_LAST);
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
        for (count, write, most) in [(0, 0, 2), (0, 5, 10), (3, 5, 80), (7, 5, 1000), (u32::MAX, 5, 1000)] {
            let wait = after_conflict(count, Duration::from_millis(write), &mut rng);
            assert!(wait <= Duration::from_millis(most), "{count}: {wait:?}");
        }
    }
}
