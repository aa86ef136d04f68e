//! Waiting for what other processes do soon, and what they count.

use std::time::{Duration, Instant};

use crate::Client;

/// Longer than anything takes on a loaded machine; the longest is the minute until a member is mute.
const PATIENCE: Duration = Duration::from_secs(120);
const LOOK_INTERVAL: Duration = Duration::from_millis(10);

/// Looks again and again until what is said of the world is true.
pub async fn eventually(what: &str, is_so: impl AsyncFn() -> Result<(), String>) {
    let begun = Instant::now();
    while let Err(found) = is_so().await {
        assert!(begun.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}: {found}");
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
}

/// What one series of `/metrics` counts, named with its labels as the page has them; 0 if it is not there.
pub async fn figure(client: &Client, series: &str) -> u64 {
    let page = client.get("/metrics").await;
    let text = String::from_utf8_lossy(&page.body);
    let value = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok());
    value.unwrap_or_default()
}

/// Looks again and again until what is said of the world is true, for so long at most; how long it took. For tests that are not
/// asynchronous themselves.
#[track_caller]
pub fn within(limit: Duration, what: &str, is_so: impl AsyncFn() -> Result<(), String>) -> Duration {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime can be made");
    let begun = Instant::now();
    loop {
        match runtime.block_on(is_so()) {
            Ok(()) => return begun.elapsed(),
            Err(found) => assert!(begun.elapsed() < limit, "not within {limit:?}: {what}: {found}"),
        }
        std::thread::park_timeout(LOOK_INTERVAL);
    }
}
