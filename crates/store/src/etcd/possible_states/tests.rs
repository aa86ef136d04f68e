use bytes::Bytes;

use super::*;
use crate::contract::Key;

const LIMIT: u64 = 40;

/// Adds an amount to a counter, up to [`LIMIT`].
#[derive(Debug)]
struct Add {
    keys: Vec<Key>,
    amount: u64,
}

impl ComputedValues for Add {
    fn keys(&self) -> &[Key] {
        &self.keys
    }

    fn compute(&self, current: &[Option<KeyState>]) -> Option<Vec<Option<Bytes>>> {
        let sum = count_in(&current[0].as_ref()?.value) + self.amount;
        (sum <= LIMIT).then(|| vec![Some(sum.to_string().into())])
    }
}

fn add(amount: u64) -> Add {
    Add { keys: vec!["/counter".into()], amount }
}

fn count_in(value: &[u8]) -> u64 {
    std::str::from_utf8(value).expect("digits").parse().expect("a number")
}

/// The counter in etcd.
#[derive(Clone)]
struct Counter {
    revision: i64,
    key: KeyValue,
}

impl Counter {
    fn new() -> Self {
        let key =
            KeyValue { value: "0".into(), version: 1, mod_revision: 1, create_revision: 1, ..KeyValue::default() };
        Self { revision: 1, key }
    }

    fn put(&mut self, value: Bytes) {
        self.revision += 1;
        self.key = KeyValue {
            value,
            version: self.key.version + 1,
            mod_revision: self.revision,
            ..std::mem::take(&mut self.key)
        };
    }

    fn now(&self) -> Revision {
        Revision(self.revision.unsigned_abs())
    }

    /// Applies the alternative for the current state. False if there is none.
    fn apply(&mut self, flight: &Flight) -> bool {
        let fits = |it: &&Alternative| it.expected[0].as_ref().is_some_and(|state| state.is_stored_as(&self.key));
        let Some(Op::Put { value, .. }) = flight.alternatives.iter().find(fits).map(|it| it.puts[0].clone()) else {
            return false;
        };
        self.put(value);
        true
    }
}

/// What happened to a transaction, until its response arrives.
enum Response {
    Committed(Revision),
    ConditionFailed,
    OtherState(KeyValue, Revision),
}

/// Transactions of one client that are applied and answered in random order, among failed conditions, lost responses and
/// puts of other writers: the counter is the sum of what was committed and put, and never above the limit.
#[test]
fn random_interleavings_count_exactly() {
    for seed in 0..3000 {
        let mut random = fastrand::Rng::with_seed(seed);
        let (mut counter, mut states, mut sum) = (Counter::new(), PossibleStates::default(), 0);
        let mut in_flight: Vec<(Flight, u64)> = Vec::new();
        let mut answered: Vec<(Flight, Response)> = Vec::new();
        for _ in 0..60 {
            match random.u8(0..20) {
                0 => {
                    // Another writer lowers or raises the counter, or puts what it was.
                    sum = random.u64(0..=LIMIT.min(sum + 1));
                    counter.put(sum.to_string().into());
                }
                1..=8 if in_flight.len() + answered.len() < IN_FLIGHT_MAX as usize => {
                    let amount = random.u64(1..4);
                    match states.begin(&add(amount)).expect("well-formed") {
                        Some(flight) => in_flight.push((flight, amount)),
                        None => drop(states.observe(&[Some(counter.key.clone())], counter.now())),
                    }
                }
                9..=13 if !in_flight.is_empty() => {
                    let (flight, amount) = in_flight.swap_remove(random.usize(0..in_flight.len()));
                    let response = match () {
                        () if random.u8(0..8) == 0 => Response::ConditionFailed,
                        () if counter.apply(&flight) => {
                            sum += amount;
                            Response::Committed(counter.now())
                        }
                        () => Response::OtherState(counter.key.clone(), counter.now()),
                    };
                    answered.push((flight, response));
                }
                14.. if !answered.is_empty() => {
                    let (flight, response) = answered.swap_remove(random.usize(0..answered.len()));
                    match response {
                        _ if random.u8(0..20) == 0 => states.abandon(&flight),
                        Response::Committed(at) => states.resolve(&flight, Some(at)),
                        Response::ConditionFailed => states.resolve(&flight, None),
                        Response::OtherState(key, at) => {
                            states.resolve(&flight, None);
                            states.observe(&[Some(key)], at);
                        }
                    }
                }
                _ => {}
            }
            assert_eq!(count_in(&counter.key.value), sum, "seed {seed}");
            assert!(sum <= LIMIT && states.states.len() <= 1 << IN_FLIGHT_MAX, "seed {seed}: {states:?}");
        }
    }
}

fn begin(states: &mut PossibleStates, amount: u64) -> Flight {
    states.begin(&add(amount)).expect("well-formed").expect("some state is possible")
}

#[test]
fn transactions_in_flight_fail_alone() {
    let (mut counter, mut states) = (Counter::new(), PossibleStates::default());
    assert!(states.begin(&add(1)).expect("well-formed").is_none(), "nothing is known yet");
    states.observe(&[Some(counter.key.clone())], counter.now());
    let flights: Vec<Flight> = (0..4).map(|_| begin(&mut states, 1)).collect();
    let alternatives: Vec<usize> = flights.iter().map(|flight| flight.alternatives.len()).collect();
    assert_eq!(alternatives, [1, 2, 3, 4], "equal states are one alternative");
    // The second one's condition fails; the third overtakes the first, which must begin again.
    assert!(counter.apply(&flights[2]));
    states.resolve(&flights[2], Some(counter.now()));
    states.resolve(&flights[1], None);
    assert!(!counter.apply(&flights[0]));
    states.resolve(&flights[0], None);
    assert!(counter.apply(&flights[3]));
    states.resolve(&flights[3], Some(counter.now()));
    let again = begin(&mut states, 1);
    assert_eq!(again.alternatives.len(), 1, "all outcomes are known");
    assert!(counter.apply(&again));
    assert_eq!(counter.key.value, "3");
    let since = again.alternatives[0].expected[0].as_ref().map(|state| state.state.since);
    assert_eq!(since, Some(Revision(1)), "no other writer put the key");
}

#[test]
fn value_that_another_writer_restored_is_another_state() {
    let (mut counter, mut states) = (Counter::new(), PossibleStates::default());
    states.observe(&[Some(counter.key.clone())], counter.now());
    let flight = begin(&mut states, 1);
    counter.put("7".into());
    counter.put("0".into());
    assert!(!counter.apply(&flight));
    states.resolve(&flight, None);
    let (found, is_of_other_writer) = states.observe(&[Some(counter.key.clone())], counter.now());
    assert!(is_of_other_writer);
    assert_eq!(found[0].as_ref().map(|state| state.state.since), Some(Revision(3)));
}
