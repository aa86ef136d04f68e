//! Renews this server's identity lease.

use std::sync::Arc;
use std::time::Duration;

use api::PortError;
use api::objects::Lease;
use fastrand::Rng;
use tasks::{Backoff, jittered};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::identity_claim::{ClaimState, check_claim};
use super::{LeaveStep, PresenceConfig};
use crate::identity::IdentityLease;
use crate::ports::{LeaseStorage, RecordStorage};
use crate::readiness::Milestone;

/// kube-apiserver's values: jitter of the interval, immediate retries, and the backoff after those.
const RENEW_JITTER: f64 = 0.04;
const IMMEDIATE_ATTEMPTS: u32 = 5;
const BACKOFF_INITIAL: Duration = Duration::from_millis(200);
const BACKOFF_MAX: Duration = Duration::from_secs(7);

/// Keeps this server's identity lease.
pub(super) struct LeaseRenewer {
    pub(super) config: Arc<PresenceConfig>,
    pub(super) leases: Arc<dyn LeaseStorage>,
    pub(super) records: Arc<dyn RecordStorage>,
    /// The endpoint record is written first.
    pub(super) after_record: Milestone,
    pub(super) leave_step: LeaveStep,
    pub(super) first_attempt: Milestone,
    pub(super) last_renewal: watch::Sender<Option<Instant>>,
}

/// Why the lease was not renewed.
#[derive(Debug, thiserror::Error)]
enum RenewError {
    #[error(transparent)]
    Storage(#[from] PortError),
    #[error("another process, {holder}, holds it; if it runs on a host of the same name, use --hostname-override")]
    HeldByOther { holder: String },
    #[error("it took too long")]
    TimedOut,
}

impl LeaseRenewer {
    pub(super) async fn run(self, stop: CancellationToken) {
        let mut lease = None;
        tokio::select! {
            () = self.renew_forever(&mut lease) => {}
            () = self.leave_step.wait_for_leave_or_stop(&stop) => {}
        }
        let config = &self.config;
        self.leave_step.release(config.timings.leave_timeout, self.release(lease.as_ref())).await;
        self.first_attempt.mark_reached();
        stop.cancelled().await;
    }

    /// Never returns.
    async fn renew_forever(&self, lease: &mut Option<Lease>) {
        let timings = self.config.timings;
        let mut rng = Rng::with_seed(self.config.seed);
        let mut backoff = Backoff::new(BACKOFF_INITIAL, BACKOFF_MAX.min(timings.lease_interval));
        self.after_record.wait_until_reached().await;
        loop {
            let began = Instant::now();
            let renewal = tokio::time::timeout(timings.request_timeout, self.renew(lease)).await;
            let wait = match renewal.unwrap_or(Err(RenewError::TimedOut)) {
                Ok(()) => {
                    backoff.reset();
                    self.last_renewal.send_replace(Some(began));
                    jittered(timings.lease_interval, RENEW_JITTER, &mut rng)
                }
                Err(error) => {
                    tracing::warn!(server = %self.config.server, %error, "failed to renew the identity lease");
                    backoff.next_jittered(&mut rng)
                }
            };
            self.first_attempt.mark_reached();
            tokio::time::sleep(wait).await;
        }
    }

    /// Renews the known lease, or reads it again after a conflict.
    async fn renew(&self, current: &mut Option<Lease>) -> Result<(), RenewError> {
        let template = self.config.lease_template();
        let mut last_error = None;
        for _ in 0..IMMEDIATE_ATTEMPTS {
            let Some(lease) = current.take().filter(|lease| self.is_ours(lease)) else { break };
            match self.leases.update(template.renew(&lease, self.config.current_time())).await {
                Ok(renewed) => {
                    *current = Some(renewed);
                    return Ok(());
                }
                Err(PortError::Conflict | PortError::NotFound) => {
                    *current = self.leases.get(&self.config.server).await?;
                }
                Err(error @ PortError::Unavailable { .. }) => {
                    *current = Some(lease);
                    last_error = Some(error);
                }
            }
        }
        match last_error {
            Some(error) => Err(error.into()),
            None => self.create_if_free(current).await,
        }
    }

    /// Creates the lease if there is none, or none whose holder can be alive.
    async fn create_if_free(&self, current: &mut Option<Lease>) -> Result<(), RenewError> {
        match check_claim(&self.config, &*self.leases, &*self.records).await? {
            ClaimState::Free => {}
            ClaimState::Changing => return Err(PortError::Conflict.into()),
            ClaimState::HeldElsewhere { lease, .. } => {
                return Err(RenewError::HeldByOther { holder: lease.holder.to_string() });
            }
        }
        // The lease may be ours already, if the response to an earlier call was lost.
        if let Some(own_lease) = self.leases.get(&self.config.server).await?.filter(|lease| self.is_ours(lease)) {
            *current = Some(own_lease);
            return Ok(());
        }
        *current = Some(self.leases.create(self.config.lease_template().new_lease(self.config.current_time())).await?);
        Ok(())
    }

    async fn release(&self, lease: Option<&Lease>) {
        let server = &self.config.server;
        // The known lease may be older than a write that was in flight when leaving began.
        let current = self.leases.get(server).await.ok().flatten();
        let Some(lease) = current.as_ref().or(lease).filter(|lease| self.is_ours(lease)) else { return };
        match self.leases.delete(&IdentityLease::from_lease_unchecked(server, lease)).await {
            Ok(()) => tracing::info!(%server, "released the identity lease"),
            Err(error) => tracing::warn!(%server, %error, "failed to release the identity lease; it will expire"),
        }
    }

    fn is_ours(&self, lease: &Lease) -> bool {
        lease.spec.holder_identity.as_deref() == Some(self.config.holder.as_str())
    }
}
