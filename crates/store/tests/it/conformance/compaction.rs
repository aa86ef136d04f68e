//! Checks of compaction.

use store::{Error, KeyRange, Revision};

use super::check_fixture::{
    CheckFixture, compact, delete_event, ensure_equal, events_through, get, put, put_event, range, range_error, remove,
    revision, watch, with_timeout,
};
use super::{Check, CheckResult, checks};

pub(crate) const CHECKS: &[Check] = checks![
    compacted_revision_cannot_be_read,
    current_values_survive_compaction,
    watch_from_compacted_revision_fails,
    watch_can_start_right_after_oldest_revision,
    delete_at_compacted_revision_is_not_lost,
    compacting_to_older_revision_does_nothing,
    compacting_future_revision_fails,
    running_watch_survives_compaction,
];

/// Puts one key five times.
async fn put_five(stage: &CheckFixture) -> anyhow::Result<Vec<Revision>> {
    let mut written = Vec::new();
    for round in 0..5 {
        written.push(put(&stage.client, stage.key("a"), format!("{round}")).await?);
    }
    Ok(written)
}

async fn compacted_revision_cannot_be_read(stage: &CheckFixture) -> CheckResult {
    let written = put_five(stage).await?;
    let edge = written[2];
    compact(&stage.client, edge).await?;
    for (store, client) in [(&stage.client, "own"), (&stage.other_client, "other")] {
        for forgotten in [written[0], written[1]] {
            let error = range_error(store, KeyRange::prefix(stage.prefix()).at_revision(forgotten)).await?;
            let expected = Error::Compacted { requested: forgotten, oldest: edge };
            ensure_equal!(error, expected, "a range at a compacted revision, by the {client} client");
        }
        for kept in [2, 3, 4] {
            let page = range(store, KeyRange::prefix(stage.prefix()).at_revision(written[kept])).await?;
            let found: Vec<_> = page.entries.into_iter().map(|entry| (entry.value, entry.revision)).collect();
            let expected = [(kept.to_string().into(), written[kept])];
            ensure_equal!(found, expected, "the state at {}, by the {client} client", written[kept]);
        }
    }
    Ok(())
}

async fn current_values_survive_compaction(stage: &CheckFixture) -> CheckResult {
    let old = put(&stage.client, stage.key("old"), "1").await?;
    put(&stage.client, stage.key("gone"), "1").await?;
    remove(&stage.client, stage.key("gone")).await?;
    let written = put_five(stage).await?;
    compact(&stage.client, written[4]).await?;
    let page = range(&stage.other_client, KeyRange::prefix(stage.prefix())).await?;
    let found: Vec<_> = page.entries.into_iter().map(|entry| (entry.key, entry.value, entry.revision)).collect();
    let expected = [(stage.key("a"), "4".into(), written[4]), (stage.key("old"), "1".into(), old)];
    ensure_equal!(found, expected, "the state after compaction");
    ensure_equal!(
        get(&stage.other_client, stage.key("old")).await?.0.map(|entry| entry.revision),
        Some(old),
        "an old key"
    );
    Ok(())
}

async fn watch_from_compacted_revision_fails(stage: &CheckFixture) -> CheckResult {
    let written = put_five(stage).await?;
    let edge = written[3];
    compact(&stage.other_client, edge).await?;
    for from in [written[0], written[1], edge] {
        let mut watch = watch(&stage.client, stage.prefix(), from).await?;
        let first = with_timeout("the first batch of a watch", watch.next_batch()).await?;
        let expected = Error::Compacted { requested: from, oldest: edge };
        ensure_equal!(first, Some(Err(expected)), "a watch from a compacted revision");
        ensure_equal!(
            with_timeout("the end of a watch", watch.next_batch()).await?,
            None,
            "the end of the watch after the error"
        );
    }
    Ok(())
}

async fn watch_can_start_right_after_oldest_revision(stage: &CheckFixture) -> CheckResult {
    let written = put_five(stage).await?;
    compact(&stage.client, written[2]).await?;
    let mut watch = watch(&stage.other_client, stage.prefix(), written[2].next()).await?;
    let expected = [put_event(stage.key("a"), "3", written[3]), put_event(stage.key("a"), "4", written[4])];
    ensure_equal!(events_through(&mut watch, written[4]).await?, expected, "the events after the oldest revision");
    Ok(())
}

async fn delete_at_compacted_revision_is_not_lost(stage: &CheckFixture) -> CheckResult {
    let put_at = put(&stage.client, stage.key("a"), "1").await?;
    let removed = remove(&stage.client, stage.key("a")).await?;
    let last = put(&stage.client, stage.key("b"), "2").await?;
    compact(&stage.client, removed).await?;
    // Either the deletion is delivered or the watch fails; otherwise a cache would keep the key forever.
    let mut watch = watch(&stage.other_client, stage.prefix(), removed).await?;
    match with_timeout("the first batch of a watch", watch.next_batch()).await? {
        Some(Err(Error::Compacted { .. })) => Ok(()),
        Some(Ok(batch)) => {
            let expected = [delete_event(stage.key("a"), removed), put_event(stage.key("b"), "2", last)];
            anyhow::ensure!(expected.starts_with(&batch.events), "a watch from {removed} saw {batch:?} ({put_at})");
            Ok(())
        }
        other => anyhow::bail!("a watch from {removed} ended with {other:?}"),
    }
}

async fn compacting_to_older_revision_does_nothing(stage: &CheckFixture) -> CheckResult {
    let written = put_five(stage).await?;
    compact(&stage.client, written[3]).await?;
    compact(&stage.other_client, written[1]).await?;
    compact(&stage.client, written[3]).await?;
    let page = range(&stage.other_client, KeyRange::prefix(stage.prefix()).at_revision(written[3])).await?;
    ensure_equal!(page.count, 1, "the count at the oldest revision");
    let error = range_error(&stage.other_client, KeyRange::prefix(stage.prefix()).at_revision(written[2])).await?;
    ensure_equal!(
        error,
        Error::Compacted { requested: written[2], oldest: written[3] },
        "a range at a compacted revision"
    );
    Ok(())
}

async fn compacting_future_revision_fails(stage: &CheckFixture) -> CheckResult {
    let requested = Revision(revision(&stage.client).await?.0 + 1_000_000);
    let result = with_timeout("compact", stage.client.compact(requested)).await?;
    let named = matches!(result, Err(Error::FutureRevision { requested: named, .. }) if named == requested);
    anyhow::ensure!(named, "compacting a future revision returned {result:?}");
    Ok(())
}

async fn running_watch_survives_compaction(stage: &CheckFixture) -> CheckResult {
    let from = revision(&stage.client).await?.next();
    let mut watch = watch(&stage.other_client, stage.prefix(), from).await?;
    for round in 0..10 {
        let written = put(&stage.client, stage.key("a"), format!("{round}")).await?;
        let event = put_event(stage.key("a"), format!("{round}"), written);
        ensure_equal!(events_through(&mut watch, written).await?, [event], "an event between compactions");
        compact(&stage.client, written).await?;
    }
    Ok(())
}
