//! When something is done next: after a change at once, otherwise at an interval, after failures with a backoff.

use std::time::Duration;

use tasks::Backoff;
use tokio::time::Instant;

/// The schedule of one repeated action, of which at most one runs at a time.
#[derive(Debug)]
pub(super) struct Schedule {
    interval: Duration,
    backoff: Backoff,
    due: Instant,
    is_running: bool,
    /// True if something changed while the action ran.
    is_outdated: bool,
}

impl Schedule {
    /// Due now.
    pub(super) fn new(interval: Duration, backoff: Backoff, now: Instant) -> Self {
        Self { interval, backoff, due: now, is_running: false, is_outdated: false }
    }

    /// Makes the action due, or repeats it if it runs.
    pub(super) fn trigger(&mut self, now: Instant) {
        if self.is_running {
            self.is_outdated = true;
        } else {
            self.due = self.due.min(now);
        }
    }

    /// True if the action must start; then it counts as running.
    pub(super) fn start_if_due(&mut self, now: Instant) -> bool {
        let starts = !self.is_running && self.due <= now;
        self.is_running |= starts;
        starts
    }

    /// Ends the action.
    pub(super) fn finish(&mut self, has_succeeded: bool, now: Instant) {
        self.is_running = false;
        let wait = if has_succeeded {
            self.backoff.reset();
            self.interval
        } else {
            self.backoff.next_wait()
        };
        self.due = if std::mem::take(&mut self.is_outdated) { now } else { now + wait };
    }

    /// When the action is due; `None` while it runs.
    pub(super) fn next(&self) -> Option<Instant> {
        (!self.is_running).then_some(self.due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn action_follows_interval_backoff_and_changes() {
        let start = Instant::now();
        let mut schedule = Schedule::new(30 * SECOND, Backoff::new(SECOND, 5 * SECOND), start);
        assert!(schedule.start_if_due(start) && !schedule.start_if_due(start), "one at a time");
        assert_eq!(schedule.next(), None);
        schedule.finish(true, start);
        assert_eq!(schedule.next(), Some(start + 30 * SECOND));
        schedule.trigger(start + SECOND);
        assert!(schedule.start_if_due(start + SECOND), "after a change at once");
        schedule.trigger(start + SECOND);
        schedule.finish(true, start + 2 * SECOND);
        assert_eq!(schedule.next(), Some(start + 2 * SECOND), "changed while it ran");
        for wait in [1, 2, 4, 5, 5] {
            schedule.finish(false, start);
            assert_eq!(schedule.next(), Some(start + wait * SECOND));
        }
    }
}
