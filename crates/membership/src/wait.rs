//! Waits for use in `select!`.

use tokio::sync::watch;
use tokio::time::Instant;

/// Waits for a change; for ever if the sender is gone.
pub(crate) async fn wait_for_change<T>(receiver: &mut watch::Receiver<T>) {
    if receiver.changed().await.is_err() {
        std::future::pending().await
    }
}

/// Waits for an instant; for ever if there is none.
pub(crate) async fn sleep_until_if_some(instant: Option<Instant>) {
    match instant {
        Some(instant) => tokio::time::sleep_until(instant).await,
        None => std::future::pending().await,
    }
}
