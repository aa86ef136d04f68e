//! Ends responses that are not sent by their deadline.
//!
//! hyper polls a body only while the client takes data, so a body cannot end itself when the client does not read. The future that
//! drives the response is ended instead: that of one HTTP/2 stream, or that of the whole HTTP/1.1 connection.

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use hyper::rt::Executor;
use tasks::Tasks;
use tokio::runtime::Handle;
use tokio::time::{Instant, Sleep};

use crate::Response;
use crate::seats::SendLimit;

thread_local! {
    /// The limit of the response that was handed to hyper within the current poll of a stream or connection.
    static STARTED_SEND_LIMIT: Cell<Option<SendLimit>> = const { Cell::new(None) };
}

/// Sets the send limit of the future that drives this response. Call it within a poll of that future.
pub(crate) fn set_send_limit(response: &Response) {
    if let Some(limit) = response.body().send_limit() {
        STARTED_SEND_LIMIT.set(Some(limit));
    }
}

/// Watches the response that a future is sending.
#[derive(Debug, Default)]
pub(crate) struct SendMonitor(Option<SendLimit>);

impl SendMonitor {
    /// Takes the limit over; call it after each poll of the future.
    pub(crate) fn take_send_limit(&mut self) {
        if let Some(limit) = STARTED_SEND_LIMIT.take() {
            self.0 = Some(limit);
        }
    }

    /// When the response is due; `None` while no response with a limit is being sent.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.0.as_ref().filter(|limit| limit.is_sending()).map(SendLimit::deadline)
    }

    /// True if the response is still being sent after its deadline.
    pub(crate) fn is_overdue(&self, now: Instant) -> bool {
        self.deadline().is_some_and(|deadline| deadline <= now)
    }
}

/// Runs HTTP/2 streams among the tasks of the connections, so that a shutdown waits for them.
#[derive(Clone, Debug)]
pub(crate) struct StreamExecutor(pub(crate) Tasks);

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for StreamExecutor {
    fn execute(&self, stream: F) {
        drop(self.0.spawn_on(&Handle::current(), run_until_overdue(stream)));
    }
}

/// Drives one HTTP/2 stream until it ends or its response is overdue; dropping it then resets the stream.
async fn run_until_overdue(stream: impl Future<Output = ()>) {
    let mut stream = pin!(stream);
    let mut send_monitor = SendMonitor::default();
    let mut timer = pin!(None::<Sleep>);
    poll_fn(|context| {
        if stream.as_mut().poll(context).is_ready() {
            return Poll::Ready(());
        }
        send_monitor.take_send_limit();
        let Some(deadline) = send_monitor.deadline() else { return Poll::Pending };
        if timer.is_none() {
            timer.set(Some(tokio::time::sleep_until(deadline)));
        }
        timer.as_mut().as_pin_mut().map_or(Poll::Pending, |timer| timer.poll(context))
    })
    .await;
}
