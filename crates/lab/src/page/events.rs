//! Snapshots as server-sent events.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http_body_util::StreamBody;
use hyper::body::{Body, Frame};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::status::LabSnapshot;

/// Minimum time between two events; a rollout produces snapshots faster than a browser can show them.
const SNAPSHOT_INTERVAL_MIN: Duration = Duration::from_millis(100);
/// The page marks its contents as outdated after three missed heartbeats.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(2);
/// Milliseconds before the browser reconnects a broken event stream.
const RETRY_FIELD: &str = "retry: 500\n";

struct SnapshotEventStream {
    snapshots: watch::Receiver<Arc<LabSnapshot>>,
    stop: CancellationToken,
    is_first: bool,
}

/// Returns an event stream with the current snapshot and each later change, skipping to the newest. Ends when `stop` is
/// cancelled.
pub(super) fn event_stream_body(
    mut snapshots: watch::Receiver<Arc<LabSnapshot>>,
    stop: CancellationToken,
) -> impl Body<Data = Bytes, Error = Infallible> + Send + 'static {
    snapshots.mark_changed();
    let feed = SnapshotEventStream { snapshots, stop, is_first: true };
    StreamBody::new(stream::unfold(feed, async |mut feed| {
        let text = feed.next_event().await?;
        Some((Ok(Frame::data(Bytes::from(text))), feed))
    }))
}

impl SnapshotEventStream {
    /// Returns the next snapshot event, or a heartbeat if nothing changed for two seconds; `None` at the end.
    async fn next_event(&mut self) -> Option<String> {
        let beginning = if std::mem::take(&mut self.is_first) { RETRY_FIELD } else { "" };
        if beginning.is_empty() {
            self.stop.run_until_cancelled(tokio::time::sleep(SNAPSHOT_INTERVAL_MIN)).await?;
        }
        let news = tokio::time::timeout(HEARTBEAT_INTERVAL, self.snapshots.changed());
        match self.stop.run_until_cancelled(news).await? {
            Ok(Ok(())) => {
                let snapshot = self.snapshots.borrow_and_update().clone();
                Some(format!("{beginning}event: snapshot\ndata: {}\n\n", super::to_json(&snapshot)))
            }
            // The status collector has ended.
            Ok(Err(_)) => None,
            Err(_) => Some("event: beat\ndata:\n\n".to_owned()),
        }
    }
}
