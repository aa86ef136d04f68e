//! Keys that a request writes in the same transaction as its object, such as the quota that a create is charged to.
//!
//! A decision reads a companion from the cache, or from here if a newer state was found, and adds what it makes of it. A
//! commit that finds another state records it here, and the decision is made again. A refusal that depends on a
//! companion counts only on its newest state: the decision requests it and is made again.

use std::collections::HashMap;

use parking_lot::Mutex;
use registry::{CompanionWrite, ReadError, Registry};
use store::{Key, Revision, StoreEntry};

/// How often a write is decided again because a companion changed, or because a decision requested its newest state.
pub(super) const COMPANION_ROUNDS_MAX: usize = 256;

/// The companions of the writes of one request.
#[derive(Debug, Default)]
pub(super) struct Companions {
    state: Mutex<CompanionState>,
}

#[derive(Debug, Default)]
struct CompanionState {
    /// Of the decision that is being made.
    writes: Vec<CompanionWrite>,
    /// Keys that the decision that is being made cannot do without.
    requested: Vec<Key>,
    found: HashMap<Key, FoundCompanion>,
}

/// The state of a companion as read from the store.
#[derive(Clone, Debug)]
pub(crate) struct FoundCompanion {
    /// `None` if the key is absent.
    pub(crate) entry: Option<StoreEntry>,
    /// The revision of the store as of which the key was read.
    pub(crate) as_of: Revision,
}

impl Companions {
    /// Forgets what an earlier decision added. What was found stays.
    pub(super) fn begin_decision(&self) {
        let mut state = self.state.lock();
        state.writes.clear();
        state.requested.clear();
    }

    /// Adds a write to the transaction of the decision that is being made.
    pub(super) fn add(&self, write: CompanionWrite) {
        self.state.lock().writes.push(write);
    }

    /// Takes back the writes to these keys of the decision that is being made.
    pub(super) fn withdraw(&self, keys: &[Key]) {
        self.state.lock().writes.retain(|write| !keys.contains(&write.key));
    }

    /// Requests the newest state of a key; the decision then ends with a refusal, and is made again.
    pub(super) fn request(&self, key: Key) {
        self.state.lock().requested.push(key);
    }

    /// The state of a key that this request read from the store, if it did. The cache may be newer.
    pub(super) fn found(&self, key: &Key) -> Option<FoundCompanion> {
        self.state.lock().found.get(key).cloned()
    }

    /// Records the state that a commit found.
    pub(super) fn record(&self, key: Key, found: FoundCompanion) {
        self.state.lock().found.insert(key, found);
    }

    pub(super) fn take_writes(&self) -> Vec<CompanionWrite> {
        std::mem::take(&mut self.state.lock().writes)
    }

    /// Reads what a refused decision requested. False if it requested nothing.
    pub(super) async fn read_requested(&self, registry: &Registry) -> Result<bool, ReadError> {
        let requested = std::mem::take(&mut self.state.lock().requested);
        for key in &requested {
            let (entry, as_of) = registry.read_raw(key).await?;
            self.record(key.clone(), FoundCompanion { entry, as_of });
        }
        Ok(!requested.is_empty())
    }
}
