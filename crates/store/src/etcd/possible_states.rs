//! The states that keys may have while computed transactions that change them are in flight.
//!
//! A transaction in flight may be applied before the next one, after it, or not at all. So the states after each subset of
//! the transactions in flight are possible, in the order in which they began. A transaction that is applied before one
//! that began earlier leaves a state that the earlier one does not know: that one then fails and begins again.

use std::sync::Arc;

use super::proto::KeyValue;
use crate::contract::{ComputedValues, Error, KeyState, Op, Revision, computed_puts};

/// Transactions in flight on the same keys. The number of states doubles with each.
pub(super) const IN_FLIGHT_MAX: u32 = 4;

/// The states of keys, in the order of the keys; `None`: absent.
pub(super) type KeyStates = Arc<[Option<EtcdKeyState>]>;

/// The state of a key. A key that was put by another writer in between differs in its version, even if it has the same
/// value again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EtcdKeyState {
    pub(super) state: KeyState,
    /// The number of puts since the key was created.
    pub(super) version: i64,
    pub(super) create_revision: i64,
}

impl EtcdKeyState {
    fn is_stored_as(&self, found: &KeyValue) -> bool {
        (self.version, self.create_revision) == (found.version, found.create_revision)
            && self.state.value == found.value
    }
}

/// The possible states of keys.
#[derive(Debug, Default)]
pub(super) struct PossibleStates {
    /// Empty: unknown.
    states: Vec<PossibleState>,
    /// A bit per transaction in flight.
    in_flight: u8,
    /// Grows when the states are replaced: transactions that began before are in none of them.
    generation: u64,
    /// The newest revision of the store at which the states are known to have been right.
    revision: Revision,
}

#[derive(Debug)]
struct PossibleState {
    /// The transactions in flight that this state is the result of.
    includes: u8,
    keys: KeyStates,
}

/// A transaction in flight.
#[derive(Debug)]
pub(super) struct Flight {
    bit: u8,
    generation: u64,
    /// What it does on each state that it may find.
    pub(super) alternatives: Vec<Alternative>,
}

/// What a computation puts on one state of its keys.
#[derive(Debug)]
pub(super) struct Alternative {
    pub(super) expected: KeyStates,
    pub(super) puts: Vec<Op>,
    after: KeyStates,
}

impl PossibleStates {
    /// Adds a transaction. `None` if the states are unknown, or if the computation refuses all of them.
    pub(super) fn begin(&mut self, computed: &dyn ComputedValues) -> Result<Option<Flight>, Error> {
        let mut alternatives: Vec<Alternative> = Vec::new();
        let mut refused: Vec<&KeyStates> = Vec::new();
        let mut after = Vec::new();
        for PossibleState { includes, keys } in &self.states {
            if refused.contains(&keys) {
                continue;
            }
            let known = alternatives.iter().position(|alternative| alternative.expected == *keys);
            let index = match (known, known.is_none().then(|| compute(computed, keys)).transpose()?.flatten()) {
                (Some(index), _) => index,
                (None, Some(alternative)) => {
                    alternatives.push(alternative);
                    alternatives.len() - 1
                }
                (None, None) => {
                    refused.push(keys);
                    continue;
                }
            };
            after.push((*includes, alternatives[index].after.clone()));
        }
        if alternatives.is_empty() {
            return Ok(None);
        }
        let bit = 1 << (!self.in_flight).trailing_zeros();
        self.in_flight |= bit;
        self.states.extend(after.into_iter().map(|(includes, keys)| PossibleState { includes: includes | bit, keys }));
        Ok(Some(Flight { bit, generation: self.generation, alternatives }))
    }

    /// Ends a transaction that was committed at a revision, or certainly not.
    pub(super) fn resolve(&mut self, flight: &Flight, committed_at: Option<Revision>) {
        self.in_flight &= !flight.bit;
        if flight.generation == self.generation {
            self.states.retain(|state| (state.includes & flight.bit != 0) == committed_at.is_some());
            self.states.iter_mut().for_each(|state| state.includes &= !flight.bit);
        } else if committed_at.is_some() {
            self.forget();
        }
        self.revision = self.revision.max(committed_at.unwrap_or_default());
    }

    /// Ends a transaction whose outcome is unknown.
    pub(super) fn abandon(&mut self, flight: &Flight) {
        self.in_flight &= !flight.bit;
        self.forget();
    }

    fn forget(&mut self) {
        self.generation += 1;
        self.states.clear();
    }

    /// Takes over what was read at a revision of the store, and returns it. True if another writer put a key since the
    /// states were known.
    pub(super) fn observe(&mut self, found: &[Option<KeyValue>], revision: Revision) -> (KeyStates, bool) {
        let is_found = |keys: &KeyStates| {
            keys.len() == found.len()
                && keys.iter().zip(found).all(|(state, found)| match (state, found) {
                    (Some(state), Some(found)) => state.is_stored_as(found),
                    (None, None) => true,
                    (Some(_), None) | (None, Some(_)) => false,
                })
        };
        if let Some(state) = self.states.iter().find(|state| is_found(&state.keys)) {
            return (state.keys.clone(), false);
        }
        let keys: KeyStates = found.iter().map(|found| found.as_ref().map(state_of_other_writer)).collect();
        // A response may arrive after that of a transaction that was committed later.
        let is_newest = revision >= self.revision;
        let is_of_other_writer = is_newest && !self.states.is_empty();
        if is_newest {
            self.forget();
            self.revision = revision;
            self.states.push(PossibleState { includes: 0, keys: keys.clone() });
        }
        (keys, is_of_other_writer)
    }
}

fn state_of_other_writer(found: &KeyValue) -> EtcdKeyState {
    let since = Revision(found.mod_revision.unsigned_abs());
    let state = KeyState { value: found.value.clone(), since };
    EtcdKeyState { state, version: found.version, create_revision: found.create_revision }
}

/// What a computation puts on states of its keys; `None` if it refuses.
pub(super) fn compute(computed: &dyn ComputedValues, expected: &KeyStates) -> Result<Option<Alternative>, Error> {
    let current: Vec<Option<KeyState>> =
        expected.iter().map(|state| state.as_ref().map(|state| state.state.clone())).collect();
    let Some(values) = computed.compute(&current) else { return Ok(None) };
    let puts = computed_puts(computed.keys(), &current, values)?;
    let mut after: Vec<Option<EtcdKeyState>> = expected.to_vec();
    for (key, state) in computed.keys().iter().zip(&mut after) {
        let value = puts.iter().find_map(|op| match op {
            Op::Put { key: put, value, .. } if put == key => Some(value),
            Op::Put { .. } | Op::Delete { .. } => None,
        });
        if let (Some(value), Some(state)) = (value, state) {
            state.state.value = value.clone();
            state.version += 1;
        }
    }
    Ok(Some(Alternative { expected: expected.clone(), puts, after: after.into() }))
}

#[cfg(test)]
mod tests;
