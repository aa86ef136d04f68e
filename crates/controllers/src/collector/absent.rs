//! Owners that the server has said to be absent: a uid never comes back, so nobody need ask again.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::follow::Uid;

/// How many are remembered; asking again is only a request. Enough for the owners of one large deletion.
const REMEMBERED_MAX: usize = 4096;

/// Where an owner would be, and its uid.
type Absence = (Arc<str>, Uid);

/// The last owners that were found absent.
#[derive(Debug, Default)]
pub(super) struct Absences(Mutex<Remembered>);

#[derive(Debug, Default)]
struct Remembered {
    all: HashSet<Absence>,
    order: VecDeque<Absence>,
}

impl Absences {
    pub(super) fn has(&self, path: &str, uid: &Uid) -> bool {
        self.0.lock().all.contains(&(path.into(), uid.clone()))
    }

    pub(super) fn add(&self, path: &str, uid: &Uid) {
        let mut remembered = self.0.lock();
        let absence: Absence = (path.into(), uid.clone());
        if !remembered.all.insert(absence.clone()) {
            return;
        }
        remembered.order.push_back(absence);
        if remembered.order.len() > REMEMBERED_MAX
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
    fn the_oldest_are_forgotten() {
        let absences = Absences::default();
        let uid = |number: usize| Uid::from(number.to_string());
        for number in 0..=REMEMBERED_MAX {
            absences.add("/p", &uid(number));
        }
        assert!(!absences.has("/p", &uid(0)) && absences.has("/p", &uid(1)));
        assert!(!absences.has("/q", &uid(1)), "elsewhere it may be there");
    }
}
