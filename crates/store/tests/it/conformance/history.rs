//! What clients of a store did and saw, and whether one history explains all of it.
//!
//! The judge replays every acknowledged transaction on the [`Model`] in the order of the revisions, and then asks the
//! model about every answer and every event: there must be one order of writes, in agreement with real time, that all
//! clients and all watchers have seen.

use std::collections::BTreeSet;

use anyhow::{Context, bail, ensure};
use store::{
    Error, Key, KeyRange, Op, RangePage, Revision, StoreEntry, StoreEvent, Transaction, TransactionOutcome, WatchBatch,
};

use super::CheckResult;
use super::check_fixture::sort_events;
use super::model::StoreModel;
use super::replay::replay;

/// Everything that was recorded. The first stream is the whole: every other looks at part of what it watches.
#[derive(Debug)]
pub(crate) struct RecordedHistory {
    pub(crate) fault_mode: FaultMode,
    pub(crate) calls: Vec<RecordedCall>,
    pub(crate) streams: Vec<RecordedWatch>,
}

/// Whether the store was disturbed while it was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FaultMode {
    /// No call may fail.
    NoFaults,
    /// Calls may be unavailable or unresolved; watches still lose nothing.
    WithFaults,
}

/// One call of one client.
#[derive(Debug)]
pub(crate) struct RecordedCall {
    /// Tickets of one clock for all clients: a call that ended before another began has a smaller `ended`.
    pub(crate) began: u64,
    pub(crate) ended: u64,
    pub(crate) operation: RecordedOperation,
}

impl RecordedCall {
    /// Whether it ended with an error.
    pub(crate) fn is_failed(&self) -> bool {
        match &self.operation {
            RecordedOperation::Commit(_, result) => result.is_err(),
            RecordedOperation::Get(_, result) => result.is_err(),
            RecordedOperation::Range(_, result) => result.is_err(),
            RecordedOperation::Revision(result) => result.is_err(),
            RecordedOperation::Compact(_, result) => result.is_err(),
        }
    }
}

/// A call and its answer.
#[derive(Debug)]
pub(crate) enum RecordedOperation {
    Commit(Transaction, Result<TransactionOutcome, Error>),
    Get(Key, Result<(Option<StoreEntry>, Revision), Error>),
    Range(KeyRange, Result<RangePage, Error>),
    Revision(Result<Revision, Error>),
    Compact(Revision, Result<(), Error>),
}

/// What one watcher saw, over all the watches that it resumed with.
#[derive(Debug)]
pub(crate) struct RecordedWatch {
    pub(crate) prefix: Key,
    pub(crate) from: Revision,
    pub(crate) batches: Vec<WatchBatch>,
    /// The error that ended it; `None`: it has read as far as it was told to.
    pub(crate) end: Option<Error>,
}

impl RecordedWatch {
    /// Up to where it has read.
    pub(crate) fn complete_through(&self) -> Revision {
        self.batches.last().map_or(Revision(self.from.0.saturating_sub(1)), |batch| batch.complete_through)
    }

    pub(crate) fn events(&self) -> impl Iterator<Item = &StoreEvent> {
        self.batches.iter().flat_map(|batch| &batch.events)
    }
}

/// Finds the first promise that this history breaks.
pub(crate) fn check_history(history: &RecordedHistory) -> CheckResult {
    for stream in &history.streams {
        check_batch_order(stream).with_context(|| format!("the watch of {:?} from {}", stream.prefix, stream.from))?;
    }
    let model = replay(history)?;
    for call in &history.calls {
        check_call(history, &model, call).with_context(|| format!("{call:?}"))?;
    }
    check_real_time(history, &model)?;
    for stream in &history.streams {
        check_stream(history, &model, stream)
            .with_context(|| format!("the watch of {:?} from {}", stream.prefix, stream.from))?;
    }
    Ok(())
}

/// Order and atomicity, which need no model to be seen.
fn check_batch_order(stream: &RecordedWatch) -> CheckResult {
    let mut through = Revision(stream.from.0.saturating_sub(1));
    for batch in &stream.batches {
        let mut last = through;
        for event in &batch.events {
            ensure!(event.revision() > through, "{event:?} came after everything through {through} was delivered");
            ensure!(event.revision() >= last, "{event:?} came after an event at {last}");
            last = event.revision();
        }
        ensure!(
            batch.complete_through >= last,
            "progress to {} does not reach the event at {last}",
            batch.complete_through
        );
        through = batch.complete_through;
    }
    Ok(())
}

fn check_call(history: &RecordedHistory, model: &StoreModel, call: &RecordedCall) -> CheckResult {
    match &call.operation {
        RecordedOperation::Commit(_, Ok(TransactionOutcome::Committed(_)))
        | RecordedOperation::Revision(Ok(_))
        | RecordedOperation::Compact(_, Ok(())) => Ok(()),
        RecordedOperation::Commit(transaction, Ok(TransactionOutcome::Conflict { current, revision })) => {
            let expected: Vec<_> =
                transaction.compares.iter().map(|compare| model.entry(&compare.key, *revision)).collect();
            ensure!(*current == expected, "a conflict at {revision} must find {expected:?}");
            ensure!(!model.holds(&transaction.compares, *revision), "all comparisons hold at {revision}");
            Ok(())
        }
        RecordedOperation::Get(key, Ok((entry, revision))) => {
            let expected = model.entry(key, *revision);
            ensure!(*entry == expected, "at {revision} it is {expected:?}");
            Ok(())
        }
        RecordedOperation::Range(range, Ok(page)) => {
            ensure!(range.at_revision.is_none_or(|at| at == page.revision), "it was read at another revision");
            let expected = model.range(range, page.revision);
            ensure!(*page == expected, "at {} it is {expected:?}", page.revision);
            Ok(())
        }
        RecordedOperation::Range(_, Err(Error::Compacted { requested, oldest })) => {
            ensure!(was_compacted(history, *requested, call.ended), "{requested} was not compacted");
            ensure!(oldest > requested, "{requested} cannot be read, and {oldest} can");
            Ok(())
        }
        RecordedOperation::Commit(_, Err(error))
        | RecordedOperation::Get(_, Err(error))
        | RecordedOperation::Range(_, Err(error)) => check_error_allowed(history, error),
        RecordedOperation::Revision(Err(error)) | RecordedOperation::Compact(_, Err(error)) => {
            check_error_allowed(history, error)
        }
    }
}

fn check_error_allowed(history: &RecordedHistory, error: &Error) -> CheckResult {
    let by_weather = matches!(error, Error::Unavailable { .. } | Error::OutcomeUnknown { .. });
    ensure!(by_weather && history.fault_mode == FaultMode::WithFaults, "it failed with {error}");
    Ok(())
}

/// Whether somebody had asked, before `ended`, to forget the state at `revision`.
fn was_compacted(history: &RecordedHistory, revision: Revision, ended: u64) -> bool {
    history.calls.iter().any(|call| match call.operation {
        RecordedOperation::Compact(through, _) => call.began < ended && revision < through,
        RecordedOperation::Commit(..)
        | RecordedOperation::Get(..)
        | RecordedOperation::Range(..)
        | RecordedOperation::Revision(_) => false,
    })
}

/// A call that began after another had ended sees its state or a newer one.
fn check_real_time(history: &RecordedHistory, model: &StoreModel) -> CheckResult {
    let mut ends: Vec<_> =
        history.calls.iter().filter_map(|call| Some((call.ended, observed_revision(call)?))).collect();
    let mut begins: Vec<_> = history.calls.iter().filter(|call| observed_revision(call).is_some()).collect();
    ends.sort_unstable();
    begins.sort_unstable_by_key(|call| call.began);
    let mut ended = ends.into_iter().peekable();
    let mut floor = Revision(0);
    let mut written = BTreeSet::new();
    for call in begins {
        while let Some((_, revision)) = ended.next_if(|(ended, _)| *ended < call.began) {
            floor = floor.max(revision);
        }
        let revision = observed_revision(call).unwrap_or_default();
        ensure!(revision >= floor, "{call:?} began after {floor} had been seen");
        if let RecordedOperation::Commit(transaction, Ok(TransactionOutcome::Committed(_))) = &call.operation
            && transaction.ops.iter().any(|op| matches!(op, Op::Put { .. }))
        {
            ensure!(revision > floor, "{call:?} was given the revision of the past");
            ensure!(written.insert(revision), "{call:?} was given the revision of another write");
        }
    }
    ensure!(
        model.last_revision() >= written.last().copied().unwrap_or_default(),
        "the newest write is not in the history"
    );
    Ok(())
}

/// The state that a call has seen, if it looked at the present.
fn observed_revision(call: &RecordedCall) -> Option<Revision> {
    match &call.operation {
        RecordedOperation::Commit(
            _,
            Ok(TransactionOutcome::Committed(revision) | TransactionOutcome::Conflict { revision, .. }),
        ) => Some(*revision),
        RecordedOperation::Get(_, Ok((_, revision))) | RecordedOperation::Revision(Ok(revision)) => Some(*revision),
        RecordedOperation::Range(KeyRange { at_revision: None, .. }, Ok(page)) => Some(page.revision),
        RecordedOperation::Commit(..)
        | RecordedOperation::Get(..)
        | RecordedOperation::Revision(_)
        | RecordedOperation::Range(..)
        | RecordedOperation::Compact(..) => None,
    }
}

/// A watcher must have seen exactly the part of the history that it watched.
fn check_stream(history: &RecordedHistory, model: &StoreModel, stream: &RecordedWatch) -> CheckResult {
    let through = stream.complete_through();
    let expected = model.events(&stream.prefix, stream.from, through);
    let found = sort_events(stream.events().cloned().collect());
    let differs = (0..expected.len().max(found.len())).find(|&index| expected.get(index) != found.get(index));
    if let Some(index) = differs {
        bail!("event {index} is {:?}, and must be {:?}", found.get(index), expected.get(index));
    }
    match &stream.end {
        None => Ok(()),
        Some(Error::Compacted { .. }) => {
            ensure!(was_compacted(history, through, u64::MAX), "it ended as compacted, and {through} is not");
            Ok(())
        }
        Some(error) => bail!("it ended with {error}"),
    }
}
