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
    static BEGUN: Cell<Option<SendLimit>> = const { Cell::new(None) };
}

/// Tells the future that drives this response when it must be sent. To be called within its poll.
pub(crate) fn begin(response: &Response) {
    if let Some(limit) = response.body().send_limit() {
        BEGUN.set(Some(limit));
    }
}

/// Watches the response that a future is sending.
#[derive(Debug, Default)]
pub(crate) struct Sending(Option<SendLimit>);

impl Sending {
    /// To be called after each poll of the future.
    pub(crate) fn note_begun(&mut self) {
        if let Some(limit) = BEGUN.take() {
            self.0 = Some(limit);
        }
    }

    /// When to look again; `None` while no response with a limit is being sent.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.0.as_ref().filter(|limit| limit.is_sending()).map(SendLimit::deadline)
    }

    /// True if the response is still being sent after its deadline.
    pub(crate) fn is_overdue(&self, now: Instant) -> bool {
        self.deadline().is_some_and(|deadline| deadline <= now)
    }
}

/// Runs the streams of HTTP/2 connections as tasks of the connections' family, so that a shutdown waits for them.
#[derive(Clone, Debug)]
pub(crate) struct StreamExecutor(pub(crate) Tasks);

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for StreamExecutor {
    fn execute(&self, stream: F) {
        drop(self.0.spawn_on(&Handle::current(), until_overdue(stream)));
    }
}

/// Drives one HTTP/2 stream until it ends or its response is overdue; dropping it then resets the stream.
async fn until_overdue(stream: impl Future<Output = ()>) {
    let mut stream = pin!(stream);
    let mut sending = Sending::default();
    let mut alarm = pin!(None::<Sleep>);
    poll_fn(|context| {
        if stream.as_mut().poll(context).is_ready() {
            return Poll::Ready(());
        }
        sending.note_begun();
        let Some(deadline) = sending.deadline() else { return Poll::Pending };
        if alarm.is_none() {
            alarm.set(Some(tokio::time::sleep_until(deadline)));
        }
        alarm.as_mut().as_pin_mut().map_or(Poll::Pending, |alarm| alarm.poll(context))
    })
    .await;
}
