//! Our identity lease, renewed for as long as we live.

use std::sync::Arc;
use std::time::Duration;

use api::PortError;
use api::objects::Lease;
use fastrand::Rng;
use tasks::{Backoff, jittered};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::claim::{Finding, look};
use super::{Leave, PresenceConfig};
use crate::identity::IdentityLease;
use crate::ports::{Leases, Records};
use crate::readiness::Milestone;

/// kube-apiserver's figures: how much longer a round may be, how often a renewal is tried at once, and the waits after that.
const JITTER: f64 = 0.04;
const TRIES_AT_ONCE: u32 = 5;
const BACKOFF_FIRST: Duration = Duration::from_millis(200);
const BACKOFF_LAST: Duration = Duration::from_secs(7);

/// Keeps our identity lease.
pub(super) struct LeaseKeeper {
    pub(super) config: Arc<PresenceConfig>,
    pub(super) leases: Arc<dyn Leases>,
    pub(super) records: Arc<dyn Records>,
    /// The record comes first.
    pub(super) after: Milestone,
    pub(super) leave: Leave,
    pub(super) first: Milestone,
    pub(super) renewed: watch::Sender<Option<Instant>>,
}

/// Why our lease was not renewed.
#[derive(Debug, thiserror::Error)]
enum RenewError {
    #[error(transparent)]
    Port(#[from] PortError),
    #[error("another process, {holder}, holds it; if it runs on a host of the same name, use --hostname-override")]
    HeldByAnother { holder: String },
    #[error("it took too long")]
    TimedOut,
}

impl LeaseKeeper {
    pub(super) async fn run(self, stop: CancellationToken) {
        let mut lease = None;
        tokio::select! {
            () = self.keep(&mut lease) => {}
            () = self.leave.begun(&stop) => {}
        }
        let config = &self.config;
        self.leave.release(config.pace.leave_timeout, self.release(lease.as_ref())).await;
        self.first.reach();
        stop.cancelled().await;
    }

    /// Never returns.
    async fn keep(&self, lease: &mut Option<Lease>) {
        let pace = self.config.pace;
        let mut rng = Rng::with_seed(self.config.seed);
        let mut backoff = Backoff::new(BACKOFF_FIRST, BACKOFF_LAST.min(pace.lease_interval));
        self.after.reached().await;
        loop {
            let began = Instant::now();
            let renewal = tokio::time::timeout(pace.call_timeout, self.renew(lease)).await;
            let wait = match renewal.unwrap_or(Err(RenewError::TimedOut)) {
                Ok(()) => {
                    backoff.reset();
                    self.renewed.send_replace(Some(began));
                    jittered(pace.lease_interval, JITTER, &mut rng)
                }
                Err(error) => {
                    tracing::warn!(server = %self.config.server, %error, "our identity lease cannot be renewed");
                    backoff.next_jittered(&mut rng)
                }
            };
            self.first.reach();
            tokio::time::sleep(wait).await;
        }
    }

    /// Renews the lease that we know, or finds out what has become of it.
    async fn renew(&self, known: &mut Option<Lease>) -> Result<(), RenewError> {
        let form = self.config.lease_form();
        let mut last_error = None;
        for _ in 0..TRIES_AT_ONCE {
            let Some(lease) = known.take().filter(|lease| self.is_ours(lease)) else { break };
            match self.leases.update(form.renewed(&lease, self.config.now())).await {
                Ok(renewed) => {
                    *known = Some(renewed);
                    return Ok(());
                }
                Err(PortError::Conflict | PortError::NotFound) => {
                    *known = self.leases.get(&self.config.server).await?;
                }
                Err(error @ PortError::Unavailable { .. }) => {
                    *known = Some(lease);
                    last_error = Some(error);
                }
            }
        }
        match last_error {
            Some(error) => Err(error.into()),
            None => self.create(known).await,
        }
    }

    /// Creates the lease where there is none, or none that anybody can hold.
    async fn create(&self, known: &mut Option<Lease>) -> Result<(), RenewError> {
        match look(&self.config, &*self.leases, &*self.records).await? {
            Finding::Free => {}
            Finding::Changing => return Err(PortError::Conflict.into()),
            Finding::Doubtful { lease, .. } => {
                return Err(RenewError::HeldByAnother { holder: lease.holder.to_string() });
            }
        }
        // Found free also if it is ours already, because the answer to an earlier call was lost.
        if let Some(ours) = self.leases.get(&self.config.server).await?.filter(|lease| self.is_ours(lease)) {
            *known = Some(ours);
            return Ok(());
        }
        *known = Some(self.leases.create(self.config.lease_form().new_lease(self.config.now())).await?);
        Ok(())
    }

    async fn release(&self, lease: Option<&Lease>) {
        let server = &self.config.server;
        // What we know may be older than the last write that was on its way when we were told to leave.
        let current = self.leases.get(server).await.ok().flatten();
        let Some(lease) = current.as_ref().or(lease).filter(|lease| self.is_ours(lease)) else { return };
        match self.leases.delete(&IdentityLease::read_named(server, lease)).await {
            Ok(()) => tracing::info!(%server, "released our identity lease"),
            Err(error) => tracing::warn!(%server, %error, "our identity lease cannot be released; it will expire"),
        }
    }

    fn is_ours(&self, lease: &Lease) -> bool {
        lease.spec.holder_identity.as_deref() == Some(self.config.holder.as_str())
    }
}
