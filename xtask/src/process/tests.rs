//! Tests of time limit, line order and error messages, with shell commands.

use expect_test::expect;

use super::*;

fn shell(script: &str, limit: Duration) -> TimedCommand {
    TimedCommand::new("sh", limit).arg("-c").arg(script)
}

const LONG_TIMEOUT: Duration = Duration::from_secs(60);

#[test]
fn output_text_excludes_stderr() {
    assert_eq!(shell("echo seen; echo unseen >&2", LONG_TIMEOUT).output_text().unwrap(), "seen\n");
}

#[test]
fn failure_shows_command_line_and_stderr() {
    let error = shell("echo why >&2; exit 3", LONG_TIMEOUT).output_text().unwrap_err();
    expect![[r#"
        `sh -c echo why >&2; exit 3` failed (exit status: 3):
        why"#]]
    .assert_eq(&error.to_string());
}

#[test]
fn stream_lines_keeps_order_of_stdout_and_stderr() {
    let mut seen = String::new();
    let status =
        shell("echo a; echo b >&2; echo c", LONG_TIMEOUT).stream_lines(&mut |line| seen.push_str(line)).unwrap();
    assert!(status.success());
    assert_eq!(seen, "a\nb\nc\n");
}

#[test]
fn timed_out_program_is_killed_with_its_children() {
    // A sleep time that no other process uses identifies the child.
    let sleep = format!("sleep\06{:06}.5\0", std::process::id());
    let error =
        shell(&format!("{} & wait", sleep.replace('\0', " ")), Duration::from_secs(1)).output_text().unwrap_err();
    assert!(error.to_string().ends_with("did not end within 1 s and was stopped"), "{error}");
    let named = |entry: &std::fs::DirEntry| {
        std::fs::read_to_string(entry.path().join("cmdline")).is_ok_and(|line| line == sleep)
    };
    let still_runs = || std::fs::read_dir("/proc").unwrap().flatten().any(|entry| named(&entry));
    // The kernel delivers the signal asynchronously.
    let told = Instant::now();
    while still_runs() {
        assert!(told.elapsed() < LONG_TIMEOUT, "the child still runs");
        thread::yield_now();
    }
}

#[test]
fn background_child_does_not_block_the_caller() {
    let started = Instant::now();
    let mut pid = String::new();
    let status =
        shell("sleep 600 & echo $!", LONG_TIMEOUT).stream_lines(&mut |line| pid.push_str(line.trim())).unwrap();
    assert!(status.success());
    assert!(started.elapsed() < LONG_TIMEOUT, "the caller waited for a pipe that the background child holds");
    Command::new("sh").arg("-c").arg(format!("kill -9 {pid}")).status().unwrap();
}

#[test]
fn missing_program_is_named_in_the_error() {
    let error = TimedCommand::new("no-such-program-here", LONG_TIMEOUT).output_text().unwrap_err();
    assert_eq!(error.to_string(), "`no-such-program-here` could not be started");
}
