//! Removal of keys whose time to live has ended. Every process does it; the first to come is enough.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::Error;
use crate::sqlite::clock::Clock;
use crate::sqlite::reader_pool::ReaderPool;
use crate::sqlite::write_queue::WriteQueue;
use crate::sqlite::write_transaction::next_deadline;

#[derive(Clone, Debug)]
pub(super) struct KeyExpiry {
    pub(super) reader_pool: ReaderPool,
    pub(super) write_queue: WriteQueue,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) interval: Duration,
}

impl KeyExpiry {
    pub(super) async fn run(self, stop: CancellationToken) {
        loop {
            // Jitter, so that not all processes find the same due keys.
            let pause = self.interval.mul_f64(0.5 + 0.5 * fastrand::f64());
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(pause) => {}
            }
            if let Err(error) = self.expire_due_keys().await
                && !stop.is_cancelled()
            {
                tracing::warn!(%error, "failed to remove expired keys, will retry");
            }
        }
    }

    /// Removes all due keys. Takes the write lock only if a key is due.
    pub(super) async fn expire_due_keys(&self) -> Result<(), Error> {
        let now = self.clock.since_boot();
        let next = self.reader_pool.read(|reader| Ok(next_deadline(&reader.connection)?)).await?;
        let mut is_due = next.is_some_and(|deadline| deadline <= now);
        while is_due {
            is_due = self.write_queue.submit(0, |write| Ok(write.expire_due_keys()?)).await?;
        }
        Ok(())
    }
}
