//! Who may hold the lease: what each candidate concludes from it, without a clock that others would have to share.

use std::time::Duration;

use api::objects::{Lease, LeaseSpec};
use api::time::MicroTime;
use tokio::time::Instant;

/// What a candidate may do with the lease it sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It is ours: renew it.
    Ours,
    /// Nobody holds it, or its holder let it run out: take it.
    Free,
    /// Somebody renews it.
    Held,
}

/// The lease as last seen to change. Its `renewTime` is another machine's clock, which may stand still or jump; so only *that*
/// it was written counts, and when we saw it.
#[derive(Debug, Default)]
pub struct Sight {
    seen: Option<(String, Instant)>,
}

impl Sight {
    /// Looks at the lease as it is now, and says what follows for this holder.
    pub fn look(&mut self, lease: &Lease, holder: &str, now: Instant) -> Standing {
        let since = match &self.seen {
            Some((version, since)) if *version == lease.metadata.resource_version => *since,
            Some(_) | None => {
                self.seen = Some((lease.metadata.resource_version.clone(), now));
                now
            }
        };
        match lease.spec.holder_identity.as_deref() {
            None | Some("") => Standing::Free,
            Some(current) if current == holder => Standing::Ours,
            Some(_) if now.duration_since(since) >= duration_of(&lease.spec) => Standing::Free,
            Some(_) => Standing::Held,
        }
    }
}

/// The lease with us as its holder, newly or still.
pub fn held(mut lease: Lease, holder: &str, duration: Duration, now: MicroTime) -> Lease {
    let spec = &mut lease.spec;
    if spec.holder_identity.as_deref() != Some(holder) {
        let transitions = spec.lease_transitions.unwrap_or_default();
        spec.lease_transitions = Some(if spec.acquire_time.is_some() { transitions.saturating_add(1) } else { 0 });
        spec.holder_identity = Some(holder.to_owned());
        spec.acquire_time = Some(now);
    }
    spec.lease_duration_seconds = Some(whole_seconds(duration));
    spec.renew_time = Some(now);
    lease
}

/// The lease with nobody as its holder, as client-go leaves it behind.
pub fn released(mut lease: Lease, now: MicroTime) -> Lease {
    let spec = &mut lease.spec;
    spec.holder_identity = Some(String::new());
    spec.lease_duration_seconds = Some(1);
    spec.acquire_time = Some(now);
    spec.renew_time = Some(now);
    lease
}

fn duration_of(spec: &LeaseSpec) -> Duration {
    let seconds = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
    Duration::from_secs(seconds.unwrap_or_default())
}

/// Leases count in whole seconds: a fraction is one more.
fn whole_seconds(duration: Duration) -> i32 {
    let seconds = duration.as_secs() + u64::from(duration.subsec_nanos() > 0);
    i32::try_from(seconds).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DURATION: Duration = Duration::from_secs(15);

    fn at(text: &str) -> MicroTime {
        text.parse().unwrap()
    }

    fn lease_of(holder: &str) -> Lease {
        held(Lease::default(), holder, DURATION, at("2026-11-15T10:00:00Z"))
    }

    #[test]
    fn a_lease_runs_out_by_the_time_since_it_was_seen_to_be_written() {
        let (mut sight, start) = (Sight::default(), Instant::now());
        let mut lease = lease_of("b");
        let mut check = |lease: &Lease, seconds, expected| {
            assert_eq!(sight.look(lease, "a", start + Duration::from_secs(seconds)), expected, "after {seconds} s");
        };
        check(&lease, 100, Standing::Held);
        check(&lease, 114, Standing::Held);
        check(&lease, 115, Standing::Free);
        lease.metadata.resource_version = "2".to_owned();
        check(&lease, 116, Standing::Held);
        check(&lease, 131, Standing::Free);
    }

    #[test]
    fn our_own_lease_and_a_released_one_need_no_waiting() {
        let now = Instant::now();
        assert_eq!(Sight::default().look(&lease_of("a"), "a", now), Standing::Ours);
        let let_go = released(lease_of("b"), at("2026-11-15T10:00:01Z"));
        assert_eq!(Sight::default().look(&let_go, "a", now), Standing::Free);
        assert_eq!(Sight::default().look(&Lease::default(), "a", now), Standing::Free);
    }

    #[test]
    fn a_lease_without_a_duration_protects_nobody() {
        let mut lease = lease_of("b");
        for seconds in [None, Some(0), Some(-1)] {
            lease.spec.lease_duration_seconds = seconds;
            assert_eq!(Sight::default().look(&lease, "a", Instant::now()), Standing::Free, "{seconds:?}");
        }
    }

    #[test]
    fn taking_over_counts_and_renewing_does_not() {
        let first = lease_of("a");
        assert_eq!(first.spec.lease_transitions, Some(0));
        let renewed = held(first.clone(), "a", DURATION, at("2026-11-15T10:00:02Z"));
        assert_eq!((renewed.spec.lease_transitions, renewed.spec.acquire_time), (Some(0), first.spec.acquire_time));
        let taken = held(renewed, "b", DURATION, at("2026-11-15T10:00:20Z"));
        assert_eq!(taken.spec.lease_transitions, Some(1));
        assert_eq!(taken.spec.acquire_time, taken.spec.renew_time);
    }

    #[test]
    fn a_fraction_of_a_second_is_a_second() {
        for (millis, seconds) in [(1, 1), (15_000, 15), (15_001, 16), (u64::MAX, i32::MAX)] {
            assert_eq!(whole_seconds(Duration::from_millis(millis)), seconds, "{millis} ms");
        }
    }
}
