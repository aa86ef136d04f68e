//! The binary: what was typed becomes a command, and the command runs.
//!
//! Exit codes are those of sysexits, as kube-apiserver's operators script against them: 0 done, 64 wrong usage,
//! 69 the service cannot be had; and 1 where the answer itself is "not well".

mod args;
mod flags;
mod gateway;
mod inventory;
mod kubeconfig;
mod lab;
mod logging;
mod preflight;
mod process;
mod serve;
mod shared_flags;

use std::process::ExitCode;

use crate::args::Command;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Wrong usage: an unknown flag, a value that does not parse.
pub(crate) const EXIT_USAGE: u8 = 64;
/// It was done, and what it found is not as it should be: a rollout that clients noticed, a claim that does not hold.
pub(crate) const EXIT_CHECK_FAILED: u8 = 1;
/// What was asked for cannot be had here and now.
pub(crate) const EXIT_UNAVAILABLE: u8 = 69;

fn main() -> ExitCode {
    match args::parse(std::env::args_os()) {
        Ok(command) => run(command),
        Err(error) => {
            // clap sends help to stdout and errors to stderr by itself; a closed pipe is no failure of ours.
            let _ = error.print();
            if error.use_stderr() { ExitCode::from(EXIT_USAGE) } else { ExitCode::SUCCESS }
        }
    }
}

fn run(command: Command) -> ExitCode {
    match command {
        Command::ReleasesDiff { from, to } => {
            print_line(&mut std::io::stdout(), catalogue::diff_releases(from, to).to_string().trim_end());
            ExitCode::SUCCESS
        }
        Command::Serve { args } => serve::main(args),
        Command::Gateway { args } => gateway::main(args),
        Command::Inventory(args) => inventory::main(args),
        Command::Preflight(args) => preflight::main(args),
        Command::Lab(task) => lab::main(task),
        Command::TiedToParent { parent, command } => lab::run_tied_to_parent(parent, &command),
        Command::Completion { script } => {
            print_line(&mut std::io::stdout(), script.trim_end());
            ExitCode::SUCCESS
        }
        Command::Version => {
            print_line(&mut std::io::stdout(), &format!("unskew {}", env!("CARGO_PKG_VERSION")));
            ExitCode::SUCCESS
        }
    }
}

/// Tells the user why something failed.
pub(crate) fn print_error(who: &str, error: &anyhow::Error) {
    print_line(&mut std::io::stderr(), &format!("{who}: {}", format_error_chain(error)));
}

/// An error and its causes, each said once: many errors name their cause themselves.
fn format_error_chain(error: &anyhow::Error) -> String {
    let mut told = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !told.contains(&cause) {
            told = format!("{told}: {cause}");
        }
    }
    told
}

/// One line, or several, for the user.
pub(crate) fn print_line(to: &mut dyn std::io::Write, line: &str) {
    let _ = writeln!(to, "{line}");
    let _ = to.flush();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_chain_names_each_cause_once() {
        let cause = std::io::Error::new(std::io::ErrorKind::NotFound, "no such file");
        let error = anyhow::Error::from(cause).context("ca.key: no such file").context("own keys");
        assert_eq!(format_error_chain(&error), "own keys: ca.key: no such file");
    }
}
