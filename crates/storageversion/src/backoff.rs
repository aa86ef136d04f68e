//! How long to wait before the next try.

use std::time::Duration;

use fastrand::Rng;
use tasks::Backoff;

/// The waits after failures.
pub(crate) const AFTER_FAILURE: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(5));
/// The least that a write is taken to last, and the longest wait after somebody else was quicker: long enough for a crowd of
/// servers at one object to pass one by one.
const WRITE_DURATION_MIN: Duration = Duration::from_millis(1);
const CONFLICT_BACKOFF_MAX: Duration = Duration::from_secs(1);

/// Somewhere between nothing and a limit that doubles, measured by how long a write lasts: of all that wait for the same commit
/// one wins, so that those who met must not meet in the next one again.
pub(crate) fn after_conflict(conflicts: u32, write_duration: Duration, rng: &mut Rng) -> Duration {
    let limits = Backoff::new(write_duration.max(WRITE_DURATION_MIN).saturating_mul(2), CONFLICT_BACKOFF_MAX);
    limits.after(conflicts.saturating_add(1)).mul_f64(rng.f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_doubles_up_to_its_maximum() {
        let mut rng = Rng::with_seed(7);
        for (count, write, most) in [(0, 0, 2), (0, 5, 10), (3, 5, 80), (7, 5, 1000), (u32::MAX, 5, 1000)] {
            let wait = after_conflict(count, Duration::from_millis(write), &mut rng);
            assert!(wait <= Duration::from_millis(most), "{count}: {wait:?}");
        }
    }
}
