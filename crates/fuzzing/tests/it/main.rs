//! Short deterministic runs of every target: seeds, their mutations, and input that breaks careless parsers.

mod mutation;

use std::time::{Duration, Instant};

use fuzzing::{FuzzTarget, TARGETS};
use mutation::Mutator;

/// Seconds that every target runs, instead of its short run.
const SECONDS_VARIABLE: &str = "UNSKEW_FUZZ_SECONDS";

fn find_target(name: &str) -> &'static FuzzTarget {
    TARGETS.iter().find(|target| target.name == name).expect("the target is listed")
}

/// Runs one input and prints it if the target panics.
#[expect(clippy::print_stdout, reason = "reports the failing input")]
fn check(target: &FuzzTarget, input: &[u8]) {
    struct Input<'a>(&'a FuzzTarget, &'a [u8]);
    impl Drop for Input<'_> {
        fn drop(&mut self) {
            if std::thread::panicking() {
                let shown = &self.1[..self.1.len().min(2_000)];
                println!("{} fails on {} bytes: {}", self.0.name, self.1.len(), shown.escape_ascii());
            }
        }
    }
    let input = Input(target, input);
    (target.run)(input.1);
}

#[expect(clippy::print_stdout, reason = "reports the length of a long run")]
fn run_mutations(name: &str) {
    let target = find_target(name);
    for seed in target.seeds() {
        check(target, &seed);
    }
    #[expect(clippy::disallowed_methods, reason = "a long run is asked for by the environment")]
    let seconds = std::env::var(SECONDS_VARIABLE).ok().and_then(|seconds| seconds.parse().ok());
    let end = seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let mut mutator = Mutator::new(target);
    let mut inputs = 0;
    while end.map_or(inputs < target.short_run, |end| Instant::now() < end) {
        check(target, &mutator.next_input());
        inputs += 1;
    }
    println!("{name}: {inputs} inputs");
}

#[test]
fn request_line_invariants_hold_for_mutated_seeds() {
    run_mutations("request_line");
}

#[test]
fn accept_header_invariants_hold_for_mutated_seeds() {
    run_mutations("accept_header");
}

#[test]
fn selector_invariants_hold_for_mutated_seeds() {
    run_mutations("selectors");
}

#[test]
fn discovery_json_invariants_hold_for_mutated_seeds() {
    run_mutations("discovery_json");
}

#[test]
fn object_body_invariants_hold_for_mutated_seeds() {
    run_mutations("object_body");
}

#[test]
fn patch_invariants_hold_for_mutated_seeds() {
    run_mutations("patch");
}

#[test]
fn stored_object_invariants_hold_for_mutated_seeds() {
    run_mutations("stored_object");
}

#[test]
fn cel_compile_invariants_hold_for_mutated_seeds() {
    run_mutations("cel_compile");
}

#[test]
fn cel_evaluate_invariants_hold_for_mutated_seeds() {
    run_mutations("cel_evaluate");
}

#[test]
fn pattern_invariants_hold_for_mutated_seeds() {
    run_mutations("pattern");
}

#[test]
fn forwarded_header_invariants_hold_for_mutated_seeds() {
    run_mutations("forwarded_headers");
}

#[test]
fn token_invariants_hold_for_mutated_seeds() {
    run_mutations("token");
}

#[test]
fn yaml_body_invariants_hold_for_mutated_seeds() {
    run_mutations("yaml_body");
}

#[test]
fn certificate_invariants_hold_for_mutated_seeds() {
    run_mutations("certificate");
}

#[test]
fn protobuf_body_invariants_hold_for_mutated_seeds() {
    run_mutations("protobuf_body");
}

/// Deep enough to overflow the stack of a test, 2 MiB, by a parser that recurses once per level.
const LEVELS: usize = 20_000;

#[test]
fn deeply_nested_input_does_not_overflow_the_stack() {
    const DOCUMENT: &str = r#"{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","#;
    let cases = [
        (String::new(), "[", "]"),
        (String::new(), r#"{"a":"#, "}"),
        (String::new(), "{a: ", "}"),
        (String::new(), "- ", ""),
        (String::new(), "? ", ""),
        ("a in ".to_owned(), "(", ")"),
        ("GET /api/v1".to_owned(), "/a", ""),
        (r#"{"metadata":"#.to_owned(), r#"{"a":"#, "}"),
        (r#"{"metadata":{},"spec":"#.to_owned(), "[", "]"),
        ("{}\n".to_owned(), r#"{"a":"#, "}"),
        (format!(r#"{DOCUMENT}"items":"#), "[", "]"),
        (format!(r#"{DOCUMENT}"unknown":"#), r#"[{"a":"#, "}]"),
    ];
    for (prefix, opening, closing) in cases {
        let (open, close) = (opening.repeat(LEVELS), closing.repeat(LEVELS));
        let end = if prefix.ends_with(':') { "}" } else { "" };
        for input in [format!("{prefix}{open}"), format!("{prefix}{open}1{close}{end}")] {
            TARGETS.iter().for_each(|target| check(target, input.as_bytes()));
        }
    }
}

#[test]
fn large_input_is_handled_by_every_target() {
    const BYTES: usize = 1 << 14;
    for piece in
        ["a", "a=b,", "%61", "é", "/a", "application/json;q=0.1,", "a in (b),", "[],", "\0", "\"", "\n", "{}\n"]
    {
        let input = piece.repeat(BYTES / piece.len());
        TARGETS.iter().for_each(|target| check(target, input.as_bytes()));
    }
}

#[test]
fn invalid_utf8_is_handled_by_every_target() {
    for input in [&b"\xff\xfe"[..], b"GET /\xff%ff", b"a=\xc3", b"{\"a\":\"\xed\xa0\x80\"}", b"\xef\xbb\xbf{}"] {
        TARGETS.iter().for_each(|target| check(target, input));
    }
}

#[test]
fn every_target_has_a_cargo_fuzz_file() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/fuzz_targets");
    let mut files: Vec<String> = std::fs::read_dir(folder)
        .expect("fuzz/fuzz_targets exists")
        .map(|file| file.expect("the folder can be read").file_name().into_string().expect("names are text"))
        .collect();
    files.sort_unstable();
    let mut names: Vec<String> = TARGETS.iter().map(|target| format!("{}.rs", target.name)).collect();
    names.sort_unstable();
    assert_eq!(files, names);
}
