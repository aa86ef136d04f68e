//! Keys that go away on their own.
//!
//! Time passes for these checks only as the store shows it: a short-lived key is the clock, and its removal a tick. A
//! loaded machine makes ticks longer, which can make a check see less, and never makes it fail.

use std::time::Duration;

use store::{Event, Key, Op, Outcome, Range, Revision, Transaction, Watch};
use tokio::time::Instant;

use super::stage::{
    IntoTransaction, Stage, commit, ensure_equal, get, next_batch, put, put_op, range, remove, revision, watch, write,
};
use super::{Check, Verdict, checks};

/// The shortest that etcd grants with its usual election timeout.
const TICK: Duration = Duration::from_secs(2);

pub(crate) const CHECKS: &[Check] = checks![
    a_key_expires_and_watchers_see_it,
    keys_of_one_transaction_all_expire,
    an_expired_key_can_be_created_again,
    a_renewal_extends_the_time,
    a_put_without_ttl_makes_a_key_stay,
    a_key_created_again_does_not_inherit_the_ttl,
    fractions_of_a_second_are_rounded_up,
];

fn put_with_ttl(key: Key, value: &'static str, ttl: Duration) -> Transaction {
    Op::Put { key, value: value.into(), ttl: Some(ttl) }.into_transaction()
}

/// Reads until `key` is removed; events of other keys are passed by.
async fn removal(watch: &mut Watch, key: &Key) -> anyhow::Result<Revision> {
    loop {
        let events = next_batch(watch).await?.events;
        if let Some(Event::Delete { revision, .. }) =
            events.into_iter().find(|event| event.key() == key && matches!(event, Event::Delete { .. }))
        {
            return Ok(revision);
        }
    }
}

/// Waits until a key that is put now has expired.
async fn tick(stage: &Stage, name: &str) -> Verdict {
    let key = stage.key(name);
    let mut watch = stage.watch_from_now().await?;
    write(&stage.there, put_with_ttl(key.clone(), "tick", TICK)).await?;
    removal(&mut watch, &key).await?;
    Ok(())
}

async fn a_key_expires_and_watchers_see_it(stage: &Stage) -> Verdict {
    let key = stage.key("a");
    let from = revision(&stage.here).await?.next();
    let mut here = watch(&stage.here, stage.prefix(), from).await?;
    let mut there = watch(&stage.there, stage.prefix(), from).await?;
    let began = Instant::now();
    let written = write(&stage.here, put_with_ttl(key.clone(), "1", TICK)).await?;
    let removed = removal(&mut here, &key).await?;
    let lived = began.elapsed();
    anyhow::ensure!(lived >= TICK, "it lived {lived:?}, and was to live {TICK:?}");
    anyhow::ensure!(removed > written, "removed at {removed}, written at {written}");
    ensure_equal!(removal(&mut there, &key).await?, removed, "the removal as the other client saw it");
    ensure_equal!(get(&stage.there, key.clone()).await?.0, None, "an expired key");
    let before = range(&stage.there, Range::prefix(stage.prefix()).at(Revision(removed.0 - 1))).await?;
    ensure_equal!(before.count, 1, "the state before it expired");
    // It was one removal: a later write is the next event.
    let later = put(&stage.here, key, "2").await?;
    ensure_equal!(next_batch(&mut here).await?.events.first().map(Event::revision), Some(later), "the next event");
    Ok(())
}

async fn keys_of_one_transaction_all_expire(stage: &Stage) -> Verdict {
    let mut watch = stage.watch_from_now().await?;
    let names: Vec<_> = (0..5).map(|index| stage.key(format!("{index}"))).collect();
    let ops: Vec<_> = names.iter().map(|key| put_op(key.clone(), "1")).collect();
    write(&stage.here, ops.into_transaction().with_ttl(TICK)).await?;
    put(&stage.here, stage.key("stays"), "1").await?;
    let mut removed = Vec::new();
    while removed.len() < names.len() {
        let deletes = next_batch(&mut watch).await?.events.into_iter().filter(|e| matches!(e, Event::Delete { .. }));
        removed.extend(deletes.map(|event| event.key().clone()));
    }
    removed.sort();
    ensure_equal!(removed, names, "what expired");
    let left = range(&stage.there, Range::prefix(stage.prefix())).await?;
    ensure_equal!(left.entries.len(), 1, "what stays");
    Ok(())
}

async fn an_expired_key_can_be_created_again(stage: &Stage) -> Verdict {
    let key = stage.key("a");
    let mut watch = stage.watch_from_now().await?;
    let first = write(&stage.here, put_with_ttl(key.clone(), "1", TICK)).await?;
    let removed = removal(&mut watch, &key).await?;
    let stale = commit(&stage.here, Transaction::update(key.clone(), first, "2")).await?;
    anyhow::ensure!(matches!(stale, Outcome::Conflict { .. }), "an expired key was updated: {stale:?}");
    let created = write(&stage.there, Transaction::create(key, "3")).await?;
    anyhow::ensure!(created > removed, "created at {created}, removed at {removed}");
    Ok(())
}

async fn a_renewal_extends_the_time(stage: &Stage) -> Verdict {
    // Two ticks long, renewed at each of five: it lives only if renewals count.
    let ttl = TICK * 2;
    let key = stage.key("renewed");
    let mut renewed_at = Instant::now();
    let mut seen = write(&stage.here, Transaction::create(key.clone(), "0").with_ttl(ttl)).await?;
    for round in 0..5 {
        tick(stage, &format!("clock {round}")).await?;
        let renewing_at = Instant::now();
        let renewal = Transaction::update(key.clone(), seen, format!("{round}")).with_ttl(ttl);
        match commit(&stage.here, renewal).await? {
            Outcome::Committed(revision) => (seen, renewed_at) = (revision, renewing_at),
            Outcome::Conflict { .. } => {
                let age = renewed_at.elapsed();
                anyhow::ensure!(age >= ttl, "it was gone {age:?} after a renewal for {ttl:?}");
                return Ok(());
            }
        }
    }
    // Without renewals it goes.
    let mut watch = watch(&stage.there, stage.prefix(), seen.next()).await?;
    removal(&mut watch, &key).await?;
    let age = renewed_at.elapsed();
    anyhow::ensure!(age >= ttl, "it went {age:?} after a renewal for {ttl:?}");
    Ok(())
}

/// Checks that `key` is as it was written, two ticks from now.
async fn check_stays(stage: &Stage, key: Key, written: Revision) -> Verdict {
    tick(stage, "clock 1").await?;
    tick(stage, "clock 2").await?;
    let (entry, _) = get(&stage.there, key).await?;
    ensure_equal!(entry.map(|entry| entry.revision), Some(written), "a key without a time to live");
    Ok(())
}

async fn a_put_without_ttl_makes_a_key_stay(stage: &Stage) -> Verdict {
    let key = stage.key("a");
    write(&stage.here, put_with_ttl(key.clone(), "1", TICK)).await?;
    let written = put(&stage.there, key.clone(), "2").await?;
    check_stays(stage, key, written).await
}

async fn a_key_created_again_does_not_inherit_the_ttl(stage: &Stage) -> Verdict {
    let key = stage.key("a");
    write(&stage.here, put_with_ttl(key.clone(), "1", TICK)).await?;
    remove(&stage.there, key.clone()).await?;
    let written = write(&stage.there, Transaction::create(key.clone(), "2")).await?;
    check_stays(stage, key, written).await
}

async fn fractions_of_a_second_are_rounded_up(stage: &Stage) -> Verdict {
    let key = stage.key("a");
    let mut watch = stage.watch_from_now().await?;
    let began = Instant::now();
    let written = write(&stage.here, put_with_ttl(key.clone(), "1", TICK + Duration::from_millis(1))).await?;
    let removed = removal(&mut watch, &key).await?;
    let lived = began.elapsed();
    let whole = TICK + Duration::from_secs(1);
    anyhow::ensure!(lived >= whole, "it lived {lived:?}, and was to live {whole:?}");
    anyhow::ensure!(removed > written, "removed at {removed}, written at {written}");
    Ok(())
}
