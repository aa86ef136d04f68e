//! Transactions with computed values.
//!
//! etcd computes nothing. So the values are computed here for each state that the keys may have when etcd applies the
//! transaction: the transaction names these states with what to put on each, and etcd takes the one that it finds. So
//! transactions that change the same keys are in flight together, and one that fails does not fail those behind it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout_at};

use super::EtcdClient;
use super::failure::{EtcdFailure, EtcdRejection};
use super::leases::TransactionLeases;
use super::possible_states::{Alternative, Flight, IN_FLIGHT_MAX, KeyStates, PossibleStates, compute};
use super::proto::{Compare, CompareTarget, KeyValue, Operation, RequestOp, TxnRequest, TxnResponse};
use super::reads::revision_from_wire;
use super::writes::{change_request, compare_request, read_request, request_op};
use crate::contract::{ComputedValues, Error, Key, Op, Revision, StoreEntry, Transaction, TransactionOutcome};

/// Attempts of a transaction within its deadline. Each further one means that another transaction overtook it, or that
/// another writer put a key: several servers that do so all the time let each other wait.
const ATTEMPTS_MAX: usize = 256;

/// Groups of keys whose states are remembered; those that no transaction uses are dropped above this.
const GROUPS_MAX: usize = 1024;

/// A transaction repeats its operations for each state. One with more than this takes all slots, so that there is only
/// one state.
const REPEATED_BYTES_MAX: usize = 32 << 10;
const REPEATED_OPS_MAX: usize = 8;

/// How long transactions take turns after a put of another writer was found. A server with several in flight changes the
/// keys so often that those of another server would always come too late.
const TURNS_DURATION: Duration = Duration::from_secs(2);

/// The keys of computed transactions, by the keys of a transaction. Groups that share keys disturb each other, which costs
/// attempts.
#[derive(Debug, Default)]
pub(super) struct ComputedGroups(Mutex<HashMap<Box<[Key]>, Arc<ComputedGroup>>>);

#[derive(Debug)]
struct ComputedGroup {
    slots: Semaphore,
    states: Mutex<PossibleStates>,
    /// When a put of another writer was found last.
    disturbed_at: Mutex<Option<Instant>>,
}

impl Default for ComputedGroup {
    fn default() -> Self {
        Self { slots: Semaphore::new(IN_FLIGHT_MAX as usize), states: Mutex::default(), disturbed_at: Mutex::default() }
    }
}

impl ComputedGroups {
    fn of(&self, keys: &[Key]) -> Arc<ComputedGroup> {
        let mut groups = self.0.lock();
        if let Some(group) = groups.get(keys) {
            return group.clone();
        }
        if groups.len() >= GROUPS_MAX {
            groups.retain(|_, group| Arc::strong_count(group) > 1);
        }
        groups.entry(keys.into()).or_default().clone()
    }
}

impl ComputedGroup {
    async fn take_slots(&self, transaction: &Transaction, deadline: Instant) -> Result<SemaphorePermit<'_>, Error> {
        let bytes: usize = transaction.ops.iter().map(op_bytes).sum();
        let is_large = bytes > REPEATED_BYTES_MAX || transaction.ops.len() > REPEATED_OPS_MAX;
        let takes_turns = self.disturbed_at.lock().is_some_and(|at| at.elapsed() < TURNS_DURATION);
        let slots = self.slots.acquire_many(if is_large || takes_turns { IN_FLIGHT_MAX } else { 1 });
        match timeout_at(deadline, slots).await {
            Ok(Ok(permit)) => Ok(permit),
            Ok(Err(_)) | Err(_) => {
                Err(Error::Unavailable { reason: "transactions that change the same keys take too long".to_owned() })
            }
        }
    }

    /// Takes over what was found in etcd.
    fn observe(&self, found: &[Option<KeyValue>], revision: Revision) -> KeyStates {
        let (states, is_of_other_writer) = self.states.lock().observe(found, revision);
        if is_of_other_writer {
            *self.disturbed_at.lock() = Some(Instant::now());
        }
        states
    }

    fn begin(&self, computed: &dyn ComputedValues) -> Result<Option<OpenFlight<'_>>, Error> {
        let flight = self.states.lock().begin(computed)?;
        Ok(flight.map(|flight| OpenFlight { group: self, flight, is_resolved: false }))
    }
}

/// A transaction in flight, whose outcome is unknown when this is dropped unresolved.
struct OpenFlight<'g> {
    group: &'g ComputedGroup,
    flight: Flight,
    is_resolved: bool,
}

impl OpenFlight<'_> {
    fn resolve(mut self, committed_at: Option<Revision>) {
        self.is_resolved = true;
        self.group.states.lock().resolve(&self.flight, committed_at);
    }
}

impl Drop for OpenFlight<'_> {
    fn drop(&mut self) {
        if !self.is_resolved {
            self.group.states.lock().abandon(&self.flight);
        }
    }
}

impl EtcdClient {
    pub(super) async fn commit_computed(
        &self,
        transaction: Transaction,
        computed: &dyn ComputedValues,
    ) -> Result<TransactionOutcome, Error> {
        transaction.validate()?;
        let deadline = self.members.deadline();
        let group = self.computed_groups.of(computed.keys());
        let _slots = group.take_slots(&transaction, deadline).await?;
        for _ in 0..ATTEMPTS_MAX {
            let Some(flight) = group.begin(computed)? else {
                match self.read_refused(&group, &transaction, computed, deadline).await? {
                    Some(conflict) => return Ok(conflict),
                    None => continue,
                }
            };
            if let Some(outcome) = self.send_flight(&group, flight, &transaction, computed, deadline).await? {
                return Ok(outcome);
            }
        }
        Err(Error::Unavailable { reason: "other writers put the same keys in every attempt".to_owned() })
    }

    /// `None` if the transaction must begin again.
    async fn send_flight(
        &self,
        group: &ComputedGroup,
        flight: OpenFlight<'_>,
        transaction: &Transaction,
        computed: &dyn ComputedValues,
        deadline: Instant,
    ) -> Result<Option<TransactionOutcome>, Error> {
        let lent = match self.lease_pool.acquire(&self.members, &transaction.ops, deadline).await {
            Ok(lent) => lent,
            Err(error) => {
                flight.resolve(None);
                return Err(error);
            }
        };
        let request = computed_request(transaction, computed.keys(), &flight.flight.alternatives, &lent);
        let response = match self.members.send(request, deadline).await {
            Ok(response) => response,
            Err(failure) => {
                let error = failure.clone().into_write_error();
                if !matches!(error, Error::OutcomeUnknown { .. }) {
                    flight.resolve(None);
                }
                // The transaction was rejected as a whole, so it is safe to send again.
                if failure == EtcdFailure::Rejected(EtcdRejection::LeaseNotFound) {
                    self.lease_pool.remove_lost(lent);
                    return Ok(None);
                }
                return Err(error);
            }
        };
        let revision = response_revision(&response);
        let outcome = match read_response(response) {
            ComputedResponse::Committed => {
                flight.resolve(Some(revision));
                TransactionOutcome::Committed(revision)
            }
            ComputedResponse::ConditionFailed(current) => {
                flight.resolve(None);
                TransactionOutcome::Conflict { current, revision }
            }
            ComputedResponse::OtherState(found) => {
                flight.resolve(None);
                group.observe(&found, revision);
                self.lease_pool.finish_transaction(lent, &TransactionOutcome::Conflict { current: vec![], revision });
                return Ok(None);
            }
        };
        self.lease_pool.finish_transaction(lent, &outcome);
        Ok(Some(outcome))
    }

    /// Reads the state of the keys after a refusal, which may be due to an old one. The conflict if it is refused too.
    async fn read_refused(
        &self,
        group: &ComputedGroup,
        transaction: &Transaction,
        computed: &dyn ComputedValues,
        deadline: Instant,
    ) -> Result<Option<TransactionOutcome>, Error> {
        let keys = computed.keys();
        let compared = transaction.compares.iter().map(|compare| &compare.key);
        let success = keys.iter().chain(compared).map(read_request).collect();
        let request = TxnRequest { success, ..TxnRequest::default() };
        let response = self.members.send(request, deadline).await.map_err(EtcdFailure::into_read_error)?;
        let revision = response_revision(&response);
        let mut found = found_keys(response);
        let current = found.split_off(keys.len().min(found.len()));
        let states: KeyStates = group.observe(&found, revision);
        Ok(match compute(computed, &states)? {
            Some(_) => None,
            None => Some(TransactionOutcome::Conflict { current: current.into_iter().map(entry).collect(), revision }),
        })
    }
}

fn op_bytes(op: &Op) -> usize {
    match op {
        Op::Put { key, value, .. } => key.len() + value.len(),
        Op::Delete { key } => key.len(),
    }
}

/// If the comparisons hold: the first alternative whose state is found, otherwise a read of the keys.
fn computed_request(
    transaction: &Transaction,
    keys: &[Key],
    alternatives: &[Alternative],
    leases: &TransactionLeases,
) -> TxnRequest {
    let mut otherwise: Vec<RequestOp> = keys.iter().map(read_request).collect();
    for Alternative { expected, puts, .. } in alternatives.iter().rev() {
        let compare = keys.iter().zip(&**expected).flat_map(|(key, state)| {
            let targets = match state {
                Some(state) => vec![
                    CompareTarget::Version(state.version),
                    CompareTarget::CreateRevision(state.create_revision),
                    CompareTarget::Value(state.state.value.clone()),
                ],
                None => vec![CompareTarget::Version(0)],
            };
            targets.into_iter().map(|target| Compare::new(key.clone(), target))
        });
        let alternative = TxnRequest {
            compare: compare.collect(),
            success: transaction.ops.iter().chain(puts).map(|op| change_request(op, leases)).collect(),
            failure: otherwise,
        };
        otherwise = vec![request_op(Operation::Txn(alternative))];
    }
    TxnRequest {
        compare: transaction.compares.iter().map(compare_request).collect(),
        success: otherwise,
        failure: transaction.compares.iter().map(|compare| read_request(&compare.key)).collect(),
    }
}

enum ComputedResponse {
    Committed,
    /// The entries of the compared keys.
    ConditionFailed(Vec<Option<StoreEntry>>),
    /// No alternative was for the state of the keys, which is this.
    OtherState(Vec<Option<KeyValue>>),
}

fn read_response(response: TxnResponse) -> ComputedResponse {
    if !response.succeeded {
        return ComputedResponse::ConditionFailed(found_keys(response).into_iter().map(entry).collect());
    }
    let mut innermost = response;
    while let Some(nested) = innermost.responses.first_mut().and_then(|response| response.txn.take()) {
        if nested.succeeded {
            return ComputedResponse::Committed;
        }
        innermost = nested;
    }
    ComputedResponse::OtherState(found_keys(innermost))
}

fn response_revision(response: &TxnResponse) -> Revision {
    revision_from_wire(response.header.unwrap_or_default().revision)
}

/// The keys that a transaction read.
fn found_keys(response: TxnResponse) -> Vec<Option<KeyValue>> {
    response.responses.into_iter().map(|response| response.range.and_then(|mut range| range.kvs.pop())).collect()
}

fn entry(found: Option<KeyValue>) -> Option<StoreEntry> {
    found.map(StoreEntry::from)
}
