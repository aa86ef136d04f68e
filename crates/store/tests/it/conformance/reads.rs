//! Checks of get, range and the current revision.

use futures_util::future::try_join_all;
use store::{Error, KeyRange, Op, Revision};

use super::check_fixture::{
    CheckFixture, IntoTransaction, commit_ok, ensure_equal, get, put, put_op, range, range_error, remove, revision,
};
use super::{Check, CheckResult, checks};

pub(crate) const CHECKS: &[Check] = checks![
    get_of_missing_key_is_none,
    every_client_reads_a_written_key,
    empty_value_is_stored,
    large_value_is_read_back_unchanged,
    range_is_in_byte_order,
    wildcards_in_prefix_are_literal,
    zero_bytes_in_prefix_are_literal,
    prefix_may_end_in_0xff,
    empty_prefix_covers_all_keys,
    limit_truncates_entries_but_not_count,
    start_key_narrows_the_range,
    pages_at_one_revision_show_one_state,
    range_of_many_keys_is_complete,
    range_at_revision_shows_past_state,
    range_at_future_revision_fails,
    revision_covers_every_acknowledged_write,
    revision_covers_writes_under_concurrent_probes,
];

async fn get_of_missing_key_is_none(stage: &CheckFixture) -> CheckResult {
    let before = put(&stage.client, stage.key("other"), "1").await?;
    let (entry, read) = get(&stage.other_client, stage.key("missing")).await?;
    ensure_equal!(entry, None, "a key that was never put");
    anyhow::ensure!(read >= before, "read at {read}, after a write at {before}");
    Ok(())
}

async fn every_client_reads_a_written_key(stage: &CheckFixture) -> CheckResult {
    for round in 0..20 {
        let (writer, reader) =
            if round % 2 == 0 { (&stage.client, &stage.other_client) } else { (&stage.other_client, &stage.client) };
        let value = format!("round {round}");
        let written = put(writer, stage.key("a"), value.clone()).await?;
        let (entry, read) = get(reader, stage.key("a")).await?;
        let entry = entry.map(|entry| (entry.key, entry.value, entry.revision));
        ensure_equal!(entry, Some((stage.key("a"), value.into(), written)), "the entry as the other client reads it");
        anyhow::ensure!(read >= written, "read at {read}, after a write at {written}");
    }
    Ok(())
}

async fn empty_value_is_stored(stage: &CheckFixture) -> CheckResult {
    let written = put(&stage.client, stage.key("a"), "").await?;
    let (entry, _) = get(&stage.other_client, stage.key("a")).await?;
    ensure_equal!(entry.map(|entry| (entry.value, entry.revision)), Some(("".into(), written)), "an empty value");
    Ok(())
}

async fn large_value_is_read_back_unchanged(stage: &CheckFixture) -> CheckResult {
    // 1 MiB: every backend accepts it, since etcd's default limit is 1.5 MiB.
    let value: Vec<u8> = (0..1 << 20).map(|index: u32| (index % 251) as u8).collect();
    put(&stage.client, stage.key("a"), value.clone()).await?;
    let (entry, _) = get(&stage.other_client, stage.key("a")).await?;
    anyhow::ensure!(entry.is_some_and(|entry| entry.value == value), "a value of 1 MiB changed");
    Ok(())
}

/// Puts keys and checks which of them a range over a prefix returns, and in which order.
async fn check_prefix(stage: &CheckFixture, names: &[&[u8]], prefix: &[u8], expected: &[&[u8]]) -> CheckResult {
    let ops = names.iter().map(|name| put_op(stage.key(name), "1")).collect::<Vec<_>>();
    commit_ok(&stage.client, ops.into_transaction()).await?;
    let page = range(&stage.other_client, KeyRange::prefix(stage.key(prefix))).await?;
    let found: Vec<_> = page.entries.into_iter().map(|entry| entry.key).collect();
    let expected: Vec<_> = expected.iter().map(|name| stage.key(name)).collect();
    ensure_equal!(found, expected, "the keys below {:?}", prefix.escape_ascii().to_string());
    ensure_equal!(page.count, expected.len() as u64, "the count of the prefix");
    Ok(())
}

async fn range_is_in_byte_order(stage: &CheckFixture) -> CheckResult {
    let names: [&[u8]; 6] = [b"b", b"a/b", b"a", b"A", b"a0", b"\xc3\xa9"];
    check_prefix(stage, &names, b"", &[b"A", b"a", b"a/b", b"a0", b"b", b"\xc3\xa9"]).await
}

async fn wildcards_in_prefix_are_literal(stage: &CheckFixture) -> CheckResult {
    let names: [&[u8]; 8] = [b"a_b/1", b"axb/1", b"a%b/1", b"ab/1", b"a*b/1", b"a?b/1", b"a\\_b/1", b"A_B/1"];
    check_prefix(stage, &names, b"a_b/", &[b"a_b/1"]).await?;
    check_prefix(stage, &names, b"a%b/", &[b"a%b/1"]).await?;
    check_prefix(stage, &names, b"a*b/", &[b"a*b/1"]).await?;
    check_prefix(stage, &names, b"a\\_b/", &[b"a\\_b/1"]).await
}

async fn zero_bytes_in_prefix_are_literal(stage: &CheckFixture) -> CheckResult {
    let names: [&[u8]; 5] = [b"a", b"a\x00", b"a\x00b", b"a\x00\x00", b"a\x01"];
    check_prefix(stage, &names, b"a", &[b"a", b"a\x00", b"a\x00\x00", b"a\x00b", b"a\x01"]).await?;
    check_prefix(stage, &names, b"a\x00", &[b"a\x00", b"a\x00\x00", b"a\x00b"]).await
}

async fn prefix_may_end_in_0xff(stage: &CheckFixture) -> CheckResult {
    let names: [&[u8]; 5] = [b"a\xfe", b"a\xff", b"a\xff\xff", b"a\xff\xffz", b"b"];
    check_prefix(stage, &names, b"a\xff", &[b"a\xff", b"a\xff\xff", b"a\xff\xffz"]).await?;
    check_prefix(stage, &names, b"a\xff\xff", &[b"a\xff\xff", b"a\xff\xffz"]).await?;
    // A prefix without an upper bound: all its bytes are 0xff.
    let last = [b"\xff\xff".as_slice(), &stage.prefix()].concat();
    put(&stage.client, last.clone().into(), "1").await?;
    let page = range(&stage.other_client, KeyRange::prefix(b"\xff\xff".as_slice())).await?;
    anyhow::ensure!(page.entries.iter().any(|entry| entry.key == last), "{last:?} is not below its own prefix");
    anyhow::ensure!(page.entries.iter().all(|entry| entry.key.starts_with(b"\xff\xff")), "keys outside of the prefix");
    Ok(())
}

async fn empty_prefix_covers_all_keys(stage: &CheckFixture) -> CheckResult {
    put(&stage.client, stage.key("a"), "1").await?;
    let first = range(&stage.other_client, KeyRange::prefix("").limit(1)).await?;
    ensure_equal!(first.entries.len(), 1, "the first of all keys");
    let from_here = range(&stage.other_client, KeyRange::prefix("").start(stage.key("a")).limit(1)).await?;
    ensure_equal!(from_here.entries.first().map(|entry| entry.key.clone()), Some(stage.key("a")), "from a key on");
    Ok(())
}

/// Puts the keys `00`, `01`, ... at one revision.
async fn put_numbered(stage: &CheckFixture, count: usize) -> anyhow::Result<Revision> {
    let ops: Vec<_> = (0..count).map(|index| put_op(stage.key(format!("{index:02}")), format!("{index}"))).collect();
    commit_ok(&stage.client, ops.into_transaction()).await
}

async fn limit_truncates_entries_but_not_count(stage: &CheckFixture) -> CheckResult {
    put_numbered(stage, 5).await?;
    let all = KeyRange::prefix(stage.prefix());
    for (limit, found, has_more) in [(0, 0, true), (1, 1, true), (4, 4, true), (5, 5, false), (6, 5, false)] {
        let page = range(&stage.other_client, all.clone().limit(limit)).await?;
        let facts = (page.entries.len(), page.count, page.has_more());
        ensure_equal!(facts, (found, 5, has_more), "entries, count and has_more with limit {limit}");
    }
    let nothing = range(&stage.other_client, KeyRange::prefix(stage.key("none"))).await?;
    ensure_equal!((nothing.count, nothing.has_more()), (0, false), "a prefix without keys");
    Ok(())
}

async fn start_key_narrows_the_range(stage: &CheckFixture) -> CheckResult {
    put_numbered(stage, 5).await?;
    let all = KeyRange::prefix(stage.prefix());
    let after = |name: &str| stage.key([name.as_bytes(), b"\x00"].concat());
    let cases = [
        (stage.key("03"), 2),
        (after("03"), 1),
        (after("04"), 0),
        (stage.key("\u{7f}"), 0),
        ("".into(), 5),
        ("/".into(), 5),
        ("zzz".into(), 0),
    ];
    for (start, expected) in cases {
        let page = range(&stage.other_client, all.clone().start(start.clone())).await?;
        ensure_equal!((page.entries.len(), page.count), (expected, expected as u64), "from {start:?} on");
    }
    Ok(())
}

async fn pages_at_one_revision_show_one_state(stage: &CheckFixture) -> CheckResult {
    let written = put_numbered(stage, 7).await?;
    let first = range(&stage.other_client, KeyRange::prefix(stage.prefix()).limit(3)).await?;
    let mut found: Vec<_> = first.entries.clone();
    while found.len() < first.count as usize {
        // Concurrent writes must not affect the pages.
        remove(&stage.client, stage.key(format!("{:02}", found.len()))).await?;
        put(&stage.client, stage.key(format!("{:02}x", found.len())), "new").await?;
        let last = found.last().map(|entry| entry.key.clone()).unwrap_or_default();
        let start = [last.as_ref(), b"\x00"].concat();
        let next = KeyRange::prefix(stage.prefix()).start(start).limit(3).at_revision(first.revision);
        let page = range(&stage.other_client, next).await?;
        ensure_equal!(page.revision, first.revision, "the revision of a page");
        ensure_equal!(page.count, 7 - found.len() as u64, "the count from the start key on");
        found.extend(page.entries);
    }
    anyhow::ensure!(found.iter().all(|entry| entry.revision == written), "a page shows another state: {found:?}");
    Ok(())
}

async fn range_of_many_keys_is_complete(stage: &CheckFixture) -> CheckResult {
    const KEYS: usize = 2_500;
    let names: Vec<_> = (0..KEYS).map(|index| stage.key(format!("{index:05}"))).collect();
    for chunk in names.chunks(100) {
        let ops: Vec<_> = chunk.iter().map(|key| put_op(key.clone(), key.clone())).collect();
        commit_ok(&stage.client, ops.into_transaction()).await?;
    }
    let page = range(&stage.other_client, KeyRange::prefix(stage.prefix())).await?;
    ensure_equal!(page.count, KEYS as u64, "the count of many keys");
    anyhow::ensure!(page.entries.iter().map(|entry| &entry.key).eq(&names), "some of many keys are missing");
    anyhow::ensure!(page.entries.iter().all(|entry| entry.key == entry.value), "values of many keys are mixed up");
    let cut = range(&stage.other_client, KeyRange::prefix(stage.prefix()).limit(1_700)).await?;
    ensure_equal!((cut.entries.len(), cut.count), (1_700, KEYS as u64), "many keys, cut by a limit");
    Ok(())
}

async fn range_at_revision_shows_past_state(stage: &CheckFixture) -> CheckResult {
    let first = put(&stage.client, stage.key("a"), "1").await?;
    let second = put(&stage.client, stage.key("a"), "2").await?;
    let third = put(&stage.client, stage.key("b"), "3").await?;
    let fourth = remove(&stage.client, stage.key("a")).await?;
    let fifth = put(&stage.client, stage.key("a"), "5").await?;
    let (a, b) = (|value| (stage.key("a"), value), (stage.key("b"), ("3", third)));
    let states = [
        (first, vec![a(("1", first))]),
        (second, vec![a(("2", second))]),
        (third, vec![a(("2", second)), b.clone()]),
        (fourth, vec![b.clone()]),
        (fifth, vec![a(("5", fifth)), b]),
    ];
    for (at, expected) in states {
        let page = range(&stage.other_client, KeyRange::prefix(stage.prefix()).at_revision(at)).await?;
        let found: Vec<_> = page.entries.into_iter().map(|entry| (entry.key, (entry.value, entry.revision))).collect();
        let expected: Vec<_> = expected.into_iter().map(|(key, (value, at))| (key, (value.into(), at))).collect();
        ensure_equal!(found, expected, "the state at {at}");
        ensure_equal!((page.count, page.revision), (found.len() as u64, at), "count and revision at {at}");
    }
    Ok(())
}

async fn range_at_future_revision_fails(stage: &CheckFixture) -> CheckResult {
    let written = put(&stage.client, stage.key("a"), "1").await?;
    let requested = Revision(written.0 + 1_000_000);
    let error = range_error(&stage.other_client, KeyRange::prefix(stage.prefix()).at_revision(requested)).await?;
    let is_told = matches!(error, Error::FutureRevision { requested: named, current } if named == requested && current >= written);
    anyhow::ensure!(is_told, "a range at {requested} failed with {error:?}");
    Ok(())
}

async fn revision_covers_every_acknowledged_write(stage: &CheckFixture) -> CheckResult {
    let mut newest = Revision(0);
    for round in 0..50 {
        let (writer, reader) =
            if round % 2 == 0 { (&stage.client, &stage.other_client) } else { (&stage.other_client, &stage.client) };
        let transaction = match round % 5 {
            4 => Op::Delete { key: stage.key("a") }.into_transaction(),
            _ => put_op(stage.key("a"), format!("{round}")).into_transaction(),
        };
        let written = commit_ok(writer, transaction).await?;
        anyhow::ensure!(written > newest, "a write at {written} after {newest}");
        newest = revision(reader).await?;
        anyhow::ensure!(newest >= written, "the store is at {newest} after a write at {written}");
        let own = revision(writer).await?;
        anyhow::ensure!(own >= newest, "the revision went back from {newest} to {own}");
        newest = own;
    }
    Ok(())
}

async fn revision_covers_writes_under_concurrent_probes(stage: &CheckFixture) -> CheckResult {
    // A store may serve many callers with one probe, but not with one that began before their writes ended.
    let ask = async |task: usize| -> CheckResult {
        for round in 0..10 {
            let written = put(&stage.client, stage.key(format!("{task}")), format!("{round}")).await?;
            let newest = revision(&stage.client).await?;
            anyhow::ensure!(newest >= written, "the store is at {newest} after a write at {written}");
        }
        Ok(())
    };
    try_join_all((0..16).map(ask)).await?;
    Ok(())
}
