//! Writes this server's endpoint record again before it expires.

use std::sync::Arc;
use std::time::Duration;

use api::PortError;
use fastrand::Rng;
use tasks::Backoff;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use super::{LeaveStep, PresenceConfig};
use crate::endpoint_record::new_record;
use crate::ports::{EntryVersion, RecordStorage};
use crate::readiness::Milestone;

/// Short, because a record is valid for seconds only.
const BACKOFF_INITIAL: Duration = Duration::from_millis(200);
const BACKOFF_MAX: Duration = Duration::from_secs(2);

/// Keeps this server's endpoint record.
pub(super) struct RecordRenewer {
    pub(super) config: Arc<PresenceConfig>,
    pub(super) records: Arc<dyn RecordStorage>,
    /// The document is written first.
    pub(super) after_document: Milestone,
    pub(super) leave_step: LeaveStep,
    pub(super) first_attempt: Milestone,
}

impl RecordRenewer {
    pub(super) async fn run(self, stop: CancellationToken) {
        let mut written_version = None;
        tokio::select! {
            () = self.write_forever(&mut written_version) => {}
            () = self.leave_step.wait_for_leave_or_stop(&stop) => {}
        }
        self.leave_step.release(self.config.timings.leave_timeout, self.release(written_version)).await;
        self.first_attempt.mark_reached();
        stop.cancelled().await;
    }

    /// Never returns.
    async fn write_forever(&self, put: &mut Option<EntryVersion>) {
        let config = &self.config;
        let mut rng = Rng::with_seed(config.seed);
        let mut backoff = Backoff::new(BACKOFF_INITIAL, BACKOFF_MAX);
        self.after_document.wait_until_reached().await;
        let mut ticks = tokio::time::interval(config.timings.record_interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut generation = 0;
        loop {
            ticks.tick().await;
            loop {
                generation += 1;
                let record = new_record(&config.address, &config.server, generation);
                let writing = self.records.put(&config.server, record, config.timings.record_ttl);
                let late = || Err(PortError::Unavailable { reason: "it took too long".to_owned() });
                let written =
                    tokio::time::timeout(config.timings.request_timeout, writing).await.unwrap_or_else(|_| late());
                self.first_attempt.mark_reached();
                match written {
                    Ok(version) => {
                        *put = Some(version);
                        backoff.reset();
                        break;
                    }
                    Err(error) => {
                        tracing::warn!(server = %config.server, %error, "failed to write the endpoint record");
                        tokio::time::sleep(backoff.next_jittered(&mut rng)).await;
                    }
                }
            }
        }
    }

    async fn release(&self, written_version: Option<EntryVersion>) {
        let Some(put) = written_version else { return };
        let server = &self.config.server;
        match self.records.delete(server, put).await {
            // Another process of this server has written its own already.
            Ok(()) | Err(PortError::NotFound | PortError::Conflict) => {}
            Err(error) => tracing::warn!(%server, %error, "failed to remove the endpoint record; it will expire"),
        }
    }
}
