//! The elector task: acquire the lease, lead while it is renewed in time, release it.

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

/// Maximum extension of the retry period, so that candidates do not retry in sync; client-go's value.
const JITTER_FACTOR: f64 = 1.2;

/// The lease and the candidate.
#[derive(Clone, Debug)]
pub struct Config {
    /// The lease's namespace, such as `kube-system`.
    pub namespace: String,
    /// The lease's name; there is one leader per name.
    pub name: String,
    /// The candidate's identity: unique, and new at every start.
    pub holder: String,
    /// Periods and timeouts.
    pub timings: ElectionTimings,
    /// The wall clock, for `renewTime`.
    pub clock: fn() -> Timestamp,
    /// Seeds the jitter.
    pub seed: u64,
}

/// Periods and timeouts of an election. The defaults are client-go's.
#[derive(Clone, Copy, Debug)]
pub struct ElectionTimings {
    /// How long other candidates wait for a leader that does not renew.
    pub lease_duration: Duration,
    /// How long a leader leads without a renewal. Less than the lease duration, so that it stops before the next one
    /// starts.
    pub renew_deadline: Duration,
    /// How often the leader renews and the other candidates retry.
    pub retry_period: Duration,
    /// Timeout of a single attempt.
    pub request_timeout: Duration,
}

impl Default for ElectionTimings {
    fn default() -> Self {
        Self {
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
            // Leaves time for two more attempts before the deadline after one timed out.
            request_timeout: Duration::from_secs(4),
        }
    }
}

/// A candidate in an election.
pub struct Elector {
    config: Config,
    leases: Arc<dyn LeaseClient>,
    lease_record: LeaseRecord,
    /// The lease as this candidate last wrote it.
    last_written: Option<Lease>,
    rng: Rng,
}

/// A period of leadership, ended by a missed renewal.
#[derive(Clone, Debug)]
pub struct Term {
    last_renewal: watch::Receiver<Instant>,
    renew_deadline: Duration,
}

impl Term {
    /// Reports whether this process still leads, by its monotonic clock. Check it before each write: the work of a
    /// process that was paused continues for a moment before it is dropped.
    pub fn is_current(&self) -> bool {
        self.last_renewal.borrow().elapsed() < self.renew_deadline
    }
}

impl Elector {
    /// Creates a candidate; [`Elector::run`] starts it.
    pub fn new(config: Config, leases: Arc<dyn LeaseClient>) -> Self {
        let rng = Rng::with_seed(config.seed);
        Self { config, leases, lease_record: LeaseRecord::default(), last_written: None, rng }
    }

    /// Runs for election until `stop`, and runs the leader's work while leading. When leadership is lost or on `stop`,
    /// the work is dropped at its next await and the lease is released, so that the next leader need not wait. Work
    /// that returns gives up leadership until the next attempt.
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
            tracing::info!(lease = %self.config.name, holder = %self.config.holder, "became leader");
            let (renewals, seen) = watch::channel(renewed);
            let term = Term { last_renewal: seen, renew_deadline: self.config.timings.renew_deadline };
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                () = self.renew_until_lost(&renewals) => {}
                () = on_started_leading(term) => {}
            }
            tracing::info!(lease = %self.config.name, holder = %self.config.holder, "stopped leading");
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

    /// Waits until the lease is acquired; returns when the successful attempt began.
    async fn acquire(&mut self) -> Instant {
        loop {
            let began = Instant::now();
            match tokio::time::timeout(self.config.timings.request_timeout, self.try_acquire_or_renew()).await {
                Ok(Ok(AcquireOutcome::Acquired)) => return began,
                // Another candidate was faster.
                Ok(Ok(AcquireOutcome::HeldByOther) | Err(PortError::Conflict | PortError::NotFound)) => {}
                Ok(Err(error @ PortError::Unavailable { .. })) => self.log_failure(&error),
                Err(_) => self.log_failure(&"timed out"),
            }
            let wait = self.jittered_retry_period();
            tokio::time::sleep(wait).await;
        }
    }

    /// Renews until another candidate holds the lease or the renew deadline passes.
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
                // The next attempt reads the lease again.
                Ok(Err(PortError::Conflict | PortError::NotFound)) => {}
                Ok(Err(error @ PortError::Unavailable { .. })) => self.log_failure(&error),
                Err(_) => self.log_failure(&"timed out"),
            }
        }
    }

    /// Creates, takes over or renews the lease if permitted.
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

    /// Releases the lease if this candidate still holds it. If that fails or times out, the lease expires.
    async fn release(&mut self) {
        let release = async {
            let Config { namespace, name, holder, .. } = &self.config;
            let lease = match self.last_written.take() {
                Some(known) => Some(known),
                // A renewal was in flight, so its outcome is unknown.
                None => self.leases.get(namespace, name).await?,
            };
            match lease.filter(|lease| lease.spec.holder_identity.as_deref() == Some(holder)) {
                Some(lease) => self.leases.update(release_lease(lease, (self.config.clock)().into())).await.map(drop),
                None => Ok(()),
            }
        };
        let lease = &self.config.name;
        match tokio::time::timeout(self.config.timings.request_timeout, release).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(%lease, %error, "failed to release the lease; it will expire"),
            Err(_) => tracing::debug!(%lease, "releasing the lease timed out; it will expire"),
        }
    }

    /// Returns the lease with this candidate as holder, renewed now.
    fn claim(&self, lease: Lease) -> Lease {
        claim_lease(lease, &self.config.holder, self.config.timings.lease_duration, (self.config.clock)().into())
    }

    fn jittered_retry_period(&mut self) -> Duration {
        self.config.timings.retry_period.mul_f64(1.0 + JITTER_FACTOR * self.rng.f64())
    }

    fn log_failure(&self, error: &dyn std::fmt::Display) {
        tracing::warn!(lease = %self.config.name, %error, "failed to acquire or renew the lease");
    }
}

enum AcquireOutcome {
    Acquired,
    HeldByOther,
}

#[cfg(test)]
mod tests;
