//! Finds the one order of writes that the acknowledgements and the events allow.

use std::collections::BTreeMap;

use anyhow::{Context, bail};
use store::{Error, Event, Outcome, Revision, Transaction};

use super::history::{History, What};
use super::model::Model;
use super::stage::in_order;

/// Replays every transaction that happened, including those whose answer was lost but whose events were seen.
pub(crate) fn replay(history: &History) -> anyhow::Result<Model> {
    let mut model = Model::default();
    let (mut revisions, mut unresolved) = sort(history)?;
    for (revision, at) in &mut revisions {
        at.events = in_order(std::mem::take(&mut at.events));
        model = at.explain(*revision, model, &mut unresolved)?;
    }
    Ok(model)
}

/// What is known about one revision.
#[derive(Debug, Default)]
struct At<'a> {
    /// At most one of these changed something; the others only tell what was current.
    acknowledged: Vec<&'a Transaction>,
    /// As the watcher of the whole saw them.
    events: Vec<Event>,
}

/// What happened at which revision, and what may have happened at any.
fn sort(history: &History) -> anyhow::Result<(BTreeMap<Revision, At<'_>>, Vec<&Transaction>)> {
    let mut revisions: BTreeMap<Revision, At<'_>> = BTreeMap::new();
    let mut unresolved = Vec::new();
    for call in &history.calls {
        match &call.what {
            What::Commit(transaction, Ok(Outcome::Committed(revision))) => {
                revisions.entry(*revision).or_default().acknowledged.push(transaction);
            }
            What::Commit(transaction, Err(Error::Unresolved { .. })) => unresolved.push(transaction),
            What::Commit(..) | What::Get(..) | What::Range(..) | What::Revision(_) | What::Compact(..) => {}
        }
    }
    for event in history.streams.first().context("nobody watched the whole")?.events() {
        revisions.entry(event.revision()).or_default().events.push(event.clone());
    }
    Ok((revisions, unresolved))
}

impl At<'_> {
    /// The state after this revision.
    fn explain(&self, revision: Revision, before: Model, lost: &mut Vec<&Transaction>) -> anyhow::Result<Model> {
        if let ([one], true) = (&self.acknowledged[..], lost.is_empty()) {
            // The usual case, which needs no copy of the whole history for each revision.
            let after = self.after(revision, before, one);
            return after.with_context(|| format!("{one:?} happened at {revision} against its terms"));
        }
        let after = |effective: &Transaction| self.after(revision, before.clone(), effective);
        let fitting: Vec<_> = self.acknowledged.iter().filter_map(|effective| after(effective)).collect();
        if let Some(exact) = fitting.iter().find(|after| self.is_what_was_seen(revision, after)) {
            return Ok(exact.clone());
        }
        let explaining =
            lost.iter().enumerate().filter(|(_, candidate)| self.touches(candidate)).find_map(|(index, candidate)| {
                let after = after(candidate)?;
                self.is_what_was_seen(revision, &after).then_some((index, after))
            });
        if let Some((index, after)) = explaining {
            // It has happened now, so it does not happen again.
            lost.remove(index);
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
    fn after(&self, revision: Revision, mut after: Model, effective: &Transaction) -> Option<Model> {
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

    fn is_what_was_seen(&self, revision: Revision, after: &Model) -> bool {
        after.events(&"".into(), revision, revision) == self.events
    }

    /// Whether the transaction changes every key that was seen to change, which is cheap to ask.
    fn touches(&self, transaction: &Transaction) -> bool {
        !self.events.is_empty()
            && self.events.iter().all(|event| transaction.ops.iter().any(|op| op.key() == event.key()))
    }
}
