//! How long to wait before the next try or the next round.

use std::time::Duration;

use fastrand::Rng;

/// Waits that double from a first to a last, for ever.
#[derive(Debug)]
pub(crate) struct Backoff {
    first: Duration,
    last: Duration,
    next: Duration,
}

impl Backoff {
    pub(crate) fn new(first: Duration, last: Duration) -> Self {
        Self { first, last, next: first }
    }

    /// The next wait, somewhere between half of it and all of it, so that servers that failed together do not try together.
    pub(crate) fn next(&mut self, rng: &mut Rng) -> Duration {
        let wait = self.next;
        self.next = (self.next * 2).min(self.last);
        wait.mul_f64(0.5 + rng.f64() / 2.0)
    }

    /// All is well.
    pub(crate) fn reset(&mut self) {
        self.next = self.first;
    }
}

/// A round of this length, up to `factor` longer.
pub(crate) fn jittered(round: Duration, factor: f64, rng: &mut Rng) -> Duration {
    round.mul_f64(1.0 + factor * rng.f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_last_and_start_over() {
        let mut rng = Rng::with_seed(7);
        let mut backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(7));
        for (at, most) in [200, 400, 800, 1600, 3200, 6400, 7000, 7000].into_iter().enumerate() {
            let wait = backoff.next(&mut rng);
            let most = Duration::from_millis(most);
            assert!(most / 2 <= wait && wait <= most, "{at}: {wait:?}");
        }
        backoff.reset();
        assert!(backoff.next(&mut rng) <= Duration::from_millis(200));
    }

    #[test]
    fn rounds_are_a_little_longer_never_shorter() {
        let mut rng = Rng::with_seed(7);
        for _ in 0..100 {
            let round = jittered(Duration::from_secs(10), 0.04, &mut rng);
            assert!(Duration::from_secs(10) <= round && round <= Duration::from_millis(10_400), "{round:?}");
        }
    }
}
