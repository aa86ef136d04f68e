//! The waits before retries.

use std::time::Duration;

use fastrand::Rng;
use tasks::Backoff;

pub(crate) const AFTER_FAILURE: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(5));
/// The assumed minimal duration of a write, and the longest wait after a conflict: long enough for many servers to
/// write one object in turn.
const WRITE_DURATION_MIN: Duration = Duration::from_millis(1);
const CONFLICT_BACKOFF_MAX: Duration = Duration::from_secs(1);

/// A random wait below a limit that doubles with each conflict, starting at twice the duration of a write. One of the
/// writers in a commit wins, so the randomness must spread the others over several commits.
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
