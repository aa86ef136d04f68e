//! Times to live as etcd leases.
//!
//! A lease costs memory on every member and a round of consensus to create, so one lease per write is expensive. Two
//! rules keep their number low:
//!
//! - Long leases are **shared**, as in kube-apiserver: a lease is granted for slightly longer than requested and serves
//!   further keys while that surplus lasts.
//! - A short lease, whose surplus would be less than a second, is **dedicated** to the key that it was granted for. A
//!   renewal, that is the next put of the same key with the same time to live, keeps that lease alive and reuses it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, timeout_at};

use super::connection::ConnectionPurpose;
use super::failure::{EtcdFailure, classify_status};
use super::members::EtcdMembers;
use super::proto::{LeaseGrantRequest, LeaseKeepAliveRequest, RetrySafety};
use crate::contract::{Error, Key, Op, TransactionOutcome};

/// Keys per shared lease, as in kube-apiserver: etcd removes all of them in one step when the lease expires.
const KEYS_PER_LEASE_MAX: usize = 1000;

/// The surplus of a shared lease: this share of its time to live, at most a minute. As in kube-apiserver.
const SURPLUS_PERCENT: u64 = 5;
const SURPLUS_SECONDS_MAX: u64 = 60;

/// Dedicated leases to remember. A lease beyond this limit is forgotten, and the next renewal of its key grants a new
/// one.
const DEDICATED_LEASES_MAX: usize = 4096;

/// Distinct times to live with a shared lease; kube-apiserver uses two.
const SHARED_LEASES_MAX: usize = 64;

/// The leases of this client, for reuse.
#[derive(Debug, Default)]
pub(super) struct LeasePool {
    /// By seconds. The inner lock is held while a lease is granted, so that concurrent callers share one grant.
    shared: Mutex<HashMap<u64, Arc<tokio::sync::Mutex<Option<SharedLease>>>>>,
    /// By key. A lease in use by a transaction is not in the map.
    dedicated: Mutex<HashMap<Key, DedicatedLease>>,
}

#[derive(Clone, Copy, Debug)]
struct SharedLease {
    id: i64,
    granted_at: Instant,
    keys: usize,
}

#[derive(Clone, Copy, Debug)]
struct DedicatedLease {
    id: i64,
    seconds: u64,
    /// The latest time at which etcd has certainly not expired the lease.
    valid_until: Instant,
    usage: LeaseUsage,
}

/// Whether the key of a dedicated lease may be attached to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LeaseUsage {
    Unused,
    Used,
}

/// The leases of one transaction, by requested seconds.
#[derive(Debug, Default)]
pub(super) struct TransactionLeases {
    by_seconds: Vec<(u64, i64)>,
    /// Returned to the pool for the next renewal.
    dedicated: Option<(Key, DedicatedLease)>,
}

impl TransactionLeases {
    /// The lease id for a put; 0: no lease.
    pub(super) fn lease_id(&self, ttl: Option<Duration>) -> i64 {
        let Some(ttl) = ttl else { return 0 };
        let seconds = ttl_seconds(ttl);
        self.by_seconds.iter().find(|(lent, _)| *lent == seconds).map_or(0, |(_, id)| *id)
    }
}

impl LeasePool {
    /// Returns a lease for every time to live in the operations, each with at least that time left.
    pub(super) async fn acquire(
        &self,
        members: &EtcdMembers,
        ops: &[Op],
        deadline: Instant,
    ) -> Result<TransactionLeases, Error> {
        let mut puts: HashMap<u64, Vec<&Key>> = HashMap::new();
        for op in ops {
            if let Op::Put { key, ttl: Some(ttl), .. } = op {
                puts.entry(ttl_seconds(*ttl)).or_default().push(key);
            }
        }
        let mut lent = TransactionLeases::default();
        let is_alone = puts.len() == 1;
        for (seconds, keys) in puts {
            let id = match keys[..] {
                _ if surplus_seconds(seconds) > 0 => {
                    self.acquire_shared(members, seconds, keys.len(), deadline).await?
                }
                [key] if is_alone => {
                    let kept = self.acquire_dedicated(members, key, seconds, deadline).await?;
                    lent.dedicated = Some((key.clone(), kept));
                    kept.id
                }
                _ => grant_lease(members, seconds, deadline).await?,
            };
            lent.by_seconds.push((seconds, id));
        }
        Ok(lent)
    }

    /// Returns the current lease for this time to live while its surplus lasts, or grants a new one.
    async fn acquire_shared(
        &self,
        members: &EtcdMembers,
        seconds: u64,
        keys: usize,
        deadline: Instant,
    ) -> Result<i64, Error> {
        let slot = self.shared.lock().entry(seconds).or_default().clone();
        let late = |_| Error::Unavailable { reason: "etcd granted no lease before the deadline".to_owned() };
        let mut current = timeout_at(deadline, slot.lock()).await.map_err(late)?;
        if let Some(shared) = &mut *current {
            let has_time = shared.granted_at.elapsed() <= Duration::from_secs(surplus_seconds(seconds));
            if has_time && shared.keys + keys <= KEYS_PER_LEASE_MAX {
                shared.keys += keys;
                return Ok(shared.id);
            }
        }
        let granted_at = Instant::now();
        let id = grant_lease(members, seconds + surplus_seconds(seconds), deadline).await?;
        *current = Some(SharedLease { id, granted_at, keys });
        drop(current);
        self.evict_unused_shared();
        Ok(id)
    }

    /// Keeps the key's last lease alive and returns it, or grants a new one.
    async fn acquire_dedicated(
        &self,
        members: &EtcdMembers,
        key: &Key,
        seconds: u64,
        deadline: Instant,
    ) -> Result<DedicatedLease, Error> {
        let known = self.dedicated.lock().remove(key).filter(|kept| kept.seconds == seconds);
        let lives_until = Instant::now() + Duration::from_secs(seconds);
        if let Some(kept) = known.filter(|kept| kept.valid_until > Instant::now())
            && keep_alive(members, kept.id, deadline).await.is_some_and(|left| left >= seconds)
        {
            return Ok(DedicatedLease { valid_until: lives_until, ..kept });
        }
        let id = grant_lease(members, seconds, deadline).await?;
        Ok(DedicatedLease { id, seconds, valid_until: lives_until, usage: LeaseUsage::Unused })
    }

    /// Returns the dedicated lease of a transaction to the pool, once the outcome is known.
    pub(super) fn finish_transaction(&self, leases: TransactionLeases, outcome: &TransactionOutcome) {
        let Some((key, mut kept)) = leases.dedicated else { return };
        match (outcome, kept.usage) {
            (TransactionOutcome::Committed(_), _) => kept.usage = LeaseUsage::Used,
            (TransactionOutcome::Conflict { .. }, LeaseUsage::Unused) => {}
            // The key may be attached to the lease, which was kept alive without a put. Once delays the expiry by one
            // renewal; a client that keeps failing must not keep its key alive, so the lease is dropped.
            (TransactionOutcome::Conflict { .. }, LeaseUsage::Used) => return,
        }
        let mut all = self.dedicated.lock();
        if all.len() >= DEDICATED_LEASES_MAX {
            let now = Instant::now();
            all.retain(|_, kept| kept.valid_until > now);
        }
        if all.len() < DEDICATED_LEASES_MAX {
            all.insert(key, kept);
        }
    }

    /// Removes leases that etcd no longer knows.
    pub(super) fn remove_lost(&self, leases: TransactionLeases) {
        for (seconds, id) in leases.by_seconds {
            let Some(slot) = self.shared.lock().get(&seconds).cloned() else { continue };
            // A locked slot is being granted a new lease.
            if let Ok(mut current) = slot.try_lock()
                && current.is_some_and(|shared| shared.id == id)
            {
                *current = None;
            }
        }
    }

    fn evict_unused_shared(&self) {
        let mut all = self.shared.lock();
        if all.len() > SHARED_LEASES_MAX {
            all.retain(|_, slot| Arc::strong_count(slot) > 1);
        }
    }
}

async fn grant_lease(members: &EtcdMembers, seconds: u64, deadline: Instant) -> Result<i64, Error> {
    let request = LeaseGrantRequest { ttl: i64::try_from(seconds).unwrap_or(i64::MAX) };
    let response = members.send(request, deadline).await.map_err(EtcdFailure::into_read_error)?;
    Ok(response.id)
}

/// Resets a lease to its full time to live and returns the seconds left; `None` if the lease is gone or etcd does not
/// respond, in which case the caller grants a new lease.
async fn keep_alive(members: &EtcdMembers, id: i64, deadline: Instant) -> Option<u64> {
    let (index, link) =
        timeout_at(deadline, members.stream_connection(ConnectionPurpose::Requests)).await.ok()?.ok()?;
    let message = futures_util::stream::once(std::future::ready(LeaseKeepAliveRequest { id }));
    let asking = async { link.open_stream(message).await?.message().await };
    match timeout_at(members.attempt_deadline(RetrySafety::Safe, Instant::now(), deadline), asking).await {
        Ok(Ok(Some(response))) => u64::try_from(response.ttl).ok().filter(|left| *left > 0),
        Ok(Ok(None)) => None,
        Ok(Err(status)) => {
            tracing::debug!(failure = ?classify_status(&status), "lease keepalive failed");
            None
        }
        Err(_) => {
            members.report_stream_failure(index, &link);
            None
        }
    }
}

/// Whole seconds, rounded up, as etcd counts.
fn ttl_seconds(ttl: Duration) -> u64 {
    ttl.as_secs().saturating_add(u64::from(ttl.subsec_nanos() > 0))
}

fn surplus_seconds(seconds: u64) -> u64 {
    (seconds.saturating_mul(SURPLUS_PERCENT) / 100).min(SURPLUS_SECONDS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn surplus_seconds_is_five_percent_up_to_a_minute() {
        let cases = [(2, 0), (15, 0), (19, 0), (20, 1), (60, 3), (1200, 60), (3600, 60), (u64::MAX, 60)];
        for (seconds, expected) in cases {
            assert_eq!(surplus_seconds(seconds), expected, "{seconds} s");
        }
    }

    #[test]
    fn ttl_seconds_rounds_up() {
        for (milliseconds, expected) in [(1, 1), (1_000, 1), (1_001, 2), (15_000, 15)] {
            assert_eq!(ttl_seconds(Duration::from_millis(milliseconds)), expected, "{milliseconds} ms");
        }
    }
}
