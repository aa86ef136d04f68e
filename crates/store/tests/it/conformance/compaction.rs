//! Forgetting history.

use store::{Error, Range, Revision};

use super::stage::{
    Stage, compact, delete_event, ensure_equal, events_through, get, put, put_event, range, range_error, remove,
    revision, watch, within,
};
use super::{Check, Verdict, checks};

pub(crate) const CHECKS: &[Check] = checks![
    the_forgotten_past_cannot_be_read,
    what_is_current_survives,
    a_watch_cannot_begin_in_the_forgotten_past,
    a_watch_can_begin_right_after_what_can_be_read,
    a_removal_at_the_edge_is_not_lost,
    forgetting_less_does_nothing,
    the_future_cannot_be_forgotten,
    a_running_watch_goes_on,
];

/// Five revisions of one key.
async fn put_five(stage: &Stage) -> anyhow::Result<Vec<Revision>> {
    let mut written = Vec::new();
    for round in 0..5 {
        written.push(put(&stage.here, stage.key("a"), format!("{round}")).await?);
    }
    Ok(written)
}

async fn the_forgotten_past_cannot_be_read(stage: &Stage) -> Verdict {
    let written = put_five(stage).await?;
    let edge = written[2];
    compact(&stage.here, edge).await?;
    for (store, client) in [(&stage.here, "own"), (&stage.there, "other")] {
        for forgotten in [written[0], written[1]] {
            let error = range_error(store, Range::prefix(stage.prefix()).at(forgotten)).await?;
            let expected = Error::Compacted { requested: forgotten, oldest: edge };
            ensure_equal!(error, expected, "a range in the forgotten past, by the {client} client");
        }
        for kept in [2, 3, 4] {
            let page = range(store, Range::prefix(stage.prefix()).at(written[kept])).await?;
            let found: Vec<_> = page.entries.into_iter().map(|entry| (entry.value, entry.revision)).collect();
            let expected = [(kept.to_string().into(), written[kept])];
            ensure_equal!(found, expected, "the state at {}, by the {client} client", written[kept]);
        }
    }
    Ok(())
}

async fn what_is_current_survives(stage: &Stage) -> Verdict {
    let old = put(&stage.here, stage.key("old"), "1").await?;
    put(&stage.here, stage.key("gone"), "1").await?;
    remove(&stage.here, stage.key("gone")).await?;
    let written = put_five(stage).await?;
    compact(&stage.here, written[4]).await?;
    let page = range(&stage.there, Range::prefix(stage.prefix())).await?;
    let found: Vec<_> = page.entries.into_iter().map(|entry| (entry.key, entry.value, entry.revision)).collect();
    let expected = [(stage.key("a"), "4".into(), written[4]), (stage.key("old"), "1".into(), old)];
    ensure_equal!(found, expected, "the state after compaction");
    ensure_equal!(get(&stage.there, stage.key("old")).await?.0.map(|entry| entry.revision), Some(old), "an old key");
    Ok(())
}

async fn a_watch_cannot_begin_in_the_forgotten_past(stage: &Stage) -> Verdict {
    let written = put_five(stage).await?;
    let edge = written[3];
    compact(&stage.there, edge).await?;
    for from in [written[0], written[1], edge] {
        let mut watch = watch(&stage.here, stage.prefix(), from).await?;
        let first = within("the first word of a watch", watch.next()).await?;
        let expected = Error::Compacted { requested: from, oldest: edge };
        ensure_equal!(first, Some(Err(expected)), "a watch in the forgotten past");
        ensure_equal!(within("the end of a watch", watch.next()).await?, None, "what follows the error");
    }
    Ok(())
}

async fn a_watch_can_begin_right_after_what_can_be_read(stage: &Stage) -> Verdict {
    let written = put_five(stage).await?;
    compact(&stage.here, written[2]).await?;
    let mut watch = watch(&stage.there, stage.prefix(), written[2].next()).await?;
    let expected = [put_event(stage.key("a"), "3", written[3]), put_event(stage.key("a"), "4", written[4])];
    ensure_equal!(events_through(&mut watch, written[4]).await?, expected, "right after the edge");
    Ok(())
}

async fn a_removal_at_the_edge_is_not_lost(stage: &Stage) -> Verdict {
    let put_at = put(&stage.here, stage.key("a"), "1").await?;
    let removed = remove(&stage.here, stage.key("a")).await?;
    let last = put(&stage.here, stage.key("b"), "2").await?;
    compact(&stage.here, removed).await?;
    // Either the removal is delivered or the watch says that it cannot: silence would leave the key there for ever.
    let mut watch = watch(&stage.there, stage.prefix(), removed).await?;
    match within("the first word of a watch", watch.next()).await? {
        Some(Err(Error::Compacted { .. })) => Ok(()),
        Some(Ok(batch)) => {
            let expected = [delete_event(stage.key("a"), removed), put_event(stage.key("b"), "2", last)];
            anyhow::ensure!(expected.starts_with(&batch.events), "a watch from {removed} saw {batch:?} ({put_at})");
            Ok(())
        }
        other => anyhow::bail!("a watch from {removed} ended with {other:?}"),
    }
}

async fn forgetting_less_does_nothing(stage: &Stage) -> Verdict {
    let written = put_five(stage).await?;
    compact(&stage.here, written[3]).await?;
    compact(&stage.there, written[1]).await?;
    compact(&stage.here, written[3]).await?;
    let page = range(&stage.there, Range::prefix(stage.prefix()).at(written[3])).await?;
    ensure_equal!(page.count, 1, "what the first compaction kept");
    let error = range_error(&stage.there, Range::prefix(stage.prefix()).at(written[2])).await?;
    ensure_equal!(error, Error::Compacted { requested: written[2], oldest: written[3] }, "what it forgot");
    Ok(())
}

async fn the_future_cannot_be_forgotten(stage: &Stage) -> Verdict {
    let requested = Revision(revision(&stage.here).await?.0 + 1_000_000);
    let result = within("compact", stage.here.compact(requested)).await?;
    let named = matches!(result, Err(Error::Future { requested: named, .. }) if named == requested);
    anyhow::ensure!(named, "compacting the future ended as {result:?}");
    Ok(())
}

async fn a_running_watch_goes_on(stage: &Stage) -> Verdict {
    let from = revision(&stage.here).await?.next();
    let mut watch = watch(&stage.there, stage.prefix(), from).await?;
    for round in 0..10 {
        let written = put(&stage.here, stage.key("a"), format!("{round}")).await?;
        let event = put_event(stage.key("a"), format!("{round}"), written);
        ensure_equal!(events_through(&mut watch, written).await?, [event], "an event between compactions");
        compact(&stage.here, written).await?;
    }
    Ok(())
}
