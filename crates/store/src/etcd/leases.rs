//! Times to live as etcd leases.
//!
//! etcd keeps a lease in memory on every member and sends it through consensus when it is made, so a lease per write is
//! dear. Two habits keep them few:
//!
//! - Long ones are **shared**, as kube-apiserver shares them: a lease is granted for a little longer than asked, and is
//!   lent to further keys while that surplus lasts.
//! - A short one, whose surplus would be less than a second, is **kept** for the key that it was granted for. The next put
//!   of the same key with the same time to live, a renewal, keeps that lease alive and puts the key with it again.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, timeout_at};

use super::failure::{Failure, judge};
use super::link::Purpose;
use super::members::Members;
use super::proto::{LeaseGrantRequest, LeaseKeepAliveRequest, Repeat};
use crate::contract::{Error, Key, Op, Outcome};

/// Keys on one shared lease at most, as in kube-apiserver: etcd removes all of them in one step when it expires.
const KEYS_PER_LEASE_MAX: usize = 1000;

/// The surplus of a shared lease: so much of its time to live, and not more than a minute. As in kube-apiserver.
const SURPLUS_PERCENT: u64 = 5;
const SURPLUS_SECONDS_MAX: u64 = 60;

/// Kept leases that we remember at most. What is forgotten costs a new lease at its next renewal.
const KEPT_MAX: usize = 4096;

/// Different times to live that we share leases for at most; kube-apiserver uses two.
const SHARED_MAX: usize = 64;

/// The leases of this client.
#[derive(Debug, Default)]
pub(super) struct Leases {
    /// By seconds. The inner lock is held while a lease is granted, so that all who need it wait for one.
    shared: Mutex<HashMap<u64, Arc<tokio::sync::Mutex<Option<Shared>>>>>,
    /// By key. A lease that is lent is not in here.
    kept: Mutex<HashMap<Key, Kept>>,
}

#[derive(Clone, Copy, Debug)]
struct Shared {
    id: i64,
    granted_at: Instant,
    keys: usize,
}

#[derive(Clone, Copy, Debug)]
struct Kept {
    id: i64,
    seconds: u64,
    /// The latest time at which etcd has certainly not forgotten it.
    lives_until: Instant,
    history: History,
}

/// Whether the key of a kept lease may be on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum History {
    Unused,
    Used,
}

/// The leases of one transaction, by the seconds they were asked for.
#[derive(Debug, Default)]
pub(super) struct Lent {
    by_seconds: Vec<(u64, i64)>,
    /// The one that comes back for the next renewal.
    kept: Option<(Key, Kept)>,
}

impl Lent {
    /// The lease for a put; 0: none.
    pub(super) fn lease(&self, ttl: Option<Duration>) -> i64 {
        let Some(ttl) = ttl else { return 0 };
        let seconds = whole_seconds(ttl);
        self.by_seconds.iter().find(|(lent, _)| *lent == seconds).map_or(0, |(_, id)| *id)
    }
}

impl Leases {
    /// A lease for every time to live in the operations, each with at least that time left.
    pub(super) async fn lend(&self, members: &Members, ops: &[Op], deadline: Instant) -> Result<Lent, Error> {
        let mut puts: HashMap<u64, Vec<&Key>> = HashMap::new();
        for op in ops {
            if let Op::Put { key, ttl: Some(ttl), .. } = op {
                puts.entry(whole_seconds(*ttl)).or_default().push(key);
            }
        }
        let mut lent = Lent::default();
        let is_alone = puts.len() == 1;
        for (seconds, keys) in puts {
            let id = match keys[..] {
                _ if surplus(seconds) > 0 => self.lend_shared(members, seconds, keys.len(), deadline).await?,
                [key] if is_alone => {
                    let kept = self.lend_kept(members, key, seconds, deadline).await?;
                    lent.kept = Some((key.clone(), kept));
                    kept.id
                }
                _ => grant(members, seconds, deadline).await?,
            };
            lent.by_seconds.push((seconds, id));
        }
        Ok(lent)
    }

    async fn lend_shared(&self, members: &Members, seconds: u64, keys: usize, deadline: Instant) -> Result<i64, Error> {
        let slot = self.shared.lock().entry(seconds).or_default().clone();
        let late = |_| Error::Unavailable { reason: "etcd grants no lease in time".to_owned() };
        let mut current = timeout_at(deadline, slot.lock()).await.map_err(late)?;
        if let Some(shared) = &mut *current {
            let has_time = shared.granted_at.elapsed() <= Duration::from_secs(surplus(seconds));
            if has_time && shared.keys + keys <= KEYS_PER_LEASE_MAX {
                shared.keys += keys;
                return Ok(shared.id);
            }
        }
        let granted_at = Instant::now();
        let id = grant(members, seconds + surplus(seconds), deadline).await?;
        *current = Some(Shared { id, granted_at, keys });
        drop(current);
        self.tidy_shared();
        Ok(id)
    }

    async fn lend_kept(&self, members: &Members, key: &Key, seconds: u64, deadline: Instant) -> Result<Kept, Error> {
        let known = self.kept.lock().remove(key).filter(|kept| kept.seconds == seconds);
        let lives_until = Instant::now() + Duration::from_secs(seconds);
        if let Some(kept) = known.filter(|kept| kept.lives_until > Instant::now())
            && keep_alive(members, kept.id, deadline).await.is_some_and(|left| left >= seconds)
        {
            return Ok(Kept { lives_until, ..kept });
        }
        let id = grant(members, seconds, deadline).await?;
        Ok(Kept { id, seconds, lives_until, history: History::Unused })
    }

    /// Takes back what a transaction was lent, once its outcome is known.
    pub(super) fn settle(&self, lent: Lent, outcome: &Outcome) {
        let Some((key, mut kept)) = lent.kept else { return };
        match (outcome, kept.history) {
            (Outcome::Committed(_), _) => kept.history = History::Used,
            (Outcome::Conflict { .. }, History::Unused) => {}
            // The key may still be on it, and was given more time without having been put. Once is the lateness of one
            // renewal; a client that fails again and again must not keep its key alive.
            (Outcome::Conflict { .. }, History::Used) => return,
        }
        let mut all = self.kept.lock();
        if all.len() >= KEPT_MAX {
            let now = Instant::now();
            all.retain(|_, kept| kept.lives_until > now);
        }
        if all.len() < KEPT_MAX {
            all.insert(key, kept);
        }
    }

    /// Forgets leases that etcd does not know.
    pub(super) fn lost(&self, lent: Lent) {
        for (seconds, id) in lent.by_seconds {
            let Some(slot) = self.shared.lock().get(&seconds).cloned() else { continue };
            // Who holds the lock is granting a new one just now.
            if let Ok(mut current) = slot.try_lock()
                && current.is_some_and(|shared| shared.id == id)
            {
                *current = None;
            }
        }
    }

    fn tidy_shared(&self) {
        let mut all = self.shared.lock();
        if all.len() > SHARED_MAX {
            all.retain(|_, slot| Arc::strong_count(slot) > 1);
        }
    }
}

async fn grant(members: &Members, seconds: u64, deadline: Instant) -> Result<i64, Error> {
    let request = LeaseGrantRequest { ttl: i64::try_from(seconds).unwrap_or(i64::MAX) };
    let response = members.call(request, deadline).await.map_err(Failure::into_read_error)?;
    Ok(response.id)
}

/// Gives a lease its full time again; the seconds it then has, `None` if it is gone or etcd does not say. There is no harm in
/// not knowing: the caller takes a new one.
async fn keep_alive(members: &Members, id: i64, deadline: Instant) -> Option<u64> {
    let (index, link) = timeout_at(deadline, members.stream_link(Purpose::Requests)).await.ok()?.ok()?;
    let message = futures_util::stream::once(std::future::ready(LeaseKeepAliveRequest { id }));
    let asking = async { link.stream(message).await?.message().await };
    match timeout_at(members.attempt_deadline(Repeat::Safe, Instant::now(), deadline), asking).await {
        Ok(Ok(Some(response))) => u64::try_from(response.ttl).ok().filter(|left| *left > 0),
        Ok(Ok(None)) => None,
        Ok(Err(status)) => {
            tracing::debug!(failure = ?judge(&status), "a lease was not kept alive");
            None
        }
        Err(_) => {
            members.stream_failed(index, &link);
            None
        }
    }
}

/// Whole seconds, rounded up, as etcd counts.
fn whole_seconds(ttl: Duration) -> u64 {
    ttl.as_secs().saturating_add(u64::from(ttl.subsec_nanos() > 0))
}

fn surplus(seconds: u64) -> u64 {
    (seconds.saturating_mul(SURPLUS_PERCENT) / 100).min(SURPLUS_SECONDS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_surplus_is_a_twentieth_and_not_more_than_a_minute() {
        let cases = [(2, 0), (15, 0), (19, 0), (20, 1), (60, 3), (1200, 60), (3600, 60), (u64::MAX, 60)];
        for (seconds, expected) in cases {
            assert_eq!(surplus(seconds), expected, "{seconds} s");
        }
    }

    #[test]
    fn seconds_are_whole_and_rounded_up() {
        for (milliseconds, expected) in [(1, 1), (1_000, 1), (1_001, 2), (15_000, 15)] {
            assert_eq!(whole_seconds(Duration::from_millis(milliseconds)), expected, "{milliseconds} ms");
        }
    }
}
