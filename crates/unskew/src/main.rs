//! The binary: parses the command line and runs the command.
//!
//! Exit codes are those of sysexits: 0 success, 64 wrong usage, 69 service unavailable; and 1 if a check failed.

mod args;
mod flags;
mod gateway;
mod inventory;
mod lab;
mod logging;
mod migrate;
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
/// A check failed: clients noticed a rollout, a claim of the demo does not hold, or a migration is not complete.
pub(crate) const EXIT_CHECK_FAILED: u8 = 1;
/// The command could not run: a port in use, storage unavailable, no such lab.
pub(crate) const EXIT_UNAVAILABLE: u8 = 69;

fn main() -> ExitCode {
    match args::parse(std::env::args_os()) {
        Ok(command) => run(command),
        Err(error) => {
            // clap prints help to stdout and errors to stderr. A closed pipe is ignored.
            let _ = error.print();
            if error.use_stderr() { ExitCode::from(EXIT_USAGE) } else { ExitCode::SUCCESS }
        }
    }
}

fn run(command: Command) -> ExitCode {
    match command {
        Command::ReleasesDiff { from, to } => {
            print_line(&mut std::io::stdout(), kinds::diff_releases(from, to).to_string().trim_end());
            ExitCode::SUCCESS
        }
        Command::Serve { args } => serve::main(args),
        Command::Gateway { args } => gateway::main(args),
        Command::Inventory(args) => inventory::main(args),
        Command::Preflight(args) => preflight::main(args),
        Command::Migrate(args) => migrate::main(*args),
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

/// Prints an error with its causes to stderr.
pub(crate) fn print_error(who: &str, error: &anyhow::Error) {
    print_line(&mut std::io::stderr(), &format!("{who}: {}", format_error_chain(error)));
}

/// An error and its causes, without causes that the text already contains.
fn format_error_chain(error: &anyhow::Error) -> String {
    let mut told = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !told.contains(&cause) {
            told = format!("{told}: {cause}");
        }
    }
    told
}

/// Prints text and a newline; a closed pipe is ignored.
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
