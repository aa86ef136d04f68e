//! Paths of binaries, and commands that run them.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use crate::process::{CommandOutput, run_command};

/// Longer than any client command needs on a loaded machine; bounds a hanging one.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(60);
/// Limit for programs that use hundreds of classes of the Python client, which load slowly.
const PROGRAM_TIMEOUT: Duration = Duration::from_secs(5 * 60);

/// Returns the path in an environment variable that `cargo xtask test` sets; fails if it is not set.
#[track_caller]
pub fn required_path(variable: &str) -> PathBuf {
    #[expect(clippy::disallowed_methods, reason = "the one place where these tests read the environment")]
    let value = std::env::var(variable);
    match value {
        Ok(path) if !path.is_empty() => PathBuf::from(path),
        _ => panic!("{variable} is not set: run these tests with `cargo xtask test`"),
    }
}

/// True if tests run their long (soak) form.
pub fn is_soak() -> bool {
    #[expect(clippy::disallowed_methods, reason = "the one place where these tests read the environment")]
    let soak = std::env::var("UNSKEW_SOAK");
    soak.is_ok()
}

/// The value of an environment variable that tunes a test; none if it is unset or empty.
pub fn optional_text(variable: &str) -> Option<String> {
    #[expect(clippy::disallowed_methods, reason = "the one place where these tests read the environment")]
    let value = std::env::var(variable).ok();
    value.filter(|value| !value.is_empty())
}

/// Path of the `unskew` binary of the same build.
#[track_caller]
pub fn unskew_binary() -> PathBuf {
    required_path("UNSKEW_BIN")
}

/// True if `--without` skips the tests of this tool; prints a note then.
#[expect(clippy::print_stdout, reason = "reports a skipped test")]
pub fn is_skipped(tool: &str) -> bool {
    #[expect(clippy::disallowed_methods, reason = "the one place where these tests read the environment")]
    let without = std::env::var("UNSKEW_WITHOUT").unwrap_or_default();
    let is_left_out = without.split(',').any(|name| name == tool);
    if is_left_out {
        println!("left out: {tool} was given to --without");
    }
    is_left_out
}

/// Runs kubectl with a kubeconfig.
#[track_caller]
pub fn kubectl(kubeconfig: &std::path::Path, args: &[&str]) -> CommandOutput {
    let mut command = Command::new(required_path("UNSKEW_KUBECTL"));
    command.arg("--kubeconfig").arg(kubeconfig).args(args);
    // A shared discovery cache would mix up servers that use the same port one after another.
    command.env("KUBECACHEDIR", kubeconfig.with_extension("cache"));
    run_command(command, COMMAND_TIMEOUT)
}

/// Runs a Python program with the official client installed; `args` follow the program.
#[track_caller]
pub fn python(program: &str, args: &[&str]) -> CommandOutput {
    run_python(program, args, COMMAND_TIMEOUT)
}

/// Like `python`, with a limit of five minutes.
#[track_caller]
pub fn python_with_long_timeout(program: &str, args: &[&str]) -> CommandOutput {
    run_python(program, args, PROGRAM_TIMEOUT)
}

#[track_caller]
fn run_python(program: &str, args: &[&str], timeout: Duration) -> CommandOutput {
    let mut command = Command::new(required_path("UNSKEW_PYTHON"));
    command.arg("-c").arg(program).args(args);
    run_command(command, timeout)
}
