//! Removing keys whose time to live ran out. Every process does it; whoever comes first is enough.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::Error;
use crate::sqlite::clock::Clock;
use crate::sqlite::pool::Pool;
use crate::sqlite::write::next_deadline;
use crate::sqlite::writer::Writer;

#[derive(Clone, Debug)]
pub(super) struct Expiry {
    pub(super) pool: Pool,
    pub(super) writer: Writer,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) interval: Duration,
}

impl Expiry {
    pub(super) async fn run(self, stop: CancellationToken) {
        loop {
            // Spread, so that the processes do not all come at once to find that the first has done it.
            let pause = self.interval.mul_f64(0.5 + 0.5 * fastrand::f64());
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(pause) => {}
            }
            if let Err(error) = self.expire().await
                && !stop.is_cancelled()
            {
                tracing::warn!(%error, "keys whose time to live ran out could not be removed; it will be tried again");
            }
        }
    }

    /// Removes everything that is due. Only looks, and waits for no turn, where nothing is.
    pub(super) async fn expire(&self) -> Result<(), Error> {
        let now = self.clock.since_boot();
        let next = self.pool.read(|reader| Ok(next_deadline(&reader.connection)?)).await?;
        let mut is_due = next.is_some_and(|deadline| deadline <= now);
        while is_due {
            is_due = self.writer.submit(0, |write| Ok(write.expire()?)).await?;
        }
        Ok(())
    }
}
