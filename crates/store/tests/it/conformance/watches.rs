//! Watches: ordered, unique, reliable, atomic per transaction, resumable, with progress.

use store::{Event, Op, Revision};

use super::stage::{
    IntoTransaction, Stage, delete_event, ensure_equal, events_through, in_order, next_batch, put, put_event, put_op,
    remove, revision, watch, write,
};
use super::{Check, Verdict, checks};

pub(crate) const CHECKS: &[Check] = checks![
    changes_by_every_client_are_seen_in_order,
    the_past_is_replayed,
    nothing_happens_for_what_changes_nothing,
    the_future_is_waited_for,
    only_the_prefix_is_seen,
    the_empty_prefix_sees_everything,
    a_transaction_is_never_torn,
    a_large_transaction_is_never_torn,
    a_watch_is_resumed_without_loss_or_repetition,
    a_slow_reader_loses_nothing,
    watches_do_not_disturb_each_other,
    progress_is_told_on_request_and_never_too_early,
];

async fn changes_by_every_client_are_seen_in_order(stage: &Stage) -> Verdict {
    let mut watch = stage.watch_from_now().await?;
    let a = || stage.key("a");
    let first = put(&stage.here, a(), "1").await?;
    let second = put(&stage.there, a(), "2").await?;
    let third = remove(&stage.here, a()).await?;
    let fourth = put(&stage.there, a(), "").await?;
    let expected =
        [put_event(a(), "1", first), put_event(a(), "2", second), delete_event(a(), third), put_event(a(), "", fourth)];
    ensure_equal!(events_through(&mut watch, fourth).await?, expected, "four changes");
    Ok(())
}

/// Puts, changes and removes some keys, and returns what a watcher must see.
async fn make_history(stage: &Stage, rounds: usize) -> anyhow::Result<Vec<Event>> {
    let mut expected = Vec::new();
    for round in 0..rounds {
        let key = stage.key(format!("{}", round % 3));
        let store = if round % 2 == 0 { &stage.here } else { &stage.there };
        expected.push(match round % 7 {
            // A key that the three puts before it have put.
            6 => delete_event(stage.key("0"), remove(store, stage.key("0")).await?),
            _ => {
                let value = format!("round {round}");
                put_event(key.clone(), value.clone(), put(store, key, value).await?)
            }
        });
    }
    Ok(expected)
}

async fn the_past_is_replayed(stage: &Stage) -> Verdict {
    let expected = make_history(stage, 30).await?;
    let last = expected[29].revision();
    for begin in [0, 1, 13, 28, 29] {
        let mut watch = watch(&stage.there, stage.prefix(), expected[begin].revision()).await?;
        let found = events_through(&mut watch, last).await?;
        ensure_equal!(found, expected[begin..], "the past from event {begin} on");
    }
    Ok(())
}

async fn nothing_happens_for_what_changes_nothing(stage: &Stage) -> Verdict {
    let mut watch = stage.watch_from_now().await?;
    let first = put(&stage.here, stage.key("a"), "1").await?;
    remove(&stage.here, stage.key("missing")).await?;
    let mixed = vec![Op::Delete { key: stage.key("missing") }, put_op(stage.key("b"), "2")];
    let second = write(&stage.here, mixed.into_transaction()).await?;
    // Putting the same value again is a change all the same.
    let third = put(&stage.here, stage.key("a"), "1").await?;
    let expected = [
        put_event(stage.key("a"), "1", first),
        put_event(stage.key("b"), "2", second),
        put_event(stage.key("a"), "1", third),
    ];
    ensure_equal!(events_through(&mut watch, third).await?, expected, "what changed something");
    Ok(())
}

async fn the_future_is_waited_for(stage: &Stage) -> Verdict {
    let from = Revision(revision(&stage.here).await?.0 + 4);
    let mut watch = watch(&stage.there, stage.prefix(), from).await?;
    // Progress to before its beginning would make it begin too early when it is resumed.
    watch.progress().send();
    let mut expected = Vec::new();
    for round in 0..8 {
        let written = put(&stage.here, stage.key("a"), format!("{round}")).await?;
        if written >= from {
            expected.push(put_event(stage.key("a"), format!("{round}"), written));
        }
    }
    let last = expected.last().map(Event::revision).unwrap_or_default();
    let first = next_batch(&mut watch).await?;
    anyhow::ensure!(first.through.next() >= from, "the first batch is through {}, from {from} on", first.through);
    let mut found = first.events;
    if first.through < last {
        found.extend(events_through(&mut watch, last).await?);
    }
    ensure_equal!(found, expected, "from {from} on");
    Ok(())
}

async fn only_the_prefix_is_seen(stage: &Stage) -> Verdict {
    let from = revision(&stage.here).await?.next();
    let names: [&[u8]; 9] =
        [b"a_b/1", b"axb/1", b"a%b/1", b"a_b", b"a_b0", b"a_b/\x00", b"a_b/\xff", b"a_b/\xff\xff", b"A_B/1"];
    for name in names {
        put(&stage.here, stage.key(name), name).await?;
    }
    let ops: Vec<_> = names.iter().map(|name| put_op(stage.key(name), "all")).collect();
    let last = write(&stage.here, ops.into_transaction()).await?;
    let mut found = Vec::new();
    for prefix in ["a_b/", "a%b/"] {
        let mut watch = watch(&stage.there, stage.key(prefix), from).await?;
        found.extend(events_through(&mut watch, last).await?.into_iter().map(|event| event.key().clone()));
    }
    let below: [&[u8]; 10] = [
        b"a_b/1",
        b"a_b/\x00",
        b"a_b/\xff",
        b"a_b/\xff\xff",
        // All at one revision, in the order of the keys.
        b"a_b/\x00",
        b"a_b/1",
        b"a_b/\xff",
        b"a_b/\xff\xff",
        b"a%b/1",
        b"a%b/1",
    ];
    ensure_equal!(found, below.map(|name| stage.key(name)), "what two prefixes saw");
    Ok(())
}

async fn the_empty_prefix_sees_everything(stage: &Stage) -> Verdict {
    let from = revision(&stage.here).await?.next();
    let mut all = watch(&stage.there, "".into(), from).await?;
    let mut end = watch(&stage.there, b"\xff\xff".as_slice().into(), from).await?;
    let last_key = [b"\xff\xff".as_slice(), &stage.prefix()].concat();
    let ops = vec![put_op(stage.key("a"), "1"), put_op(last_key.clone().into(), "2")];
    let last = write(&stage.here, ops.into_transaction()).await?;
    let expected = [put_event(stage.key("a"), "1", last), put_event(last_key.into(), "2", last)];
    let ours = |events: Vec<Event>| -> Vec<Event> { events.into_iter().filter(|e| e.revision() == last).collect() };
    ensure_equal!(ours(events_through(&mut all, last).await?), expected, "everything");
    ensure_equal!(ours(events_through(&mut end, last).await?), expected[1..], "a prefix without an end");
    Ok(())
}

/// Reads batches through `last` and checks that each holds whole revisions: so many events or none.
async fn check_whole(stage: &Stage, from: Revision, last: Revision, events_per_revision: usize) -> Verdict {
    let mut watch = watch(&stage.there, stage.prefix(), from).await?;
    let mut through = Revision(0);
    while through < last {
        let batch = next_batch(&mut watch).await?;
        through = batch.through;
        let revisions = batch.events.chunk_by(|a, b| a.revision() == b.revision());
        for events in revisions {
            ensure_equal!(events.len(), events_per_revision, "the events of {} in one batch", events[0].revision());
        }
    }
    Ok(())
}

async fn a_transaction_is_never_torn(stage: &Stage) -> Verdict {
    let from = revision(&stage.here).await?.next();
    let mut last = from;
    for round in 0..40 {
        let ops: Vec<_> = (0..5).map(|index| put_op(stage.key(format!("{index}")), format!("{round}"))).collect();
        last = write(&stage.here, ops.into_transaction()).await?;
    }
    check_whole(stage, from, last, 5).await
}

async fn a_large_transaction_is_never_torn(stage: &Stage) -> Verdict {
    let from = revision(&stage.here).await?.next();
    let mut last = from;
    // More than fits one message of any backend. etcd cuts at 1.5 or 2 MiB, which is 17 or 22 of these and no whole revision.
    for _ in 0..6 {
        let value = vec![b'x'; 90 << 10];
        let ops: Vec<_> = (0..10).map(|index| put_op(stage.key(format!("{index}")), value.clone())).collect();
        last = write(&stage.here, ops.into_transaction()).await?;
    }
    check_whole(stage, from, last, 10).await
}

async fn a_watch_is_resumed_without_loss_or_repetition(stage: &Stage) -> Verdict {
    let mut from = revision(&stage.here).await?.next();
    let expected = make_history(stage, 30).await?;
    let last = expected[29].revision();
    let mut found = Vec::new();
    while from <= last {
        let store = if found.len() % 2 == 0 { &stage.here } else { &stage.there };
        let batch = next_batch(&mut watch(store, stage.prefix(), from).await?).await?;
        anyhow::ensure!(batch.through.next() >= from, "through {} from {from} on", batch.through);
        from = batch.through.next();
        found.extend(batch.events);
    }
    ensure_equal!(found, expected, "one batch of each of many watches");
    Ok(())
}

async fn a_slow_reader_loses_nothing(stage: &Stage) -> Verdict {
    const ROUNDS: usize = 60;
    let from = revision(&stage.here).await?.next();
    let mut slow = watch(&stage.there, stage.prefix(), from).await?;
    let mut expected = Vec::new();
    for round in 0..ROUNDS {
        let ops: Vec<_> = (0..50).map(|index| put_op(stage.key(format!("{index:02}")), vec![b'x'; 500])).collect();
        let store = if round % 2 == 0 { &stage.here } else { &stage.there };
        let written = write(store, ops.into_transaction()).await?;
        expected.extend((0..50).map(|index| (stage.key(format!("{index:02}")), written)));
    }
    let last = expected[expected.len() - 1].1;
    let events = events_through(&mut slow, last).await?;
    let found: Vec<_> = events.into_iter().map(|event| (event.key().clone(), event.revision())).collect();
    ensure_equal!(found.len(), expected.len(), "the number of events");
    anyhow::ensure!(found == expected, "the events are others than were written");
    Ok(())
}

async fn watches_do_not_disturb_each_other(stage: &Stage) -> Verdict {
    let from = revision(&stage.here).await?.next();
    let mut watches = Vec::new();
    for _ in 0..20 {
        watches.push(watch(&stage.there, stage.prefix(), from).await?);
    }
    let first = put(&stage.here, stage.key("a"), "1").await?;
    // Half of them end; one of the others never reads.
    watches.truncate(11);
    let _idle = watches.pop();
    let second = put(&stage.here, stage.key("a"), "2").await?;
    let expected = [put_event(stage.key("a"), "1", first), put_event(stage.key("a"), "2", second)];
    for watch in &mut watches {
        ensure_equal!(events_through(watch, second).await?, expected, "what one of many watches saw");
    }
    Ok(())
}

async fn progress_is_told_on_request_and_never_too_early(stage: &Stage) -> Verdict {
    if !stage.there.answers_progress() {
        return Ok(());
    }
    let from = revision(&stage.here).await?.next();
    let mut quiet = watch(&stage.there, stage.key("quiet/"), from).await?;
    let mut busy = watch(&stage.there, stage.key("busy/"), from).await?;
    let mut expected = Vec::new();
    let mut last = from;
    for round in 0..20 {
        busy.progress().send();
        last = put(&stage.here, stage.key("busy/a"), format!("{round}")).await?;
        expected.push(put_event(stage.key("busy/a"), format!("{round}"), last));
        busy.progress().send();
    }
    quiet.progress().send();
    ensure_equal!(events_through(&mut quiet, last).await?, [], "progress without events");
    // Asking again when nothing has changed is answered as well.
    quiet.progress().send();
    let again = next_batch(&mut quiet).await?;
    anyhow::ensure!(again.events.is_empty() && again.through >= last, "a second answer: {again:?}");
    // `events_through` refuses an event that progress had already passed.
    ensure_equal!(in_order(events_through(&mut busy, last).await?), expected, "events between progress");
    Ok(())
}
