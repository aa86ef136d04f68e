//! The stop of a connection in two steps: finish requests, then close.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::Sleep;
use tokio_util::sync::{CancellationToken, WaitForCancellationFuture};

/// How long a connection may finish its requests after a stop. Less than the shutdown grace of the server, so that every request
/// ends by its own code and not with the process.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(8);

/// The next step of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StopStep {
    /// Keep serving.
    Continue,
    /// Accept no more requests. Returned once.
    Finish,
    /// Close now, also with requests in flight.
    Close,
}

/// Waits for the stop signal, then for the close timeout.
pub(crate) enum StopMonitor<'a> {
    Waiting(Pin<Box<WaitForCancellationFuture<'a>>>),
    Closing(Pin<Box<Sleep>>),
}

impl<'a> StopMonitor<'a> {
    pub(crate) fn new(stop: &'a CancellationToken) -> Self {
        Self::Waiting(Box::pin(stop.cancelled()))
    }

    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> StopStep {
        let mut step = StopStep::Continue;
        if let Self::Waiting(stop) = self {
            if stop.as_mut().poll(context).is_pending() {
                return StopStep::Continue;
            }
            *self = Self::Closing(Box::pin(tokio::time::sleep(CLOSE_TIMEOUT)));
            step = StopStep::Finish;
        }
        if let Self::Closing(timer) = self
            && timer.as_mut().poll(context) == Poll::Ready(())
        {
            return StopStep::Close;
        }
        step
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn connection_is_asked_to_finish_once_and_closed_after_the_timeout() {
        let stop = CancellationToken::new();
        let mut stopping = StopMonitor::new(&stop);
        let mut poll = || stopping.poll(&mut Context::from_waker(std::task::Waker::noop()));
        assert_eq!(poll(), StopStep::Continue);
        stop.cancel();
        assert_eq!((poll(), poll()), (StopStep::Finish, StopStep::Continue));
        tokio::time::advance(CLOSE_TIMEOUT).await;
        assert_eq!(poll_fn(|context| Poll::Ready(stopping.poll(context))).await, StopStep::Close);
    }
}
