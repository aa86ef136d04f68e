//! Checks of transactions: comparisons and changes are one atomic step.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::try_join_all;
use store::{Compare, Error, Key, KeyRange, Op, Revision, Store, StoreEntry, Transaction, TransactionOutcome};

use super::check_fixture::{
    CheckFixture, IntoTransaction, commit, commit_conflict, commit_ok, ensure_equal, get, put, put_op, range, remove,
    with_timeout,
};
use super::{Check, CheckResult, checks};

pub(crate) const CHECKS: &[Check] = checks![
    create_fails_if_key_exists,
    update_requires_newest_revision,
    delete_requires_newest_revision,
    recreated_key_conflicts_with_old_revision,
    delete_of_absent_key_changes_nothing,
    transaction_changes_share_one_revision,
    conflict_changes_nothing,
    conflict_returns_current_values_in_order,
    compare_works_on_keys_not_written,
    transaction_can_change_many_keys,
    malformed_transactions_are_rejected,
    oversized_transactions_are_rejected,
    concurrent_increments_lose_no_update,
];

async fn create_fails_if_key_exists(stage: &CheckFixture) -> CheckResult {
    let created = commit_ok(&stage.client, Transaction::create(stage.key("a"), "1")).await?;
    let (current, read) = commit_conflict(&stage.other_client, Transaction::create(stage.key("a"), "2")).await?;
    let expected = StoreEntry { key: stage.key("a"), value: "1".into(), revision: created };
    ensure_equal!(current, [Some(expected)], "what the second create found");
    anyhow::ensure!(read >= created, "compared at {read}, after a write at {created}");
    Ok(())
}

async fn update_requires_newest_revision(stage: &CheckFixture) -> CheckResult {
    let first = put(&stage.client, stage.key("a"), "1").await?;
    let second = commit_ok(&stage.other_client, Transaction::update(stage.key("a"), first, "2")).await?;
    anyhow::ensure!(second > first, "an update at {second} after {first}");
    let (current, _) = commit_conflict(&stage.client, Transaction::update(stage.key("a"), first, "3")).await?;
    ensure_equal!(values(&current), [Some(("2", second))], "what the stale update found");
    let (current, _) = commit_conflict(&stage.client, Transaction::update(stage.key("missing"), first, "3")).await?;
    ensure_equal!(current, [None], "what an update of a missing key found");
    Ok(())
}

async fn delete_requires_newest_revision(stage: &CheckFixture) -> CheckResult {
    let first = put(&stage.client, stage.key("a"), "1").await?;
    let second = put(&stage.client, stage.key("a"), "2").await?;
    let (current, _) = commit_conflict(&stage.other_client, Transaction::delete(stage.key("a"), first)).await?;
    ensure_equal!(values(&current), [Some(("2", second))], "what the stale delete found");
    let deleted = commit_ok(&stage.other_client, Transaction::delete(stage.key("a"), second)).await?;
    anyhow::ensure!(deleted > second, "a delete at {deleted} after {second}");
    ensure_equal!(get(&stage.client, stage.key("a")).await?.0, None, "a deleted key");
    Ok(())
}

async fn recreated_key_conflicts_with_old_revision(stage: &CheckFixture) -> CheckResult {
    let first = put(&stage.client, stage.key("a"), "1").await?;
    remove(&stage.client, stage.key("a")).await?;
    let second = commit_ok(&stage.other_client, Transaction::create(stage.key("a"), "2")).await?;
    let (current, _) = commit_conflict(&stage.client, Transaction::update(stage.key("a"), first, "3")).await?;
    ensure_equal!(values(&current), [Some(("2", second))], "what the holder of the old revision found");
    Ok(())
}

async fn delete_of_absent_key_changes_nothing(stage: &CheckFixture) -> CheckResult {
    let before = put(&stage.client, stage.key("a"), "1").await?;
    let removed = remove(&stage.other_client, stage.key("missing")).await?;
    anyhow::ensure!(removed >= before, "nothing was removed at {removed}, after a write at {before}");
    let mixed = vec![Op::Delete { key: stage.key("missing") }, put_op(stage.key("b"), "2")];
    let written = commit_ok(&stage.other_client, mixed.into_transaction()).await?;
    let page = range(&stage.client, KeyRange::prefix(stage.prefix())).await?;
    let found: Vec<_> = page.entries.into_iter().map(|entry| (entry.key, entry.revision)).collect();
    ensure_equal!(found, [(stage.key("a"), before), (stage.key("b"), written)], "the keys afterwards");
    Ok(())
}

async fn transaction_changes_share_one_revision(stage: &CheckFixture) -> CheckResult {
    let before = put(&stage.client, stage.key("c"), "old").await?;
    let transaction = Transaction {
        compares: vec![compare_present("c", before, stage), compare_absent("a", stage)],
        ops: vec![
            put_op(stage.key("b"), "1"),
            put_op(stage.key("a"), "2"),
            Op::Delete { key: stage.key("c") },
            put_op(stage.key("d"), "3"),
        ],
    };
    let written = commit_ok(&stage.other_client, transaction).await?;
    let page = range(&stage.client, KeyRange::prefix(stage.prefix())).await?;
    let found: Vec<_> = page.entries.into_iter().map(|entry| (entry.key, entry.value, entry.revision)).collect();
    let expected = [("a", "2"), ("b", "1"), ("d", "3")].map(|(key, value)| (stage.key(key), value.into(), written));
    ensure_equal!(found, expected, "the state after the transaction");
    Ok(())
}

async fn conflict_changes_nothing(stage: &CheckFixture) -> CheckResult {
    let kept = put(&stage.client, stage.key("kept"), "1").await?;
    // One comparison of three fails, in each position.
    for position in 0..3 {
        let mut compares = vec![compare_present("kept", kept, stage), compare_absent("x", stage)];
        compares.insert(position, compare_present("kept", Revision(kept.0 - 1), stage));
        let ops =
            vec![put_op(stage.key("x"), "half"), Op::Delete { key: stage.key("kept") }, put_op(stage.key("y"), "half")];
        commit_conflict(&stage.other_client, Transaction { compares, ops }).await?;
    }
    let page = range(&stage.client, KeyRange::prefix(stage.prefix())).await?;
    let found: Vec<_> = page.entries.into_iter().map(|entry| (entry.key, entry.revision)).collect();
    ensure_equal!(found, [(stage.key("kept"), kept)], "the state after conflicts");
    Ok(())
}

async fn conflict_returns_current_values_in_order(stage: &CheckFixture) -> CheckResult {
    let b = put(&stage.client, stage.key("b"), "vb").await?;
    let a = put(&stage.client, stage.key("a"), "va").await?;
    let compares = vec![
        compare_present("b", b, stage),
        compare_absent("missing", stage),
        compare_absent("a", stage),
        compare_present("b", Revision(b.0 - 1), stage),
    ];
    let ops = vec![put_op(stage.key("c"), "1")];
    let (current, _) = commit_conflict(&stage.other_client, Transaction { compares, ops }).await?;
    let expected = [Some(("vb", b)), None, Some(("va", a)), Some(("vb", b))];
    ensure_equal!(values(&current), expected, "current values, in the order of the comparisons");
    Ok(())
}

async fn compare_works_on_keys_not_written(stage: &CheckFixture) -> CheckResult {
    let guard = put(&stage.client, stage.key("guard"), "1").await?;
    let guarded = |seen, value: &'static str| Transaction {
        compares: vec![compare_present("guard", seen, stage)],
        ops: vec![put_op(stage.key("a"), value)],
    };
    commit_ok(&stage.other_client, guarded(guard, "1")).await?;
    put(&stage.client, stage.key("guard"), "2").await?;
    commit_conflict(&stage.other_client, guarded(guard, "2")).await?;
    let (entry, _) = get(&stage.client, stage.key("a")).await?;
    ensure_equal!(entry.map(|entry| entry.value), Some("1".into()), "a key behind a guard that changed");
    Ok(())
}

async fn transaction_can_change_many_keys(stage: &CheckFixture) -> CheckResult {
    let names: Vec<_> = (0..100).map(|index| format!("{index:03}")).collect();
    let compares: Vec<_> = names.iter().map(|name| compare_absent(name, stage)).collect();
    let ops: Vec<_> = names.iter().map(|name| put_op(stage.key(name), name.clone())).collect();
    let written = commit_ok(&stage.client, Transaction { compares, ops }).await?;
    let page = range(&stage.other_client, KeyRange::prefix(stage.prefix())).await?;
    ensure_equal!(page.count, 100, "the keys of one transaction");
    anyhow::ensure!(page.entries.iter().all(|entry| entry.revision == written), "the keys have different revisions");
    Ok(())
}

async fn malformed_transactions_are_rejected(stage: &CheckFixture) -> CheckResult {
    let a = || stage.key("a");
    let empty = Key::new;
    let cases = [
        ("no operations", Transaction { compares: vec![compare_absent("a", stage)], ops: Vec::new() }),
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
        let result = with_timeout(what, stage.client.commit(transaction)).await?;
        anyhow::ensure!(matches!(result, Err(Error::Malformed { .. })), "{what}: {result:?}");
    }
    let result = with_timeout("get", stage.client.get(empty())).await?;
    anyhow::ensure!(matches!(result, Err(Error::Malformed { .. })), "an empty key read: {result:?}");
    ensure_equal!(get(&stage.other_client, a()).await?.0, None, "the state after malformed transactions");
    Ok(())
}

async fn oversized_transactions_are_rejected(stage: &CheckFixture) -> CheckResult {
    let value = vec![b'x'; stage.oversized_value_bytes];
    let ops = vec![put_op(stage.key("small"), "1"), put_op(stage.key("large"), value)];
    let result = with_timeout("an oversized commit", stage.client.commit(ops.into_transaction())).await?;
    anyhow::ensure!(matches!(result, Err(Error::TooLarge { .. })), "the oversized commit returned {result:?}");
    ensure_equal!(
        range(&stage.other_client, KeyRange::prefix(stage.prefix())).await?.count,
        0,
        "the state after the oversized commit"
    );
    // The rejection does not affect later requests.
    put(&stage.client, stage.key("small"), "1").await?;
    Ok(())
}

async fn concurrent_increments_lose_no_update(stage: &CheckFixture) -> CheckResult {
    const TASKS: usize = 8;
    const INCREMENTS: u64 = 10;
    let started = put(&stage.client, stage.key("a"), "0").await?;
    let clients = [&stage.client, &stage.other_client];
    let counted = (0..TASKS).map(|task| increment(clients[task % 2], stage.key("a"), started, INCREMENTS));
    try_join_all(counted).await?;
    let (entry, _) = get(&stage.client, stage.key("a")).await?;
    let total = format!("{}", TASKS as u64 * INCREMENTS);
    ensure_equal!(entry.map(|entry| entry.value), Some(total.into()), "the sum of all increments");
    Ok(())
}

/// Increments a counter `times` times, retrying with the value of each conflict.
async fn increment(store: &Arc<dyn Store>, key: Key, started: Revision, times: u64) -> anyhow::Result<()> {
    let (mut seen, mut value) = (started, 0_u64);
    let mut left = times;
    while left > 0 {
        let update = Transaction::update(key.clone(), seen, (value + 1).to_string());
        match commit(store, update).await? {
            TransactionOutcome::Committed(revision) => (seen, value, left) = (revision, value + 1, left - 1),
            TransactionOutcome::Conflict { current, .. } => {
                let entry = current.into_iter().flatten().next().expect("no client deletes the counter");
                (seen, value) = (entry.revision, std::str::from_utf8(&entry.value)?.parse()?);
            }
        }
    }
    Ok(())
}

fn compare_present(name: &str, revision: Revision, stage: &CheckFixture) -> Compare {
    Compare { key: stage.key(name), revision: Some(revision) }
}

fn compare_absent(name: &str, stage: &CheckFixture) -> Compare {
    Compare { key: stage.key(name), revision: None }
}

fn values(current: &[Option<StoreEntry>]) -> Vec<Option<(&str, Revision)>> {
    fn value(entry: &StoreEntry) -> (&str, Revision) {
        (std::str::from_utf8(&entry.value).unwrap_or("not text"), entry.revision)
    }
    current.iter().map(|entry| entry.as_ref().map(value)).collect()
}
