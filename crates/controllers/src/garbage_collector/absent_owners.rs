//! A cache of owners that the server reported as absent. A uid never recurs, so the result stays valid.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::informer::Uid;

/// The size of the cache: enough for the owners of one large deletion. An evicted entry costs one request.
const ABSENT_OWNERS_MAX: usize = 4096;

/// The path of the owner, and its uid.
type AbsentOwner = (Arc<str>, Uid);

#[derive(Debug, Default)]
pub(super) struct AbsentOwnerCache(Mutex<AbsentOwners>);

#[derive(Debug, Default)]
struct AbsentOwners {
    all: HashSet<AbsentOwner>,
    order: VecDeque<AbsentOwner>,
}

impl AbsentOwnerCache {
    pub(super) fn contains(&self, path: &str, uid: &Uid) -> bool {
        self.0.lock().all.contains(&(path.into(), uid.clone()))
    }

    pub(super) fn insert(&self, path: &str, uid: &Uid) {
        let mut remembered = self.0.lock();
        let absence: AbsentOwner = (path.into(), uid.clone());
        if !remembered.all.insert(absence.clone()) {
            return;
        }
        remembered.order.push_back(absence);
        if remembered.order.len() > ABSENT_OWNERS_MAX
            && let Some(oldest) = remembered.order.pop_front()
        {
            remembered.all.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absent_owner_cache_evicts_oldest_entries() {
        let absences = AbsentOwnerCache::default();
        let uid = |number: usize| Uid::from(number.to_string());
        for number in 0..=ABSENT_OWNERS_MAX {
            absences.insert("/p", &uid(number));
        }
        assert!(!absences.contains("/p", &uid(0)) && absences.contains("/p", &uid(1)));
        assert!(!absences.contains("/q", &uid(1)), "the owner may exist at another path");
    }
}
