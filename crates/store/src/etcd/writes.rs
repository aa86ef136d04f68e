//! Transactions and compaction.

use super::EtcdClient;
use super::failure::{EtcdFailure, EtcdRejection};
use super::leases::TransactionLeases;
use super::proto::{
    CompactionRequest, Compare, CompareTarget, DeleteRangeRequest, Operation, PutRequest, RangeRequest, RequestOp,
    TxnRequest, TxnResponse,
};
use super::reads::{revision_from_wire, revision_to_wire};
use crate::contract::{self, Error, Key, Op, Revision, StoreEntry, Transaction, TransactionOutcome};

/// Attempts of a transaction whose lease is gone. One retry is usual: the lease expired after it was acquired and
/// before etcd applied the transaction.
const LEASE_ATTEMPTS_MAX: u32 = 3;

impl EtcdClient {
    pub(super) async fn commit(&self, transaction: Transaction) -> Result<TransactionOutcome, Error> {
        transaction.validate()?;
        let deadline = self.members.deadline();
        let mut leases_left = LEASE_ATTEMPTS_MAX;
        loop {
            leases_left -= 1;
            let lent = self.lease_pool.acquire(&self.members, &transaction.ops, deadline).await?;
            let result = self.members.send(txn_request(&transaction, &lent), deadline).await;
            match result {
                // The transaction was rejected as a whole, so it is safe to send again.
                Err(EtcdFailure::Rejected(EtcdRejection::LeaseNotFound)) if leases_left > 0 => {
                    self.lease_pool.remove_lost(lent)
                }
                Err(failure) => return Err(failure.into_write_error()),
                Ok(response) => {
                    let outcome = transaction_outcome(response);
                    self.lease_pool.finish_transaction(lent, &outcome);
                    return Ok(outcome);
                }
            }
        }
    }

    pub(super) async fn compact(&self, revision: Revision) -> Result<(), Error> {
        let request = CompactionRequest { revision: revision_to_wire(revision) };
        match self.members.send(request, self.members.deadline()).await {
            Ok(_) | Err(EtcdFailure::Rejected(EtcdRejection::Compacted)) => Ok(()),
            Err(EtcdFailure::Rejected(EtcdRejection::FutureRevision)) => {
                Err(self.future_revision_error(revision).await)
            }
            Err(failure) => Err(failure.into_read_error()),
        }
    }
}

fn txn_request(transaction: &Transaction, leases: &TransactionLeases) -> TxnRequest {
    TxnRequest {
        compare: transaction.compares.iter().map(compare_request).collect(),
        success: transaction.ops.iter().map(|op| change_request(op, leases)).collect(),
        failure: transaction.compares.iter().map(|compare| read_request(&compare.key)).collect(),
    }
}

pub(super) fn change_request(op: &Op, leases: &TransactionLeases) -> RequestOp {
    request_op(match op {
        Op::Put { key, value, ttl } => {
            Operation::Put(PutRequest { key: key.clone(), value: value.clone(), lease: leases.lease_id(*ttl) })
        }
        Op::Delete { key } => Operation::DeleteRange(DeleteRangeRequest { key: key.clone() }),
    })
}

pub(super) fn read_request(key: &Key) -> RequestOp {
    request_op(Operation::Range(RangeRequest { key: key.clone(), limit: 1, ..RangeRequest::default() }))
}

/// An absent key has the mod revision 0.
pub(super) fn compare_request(compare: &contract::Compare) -> Compare {
    Compare::new(compare.key.clone(), CompareTarget::ModRevision(compare.revision.map_or(0, revision_to_wire)))
}

pub(super) fn request_op(operation: Operation) -> RequestOp {
    RequestOp { operation: Some(operation) }
}

fn transaction_outcome(response: TxnResponse) -> TransactionOutcome {
    let revision = revision_from_wire(response.header.unwrap_or_default().revision);
    if response.succeeded {
        return TransactionOutcome::Committed(revision);
    }
    let entry = |mut range: super::proto::RangeResponse| range.kvs.pop().map(StoreEntry::from);
    let current = response.responses.into_iter().map(|answer| answer.range.and_then(entry)).collect();
    TransactionOutcome::Conflict { current, revision }
}
