use super::*;
use crate::etcd::proto::KeyValue;

/// Plays answers and shows the batches: `3a 4b-` is one answer with a put of `a` at 3 and a delete of `b` at 4, `..` at its end
/// makes it a fragment, and `=9` is progress to 9.
#[track_caller]
fn check(from: u64, answers: &[&str], expected: &[&str]) {
    let mut assembly = Assembly::new(Revision(from));
    let batches: Vec<String> = answers.iter().filter_map(|answer| play(&mut assembly, answer)).collect();
    assert_eq!(batches, expected, "from {from}: {answers:?}");
}

fn play(assembly: &mut Assembly, answer: &str) -> Option<String> {
    if answer == "lost" {
        assembly.restart();
        return None;
    }
    if let Some(revision) = answer.strip_prefix('=') {
        return assembly.progress(Revision(revision.parse().unwrap())).map(|batch| show(&batch));
    }
    let fragment = answer.ends_with("..");
    let events = answer.trim_end_matches("..").split_whitespace().map(parse).collect();
    assembly.events(WatchResponse { events, fragment, ..WatchResponse::default() }).map(|batch| show(&batch))
}

fn parse(event: &str) -> WatchEvent {
    let digits = event.chars().take_while(char::is_ascii_digit).count();
    let key = event[digits..].trim_end_matches('-').to_owned();
    let mod_revision = event[..digits].parse().unwrap();
    let kind = i32::from(event.ends_with('-'));
    WatchEvent { kind, kv: Some(KeyValue { key: key.into(), mod_revision, ..KeyValue::default() }) }
}

fn show(batch: &Batch) -> String {
    let show = |event: &Event| {
        let mark = if matches!(event, Event::Delete { .. }) { "-" } else { "" };
        format!("{}{}{mark} ", event.revision(), String::from_utf8_lossy(event.key()))
    };
    let events: String = batch.events.iter().map(show).collect();
    format!("{events}through {}", batch.through)
}

#[test]
fn an_answer_is_a_batch() {
    check(3, &["3a 3b- 4a", "5c"], &["3a 3b- 4a through 4", "5c through 5"]);
}

#[test]
fn a_transaction_in_fragments_is_delivered_whole() {
    check(1, &["3a 3b..", "3c 4a..", "4b"], &["3a 3b 3c through 3", "4a 4b through 4"]);
    check(1, &["3a..", "3b..", "3c"], &["3a 3b 3c through 3"]);
    check(1, &["3a..", "4a"], &["3a 4a through 4"]);
}

#[test]
fn half_a_transaction_is_forgotten_with_its_stream() {
    check(1, &["2x", "3a..", "lost", "2x 3a 3b"], &["2x through 2", "3a 3b through 3"]);
}

#[test]
fn what_was_delivered_is_not_delivered_again() {
    check(3, &["2x 3a", "3a", "3a 4b", "2x"], &["3a through 3", "4b through 4"]);
}

#[test]
fn nothing_before_the_start_is_delivered() {
    check(9, &["7a", "=8", "8b", "9c"], &["through 8", "9c through 9"]);
    check(9, &["=7", "9a"], &["9a through 9"]);
}

#[test]
fn progress_never_goes_back_and_never_overtakes_half_a_transaction() {
    check(
        1,
        &["=5", "=4", "=5", "7a..", "=8", "7b", "=8"],
        &["through 5", "through 5", "7a 7b through 7", "through 8"],
    );
}

#[test]
fn a_stream_is_resumed_one_revision_early_and_never_at_now() {
    let resume_at = |from| Assembly::new(Revision(from)).resume_at();
    assert_eq!([resume_at(0), resume_at(1), resume_at(2), resume_at(9)], [1, 1, 1, 8].map(Revision));
}
