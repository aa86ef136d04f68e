//! Checks of computed values: each is computed from the state on which its transaction is committed.

use std::sync::Arc;

use anyhow::{Context, bail};
use bytes::Bytes;
use futures_util::future::try_join_all;
use parking_lot::Mutex;
use store::{ComputedValues, Error, Key, KeyRange, KeyState, Op, Revision, Store, Transaction, TransactionOutcome};

use super::check_fixture::{CheckFixture, commit_ok, ensure_equal, get, put, put_op, range, remove, with_timeout};
use super::{Check, CheckResult, checks};

pub(crate) const CHECKS: &[Check] = checks![
    concurrent_counts_are_exact,
    refusal_is_about_newest_state,
    condition_that_fails_changes_no_value,
    since_is_the_last_put_of_another_writer,
    absent_keys_are_computed_but_not_put,
    large_transactions_are_committed_once,
];

const WRITERS: usize = 24;
const LIMIT: u64 = 150;

/// Adds one to a counter, up to a limit. A second counter stays.
#[derive(Debug)]
struct Count {
    keys: Vec<Key>,
    limit: u64,
    /// Of every computation.
    since: Mutex<Vec<Revision>>,
}

impl Count {
    fn new(keys: Vec<Key>, limit: u64) -> Arc<Self> {
        Arc::new(Self { keys, limit, since: Mutex::default() })
    }
}

impl ComputedValues for Count {
    fn keys(&self) -> &[Key] {
        &self.keys
    }

    fn compute(&self, current: &[Option<KeyState>]) -> Option<Vec<Option<Bytes>>> {
        let mut values = vec![None; self.keys.len()];
        let Some(state) = &current[0] else { return Some(values) };
        self.since.lock().push(state.since);
        let count = count_in(&state.value).ok().filter(|count| *count < self.limit)?;
        values[0] = Some((count + 1).to_string().into());
        Some(values)
    }
}

fn count_in(value: &[u8]) -> anyhow::Result<u64> {
    Ok(std::str::from_utf8(value)?.parse()?)
}

async fn commit_computed(
    store: &Arc<dyn Store>,
    transaction: Transaction,
    computed: &Arc<Count>,
) -> anyhow::Result<TransactionOutcome> {
    let commit = store.commit_computed(transaction, computed.clone());
    with_timeout("a computed commit", commit).await?.context("a computed commit")
}

/// Two clients, each with many writers, of which a third has a name that is taken.
async fn concurrent_counts_are_exact(stage: &CheckFixture) -> CheckResult {
    let keys = vec![stage.key("counter"), stage.key("untouched")];
    put(&stage.client, keys[0].clone(), "0").await?;
    put(&stage.client, keys[1].clone(), "0").await?;
    put(&stage.client, stage.key("item/taken"), "").await?;
    let writers = (0..WRITERS).map(|writer| {
        let (client, keys) = ([&stage.client, &stage.other_client][writer % 2], keys.clone());
        async move {
            let (mut created, mut conflicts) = (0, 0);
            for number in 0.. {
                let is_taken = number % 3 == 2;
                let name = if is_taken { "item/taken".to_owned() } else { format!("item/{writer}-{number}") };
                let computed = Count::new(keys.clone(), LIMIT);
                match commit_computed(client, Transaction::create(stage.key(name), ""), &computed).await? {
                    TransactionOutcome::Committed(_) if is_taken => bail!("a taken name was created"),
                    TransactionOutcome::Committed(_) => created += 1,
                    TransactionOutcome::Conflict { current, .. } if current[0].is_some() => {
                        anyhow::ensure!(is_taken, "a free name was found taken");
                        conflicts += 1;
                    }
                    TransactionOutcome::Conflict { .. } => return Ok((created, conflicts)),
                }
            }
            bail!("no writer ends without a refusal")
        }
    });
    let done: Vec<(u64, u64)> = try_join_all(writers).await?;
    let created: u64 = done.iter().map(|(created, _)| created).sum();
    let counter = get(&stage.client, keys[0].clone()).await?.0.context("the counter is gone")?;
    let items = range(&stage.other_client, KeyRange::prefix(stage.key("item/"))).await?.count - 1;
    ensure_equal!((created, count_in(&counter.value)?, items), (LIMIT, LIMIT, LIMIT), "created, counted, existing");
    let untouched = get(&stage.client, keys[1].clone()).await?.0.map(|entry| entry.value);
    ensure_equal!(untouched, Some("0".into()), "the key without a computed value");
    Ok(())
}

/// The client remembers states; another one changes the key.
async fn refusal_is_about_newest_state(stage: &CheckFixture) -> CheckResult {
    let keys = vec![stage.key("counter")];
    put(&stage.client, keys[0].clone(), "0").await?;
    let create = |name: &str| Transaction::create(stage.key(name), "");
    let count = |limit| Count::new(keys.clone(), limit);
    let first = commit_computed(&stage.client, create("a"), &count(5)).await?;
    anyhow::ensure!(matches!(first, TransactionOutcome::Committed(_)), "the first count found {first:?}");
    put(&stage.other_client, keys[0].clone(), "5").await?;
    let full = count(5);
    match commit_computed(&stage.client, create("b"), &full).await? {
        TransactionOutcome::Conflict { current, .. } => ensure_equal!(current, [None], "what the refusal found"),
        TransactionOutcome::Committed(at) => bail!("a count above the limit was committed at {at}"),
    }
    let at = put(&stage.other_client, keys[0].clone(), "2").await?;
    let last = count(3);
    let outcome = commit_computed(&stage.client, create("b"), &last).await?;
    anyhow::ensure!(matches!(outcome, TransactionOutcome::Committed(_)), "an old refusal counted: {outcome:?}");
    ensure_equal!(last.since.lock().last(), Some(&at), "the state that the last count was computed from");
    Ok(())
}

async fn condition_that_fails_changes_no_value(stage: &CheckFixture) -> CheckResult {
    let computed = Count::new(vec![stage.key("counter")], 9);
    let before = put(&stage.client, stage.key("counter"), "0").await?;
    let outcome =
        commit_computed(&stage.client, Transaction::update(stage.key("absent"), before, ""), &computed).await?;
    let is_conflict = matches!(&outcome, TransactionOutcome::Conflict { current, .. } if current == &[None]);
    anyhow::ensure!(is_conflict, "an update of an absent key: {outcome:?}");
    let counter = get(&stage.other_client, stage.key("counter")).await?.0.map(|entry| (entry.value, entry.revision));
    ensure_equal!(counter, Some(("0".into(), before)), "the counter");
    Ok(())
}

/// Also if the other writer puts the value that the key had.
async fn since_is_the_last_put_of_another_writer(stage: &CheckFixture) -> CheckResult {
    let keys = vec![stage.key("counter")];
    let mut expected = Vec::new();
    let computed = Count::new(keys.clone(), 99);
    for round in 0..3 {
        let value = round.to_string();
        let at = put(&stage.other_client, keys[0].clone(), value).await?;
        for number in 0..3 {
            let create = Transaction::create(stage.key(format!("{round}-{number}")), "");
            let outcome = commit_computed(&stage.client, create, &computed).await?;
            anyhow::ensure!(matches!(outcome, TransactionOutcome::Committed(_)), "a count found {outcome:?}");
            expected.push(at);
        }
    }
    let mut seen = computed.since.lock().clone();
    seen.dedup();
    expected.dedup();
    ensure_equal!(seen, expected, "the revisions of the puts of the other writer");
    Ok(())
}

async fn absent_keys_are_computed_but_not_put(stage: &CheckFixture) -> CheckResult {
    let absent = Count::new(vec![stage.key("absent")], 9);
    let outcome = commit_computed(&stage.client, Transaction::create(stage.key("a"), ""), &absent).await?;
    anyhow::ensure!(matches!(outcome, TransactionOutcome::Committed(_)), "beside an absent key: {outcome:?}");
    // The key is created and removed by others while the client remembers that it is absent.
    put(&stage.other_client, stage.key("absent"), "1").await?;
    let outcome = commit_computed(&stage.client, Transaction::create(stage.key("b"), ""), &absent).await?;
    anyhow::ensure!(matches!(outcome, TransactionOutcome::Committed(_)), "beside a new key: {outcome:?}");
    ensure_equal!(get(&stage.client, stage.key("absent")).await?.0.map(|entry| entry.value), Some("2".into()), "it");
    remove(&stage.other_client, stage.key("absent")).await?;
    let outcome = commit_computed(&stage.client, Transaction::create(stage.key("c"), ""), &absent).await?;
    anyhow::ensure!(matches!(outcome, TransactionOutcome::Committed(_)), "beside a removed key: {outcome:?}");
    ensure_equal!(get(&stage.client, stage.key("absent")).await?.0, None, "a removed key");

    #[derive(Debug)]
    struct PutsAbsent(Vec<Key>);
    impl ComputedValues for PutsAbsent {
        fn keys(&self) -> &[Key] {
            &self.0
        }
        fn compute(&self, _current: &[Option<KeyState>]) -> Option<Vec<Option<Bytes>>> {
            Some(vec![Some("1".into())])
        }
    }
    let broken = Arc::new(PutsAbsent(vec![stage.key("absent")]));
    let commit = stage.client.commit_computed(Transaction::create(stage.key("d"), ""), broken);
    let error = with_timeout("a broken computation", commit).await?.err();
    anyhow::ensure!(matches!(error, Some(Error::Malformed { .. })), "a value for an absent key: {error:?}");
    ensure_equal!(get(&stage.client, stage.key("d")).await?.0, None, "what was to be committed with it");
    Ok(())
}

/// Their operations must not be repeated for every possible state.
async fn large_transactions_are_committed_once(stage: &CheckFixture) -> CheckResult {
    let keys = vec![stage.key("counter")];
    put(&stage.client, keys[0].clone(), "0").await?;
    let large = Bytes::from(vec![b'x'; 600 << 10]);
    let writers = (0..8).map(|number| {
        let mut transaction = Transaction::create(stage.key(format!("large/{number}")), large.clone());
        if number % 2 == 0 {
            let many = |part| put_op(stage.key(format!("many/{number}-{part}")), "");
            transaction.ops = transaction.ops.into_iter().chain((0..60).map(many)).collect::<Vec<Op>>();
        }
        let computed = Count::new(keys.clone(), 100);
        async move { commit_computed(&stage.client, transaction, &computed).await }
    });
    for outcome in try_join_all(writers).await? {
        anyhow::ensure!(matches!(outcome, TransactionOutcome::Committed(_)), "a large transaction: {outcome:?}");
    }
    let counter = get(&stage.client, keys[0].clone()).await?.0.context("the counter is gone")?;
    ensure_equal!(count_in(&counter.value)?, 8, "the counter");
    // A small one beside them.
    commit_ok(&stage.client, Transaction::create(stage.key("small"), "")).await?;
    Ok(())
}
