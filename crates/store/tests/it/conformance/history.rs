//! The recorded calls and watches of several clients, and the check that one history explains all of them.
//!
//! [`check_history`] replays every committed transaction on the [`StoreModel`] in order of revisions, and then compares
//! every response and every event with the model: there must be one order of writes, consistent with real time, that
//! all clients and all watchers have seen.

use std::collections::BTreeSet;

use anyhow::{Context, bail, ensure};
use store::{
    Error, Key, KeyRange, Op, RangePage, Revision, StoreEntry, StoreEvent, Transaction, TransactionOutcome, WatchBatch,
};

use super::CheckResult;
use super::check_fixture::sort_events;
use super::model::StoreModel;
use super::replay::replay;

/// Everything that was recorded. The first stream watches the whole prefix, the others parts of it.
#[derive(Debug)]
pub(crate) struct RecordedHistory {
    pub(crate) fault_mode: FaultMode,
    pub(crate) calls: Vec<RecordedCall>,
    pub(crate) streams: Vec<RecordedWatch>,
}

/// Whether faults were injected during the recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FaultMode {
    /// No call may fail.
    NoFaults,
    /// Calls may fail as unavailable or with an unknown outcome; watches still lose nothing.
    WithFaults,
}

#[derive(Debug)]
pub(crate) struct RecordedCall {
    /// Tickets of one logical clock for all clients: if a call ended before another began, its `ended` is smaller.
    pub(crate) began: u64,
    pub(crate) ended: u64,
    pub(crate) operation: RecordedOperation,
}

impl RecordedCall {
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

#[derive(Debug)]
pub(crate) enum RecordedOperation {
    Commit(Transaction, Result<TransactionOutcome, Error>),
    Get(Key, Result<(Option<StoreEntry>, Revision), Error>),
    Range(KeyRange, Result<RangePage, Error>),
    Revision(Result<Revision, Error>),
    Compact(Revision, Result<(), Error>),
}

/// The batches of one watcher, over all watches that it resumed with.
#[derive(Debug)]
pub(crate) struct RecordedWatch {
    pub(crate) prefix: Key,
    pub(crate) from: Revision,
    pub(crate) batches: Vec<WatchBatch>,
    /// The error that ended it; `None`: it has read up to the last write.
    pub(crate) end: Option<Error>,
}

impl RecordedWatch {
    /// The revision up to which it has read.
    pub(crate) fn complete_through(&self) -> Revision {
        self.batches.last().map_or(Revision(self.from.0.saturating_sub(1)), |batch| batch.complete_through)
    }

    pub(crate) fn events(&self) -> impl Iterator<Item = &StoreEvent> {
        self.batches.iter().flat_map(|batch| &batch.events)
    }
}

/// Finds the first rule of the contract that the history breaks.
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

/// Checks order and atomicity, which need no model.
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
            ensure!(*entry == expected, "at {revision} the entry is {expected:?}");
            Ok(())
        }
        RecordedOperation::Range(range, Ok(page)) => {
            ensure!(range.at_revision.is_none_or(|at| at == page.revision), "the range was read at another revision");
            let expected = model.range(range, page.revision);
            ensure!(*page == expected, "at {} the page is {expected:?}", page.revision);
            Ok(())
        }
        RecordedOperation::Range(_, Err(Error::Compacted { requested, oldest })) => {
            ensure!(was_compacted(history, *requested, call.ended), "{requested} was not compacted");
            ensure!(oldest > requested, "{requested} is compacted but not older than the oldest revision {oldest}");
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
    ensure!(by_weather && history.fault_mode == FaultMode::WithFaults, "the call failed with {error}");
    Ok(())
}

/// True if a client requested, before `ended`, a compaction beyond `revision`.
fn was_compacted(history: &RecordedHistory, revision: Revision, ended: u64) -> bool {
    history.calls.iter().any(|call| match call.operation {
        RecordedOperation::Compact(through, _) => call.began < ended && revision < through,
        RecordedOperation::Commit(..)
        | RecordedOperation::Get(..)
        | RecordedOperation::Range(..)
        | RecordedOperation::Revision(_) => false,
    })
}

/// Checks that a call which began after another had ended sees the same state or a newer one.
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
            ensure!(revision > floor, "{call:?} got a revision that is not newer");
            ensure!(written.insert(revision), "{call:?} got the revision of another write");
        }
    }
    ensure!(
        model.last_revision() >= written.last().copied().unwrap_or_default(),
        "the newest write is not in the history"
    );
    Ok(())
}

/// The revision of the state that a call has seen, if it read the current state.
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

/// Checks that a watcher has seen exactly the part of the history that it watched.
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
            ensure!(was_compacted(history, through, u64::MAX), "the watch ended as compacted, but {through} is not");
            Ok(())
        }
        Some(error) => bail!("the watch ended with {error}"),
    }
}
