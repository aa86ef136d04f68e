//! Owners that the server has said to be absent: a uid never comes back, so nobody need ask again.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::informer::Uid;

/// How many are remembered; asking again is only a request. Enough for the owners of one large deletion.
const ABSENT_OWNERS_MAX: usize = 4096;

/// Where an owner would be, and its uid.
type AbsentOwner = (Arc<str>, Uid);

/// The last owners that were found absent.
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
        assert!(!absences.contains("/q", &uid(1)), "elsewhere it may be there");
    }
}
