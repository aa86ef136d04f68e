//! The time limit, the order of lines and the wording of failures, with small shell commands.

use expect_test::expect;

use super::*;

fn shell(script: &str, limit: Duration) -> Job {
    Job::new("sh", limit).arg("-c").arg(script)
}

const LONG: Duration = Duration::from_secs(60);

#[test]
fn output_is_stdout_alone() {
    assert_eq!(shell("echo seen; echo unseen >&2", LONG).output().unwrap(), "seen\n");
}

#[test]
fn a_failure_shows_the_command_and_its_last_words() {
    let error = shell("echo why >&2; exit 3", LONG).output().unwrap_err();
    expect![[r#"
        `sh -c echo why >&2; exit 3` failed (exit status: 3):
        why"#]]
    .assert_eq(&error.to_string());
}

#[test]
fn lines_of_both_pipes_keep_their_order() {
    let mut seen = String::new();
    let status = shell("echo a; echo b >&2; echo c", LONG).lines(&mut |line| seen.push_str(line)).unwrap();
    assert!(status.success());
    assert_eq!(seen, "a\nb\nc\n");
}

#[test]
fn a_program_beyond_its_limit_is_ended_with_its_children() {
    // A length of sleep that no other process has: its mark among the processes.
    let sleep = format!("sleep\06{:06}.5\0", std::process::id());
    let error = shell(&format!("{} & wait", sleep.replace('\0', " ")), Duration::from_secs(1)).output().unwrap_err();
    assert!(error.to_string().ends_with("did not end within 1 s and was stopped"), "{error}");
    let named = |entry: &std::fs::DirEntry| {
        std::fs::read_to_string(entry.path().join("cmdline")).is_ok_and(|line| line == sleep)
    };
    let still_runs = || std::fs::read_dir("/proc").unwrap().flatten().any(|entry| named(&entry));
    // It has been told to end; when it does is the kernel's affair.
    let told = Instant::now();
    while still_runs() {
        assert!(told.elapsed() < LONG, "the child still runs");
        thread::yield_now();
    }
}

#[test]
fn a_process_left_behind_does_not_hold_the_caller() {
    let started = Instant::now();
    let mut pid = String::new();
    let status = shell("sleep 600 & echo $!", LONG).lines(&mut |line| pid.push_str(line.trim())).unwrap();
    assert!(status.success());
    assert!(started.elapsed() < LONG, "the pipe held by the sleeper was waited for");
    Command::new("sh").arg("-c").arg(format!("kill -9 {pid}")).status().unwrap();
}

#[test]
fn a_program_that_is_not_there_is_named() {
    let error = Job::new("no-such-program-here", LONG).output().unwrap_err();
    assert_eq!(error.to_string(), "`no-such-program-here` could not be started");
}
