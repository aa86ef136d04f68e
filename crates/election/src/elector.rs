//! The task: stand, lead while the lease is renewed in time, let go.

use std::sync::Arc;
use std::time::Duration;

use api::PortError;
use api::objects::Lease;
use fastrand::Rng;
use jiff::Timestamp;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::ports::LeaseClient;
use crate::rules::{LeaseRecord, LeaseState, claim_lease, release_lease};

/// How much longer the wait between two attempts may be: client-go's figure, so that candidates do not come at once.
const JITTER_FACTOR: f64 = 1.2;

/// Which lease, and who stands for it.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where the lease is, such as `kube-system`.
    pub namespace: String,
    /// What the lease is called; one name, one leader.
    pub name: String,
    /// This process: unique among all candidates, and new at every start.
    pub holder: String,
    /// How quickly things go.
    pub timings: ElectionTimings,
    /// The wall clock, for `renewTime`.
    pub clock: fn() -> Timestamp,
    /// For jitter.
    pub seed: u64,
}

/// How quickly things go. The defaults are client-go's.
#[derive(Clone, Copy, Debug)]
pub struct ElectionTimings {
    /// How long others wait for a leader that does not renew.
    pub lease_duration: Duration,
    /// How long a leader goes on without a renewal: less than the lease, so that it ends before the next one begins.
    pub renew_deadline: Duration,
    /// How often a leader renews and the others look.
    pub retry_period: Duration,
    /// How long any one attempt may take.
    pub request_timeout: Duration,
}

impl Default for ElectionTimings {
    fn default() -> Self {
        Self {
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
            // Two attempts fit into what is left of the deadline after one that hung.
            request_timeout: Duration::from_secs(4),
        }
    }
}

/// A candidate.
pub struct Elector {
    config: Config,
    leases: Arc<dyn LeaseClient>,
    lease_record: LeaseRecord,
    /// The lease as we last wrote it.
    last_written: Option<Lease>,
    rng: Rng,
}

/// The time for which this process leads.
#[derive(Clone, Debug)]
pub struct Term {
    last_renewal: watch::Receiver<Instant>,
    renew_deadline: Duration,
}

impl Term {
    /// Whether this process still leads, by its own monotonic clock. To be asked before anything is written: the work of a
    /// process that was paused goes on for a moment before it is dropped.
    pub fn is_current(&self) -> bool {
        self.last_renewal.borrow().elapsed() < self.renew_deadline
    }
}

impl Elector {
    /// A candidate that does not stand yet.
    pub fn new(config: Config, leases: Arc<dyn LeaseClient>) -> Self {
        let rng = Rng::with_seed(config.seed);
        Self { config, leases, lease_record: LeaseRecord::default(), last_written: None, rng }
    }

    /// Stands until told to stop, and does the leader's work whenever this process leads. The work is dropped at its next
    /// await when the lead is lost or it is time to stop; the lease is then released, so that the next one need not wait.
    /// Work that ends by itself gives up the lead, until the next attempt.
    pub async fn run<Work>(mut self, stop: CancellationToken, mut on_started_leading: impl FnMut(Term) -> Work)
    where
        Work: Future<Output = ()>,
    {
        loop {
            let renewed = tokio::select! {
                biased;
                () = stop.cancelled() => return,
                renewed = self.acquire() => renewed,
            };
            tracing::info!(lease = %self.config.name, holder = %self.config.holder, "leads now");
            let (renewals, seen) = watch::channel(renewed);
            let term = Term { last_renewal: seen, renew_deadline: self.config.timings.renew_deadline };
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                () = self.renew_until_lost(&renewals) => {}
                () = on_started_leading(term) => {}
            }
            tracing::info!(lease = %self.config.name, holder = %self.config.holder, "leads no more");
            self.release().await;
            if stop.is_cancelled() {
                return;
            }
            let wait = self.jittered_retry_period();
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    /// Waits until the lease is ours; gives the beginning of the call that made it so.
    async fn acquire(&mut self) -> Instant {
        loop {
            let began = Instant::now();
            match tokio::time::timeout(self.config.timings.request_timeout, self.try_acquire_or_renew()).await {
                Ok(Ok(AcquireOutcome::Acquired)) => return began,
                // Another candidate was quicker.
                Ok(Ok(AcquireOutcome::HeldByOther) | Err(PortError::Conflict | PortError::NotFound)) => {}
                Ok(Err(error @ PortError::Unavailable { .. })) => self.log_failure(&error),
                Err(_) => self.log_failure(&"it took too long"),
            }
            let wait = self.jittered_retry_period();
            tokio::time::sleep(wait).await;
        }
    }

    /// Renews until somebody else holds the lease, or the deadline is over.
    async fn renew_until_lost(&mut self, renewals: &watch::Sender<Instant>) {
        let pace = self.config.timings;
        loop {
            let deadline = *renewals.borrow() + pace.renew_deadline;
            tokio::time::sleep_until(deadline.min(Instant::now() + pace.retry_period)).await;
            let began = Instant::now();
            if began >= deadline {
                return;
            }
            match tokio::time::timeout_at(deadline.min(began + pace.request_timeout), self.try_acquire_or_renew()).await
            {
                Ok(Ok(AcquireOutcome::Acquired)) => drop(renewals.send_replace(began)),
                Ok(Ok(AcquireOutcome::HeldByOther)) => return,
                // What has become of it shows at the next look.
                Ok(Err(PortError::Conflict | PortError::NotFound)) => {}
                Ok(Err(error @ PortError::Unavailable { .. })) => self.log_failure(&error),
                Err(_) => self.log_failure(&"it took too long"),
            }
        }
    }

    /// Creates, takes or renews the lease, if that may be.
    async fn try_acquire_or_renew(&mut self) -> Result<AcquireOutcome, PortError> {
        if let Some(known) = self.last_written.take() {
            match self.leases.update(self.claim(known.clone())).await {
                Ok(renewed) => {
                    self.last_written = Some(renewed);
                    return Ok(AcquireOutcome::Acquired);
                }
                Err(PortError::Conflict | PortError::NotFound) => {}
                Err(error @ PortError::Unavailable { .. }) => return Err(error),
            }
        }
        let Config { namespace, name, holder, .. } = &self.config;
        let Some(lease) = self.leases.get(namespace, name).await? else {
            let mut lease = Lease::default();
            lease.metadata.namespace.clone_from(namespace);
            lease.metadata.name.clone_from(name);
            self.last_written = Some(self.leases.create(self.claim(lease)).await?);
            return Ok(AcquireOutcome::Acquired);
        };
        match self.lease_record.observe(&lease, holder, Instant::now()) {
            LeaseState::HeldByOther => Ok(AcquireOutcome::HeldByOther),
            LeaseState::HeldByUs | LeaseState::Available => {
                self.last_written = Some(self.leases.update(self.claim(lease)).await?);
                Ok(AcquireOutcome::Acquired)
            }
        }
    }

    /// Gives the lease back if it is still ours; what cannot be given back runs out.
    async fn release(&mut self) {
        let release = async {
            let Config { namespace, name, holder, .. } = &self.config;
            let lease = match self.last_written.take() {
                Some(known) => Some(known),
                // A renewal was under way, so what it left is not known.
                None => self.leases.get(namespace, name).await?,
            };
            match lease.filter(|lease| lease.spec.holder_identity.as_deref() == Some(holder)) {
                Some(lease) => self.leases.update(release_lease(lease, (self.config.clock)().into())).await.map(drop),
                None => Ok(()),
            }
        };
        if let Ok(Err(error)) = tokio::time::timeout(self.config.timings.request_timeout, release).await {
            tracing::debug!(lease = %self.config.name, %error, "the lead cannot be given back; it runs out");
        }
    }

    fn claim(&self, lease: Lease) -> Lease {
        claim_lease(lease, &self.config.holder, self.config.timings.lease_duration, (self.config.clock)().into())
    }

    fn jittered_retry_period(&mut self) -> Duration {
        self.config.timings.retry_period.mul_f64(1.0 + JITTER_FACTOR * self.rng.f64())
    }

    fn log_failure(&self, error: &dyn std::fmt::Display) {
        tracing::warn!(lease = %self.config.name, %error, "the election does not get on");
    }
}

enum AcquireOutcome {
    Acquired,
    HeldByOther,
}

#[cfg(test)]
mod tests;
