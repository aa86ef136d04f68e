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

use crate::status::Snapshot;

/// Snapshots follow each other no faster: nobody reads faster, and a rollout makes many.
const PAUSE: Duration = Duration::from_millis(100);
/// The page calls what it shows old after three of them.
const BEAT_INTERVAL: Duration = Duration::from_secs(2);
/// What the browser waits, in milliseconds, before it opens a broken line again.
const RETRY: &str = "retry: 500\n";

struct Feed {
    snapshots: watch::Receiver<Arc<Snapshot>>,
    stop: CancellationToken,
    is_first: bool,
}

/// The snapshot there is, then each that replaces it; the newest if several did. It ends with the lab.
pub(super) fn body(
    mut snapshots: watch::Receiver<Arc<Snapshot>>,
    stop: CancellationToken,
) -> impl Body<Data = Bytes, Error = Infallible> + Send + 'static {
    snapshots.mark_changed();
    let feed = Feed { snapshots, stop, is_first: true };
    StreamBody::new(stream::unfold(feed, async |mut feed| {
        let text = feed.next().await?;
        Some((Ok(Frame::data(Bytes::from(text))), feed))
    }))
}

impl Feed {
    async fn next(&mut self) -> Option<String> {
        let beginning = if std::mem::take(&mut self.is_first) { RETRY } else { "" };
        if beginning.is_empty() {
            self.stop.run_until_cancelled(tokio::time::sleep(PAUSE)).await?;
        }
        let news = tokio::time::timeout(BEAT_INTERVAL, self.snapshots.changed());
        match self.stop.run_until_cancelled(news).await? {
            Ok(Ok(())) => {
                let snapshot = self.snapshots.borrow_and_update().clone();
                Some(format!("{beginning}event: snapshot\ndata: {}\n\n", super::json(&snapshot)))
            }
            // Nobody makes snapshots any more.
            Ok(Err(_)) => None,
            Err(_) => Some("event: beat\ndata:\n\n".to_owned()),
        }
    }
}
