//! The rules of lease ownership. Candidates need no common clock.

use std::time::Duration;

use api::objects::{Lease, LeaseSpec};
use api::time::MicroTime;
use tokio::time::Instant;

/// What a candidate may do with the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseState {
    /// This candidate holds the lease: renew it.
    HeldByUs,
    /// The lease has no holder or has expired: take it.
    Available,
    /// Another candidate renews the lease.
    HeldByOther,
}

/// The last observed change of the lease. `renewTime` comes from another machine's clock, which may stop or jump, so
/// expiry is measured from the local time at which a write was observed.
#[derive(Debug, Default)]
pub struct LeaseRecord {
    observed: Option<(String, Instant)>,
}

impl LeaseRecord {
    /// Records the current lease and returns what this candidate may do.
    pub fn observe(&mut self, lease: &Lease, holder: &str, now: Instant) -> LeaseState {
        let since = match &self.observed {
            Some((version, since)) if *version == lease.metadata.resource_version => *since,
            Some(_) | None => {
                self.observed = Some((lease.metadata.resource_version.clone(), now));
                now
            }
        };
        match lease.spec.holder_identity.as_deref() {
            None | Some("") => LeaseState::Available,
            Some(current) if current == holder => LeaseState::HeldByUs,
            Some(_) if now.duration_since(since) >= lease_duration(&lease.spec) => LeaseState::Available,
            Some(_) => LeaseState::HeldByOther,
        }
    }
}

/// Returns the lease with this candidate as holder, newly acquired or renewed.
pub fn claim_lease(mut lease: Lease, holder: &str, duration: Duration, now: MicroTime) -> Lease {
    let spec = &mut lease.spec;
    if spec.holder_identity.as_deref() != Some(holder) {
        let transitions = spec.lease_transitions.unwrap_or_default();
        spec.lease_transitions = Some(if spec.acquire_time.is_some() { transitions.saturating_add(1) } else { 0 });
        spec.holder_identity = Some(holder.to_owned());
        spec.acquire_time = Some(now);
    }
    spec.lease_duration_seconds = Some(round_up_to_seconds(duration));
    spec.renew_time = Some(now);
    lease
}

/// Returns the lease without holder, in the form client-go releases it.
pub fn release_lease(mut lease: Lease, now: MicroTime) -> Lease {
    let spec = &mut lease.spec;
    spec.holder_identity = Some(String::new());
    spec.lease_duration_seconds = Some(1);
    spec.acquire_time = Some(now);
    spec.renew_time = Some(now);
    lease
}

fn lease_duration(spec: &LeaseSpec) -> Duration {
    let seconds = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
    Duration::from_secs(seconds.unwrap_or_default())
}

/// Converts to whole seconds, rounded up, as leases have them.
fn round_up_to_seconds(duration: Duration) -> i32 {
    let seconds = duration.as_secs() + u64::from(duration.subsec_nanos() > 0);
    i32::try_from(seconds).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DURATION: Duration = Duration::from_secs(15);

    fn timestamp(text: &str) -> MicroTime {
        text.parse().unwrap()
    }

    fn lease_held_by(holder: &str) -> Lease {
        claim_lease(Lease::default(), holder, DURATION, timestamp("2026-11-15T10:00:00Z"))
    }

    #[test]
    fn lease_expires_by_time_since_last_observed_write() {
        let (mut observed, start) = (LeaseRecord::default(), Instant::now());
        let mut lease = lease_held_by("b");
        let mut check = |lease: &Lease, seconds, expected| {
            assert_eq!(
                observed.observe(lease, "a", start + Duration::from_secs(seconds)),
                expected,
                "after {seconds} s"
            );
        };
        check(&lease, 100, LeaseState::HeldByOther);
        check(&lease, 114, LeaseState::HeldByOther);
        check(&lease, 115, LeaseState::Available);
        lease.metadata.resource_version = "2".to_owned();
        check(&lease, 116, LeaseState::HeldByOther);
        check(&lease, 131, LeaseState::Available);
    }

    #[test]
    fn own_and_released_leases_are_available_at_once() {
        let now = Instant::now();
        assert_eq!(LeaseRecord::default().observe(&lease_held_by("a"), "a", now), LeaseState::HeldByUs);
        let let_go = release_lease(lease_held_by("b"), timestamp("2026-11-15T10:00:01Z"));
        assert_eq!(LeaseRecord::default().observe(&let_go, "a", now), LeaseState::Available);
        assert_eq!(LeaseRecord::default().observe(&Lease::default(), "a", now), LeaseState::Available);
    }

    #[test]
    fn lease_without_duration_is_available() {
        let mut lease = lease_held_by("b");
        for seconds in [None, Some(0), Some(-1)] {
            lease.spec.lease_duration_seconds = seconds;
            assert_eq!(
                LeaseRecord::default().observe(&lease, "a", Instant::now()),
                LeaseState::Available,
                "{seconds:?}"
            );
        }
    }

    #[test]
    fn takeover_increments_transitions_and_renewal_does_not() {
        let first = lease_held_by("a");
        assert_eq!(first.spec.lease_transitions, Some(0));
        let renewed = claim_lease(first.clone(), "a", DURATION, timestamp("2026-11-15T10:00:02Z"));
        assert_eq!((renewed.spec.lease_transitions, renewed.spec.acquire_time), (Some(0), first.spec.acquire_time));
        let taken = claim_lease(renewed, "b", DURATION, timestamp("2026-11-15T10:00:20Z"));
        assert_eq!(taken.spec.lease_transitions, Some(1));
        assert_eq!(taken.spec.acquire_time, taken.spec.renew_time);
    }

    #[test]
    fn round_up_to_seconds_rounds_fractions_up() {
        for (millis, seconds) in [(1, 1), (15_000, 15), (15_001, 16), (u64::MAX, i32::MAX)] {
            assert_eq!(round_up_to_seconds(Duration::from_millis(millis)), seconds, "{millis} ms");
        }
    }
}
