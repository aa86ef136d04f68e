//! Runs the commands of the README and compares their output with the documented one.

use std::process::Command;
use std::time::Duration;

use cluster_tests::lab::run_unskew;
use cluster_tests::process::run_command;
use cluster_tests::tools::{self, is_skipped};

use crate::*;

/// Wildcard: within a line any text, alone on a line any number of lines.
const ANY_TEXT: &str = "…";
const COMMANDS_TIMEOUT: Duration = Duration::from_secs(300);
/// Separates the outputs of two commands.
const OUTPUT_SEPARATOR: &str = "=== next command ===";

/// A command and its documented output.
struct ReadmeCommand {
    command: String,
    output: Vec<String>,
}

fn parse_readme_commands(readme: &str) -> Vec<ReadmeCommand> {
    let block = readme.split("```console\n").nth(1).and_then(|rest| rest.split("```").next());
    let mut found: Vec<ReadmeCommand> = Vec::new();
    for line in block.expect("the README has a block of commands").lines() {
        match (line.strip_prefix("$ "), found.last_mut()) {
            (Some(command), _) => found.push(ReadmeCommand { command: command.to_owned(), output: vec![] }),
            (None, Some(last)) => last.output.push(line.to_owned()),
            (None, None) => panic!("output without a command: {line}"),
        }
    }
    found
}

fn line_matches(pattern: &str, line: &str) -> bool {
    let mut parts = pattern.split(ANY_TEXT);
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = line.strip_prefix(first) else { return false };
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else { return rest.trim_end().is_empty() };
    for part in middle {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

fn output_matches(patterns: &[String], lines: &[&str]) -> bool {
    match patterns.split_first() {
        None => lines.is_empty(),
        Some((any, rest)) if any == ANY_TEXT => {
            (0..=lines.len()).any(|skipped| output_matches(rest, &lines[skipped..]))
        }
        Some((pattern, rest)) => {
            lines.split_first().is_some_and(|(line, lines)| line_matches(pattern, line) && output_matches(rest, lines))
        }
    }
}

#[test]
fn output_patterns_match_text_and_lines() {
    let check = |pattern: &str, output: &str, expected: bool| {
        let patterns: Vec<String> = pattern.lines().map(str::to_owned).collect();
        assert_eq!(output_matches(&patterns, &output.lines().collect::<Vec<_>>()), expected, "{pattern} / {output}");
    };
    check("a", "a", true);
    check("a", "b", false);
    check("a", "a\nb", false);
    check("a …", "a 7", true);
    check("a … c", "a b c", true);
    check("a … c", "a b d", false);
    check("…\nb\n…", "x\ny\nb\nz", true);
    check("…\nb", "x\ny", false);
}

/// Stops a background lab even if the test fails.
struct DownOnDrop<'a>(&'a Path);

impl Drop for DownOnDrop<'_> {
    fn drop(&mut self) {
        run_unskew(self.0, &["down", "--purge"]);
    }
}

#[test]
fn readme_commands_print_the_documented_output() {
    if is_skipped("kubectl") {
        return;
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let shown = parse_readme_commands(&std::fs::read_to_string(root.join("README.md")).unwrap());
    let home = tempfile::tempdir().unwrap();
    let _down = DownOnDrop(home.path());
    let bin = home.path().join("bin");
    std::fs::create_dir(&bin).unwrap();
    std::os::unix::fs::symlink(tools::unskew_binary(), bin.join("unskew")).unwrap();
    std::os::unix::fs::symlink(tools::required_path("UNSKEW_KUBECTL"), bin.join("kubectl")).unwrap();
    // The binary is built already: skip the line that builds it.
    let commands =
        shown.iter().map(|shown| if shown.command.starts_with("cargo build") { "true" } else { &*shown.command });
    let script: Vec<String> =
        commands.map(|command| format!("{{ {command}\n}} 2>&1; echo '{OUTPUT_SEPARATOR}'")).collect();
    let mut command = Command::new("bash");
    command.current_dir(&root).arg("-c").arg(script.join("\n"));
    command.env("HOME", home.path()).env_remove("XDG_DATA_HOME").env("KUBECACHEDIR", home.path().join("cache"));
    command.env("PATH", format!("{}:/usr/bin:/bin", bin.display()));
    let printed = run_command(command, COMMANDS_TIMEOUT).expect_success();
    let outputs: Vec<&str> = printed.split(&format!("{OUTPUT_SEPARATOR}\n")).collect();
    assert_eq!(outputs.len(), shown.len() + 1, "{printed}");
    for (shown, output) in shown.iter().zip(outputs) {
        let lines: Vec<&str> = output.lines().collect();
        assert!(
            output_matches(&shown.output, &lines),
            "$ {}\n{output}\nis not\n{}",
            shown.command,
            shown.output.join("\n")
        );
    }
}
