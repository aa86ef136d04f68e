//! Transactions and compaction.

use super::Client;
use super::failure::{Failure, Refusal};
use super::leases::Lent;
use super::proto::{
    COMPARE_MOD_REVISION, CompactionRequest, Compare, DeleteRangeRequest, Operation, PutRequest, RangeRequest,
    RequestOp, TxnRequest, TxnResponse,
};
use super::reads::{from_wire, to_wire};
use crate::contract::{self, Entry, Error, Op, Outcome, Revision, Transaction};

/// How often a transaction is tried again with a new lease because its lease has gone. Once is the usual case: the lease ran
/// out between our looking at it and etcd's.
const LEASES_MAX: u32 = 3;

impl Client {
    pub(super) async fn commit(&self, transaction: Transaction) -> Result<Outcome, Error> {
        transaction.check()?;
        let deadline = self.members.deadline();
        let mut leases_left = LEASES_MAX;
        loop {
            leases_left -= 1;
            let lent = self.leases.lend(&self.members, &transaction.ops, deadline).await?;
            let result = self.members.call(txn_request(&transaction, &lent), deadline).await;
            match result {
                // It was refused as a whole, so it can be sent again.
                Err(Failure::Refused(Refusal::LeaseNotFound)) if leases_left > 0 => self.leases.lost(lent),
                Err(failure) => return Err(failure.into_write_error()),
                Ok(response) => {
                    let outcome = outcome(response);
                    self.leases.settle(lent, &outcome);
                    return Ok(outcome);
                }
            }
        }
    }

    pub(super) async fn compact(&self, revision: Revision) -> Result<(), Error> {
        let request = CompactionRequest { revision: to_wire(revision) };
        match self.members.call(request, self.members.deadline()).await {
            Ok(_) | Err(Failure::Refused(Refusal::Compacted)) => Ok(()),
            Err(Failure::Refused(Refusal::Future)) => Err(self.future(revision).await),
            Err(failure) => Err(failure.into_read_error()),
        }
    }
}

fn txn_request(transaction: &Transaction, lent: &Lent) -> TxnRequest {
    let success = transaction.ops.iter().map(|op| {
        request_op(match op {
            Op::Put { key, value, ttl } => {
                Operation::Put(PutRequest { key: key.clone(), value: value.clone(), lease: lent.lease(*ttl) })
            }
            Op::Delete { key } => Operation::DeleteRange(DeleteRangeRequest { key: key.clone() }),
        })
    });
    let current = |compare: &contract::Compare| {
        let get = RangeRequest { key: compare.key.clone(), limit: 1, ..RangeRequest::default() };
        request_op(Operation::Range(get))
    };
    TxnRequest {
        compare: transaction.compares.iter().map(compare).collect(),
        success: success.collect(),
        failure: transaction.compares.iter().map(current).collect(),
    }
}

/// A key that is not there has the mod revision 0.
fn compare(compare: &contract::Compare) -> Compare {
    Compare {
        target: COMPARE_MOD_REVISION,
        key: compare.key.clone(),
        mod_revision: Some(compare.revision.map_or(0, to_wire)),
    }
}

fn request_op(operation: Operation) -> RequestOp {
    RequestOp { operation: Some(operation) }
}

fn outcome(response: TxnResponse) -> Outcome {
    let revision = from_wire(response.header.unwrap_or_default().revision);
    if response.succeeded {
        return Outcome::Committed(revision);
    }
    let entry = |mut range: super::proto::RangeResponse| range.kvs.pop().map(Entry::from);
    let current = response.responses.into_iter().map(|answer| answer.range.and_then(entry)).collect();
    Outcome::Conflict { current, revision }
}
