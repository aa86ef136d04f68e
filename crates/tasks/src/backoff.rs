//! Exponential backoff and jitter; the caller provides the random numbers.

use std::time::Duration;

use fastrand::Rng;

/// A backoff that doubles from `first` up to `last`.
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    first: Duration,
    last: Duration,
    failures: u32,
}

impl Backoff {
    /// Creates a backoff without failures.
    pub const fn new(first: Duration, last: Duration) -> Self {
        Self { first, last, failures: 0 }
    }

    /// Returns the wait after `failures` consecutive failures; the first failure is 1. Never exceeds `last`.
    pub fn after(&self, failures: u32) -> Duration {
        let factor = 2_u32.checked_pow(failures.saturating_sub(1)).unwrap_or(u32::MAX);
        self.first.saturating_mul(factor).min(self.last)
    }

    /// Counts a failure and returns the wait after it.
    pub fn next_wait(&mut self) -> Duration {
        self.failures = self.failures.saturating_add(1);
        self.after(self.failures)
    }

    /// Like [`Backoff::next_wait`], but jittered between half and all of the wait, so that servers do not retry in
    /// sync.
    pub fn next_jittered(&mut self, rng: &mut Rng) -> Duration {
        self.next_wait().mul_f64(0.5 + rng.f64() / 2.0)
    }

    /// Restarts at the first wait.
    pub fn reset(&mut self) {
        self.failures = 0;
    }
}

/// Lengthens the interval at random by up to `factor` of it.
pub fn jittered(interval: Duration, factor: f64, rng: &mut Rng) -> Duration {
    interval.mul_f64(1.0 + factor * rng.f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    const BACKOFF: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(7));
    const WAITS: [u64; 8] = [200, 400, 800, 1600, 3200, 6400, 7000, 7000];

    #[test]
    fn waits_double_up_to_the_last_and_start_over_after_reset() {
        let mut backoff = BACKOFF;
        assert_eq!(WAITS.map(|_| backoff.next_wait()), WAITS.map(Duration::from_millis));
        backoff.reset();
        assert_eq!(backoff.next_wait(), Duration::from_millis(200));
    }

    #[test]
    fn jittered_waits_are_between_half_and_all_of_the_wait() {
        let mut rng = Rng::with_seed(7);
        let mut backoff = BACKOFF;
        for most in WAITS.map(Duration::from_millis) {
            let wait = backoff.next_jittered(&mut rng);
            assert!(most / 2 <= wait && wait <= most, "{wait:?} of {most:?}");
        }
    }

    #[test]
    fn no_number_of_failures_overflows() {
        for (failures, wait) in [(0, 200), (1, 200), (2, 400), (33, 7000), (u32::MAX, 7000)] {
            assert_eq!(BACKOFF.after(failures), Duration::from_millis(wait), "{failures}");
        }
    }

    #[test]
    fn jittered_intervals_are_never_shorter() {
        let mut rng = Rng::with_seed(7);
        for _ in 0..100 {
            let interval = jittered(Duration::from_secs(10), 0.04, &mut rng);
            assert!(Duration::from_secs(10) <= interval && interval <= Duration::from_millis(10_400), "{interval:?}");
        }
    }
}
