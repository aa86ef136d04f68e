//! Compare, then change, in one step.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::try_join_all;
use store::{Compare, Entry, Error, Key, Op, Outcome, Range, Revision, Store, Transaction};

use super::stage::{
    IntoTransaction, Stage, commit, conflict, ensure_equal, get, put, put_op, range, remove, within, write,
};
use super::{Check, Verdict, checks};

pub(crate) const CHECKS: &[Check] = checks![
    a_key_is_created_once,
    an_update_needs_the_newest_revision,
    a_delete_needs_the_newest_revision,
    a_key_created_again_is_another_one,
    removing_an_absent_key_changes_nothing,
    all_changes_happen_at_one_revision,
    a_conflict_changes_nothing,
    a_conflict_tells_the_current_values_in_order,
    unchanged_keys_can_be_compared,
    a_transaction_may_change_many_keys,
    malformed_transactions_are_refused,
    oversized_transactions_are_refused,
    concurrent_increments_are_all_counted,
];

async fn a_key_is_created_once(stage: &Stage) -> Verdict {
    let created = write(&stage.here, Transaction::create(stage.key("a"), "1")).await?;
    let (current, read) = conflict(&stage.there, Transaction::create(stage.key("a"), "2")).await?;
    let expected = Entry { key: stage.key("a"), value: "1".into(), revision: created };
    ensure_equal!(current, [Some(expected)], "what the second create found");
    anyhow::ensure!(read >= created, "compared at {read}, after a write at {created}");
    Ok(())
}

async fn an_update_needs_the_newest_revision(stage: &Stage) -> Verdict {
    let first = put(&stage.here, stage.key("a"), "1").await?;
    let second = write(&stage.there, Transaction::update(stage.key("a"), first, "2")).await?;
    anyhow::ensure!(second > first, "an update at {second} after {first}");
    let (current, _) = conflict(&stage.here, Transaction::update(stage.key("a"), first, "3")).await?;
    ensure_equal!(values(&current), [Some(("2", second))], "what the stale update found");
    let (current, _) = conflict(&stage.here, Transaction::update(stage.key("missing"), first, "3")).await?;
    ensure_equal!(current, [None], "what an update of a missing key found");
    Ok(())
}

async fn a_delete_needs_the_newest_revision(stage: &Stage) -> Verdict {
    let first = put(&stage.here, stage.key("a"), "1").await?;
    let second = put(&stage.here, stage.key("a"), "2").await?;
    let (current, _) = conflict(&stage.there, Transaction::delete(stage.key("a"), first)).await?;
    ensure_equal!(values(&current), [Some(("2", second))], "what the stale delete found");
    let deleted = write(&stage.there, Transaction::delete(stage.key("a"), second)).await?;
    anyhow::ensure!(deleted > second, "a delete at {deleted} after {second}");
    ensure_equal!(get(&stage.here, stage.key("a")).await?.0, None, "a deleted key");
    Ok(())
}

async fn a_key_created_again_is_another_one(stage: &Stage) -> Verdict {
    let first = put(&stage.here, stage.key("a"), "1").await?;
    remove(&stage.here, stage.key("a")).await?;
    let second = write(&stage.there, Transaction::create(stage.key("a"), "2")).await?;
    let (current, _) = conflict(&stage.here, Transaction::update(stage.key("a"), first, "3")).await?;
    ensure_equal!(values(&current), [Some(("2", second))], "what the holder of the old revision found");
    Ok(())
}

async fn removing_an_absent_key_changes_nothing(stage: &Stage) -> Verdict {
    let before = put(&stage.here, stage.key("a"), "1").await?;
    let removed = remove(&stage.there, stage.key("missing")).await?;
    anyhow::ensure!(removed >= before, "nothing was removed at {removed}, after a write at {before}");
    let mixed = vec![Op::Delete { key: stage.key("missing") }, put_op(stage.key("b"), "2")];
    let written = write(&stage.there, mixed.into_transaction()).await?;
    let page = range(&stage.here, Range::prefix(stage.prefix())).await?;
    let found: Vec<_> = page.entries.into_iter().map(|entry| (entry.key, entry.revision)).collect();
    ensure_equal!(found, [(stage.key("a"), before), (stage.key("b"), written)], "what is there afterwards");
    Ok(())
}

async fn all_changes_happen_at_one_revision(stage: &Stage) -> Verdict {
    let before = put(&stage.here, stage.key("c"), "old").await?;
    let transaction = Transaction {
        compares: vec![present("c", before, stage), absent("a", stage)],
        ops: vec![
            put_op(stage.key("b"), "1"),
            put_op(stage.key("a"), "2"),
            Op::Delete { key: stage.key("c") },
            put_op(stage.key("d"), "3"),
        ],
    };
    let written = write(&stage.there, transaction).await?;
    let page = range(&stage.here, Range::prefix(stage.prefix())).await?;
    let found: Vec<_> = page.entries.into_iter().map(|entry| (entry.key, entry.value, entry.revision)).collect();
    let expected = [("a", "2"), ("b", "1"), ("d", "3")].map(|(key, value)| (stage.key(key), value.into(), written));
    ensure_equal!(found, expected, "what the transaction left");
    Ok(())
}

async fn a_conflict_changes_nothing(stage: &Stage) -> Verdict {
    let kept = put(&stage.here, stage.key("kept"), "1").await?;
    // One comparison of three fails, in every position.
    for position in 0..3 {
        let mut compares = vec![present("kept", kept, stage), absent("x", stage)];
        compares.insert(position, present("kept", Revision(kept.0 - 1), stage));
        let ops =
            vec![put_op(stage.key("x"), "half"), Op::Delete { key: stage.key("kept") }, put_op(stage.key("y"), "half")];
        conflict(&stage.there, Transaction { compares, ops }).await?;
    }
    let page = range(&stage.here, Range::prefix(stage.prefix())).await?;
    let found: Vec<_> = page.entries.into_iter().map(|entry| (entry.key, entry.revision)).collect();
    ensure_equal!(found, [(stage.key("kept"), kept)], "what is there after conflicts");
    Ok(())
}

async fn a_conflict_tells_the_current_values_in_order(stage: &Stage) -> Verdict {
    let b = put(&stage.here, stage.key("b"), "vb").await?;
    let a = put(&stage.here, stage.key("a"), "va").await?;
    let compares = vec![
        present("b", b, stage),
        absent("missing", stage),
        absent("a", stage),
        present("b", Revision(b.0 - 1), stage),
    ];
    let ops = vec![put_op(stage.key("c"), "1")];
    let (current, _) = conflict(&stage.there, Transaction { compares, ops }).await?;
    let expected = [Some(("vb", b)), None, Some(("va", a)), Some(("vb", b))];
    ensure_equal!(values(&current), expected, "current values, in the order of the comparisons");
    Ok(())
}

async fn unchanged_keys_can_be_compared(stage: &Stage) -> Verdict {
    let guard = put(&stage.here, stage.key("guard"), "1").await?;
    let guarded = |seen, value: &'static str| Transaction {
        compares: vec![present("guard", seen, stage)],
        ops: vec![put_op(stage.key("a"), value)],
    };
    write(&stage.there, guarded(guard, "1")).await?;
    put(&stage.here, stage.key("guard"), "2").await?;
    conflict(&stage.there, guarded(guard, "2")).await?;
    let (entry, _) = get(&stage.here, stage.key("a")).await?;
    ensure_equal!(entry.map(|entry| entry.value), Some("1".into()), "a key behind a guard that changed");
    Ok(())
}

async fn a_transaction_may_change_many_keys(stage: &Stage) -> Verdict {
    let names: Vec<_> = (0..100).map(|index| format!("{index:03}")).collect();
    let compares: Vec<_> = names.iter().map(|name| absent(name, stage)).collect();
    let ops: Vec<_> = names.iter().map(|name| put_op(stage.key(name), name.clone())).collect();
    let written = write(&stage.here, Transaction { compares, ops }).await?;
    let page = range(&stage.there, Range::prefix(stage.prefix())).await?;
    ensure_equal!(page.count, 100, "the keys of one transaction");
    anyhow::ensure!(page.entries.iter().all(|entry| entry.revision == written), "they are not of one revision");
    Ok(())
}

async fn malformed_transactions_are_refused(stage: &Stage) -> Verdict {
    let a = || stage.key("a");
    let empty = Key::new;
    let cases = [
        ("no operations", Transaction { compares: vec![absent("a", stage)], ops: Vec::new() }),
        ("two puts", vec![put_op(a(), "1"), put_op(a(), "2")].into_transaction()),
        ("a put and a delete", vec![put_op(a(), "1"), Op::Delete { key: a() }].into_transaction()),
        ("two deletes", vec![Op::Delete { key: a() }, Op::Delete { key: a() }].into_transaction()),
        ("a time to live of zero", put_op(a(), "1").into_transaction().with_ttl(Duration::ZERO)),
        ("an empty key put", put_op(empty(), "1").into_transaction()),
        ("an empty key removed", Op::Delete { key: empty() }.into_transaction()),
        (
            "an empty key compared",
            Transaction { compares: vec![Compare { key: empty(), revision: None }], ops: vec![put_op(a(), "1")] },
        ),
    ];
    for (what, transaction) in cases {
        let result = within(what, stage.here.commit(transaction)).await?;
        anyhow::ensure!(matches!(result, Err(Error::Malformed { .. })), "{what}: {result:?}");
    }
    let result = within("get", stage.here.get(empty())).await?;
    anyhow::ensure!(matches!(result, Err(Error::Malformed { .. })), "an empty key read: {result:?}");
    ensure_equal!(get(&stage.there, a()).await?.0, None, "what malformed transactions left");
    Ok(())
}

async fn oversized_transactions_are_refused(stage: &Stage) -> Verdict {
    let value = vec![b'x'; stage.oversized];
    let ops = vec![put_op(stage.key("small"), "1"), put_op(stage.key("large"), value)];
    let result = within("an oversized commit", stage.here.commit(ops.into_transaction())).await?;
    anyhow::ensure!(matches!(result, Err(Error::TooLarge { .. })), "it ended as {result:?}");
    ensure_equal!(range(&stage.there, Range::prefix(stage.prefix())).await?.count, 0, "what it left");
    // The refusal harms nothing that comes after it.
    put(&stage.here, stage.key("small"), "1").await?;
    Ok(())
}

async fn concurrent_increments_are_all_counted(stage: &Stage) -> Verdict {
    const TASKS: usize = 8;
    const INCREMENTS: u64 = 10;
    let started = put(&stage.here, stage.key("a"), "0").await?;
    let clients = [&stage.here, &stage.there];
    let counted = (0..TASKS).map(|task| increment(clients[task % 2], stage.key("a"), started, INCREMENTS));
    try_join_all(counted).await?;
    let (entry, _) = get(&stage.here, stage.key("a")).await?;
    let total = format!("{}", TASKS as u64 * INCREMENTS);
    ensure_equal!(entry.map(|entry| entry.value), Some(total.into()), "the sum of all increments");
    Ok(())
}

/// Adds one, `times` times, by reading what a conflict found and trying again.
async fn increment(store: &Arc<dyn Store>, key: Key, started: Revision, times: u64) -> anyhow::Result<()> {
    let (mut seen, mut value) = (started, 0_u64);
    let mut left = times;
    while left > 0 {
        let update = Transaction::update(key.clone(), seen, (value + 1).to_string());
        match commit(store, update).await? {
            Outcome::Committed(revision) => (seen, value, left) = (revision, value + 1, left - 1),
            Outcome::Conflict { current, .. } => {
                let entry = current.into_iter().flatten().next().expect("nobody removes the counter");
                (seen, value) = (entry.revision, std::str::from_utf8(&entry.value)?.parse()?);
            }
        }
    }
    Ok(())
}

fn present(name: &str, revision: Revision, stage: &Stage) -> Compare {
    Compare { key: stage.key(name), revision: Some(revision) }
}

fn absent(name: &str, stage: &Stage) -> Compare {
    Compare { key: stage.key(name), revision: None }
}

fn values(current: &[Option<Entry>]) -> Vec<Option<(&str, Revision)>> {
    fn value(entry: &Entry) -> (&str, Revision) {
        (std::str::from_utf8(&entry.value).unwrap_or("not text"), entry.revision)
    }
    current.iter().map(|entry| entry.as_ref().map(value)).collect()
}
