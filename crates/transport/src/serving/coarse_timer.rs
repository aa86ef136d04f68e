//! A timer without wake-ups, for hyper's timeout of request heads.
//!
//! hyper creates one timer per request, and almost none fires. A timer that is only polled is cheaper than one that is registered
//! with the runtime: the connection polls it every [`CoarseTimer::POLL_INTERVAL`], and no timeout is exceeded by more.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use hyper::rt::{Sleep, Timer};

/// Creates sleeps that register no waker.
#[derive(Clone, Copy, Debug)]
pub struct CoarseTimer;

struct CoarseSleep(Instant);

impl CoarseTimer {
    /// The interval at which an idle connection polls its timers.
    pub const POLL_INTERVAL: Duration = Duration::from_secs(4);
}

impl Timer for CoarseTimer {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Sleep>> {
        self.sleep_until(Instant::now() + duration)
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn Sleep>> {
        Box::pin(CoarseSleep(deadline))
    }
}

impl Sleep for CoarseSleep {}

impl Future for CoarseSleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<()> {
        if Instant::now() >= self.0 { Poll::Ready(()) } else { Poll::Pending }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::future::poll_immediate;

    use super::*;

    #[tokio::test]
    async fn coarse_sleep_is_ready_only_after_its_deadline() {
        assert!(poll_immediate(CoarseTimer.sleep(Duration::ZERO)).await.is_some());
        assert!(poll_immediate(CoarseTimer.sleep(Duration::from_secs(3_600))).await.is_none());
    }
}
