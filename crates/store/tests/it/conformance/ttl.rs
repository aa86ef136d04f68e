//! Checks of keys with a time to live.
//!
//! These checks measure time only by the store itself: a short-lived key is the clock, and its deletion a tick. A slow
//! machine makes ticks longer, which can weaken a check but never makes it fail.

use std::time::Duration;

use store::{Key, KeyRange, Op, Revision, StoreEvent, Transaction, TransactionOutcome, Watch};
use tokio::time::Instant;

use super::check_fixture::{
    CheckFixture, IntoTransaction, commit, commit_ok, ensure_equal, get, next_batch, put, put_op, range, remove,
    revision, watch,
};
use super::{Check, CheckResult, checks};

/// The shortest lease that etcd grants with its default election timeout.
const TICK: Duration = Duration::from_secs(2);

pub(crate) const CHECKS: &[Check] = checks![
    expired_key_is_deleted_with_an_event,
    all_keys_of_a_transaction_expire,
    expired_key_can_be_created_again,
    put_with_ttl_renews_the_deadline,
    put_without_ttl_removes_the_deadline,
    recreated_key_does_not_inherit_ttl,
    ttl_is_rounded_up_to_whole_seconds,
];

fn put_with_ttl(key: Key, value: &'static str, ttl: Duration) -> Transaction {
    Op::Put { key, value: value.into(), ttl: Some(ttl) }.into_transaction()
}

/// Reads until `key` is deleted, ignoring other events.
async fn wait_for_delete(watch: &mut Watch, key: &Key) -> anyhow::Result<Revision> {
    loop {
        let events = next_batch(watch).await?.events;
        if let Some(StoreEvent::Delete { revision, .. }) =
            events.into_iter().find(|event| event.key() == key && matches!(event, StoreEvent::Delete { .. }))
        {
            return Ok(revision);
        }
    }
}

/// Waits until a key that is put now has expired.
async fn wait_one_tick(stage: &CheckFixture, name: &str) -> CheckResult {
    let key = stage.key(name);
    let mut watch = stage.watch_from_now().await?;
    commit_ok(&stage.other_client, put_with_ttl(key.clone(), "tick", TICK)).await?;
    wait_for_delete(&mut watch, &key).await?;
    Ok(())
}

async fn expired_key_is_deleted_with_an_event(stage: &CheckFixture) -> CheckResult {
    let key = stage.key("a");
    let from = revision(&stage.client).await?.next();
    let mut here = watch(&stage.client, stage.prefix(), from).await?;
    let mut there = watch(&stage.other_client, stage.prefix(), from).await?;
    let began = Instant::now();
    let written = commit_ok(&stage.client, put_with_ttl(key.clone(), "1", TICK)).await?;
    let removed = wait_for_delete(&mut here, &key).await?;
    let lived = began.elapsed();
    anyhow::ensure!(lived >= TICK, "it lived {lived:?} instead of {TICK:?}");
    anyhow::ensure!(removed > written, "removed at {removed}, written at {written}");
    ensure_equal!(wait_for_delete(&mut there, &key).await?, removed, "the deletion as the other client saw it");
    ensure_equal!(get(&stage.other_client, key.clone()).await?.0, None, "an expired key");
    let before =
        range(&stage.other_client, KeyRange::prefix(stage.prefix()).at_revision(Revision(removed.0 - 1))).await?;
    ensure_equal!(before.count, 1, "the state before it expired");
    // There was a single deletion: a later write is the next event.
    let later = put(&stage.client, key, "2").await?;
    ensure_equal!(next_batch(&mut here).await?.events.first().map(StoreEvent::revision), Some(later), "the next event");
    Ok(())
}

async fn all_keys_of_a_transaction_expire(stage: &CheckFixture) -> CheckResult {
    let mut watch = stage.watch_from_now().await?;
    let names: Vec<_> = (0..5).map(|index| stage.key(format!("{index}"))).collect();
    let ops: Vec<_> = names.iter().map(|key| put_op(key.clone(), "1")).collect();
    commit_ok(&stage.client, ops.into_transaction().with_ttl(TICK)).await?;
    put(&stage.client, stage.key("stays"), "1").await?;
    let mut removed = Vec::new();
    while removed.len() < names.len() {
        let deletes =
            next_batch(&mut watch).await?.events.into_iter().filter(|e| matches!(e, StoreEvent::Delete { .. }));
        removed.extend(deletes.map(|event| event.key().clone()));
    }
    removed.sort();
    ensure_equal!(removed, names, "the expired keys");
    let left = range(&stage.other_client, KeyRange::prefix(stage.prefix())).await?;
    ensure_equal!(left.entries.len(), 1, "the remaining keys");
    Ok(())
}

async fn expired_key_can_be_created_again(stage: &CheckFixture) -> CheckResult {
    let key = stage.key("a");
    let mut watch = stage.watch_from_now().await?;
    let first = commit_ok(&stage.client, put_with_ttl(key.clone(), "1", TICK)).await?;
    let removed = wait_for_delete(&mut watch, &key).await?;
    let stale = commit(&stage.client, Transaction::update(key.clone(), first, "2")).await?;
    anyhow::ensure!(matches!(stale, TransactionOutcome::Conflict { .. }), "an expired key was updated: {stale:?}");
    let created = commit_ok(&stage.other_client, Transaction::create(key, "3")).await?;
    anyhow::ensure!(created > removed, "created at {created}, removed at {removed}");
    Ok(())
}

async fn put_with_ttl_renews_the_deadline(stage: &CheckFixture) -> CheckResult {
    // The time to live is two ticks, renewed at each of five: the key survives only if renewals count.
    let ttl = TICK * 2;
    let key = stage.key("renewed");
    let mut renewed_at = Instant::now();
    let mut seen = commit_ok(&stage.client, Transaction::create(key.clone(), "0").with_ttl(ttl)).await?;
    for round in 0..5 {
        wait_one_tick(stage, &format!("clock {round}")).await?;
        let renewing_at = Instant::now();
        let renewal = Transaction::update(key.clone(), seen, format!("{round}")).with_ttl(ttl);
        match commit(&stage.client, renewal).await? {
            TransactionOutcome::Committed(revision) => (seen, renewed_at) = (revision, renewing_at),
            TransactionOutcome::Conflict { .. } => {
                let age = renewed_at.elapsed();
                anyhow::ensure!(age >= ttl, "it expired {age:?} after a renewal for {ttl:?}");
                return Ok(());
            }
        }
    }
    // Without renewals it expires.
    let mut watch = watch(&stage.other_client, stage.prefix(), seen.next()).await?;
    wait_for_delete(&mut watch, &key).await?;
    let age = renewed_at.elapsed();
    anyhow::ensure!(age >= ttl, "it expired {age:?} after the last renewal for {ttl:?}");
    Ok(())
}

/// Checks that `key` is unchanged two ticks from now.
async fn check_stays(stage: &CheckFixture, key: Key, written: Revision) -> CheckResult {
    wait_one_tick(stage, "clock 1").await?;
    wait_one_tick(stage, "clock 2").await?;
    let (entry, _) = get(&stage.other_client, key).await?;
    ensure_equal!(entry.map(|entry| entry.revision), Some(written), "a key without a time to live");
    Ok(())
}

async fn put_without_ttl_removes_the_deadline(stage: &CheckFixture) -> CheckResult {
    let key = stage.key("a");
    commit_ok(&stage.client, put_with_ttl(key.clone(), "1", TICK)).await?;
    let written = put(&stage.other_client, key.clone(), "2").await?;
    check_stays(stage, key, written).await
}

async fn recreated_key_does_not_inherit_ttl(stage: &CheckFixture) -> CheckResult {
    let key = stage.key("a");
    commit_ok(&stage.client, put_with_ttl(key.clone(), "1", TICK)).await?;
    remove(&stage.other_client, key.clone()).await?;
    let written = commit_ok(&stage.other_client, Transaction::create(key.clone(), "2")).await?;
    check_stays(stage, key, written).await
}

async fn ttl_is_rounded_up_to_whole_seconds(stage: &CheckFixture) -> CheckResult {
    let key = stage.key("a");
    let mut watch = stage.watch_from_now().await?;
    let began = Instant::now();
    let written = commit_ok(&stage.client, put_with_ttl(key.clone(), "1", TICK + Duration::from_millis(1))).await?;
    let removed = wait_for_delete(&mut watch, &key).await?;
    let lived = began.elapsed();
    let whole = TICK + Duration::from_secs(1);
    anyhow::ensure!(lived >= whole, "it lived {lived:?} instead of {whole:?}");
    anyhow::ensure!(removed > written, "removed at {removed}, written at {written}");
    Ok(())
}
