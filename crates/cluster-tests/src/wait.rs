//! Polling for conditions, and reading metrics.

use std::time::{Duration, Instant};

use crate::Client;

/// Longer than any condition takes on a loaded machine; the longest is the minute until a member is mute.
const WAIT_TIMEOUT: Duration = Duration::from_secs(120);
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Polls a condition until it holds; fails with the last error after two minutes.
pub async fn eventually(what: &str, condition: impl AsyncFn() -> Result<(), String>) {
    eventually_within(WAIT_TIMEOUT, what, condition).await;
}

/// Like `eventually`, with its own limit.
pub async fn eventually_within(limit: Duration, what: &str, condition: impl AsyncFn() -> Result<(), String>) {
    let begun = Instant::now();
    while let Err(found) = condition().await {
        assert!(begun.elapsed() < limit, "not within {limit:?}: {what}: {found}");
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Value of one series of `/metrics`, given with its labels as on the page; 0 if it is missing.
pub async fn metric_value(client: &Client, series: &str) -> u64 {
    let page = client.get("/metrics").await;
    let text = String::from_utf8_lossy(&page.body);
    let value = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok());
    value.unwrap_or_default()
}

/// Like `eventually` for synchronous tests, with its own limit. Returns how long it took.
#[track_caller]
pub fn wait_within(limit: Duration, what: &str, condition: impl AsyncFn() -> Result<(), String>) -> Duration {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime can be made");
    let begun = Instant::now();
    loop {
        match runtime.block_on(condition()) {
            Ok(()) => return begun.elapsed(),
            Err(found) => assert!(begun.elapsed() < limit, "not within {limit:?}: {what}: {found}"),
        }
        std::thread::park_timeout(POLL_INTERVAL);
    }
}
