//! Reconstructs the order of writes from acknowledgements and watch events.

use std::collections::BTreeMap;

use anyhow::{Context, bail};
use store::{Error, Revision, StoreEvent, Transaction, TransactionOutcome};

use super::check_fixture::sort_events;
use super::history::{RecordedHistory, RecordedOperation};
use super::model::StoreModel;

/// Replays every committed transaction, including those whose response was lost but whose events were seen.
pub(crate) fn replay(history: &RecordedHistory) -> anyhow::Result<StoreModel> {
    let mut model = StoreModel::default();
    let (mut revisions, mut unresolved) = group_by_revision(history)?;
    for (revision, at) in &mut revisions {
        at.events = sort_events(std::mem::take(&mut at.events));
        model = at.explain(*revision, model, &mut unresolved)?;
    }
    Ok(model)
}

/// The observations about one revision.
#[derive(Debug, Default)]
struct RevisionFacts<'a> {
    /// At most one of these changed something; the others only report the current revision.
    acknowledged: Vec<&'a Transaction>,
    /// As seen by the watcher of the whole prefix.
    events: Vec<StoreEvent>,
}

/// Groups the observations by revision, and collects the transactions with an unknown outcome.
fn group_by_revision(
    history: &RecordedHistory,
) -> anyhow::Result<(BTreeMap<Revision, RevisionFacts<'_>>, Vec<&Transaction>)> {
    let mut revisions: BTreeMap<Revision, RevisionFacts<'_>> = BTreeMap::new();
    let mut unresolved = Vec::new();
    for call in &history.calls {
        match &call.operation {
            RecordedOperation::Commit(transaction, Ok(TransactionOutcome::Committed(revision))) => {
                revisions.entry(*revision).or_default().acknowledged.push(transaction);
            }
            RecordedOperation::Commit(transaction, Err(Error::OutcomeUnknown { .. })) => unresolved.push(transaction),
            RecordedOperation::Commit(..)
            | RecordedOperation::Get(..)
            | RecordedOperation::Range(..)
            | RecordedOperation::Revision(_)
            | RecordedOperation::Compact(..) => {}
        }
    }
    for event in history.streams.first().context("no watcher of the whole prefix")?.events() {
        revisions.entry(event.revision()).or_default().events.push(event.clone());
    }
    Ok((revisions, unresolved))
}

impl RevisionFacts<'_> {
    /// Returns the state after this revision.
    fn explain(
        &self,
        revision: Revision,
        before: StoreModel,
        unresolved: &mut Vec<&Transaction>,
    ) -> anyhow::Result<StoreModel> {
        if let ([one], true) = (&self.acknowledged[..], unresolved.is_empty()) {
            // The usual case, which needs no copy of the model per revision.
            let after = self.apply_effective(revision, before, one);
            return after
                .with_context(|| format!("{one:?} was committed at {revision} but its comparisons did not hold"));
        }
        let after = |effective: &Transaction| self.apply_effective(revision, before.clone(), effective);
        let fitting: Vec<_> = self.acknowledged.iter().filter_map(|effective| after(effective)).collect();
        if let Some(exact) = fitting.iter().find(|after| self.matches_events(revision, after)) {
            return Ok(exact.clone());
        }
        let explaining = unresolved.iter().enumerate().filter(|(_, candidate)| self.touches(candidate)).find_map(
            |(index, candidate)| {
                let after = after(candidate)?;
                self.matches_events(revision, &after).then_some((index, after))
            },
        );
        if let Some((index, after)) = explaining {
            // It is committed now, so it cannot be committed again.
            unresolved.remove(index);
            return Ok(after);
        }
        match (fitting.into_iter().next(), &self.acknowledged[..]) {
            // `check_stream` checks the watchers later, with error texts of its own.
            (Some(after), _) => Ok(after),
            (None, []) => {
                bail!("at {revision} a watch saw {:?}, which no client wrote, or wrote twice", self.events)
            }
            (None, [one]) => bail!("{one:?} was committed at {revision} but its comparisons did not hold"),
            (None, several) => bail!("writes at {revision} whose comparisons did not hold: {several:?}"),
        }
    }

    /// The state after `effective` was committed and all other transactions changed nothing; `None` if that is
    /// impossible.
    fn apply_effective(
        &self,
        revision: Revision,
        mut after: StoreModel,
        effective: &Transaction,
    ) -> Option<StoreModel> {
        if after.changes(&effective.ops) > 0 {
            let holds = after.holds(&effective.compares, Revision(revision.0 - 1));
            holds.then(|| after.apply(revision, &effective.ops))?;
        } else if !after.holds(&effective.compares, revision) {
            return None;
        }
        let changes_nothing =
            |other: &&Transaction| after.changes(&other.ops) == 0 && after.holds(&other.compares, revision);
        let mut others = self.acknowledged.iter().filter(|other| !std::ptr::eq(**other, effective));
        others.all(changes_nothing).then_some(after)
    }

    fn matches_events(&self, revision: Revision, after: &StoreModel) -> bool {
        after.events(&"".into(), revision, revision) == self.events
    }

    /// True if the transaction changes every key that was seen to change; a cheap first test.
    fn touches(&self, transaction: &Transaction) -> bool {
        !self.events.is_empty()
            && self.events.iter().all(|event| transaction.ops.iter().any(|op| op.key() == event.key()))
    }
}
