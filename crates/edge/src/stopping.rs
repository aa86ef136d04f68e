//! How a connection learns that the server stops: first to finish its requests, later to close.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::Sleep;
use tokio_util::sync::{CancellationToken, WaitForCancellationFuture};

/// How long a connection may take to finish after the server was told to stop: less than the server waits for all of them, so that
/// every request ends by its own code and not with the process.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(8);

/// What a connection is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// Nothing.
    No,
    /// Take no more requests. Said once.
    Finish,
    /// End now, whatever is under way.
    Close,
}

/// The signal to stop, and the time that is left after it.
pub(crate) enum Stopping<'a> {
    Awaited(Pin<Box<WaitForCancellationFuture<'a>>>),
    Closing(Pin<Box<Sleep>>),
}

impl<'a> Stopping<'a> {
    pub(crate) fn new(stop: &'a CancellationToken) -> Self {
        Self::Awaited(Box::pin(stop.cancelled()))
    }

    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Stop {
        let mut said = Stop::No;
        if let Self::Awaited(stop) = self {
            if stop.as_mut().poll(context).is_pending() {
                return Stop::No;
            }
            *self = Self::Closing(Box::pin(tokio::time::sleep(CLOSE_TIMEOUT)));
            said = Stop::Finish;
        }
        if let Self::Closing(alarm) = self
            && alarm.as_mut().poll(context) == Poll::Ready(())
        {
            return Stop::Close;
        }
        said
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn connection_is_asked_to_finish_once_and_closed_after_the_timeout() {
        let stop = CancellationToken::new();
        let mut stopping = Stopping::new(&stop);
        let mut poll = || stopping.poll(&mut Context::from_waker(std::task::Waker::noop()));
        assert_eq!(poll(), Stop::No);
        stop.cancel();
        assert_eq!((poll(), poll()), (Stop::Finish, Stop::No));
        tokio::time::advance(CLOSE_TIMEOUT).await;
        assert_eq!(poll_fn(|context| Poll::Ready(stopping.poll(context))).await, Stop::Close);
    }
}
