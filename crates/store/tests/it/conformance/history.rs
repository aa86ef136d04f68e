//! What clients of a store did and saw, and whether one history explains all of it.
//!
//! The judge replays every acknowledged transaction on the [`Model`] in the order of the revisions, and then asks the
//! model about every answer and every event: there must be one order of writes, in agreement with real time, that all
//! clients and all watchers have seen.

use std::collections::BTreeSet;

use anyhow::{Context, bail, ensure};
use store::{Batch, Entry, Error, Event, Key, Op, Outcome, Page, Range, Revision, Transaction};

use super::Verdict;
use super::model::Model;
use super::replay::replay;
use super::stage::in_order;

/// Everything that was recorded. The first stream is the whole: every other looks at part of what it watches.
#[derive(Debug)]
pub(crate) struct History {
    pub(crate) weather: Weather,
    pub(crate) calls: Vec<Call>,
    pub(crate) streams: Vec<Stream>,
}

/// Whether the store was disturbed while it was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Weather {
    /// No call may fail.
    Calm,
    /// Calls may be unavailable or unresolved; watches still lose nothing.
    Stormy,
}

/// One call of one client.
#[derive(Debug)]
pub(crate) struct Call {
    /// Tickets of one clock for all clients: a call that ended before another began has a smaller `ended`.
    pub(crate) began: u64,
    pub(crate) ended: u64,
    pub(crate) what: What,
}

impl Call {
    /// Whether it ended with an error.
    pub(crate) fn is_failed(&self) -> bool {
        match &self.what {
            What::Commit(_, result) => result.is_err(),
            What::Get(_, result) => result.is_err(),
            What::Range(_, result) => result.is_err(),
            What::Revision(result) => result.is_err(),
            What::Compact(_, result) => result.is_err(),
        }
    }
}

/// A call and its answer.
#[derive(Debug)]
pub(crate) enum What {
    Commit(Transaction, Result<Outcome, Error>),
    Get(Key, Result<(Option<Entry>, Revision), Error>),
    Range(Range, Result<Page, Error>),
    Revision(Result<Revision, Error>),
    Compact(Revision, Result<(), Error>),
}

/// What one watcher saw, over all the watches that it resumed with.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) prefix: Key,
    pub(crate) from: Revision,
    pub(crate) batches: Vec<Batch>,
    /// The error that ended it; `None`: it has read as far as it was told to.
    pub(crate) end: Option<Error>,
}

impl Stream {
    /// Up to where it has read.
    pub(crate) fn through(&self) -> Revision {
        self.batches.last().map_or(Revision(self.from.0.saturating_sub(1)), |batch| batch.through)
    }

    pub(crate) fn events(&self) -> impl Iterator<Item = &Event> {
        self.batches.iter().flat_map(|batch| &batch.events)
    }
}

/// Finds the first promise that this history breaks.
pub(crate) fn judge(history: &History) -> Verdict {
    for stream in &history.streams {
        check_form(stream).with_context(|| format!("the watch of {:?} from {}", stream.prefix, stream.from))?;
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
fn check_form(stream: &Stream) -> Verdict {
    let mut through = Revision(stream.from.0.saturating_sub(1));
    for batch in &stream.batches {
        let mut last = through;
        for event in &batch.events {
            ensure!(event.revision() > through, "{event:?} came after everything through {through} was delivered");
            ensure!(event.revision() >= last, "{event:?} came after an event at {last}");
            last = event.revision();
        }
        ensure!(batch.through >= last, "progress to {} does not reach the event at {last}", batch.through);
        through = batch.through;
    }
    Ok(())
}

fn check_call(history: &History, model: &Model, call: &Call) -> Verdict {
    match &call.what {
        What::Commit(_, Ok(Outcome::Committed(_))) | What::Revision(Ok(_)) | What::Compact(_, Ok(())) => Ok(()),
        What::Commit(transaction, Ok(Outcome::Conflict { current, revision })) => {
            let expected: Vec<_> =
                transaction.compares.iter().map(|compare| model.entry(&compare.key, *revision)).collect();
            ensure!(*current == expected, "a conflict at {revision} must find {expected:?}");
            ensure!(!model.holds(&transaction.compares, *revision), "all comparisons hold at {revision}");
            Ok(())
        }
        What::Get(key, Ok((entry, revision))) => {
            let expected = model.entry(key, *revision);
            ensure!(*entry == expected, "at {revision} it is {expected:?}");
            Ok(())
        }
        What::Range(range, Ok(page)) => {
            ensure!(range.at.is_none_or(|at| at == page.revision), "it was read at another revision");
            let expected = model.range(range, page.revision);
            ensure!(*page == expected, "at {} it is {expected:?}", page.revision);
            Ok(())
        }
        What::Range(_, Err(Error::Compacted { requested, oldest })) => {
            ensure!(was_forgotten(history, *requested, call.ended), "{requested} was not compacted");
            ensure!(oldest > requested, "{requested} cannot be read, and {oldest} can");
            Ok(())
        }
        What::Commit(_, Err(error)) | What::Get(_, Err(error)) | What::Range(_, Err(error)) => tolerate(history, error),
        What::Revision(Err(error)) | What::Compact(_, Err(error)) => tolerate(history, error),
    }
}

fn tolerate(history: &History, error: &Error) -> Verdict {
    let by_weather = matches!(error, Error::Unavailable { .. } | Error::Unresolved { .. });
    ensure!(by_weather && history.weather == Weather::Stormy, "it failed with {error}");
    Ok(())
}

/// Whether somebody had asked, before `ended`, to forget the state at `revision`.
fn was_forgotten(history: &History, revision: Revision, ended: u64) -> bool {
    history.calls.iter().any(|call| match call.what {
        What::Compact(through, _) => call.began < ended && revision < through,
        What::Commit(..) | What::Get(..) | What::Range(..) | What::Revision(_) => false,
    })
}

/// A call that began after another had ended sees its state or a newer one.
fn check_real_time(history: &History, model: &Model) -> Verdict {
    let mut ends: Vec<_> = history.calls.iter().filter_map(|call| Some((call.ended, seen(call)?))).collect();
    let mut begins: Vec<_> = history.calls.iter().filter(|call| seen(call).is_some()).collect();
    ends.sort_unstable();
    begins.sort_unstable_by_key(|call| call.began);
    let mut ended = ends.into_iter().peekable();
    let mut floor = Revision(0);
    let mut written = BTreeSet::new();
    for call in begins {
        while let Some((_, revision)) = ended.next_if(|(ended, _)| *ended < call.began) {
            floor = floor.max(revision);
        }
        let revision = seen(call).unwrap_or_default();
        ensure!(revision >= floor, "{call:?} began after {floor} had been seen");
        if let What::Commit(transaction, Ok(Outcome::Committed(_))) = &call.what
            && transaction.ops.iter().any(|op| matches!(op, Op::Put { .. }))
        {
            ensure!(revision > floor, "{call:?} was given the revision of the past");
            ensure!(written.insert(revision), "{call:?} was given the revision of another write");
        }
    }
    ensure!(model.last() >= written.last().copied().unwrap_or_default(), "the newest write is not in the history");
    Ok(())
}

/// The state that a call has seen, if it looked at the present.
fn seen(call: &Call) -> Option<Revision> {
    match &call.what {
        What::Commit(_, Ok(Outcome::Committed(revision) | Outcome::Conflict { revision, .. })) => Some(*revision),
        What::Get(_, Ok((_, revision))) | What::Revision(Ok(revision)) => Some(*revision),
        What::Range(Range { at: None, .. }, Ok(page)) => Some(page.revision),
        What::Commit(..) | What::Get(..) | What::Revision(_) | What::Range(..) | What::Compact(..) => None,
    }
}

/// A watcher must have seen exactly the part of the history that it watched.
fn check_stream(history: &History, model: &Model, stream: &Stream) -> Verdict {
    let through = stream.through();
    let expected = model.events(&stream.prefix, stream.from, through);
    let found = in_order(stream.events().cloned().collect());
    let differs = (0..expected.len().max(found.len())).find(|&index| expected.get(index) != found.get(index));
    if let Some(index) = differs {
        bail!("event {index} is {:?}, and must be {:?}", found.get(index), expected.get(index));
    }
    match &stream.end {
        None => Ok(()),
        Some(Error::Compacted { .. }) => {
            ensure!(was_forgotten(history, through, u64::MAX), "it ended as compacted, and {through} is not");
            Ok(())
        }
        Some(error) => bail!("it ended with {error}"),
    }
}
