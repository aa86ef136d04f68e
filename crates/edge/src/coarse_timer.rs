//! A timer that is looked at from time to time.
//!
//! hyper limits the time for the head of a request by a timer that it makes for every request, and that goes off for none of
//! them. One that is only looked at costs less to make than to set: whoever owns the connection looks at it every
//! [`POLL_INTERVAL`], and no limit is exceeded by more.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use hyper::rt::{Sleep, Timer};

/// How often a connection is looked at that nothing happens on.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_secs(4);

/// Makes sleeps that wake nobody.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CoarseTimer;

struct CoarseSleep(Instant);

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
