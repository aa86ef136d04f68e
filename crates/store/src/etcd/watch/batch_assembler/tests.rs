use super::*;
use crate::etcd::proto::KeyValue;

/// Feeds responses and checks the batches: `3a 4b-` is one response with a put of `a` at 3 and a delete of `b` at 4,
/// `..` at its end makes it a fragment, `=9` is progress to 9, and `lost` starts a new stream.
#[track_caller]
fn check(from: u64, answers: &[&str], expected: &[&str]) {
    let mut assembly = BatchAssembler::new(Revision(from));
    let batches: Vec<String> = answers.iter().filter_map(|answer| apply_response(&mut assembly, answer)).collect();
    assert_eq!(batches, expected, "from {from}: {answers:?}");
}

fn apply_response(assembly: &mut BatchAssembler, answer: &str) -> Option<String> {
    if answer == "lost" {
        assembly.start_new_stream();
        return None;
    }
    if let Some(revision) = answer.strip_prefix('=') {
        return assembly.add_progress(Revision(revision.parse().unwrap())).map(|batch| describe(&batch));
    }
    let fragment = answer.ends_with("..");
    let events = answer.trim_end_matches("..").split_whitespace().map(parse).collect();
    assembly.add_events(WatchResponse { events, fragment, ..WatchResponse::default() }).map(|batch| describe(&batch))
}

fn parse(event: &str) -> WatchEvent {
    let digits = event.chars().take_while(char::is_ascii_digit).count();
    let key = event[digits..].trim_end_matches('-').to_owned();
    let mod_revision = event[..digits].parse().unwrap();
    let kind = i32::from(event.ends_with('-'));
    WatchEvent { kind, kv: Some(KeyValue { key: key.into(), mod_revision, ..KeyValue::default() }) }
}

fn describe(batch: &WatchBatch) -> String {
    let show = |event: &StoreEvent| {
        let mark = if matches!(event, StoreEvent::Delete { .. }) { "-" } else { "" };
        format!("{}{}{mark} ", event.revision(), String::from_utf8_lossy(event.key()))
    };
    let events: String = batch.events.iter().map(show).collect();
    format!("{events}through {}", batch.complete_through)
}

#[test]
fn assembler_turns_a_response_into_a_batch() {
    check(3, &["3a 3b- 4a", "5c"], &["3a 3b- 4a through 4", "5c through 5"]);
}

#[test]
fn assembler_joins_fragments_of_a_transaction() {
    check(1, &["3a 3b..", "3c 4a..", "4b"], &["3a 3b 3c through 3", "4a 4b through 4"]);
    check(1, &["3a..", "3b..", "3c"], &["3a 3b 3c through 3"]);
    check(1, &["3a..", "4a"], &["3a 4a through 4"]);
}

#[test]
fn assembler_drops_incomplete_transaction_on_new_stream() {
    check(1, &["2x", "3a..", "lost", "2x 3a 3b"], &["2x through 2", "3a 3b through 3"]);
}

#[test]
fn assembler_drops_repeated_events() {
    check(3, &["2x 3a", "3a", "3a 4b", "2x"], &["3a through 3", "4b through 4"]);
}

#[test]
fn assembler_drops_events_before_its_start() {
    check(9, &["7a", "=8", "8b", "9c"], &["through 8", "9c through 9"]);
    check(9, &["=7", "9a"], &["9a through 9"]);
}

#[test]
fn progress_never_regresses_or_passes_incomplete_transaction() {
    check(
        1,
        &["=5", "=4", "=5", "7a..", "=8", "7b", "=8"],
        &["through 5", "through 5", "7a 7b through 7", "through 8"],
    );
}

#[test]
fn resume_revision_is_one_early_and_never_zero() {
    let resume_at = |from| BatchAssembler::new(Revision(from)).resume_revision();
    assert_eq!([resume_at(0), resume_at(1), resume_at(2), resume_at(9)], [1, 1, 1, 8].map(Revision));
}
