//! Finds the one order of writes that the acknowledgements and the events allow.

use std::collections::BTreeMap;

use anyhow::{Context, bail};
use store::{Error, Revision, StoreEvent, Transaction, TransactionOutcome};

use super::check_fixture::sort_events;
use super::history::{RecordedHistory, RecordedOperation};
use super::model::StoreModel;

/// Replays every transaction that happened, including those whose answer was lost but whose events were seen.
pub(crate) fn replay(history: &RecordedHistory) -> anyhow::Result<StoreModel> {
    let mut model = StoreModel::default();
    let (mut revisions, mut unresolved) = group_by_revision(history)?;
    for (revision, at) in &mut revisions {
        at.events = sort_events(std::mem::take(&mut at.events));
        model = at.explain(*revision, model, &mut unresolved)?;
    }
    Ok(model)
}

/// What is known about one revision.
#[derive(Debug, Default)]
struct RevisionFacts<'a> {
    /// At most one of these changed something; the others only tell what was current.
    acknowledged: Vec<&'a Transaction>,
    /// As the watcher of the whole saw them.
    events: Vec<StoreEvent>,
}

/// What happened at which revision, and what may have happened at any.
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
    for event in history.streams.first().context("nobody watched the whole")?.events() {
        revisions.entry(event.revision()).or_default().events.push(event.clone());
    }
    Ok((revisions, unresolved))
}

impl RevisionFacts<'_> {
    /// The state after this revision.
    fn explain(
        &self,
        revision: Revision,
        before: StoreModel,
        unresolved: &mut Vec<&Transaction>,
    ) -> anyhow::Result<StoreModel> {
        if let ([one], true) = (&self.acknowledged[..], unresolved.is_empty()) {
            // The usual case, which needs no copy of the whole history for each revision.
            let after = self.apply_effective(revision, before, one);
            return after.with_context(|| format!("{one:?} happened at {revision} against its terms"));
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
            // It has happened now, so it does not happen again.
            unresolved.remove(index);
            return Ok(after);
        }
        match (fitting.into_iter().next(), &self.acknowledged[..]) {
            // The watchers are judged later, in words of their own.
            (Some(after), _) => Ok(after),
            (None, []) => {
                bail!("at {revision} a watch saw {:?}, and nobody wrote that, or somebody twice", self.events)
            }
            (None, [one]) => bail!("{one:?} happened at {revision} against its terms"),
            (None, several) => bail!("several writes happened at {revision} against their terms: {several:?}"),
        }
    }

    /// The state after `effective` has happened and all others have changed nothing, if that can be.
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

    /// Whether the transaction changes every key that was seen to change, which is cheap to ask.
    fn touches(&self, transaction: &Transaction) -> bool {
        !self.events.is_empty()
            && self.events.iter().all(|event| transaction.ops.iter().any(|op| op.key() == event.key()))
    }
}
