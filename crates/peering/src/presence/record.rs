//! Our endpoint record, written again before it runs out.

use std::sync::Arc;
use std::time::Duration;

use api::PortError;
use fastrand::Rng;
use tasks::Backoff;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use super::{Leave, PresenceConfig};
use crate::ports::{Records, Version};
use crate::readiness::Milestone;

/// Short, because a record lives for seconds only.
const BACKOFF_FIRST: Duration = Duration::from_millis(200);
const BACKOFF_LAST: Duration = Duration::from_secs(2);

/// Keeps our endpoint record.
pub(super) struct RecordKeeper {
    pub(super) config: Arc<PresenceConfig>,
    pub(super) records: Arc<dyn Records>,
    /// The document comes first.
    pub(super) after: Milestone,
    pub(super) leave: Leave,
    pub(super) first: Milestone,
}

impl RecordKeeper {
    pub(super) async fn run(self, stop: CancellationToken) {
        let mut put = None;
        tokio::select! {
            () = self.keep(&mut put) => {}
            () = self.leave.begun(&stop) => {}
        }
        self.leave.release(self.config.pace.leave_timeout, self.release(put)).await;
        self.first.reach();
        stop.cancelled().await;
    }

    /// Never returns.
    async fn keep(&self, put: &mut Option<Version>) {
        let config = &self.config;
        let mut rng = Rng::with_seed(config.seed);
        let mut backoff = Backoff::new(BACKOFF_FIRST, BACKOFF_LAST);
        self.after.reached().await;
        let mut ticks = tokio::time::interval(config.pace.record_interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut generation = 0;
        loop {
            ticks.tick().await;
            loop {
                generation += 1;
                let record = config.address.to_record(&config.server, generation);
                let writing = self.records.put(&config.server, record, config.pace.record_ttl);
                let late = || Err(PortError::Unavailable { reason: "it took too long".to_owned() });
                let written = tokio::time::timeout(config.pace.call_timeout, writing).await.unwrap_or_else(|_| late());
                self.first.reach();
                match written {
                    Ok(version) => {
                        *put = Some(version);
                        backoff.reset();
                        break;
                    }
                    Err(error) => {
                        tracing::warn!(server = %config.server, %error, "our endpoint record cannot be written");
                        tokio::time::sleep(backoff.next_jittered(&mut rng)).await;
                    }
                }
            }
        }
    }

    async fn release(&self, put: Option<Version>) {
        let Some(put) = put else { return };
        let server = &self.config.server;
        match self.records.delete(server, put).await {
            // Another process of ours has written its own already.
            Ok(()) | Err(PortError::NotFound | PortError::Conflict) => {}
            Err(error) => tracing::warn!(%server, %error, "our endpoint record cannot be removed; it will expire"),
        }
    }
}
