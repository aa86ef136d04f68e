//! Checks of watches: ordered, unique, reliable, atomic per transaction, resumable, with progress.

use store::{Op, Revision, StoreEvent};

use super::check_fixture::{
    CheckFixture, IntoTransaction, commit_ok, delete_event, ensure_equal, events_through, next_batch, put, put_event,
    put_op, remove, revision, sort_events, watch,
};
use super::{Check, CheckResult, checks};

pub(crate) const CHECKS: &[Check] = checks![
    watch_sees_changes_of_all_clients_in_order,
    watch_replays_past_changes,
    no_op_writes_cause_no_event,
    watch_from_future_revision_waits,
    watch_sees_only_its_prefix,
    watch_of_empty_prefix_sees_all_keys,
    transaction_is_never_split_across_batches,
    large_transaction_is_never_split_across_batches,
    resumed_watch_loses_and_repeats_nothing,
    slow_watcher_loses_nothing,
    watches_are_independent,
    progress_is_reported_on_request_and_never_too_early,
];

async fn watch_sees_changes_of_all_clients_in_order(stage: &CheckFixture) -> CheckResult {
    let mut watch = stage.watch_from_now().await?;
    let a = || stage.key("a");
    let first = put(&stage.client, a(), "1").await?;
    let second = put(&stage.other_client, a(), "2").await?;
    let third = remove(&stage.client, a()).await?;
    let fourth = put(&stage.other_client, a(), "").await?;
    let expected =
        [put_event(a(), "1", first), put_event(a(), "2", second), delete_event(a(), third), put_event(a(), "", fourth)];
    ensure_equal!(events_through(&mut watch, fourth).await?, expected, "four changes");
    Ok(())
}

/// Puts, changes and deletes some keys, and returns the events that a watcher must see.
async fn write_history(stage: &CheckFixture, rounds: usize) -> anyhow::Result<Vec<StoreEvent>> {
    let mut expected = Vec::new();
    for round in 0..rounds {
        let key = stage.key(format!("{}", round % 3));
        let store = if round % 2 == 0 { &stage.client } else { &stage.other_client };
        expected.push(match round % 7 {
            // An earlier round has put this key.
            6 => delete_event(stage.key("0"), remove(store, stage.key("0")).await?),
            _ => {
                let value = format!("round {round}");
                put_event(key.clone(), value.clone(), put(store, key, value).await?)
            }
        });
    }
    Ok(expected)
}

async fn watch_replays_past_changes(stage: &CheckFixture) -> CheckResult {
    let expected = write_history(stage, 30).await?;
    let last = expected[29].revision();
    for begin in [0, 1, 13, 28, 29] {
        let mut watch = watch(&stage.other_client, stage.prefix(), expected[begin].revision()).await?;
        let found = events_through(&mut watch, last).await?;
        ensure_equal!(found, expected[begin..], "the past from event {begin} on");
    }
    Ok(())
}

async fn no_op_writes_cause_no_event(stage: &CheckFixture) -> CheckResult {
    let mut watch = stage.watch_from_now().await?;
    let first = put(&stage.client, stage.key("a"), "1").await?;
    remove(&stage.client, stage.key("missing")).await?;
    let mixed = vec![Op::Delete { key: stage.key("missing") }, put_op(stage.key("b"), "2")];
    let second = commit_ok(&stage.client, mixed.into_transaction()).await?;
    // Putting the same value again is a change too.
    let third = put(&stage.client, stage.key("a"), "1").await?;
    let expected = [
        put_event(stage.key("a"), "1", first),
        put_event(stage.key("b"), "2", second),
        put_event(stage.key("a"), "1", third),
    ];
    ensure_equal!(events_through(&mut watch, third).await?, expected, "the events of effective writes");
    Ok(())
}

async fn watch_from_future_revision_waits(stage: &CheckFixture) -> CheckResult {
    let from = Revision(revision(&stage.client).await?.0 + 4);
    let mut watch = watch(&stage.other_client, stage.prefix(), from).await?;
    // Progress below its start would make it start too early when it is resumed.
    watch.progress_request().send();
    let mut expected = Vec::new();
    for round in 0..8 {
        let written = put(&stage.client, stage.key("a"), format!("{round}")).await?;
        if written >= from {
            expected.push(put_event(stage.key("a"), format!("{round}"), written));
        }
    }
    let last = expected.last().map(StoreEvent::revision).unwrap_or_default();
    let first = next_batch(&mut watch).await?;
    anyhow::ensure!(
        first.complete_through.next() >= from,
        "the first batch is through {}, from {from} on",
        first.complete_through
    );
    let mut found = first.events;
    if first.complete_through < last {
        found.extend(events_through(&mut watch, last).await?);
    }
    ensure_equal!(found, expected, "from {from} on");
    Ok(())
}

async fn watch_sees_only_its_prefix(stage: &CheckFixture) -> CheckResult {
    let from = revision(&stage.client).await?.next();
    let names: [&[u8]; 9] =
        [b"a_b/1", b"axb/1", b"a%b/1", b"a_b", b"a_b0", b"a_b/\x00", b"a_b/\xff", b"a_b/\xff\xff", b"A_B/1"];
    for name in names {
        put(&stage.client, stage.key(name), name).await?;
    }
    let ops: Vec<_> = names.iter().map(|name| put_op(stage.key(name), "all")).collect();
    let last = commit_ok(&stage.client, ops.into_transaction()).await?;
    let mut found = Vec::new();
    for prefix in ["a_b/", "a%b/"] {
        let mut watch = watch(&stage.other_client, stage.key(prefix), from).await?;
        found.extend(events_through(&mut watch, last).await?.into_iter().map(|event| event.key().clone()));
    }
    let below: [&[u8]; 10] = [
        b"a_b/1",
        b"a_b/\x00",
        b"a_b/\xff",
        b"a_b/\xff\xff",
        // All at one revision, in order of keys.
        b"a_b/\x00",
        b"a_b/1",
        b"a_b/\xff",
        b"a_b/\xff\xff",
        b"a%b/1",
        b"a%b/1",
    ];
    ensure_equal!(found, below.map(|name| stage.key(name)), "the events of two prefixes");
    Ok(())
}

async fn watch_of_empty_prefix_sees_all_keys(stage: &CheckFixture) -> CheckResult {
    let from = revision(&stage.client).await?.next();
    let mut all = watch(&stage.other_client, "".into(), from).await?;
    let mut end = watch(&stage.other_client, b"\xff\xff".as_slice().into(), from).await?;
    let last_key = [b"\xff\xff".as_slice(), &stage.prefix()].concat();
    let ops = vec![put_op(stage.key("a"), "1"), put_op(last_key.clone().into(), "2")];
    let last = commit_ok(&stage.client, ops.into_transaction()).await?;
    let expected = [put_event(stage.key("a"), "1", last), put_event(last_key.into(), "2", last)];
    let ours =
        |events: Vec<StoreEvent>| -> Vec<StoreEvent> { events.into_iter().filter(|e| e.revision() == last).collect() };
    ensure_equal!(ours(events_through(&mut all, last).await?), expected, "everything");
    ensure_equal!(ours(events_through(&mut end, last).await?), expected[1..], "a prefix without an end");
    Ok(())
}

/// Reads batches through `last` and checks that each holds whole revisions: `events_per_revision` events each.
async fn check_transactions_unsplit(
    stage: &CheckFixture,
    from: Revision,
    last: Revision,
    events_per_revision: usize,
) -> CheckResult {
    let mut watch = watch(&stage.other_client, stage.prefix(), from).await?;
    let mut through = Revision(0);
    while through < last {
        let batch = next_batch(&mut watch).await?;
        through = batch.complete_through;
        let revisions = batch.events.chunk_by(|a, b| a.revision() == b.revision());
        for events in revisions {
            ensure_equal!(events.len(), events_per_revision, "the events of {} in one batch", events[0].revision());
        }
    }
    Ok(())
}

async fn transaction_is_never_split_across_batches(stage: &CheckFixture) -> CheckResult {
    let from = revision(&stage.client).await?.next();
    let mut last = from;
    for round in 0..40 {
        let ops: Vec<_> = (0..5).map(|index| put_op(stage.key(format!("{index}")), format!("{round}"))).collect();
        last = commit_ok(&stage.client, ops.into_transaction()).await?;
    }
    check_transactions_unsplit(stage, from, last, 5).await
}

async fn large_transaction_is_never_split_across_batches(stage: &CheckFixture) -> CheckResult {
    let from = revision(&stage.client).await?.next();
    let mut last = from;
    // More than fits into one message of any backend. etcd splits at 1.5 or 2 MiB, which is 17 or 22 of these and no
    // whole revision.
    for _ in 0..6 {
        let value = vec![b'x'; 90 << 10];
        let ops: Vec<_> = (0..10).map(|index| put_op(stage.key(format!("{index}")), value.clone())).collect();
        last = commit_ok(&stage.client, ops.into_transaction()).await?;
    }
    check_transactions_unsplit(stage, from, last, 10).await
}

async fn resumed_watch_loses_and_repeats_nothing(stage: &CheckFixture) -> CheckResult {
    let mut from = revision(&stage.client).await?.next();
    let expected = write_history(stage, 30).await?;
    let last = expected[29].revision();
    let mut found = Vec::new();
    while from <= last {
        let store = if found.len() % 2 == 0 { &stage.client } else { &stage.other_client };
        let batch = next_batch(&mut watch(store, stage.prefix(), from).await?).await?;
        anyhow::ensure!(batch.complete_through.next() >= from, "through {} from {from} on", batch.complete_through);
        from = batch.complete_through.next();
        found.extend(batch.events);
    }
    ensure_equal!(found, expected, "one batch of each of many watches");
    Ok(())
}

async fn slow_watcher_loses_nothing(stage: &CheckFixture) -> CheckResult {
    const ROUNDS: usize = 60;
    let from = revision(&stage.client).await?.next();
    let mut slow = watch(&stage.other_client, stage.prefix(), from).await?;
    let mut expected = Vec::new();
    for round in 0..ROUNDS {
        let ops: Vec<_> = (0..50).map(|index| put_op(stage.key(format!("{index:02}")), vec![b'x'; 500])).collect();
        let store = if round % 2 == 0 { &stage.client } else { &stage.other_client };
        let written = commit_ok(store, ops.into_transaction()).await?;
        expected.extend((0..50).map(|index| (stage.key(format!("{index:02}")), written)));
    }
    let last = expected[expected.len() - 1].1;
    let events = events_through(&mut slow, last).await?;
    let found: Vec<_> = events.into_iter().map(|event| (event.key().clone(), event.revision())).collect();
    ensure_equal!(found.len(), expected.len(), "the number of events");
    anyhow::ensure!(found == expected, "the events differ from the writes");
    Ok(())
}

async fn watches_are_independent(stage: &CheckFixture) -> CheckResult {
    let from = revision(&stage.client).await?.next();
    let mut watches = Vec::new();
    for _ in 0..20 {
        watches.push(watch(&stage.other_client, stage.prefix(), from).await?);
    }
    let first = put(&stage.client, stage.key("a"), "1").await?;
    // Half of the watches end; one of the others never reads.
    watches.truncate(11);
    let _idle = watches.pop();
    let second = put(&stage.client, stage.key("a"), "2").await?;
    let expected = [put_event(stage.key("a"), "1", first), put_event(stage.key("a"), "2", second)];
    for watch in &mut watches {
        ensure_equal!(events_through(watch, second).await?, expected, "the events of one of many watches");
    }
    Ok(())
}

async fn progress_is_reported_on_request_and_never_too_early(stage: &CheckFixture) -> CheckResult {
    if !stage.other_client.supports_progress_requests() {
        return Ok(());
    }
    let from = revision(&stage.client).await?.next();
    let mut quiet = watch(&stage.other_client, stage.key("quiet/"), from).await?;
    let mut busy = watch(&stage.other_client, stage.key("busy/"), from).await?;
    let mut expected = Vec::new();
    let mut last = from;
    for round in 0..20 {
        busy.progress_request().send();
        last = put(&stage.client, stage.key("busy/a"), format!("{round}")).await?;
        expected.push(put_event(stage.key("busy/a"), format!("{round}"), last));
        busy.progress_request().send();
    }
    quiet.progress_request().send();
    ensure_equal!(events_through(&mut quiet, last).await?, [], "progress without events");
    // A second request without any change is answered too.
    quiet.progress_request().send();
    let again = next_batch(&mut quiet).await?;
    anyhow::ensure!(again.events.is_empty() && again.complete_through >= last, "a second progress batch: {again:?}");
    // `events_through` rejects an event at or below earlier progress.
    ensure_equal!(sort_events(events_through(&mut busy, last).await?), expected, "events between progress");
    Ok(())
}
