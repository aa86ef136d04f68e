//! The binary: what was typed becomes a command, and the command runs.
//!
//! Exit codes are those of sysexits, as kube-apiserver's operators script against them: 0 done, 64 wrong usage,
//! 69 the service cannot be had; and 1 where the answer itself is "not well".

mod args;
mod flags;
mod gateway;
mod kubeconfig;
mod lab;
mod logging;
mod process;
mod serve;
mod settings;

use std::process::ExitCode;

use crate::args::Command;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Wrong usage: an unknown flag, a value that does not parse.
pub(crate) const EXIT_USAGE: u8 = 64;
/// It was done, and what it found is not as it should be: a rollout that clients noticed, a claim that does not hold.
pub(crate) const EXIT_NOT_CLEAN: u8 = 1;
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
            say(&mut std::io::stdout(), catalogue::diff(from, to).to_string().trim_end());
            ExitCode::SUCCESS
        }
        Command::Serve { args } => serve::main(args),
        Command::Gateway { args } => gateway::main(args),
        Command::Lab(task) => lab::main(task),
        Command::Leashed { parent, command } => lab::leashed(parent, &command),
        Command::Completion { script } => {
            say(&mut std::io::stdout(), script.trim_end());
            ExitCode::SUCCESS
        }
        Command::Version => {
            say(&mut std::io::stdout(), &format!("unskew {}", env!("CARGO_PKG_VERSION")));
            ExitCode::SUCCESS
        }
    }
}

/// Tells the user why something failed.
pub(crate) fn complain(who: &str, error: &anyhow::Error) {
    say(&mut std::io::stderr(), &format!("{who}: {}", explain(error)));
}

/// An error and its causes, each said once: many errors name their cause themselves.
fn explain(error: &anyhow::Error) -> String {
    let mut told = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !told.contains(&cause) {
            told = format!("{told}: {cause}");
        }
    }
    told
}

/// One line, or several, for the user.
pub(crate) fn say(to: &mut dyn std::io::Write, line: &str) {
    let _ = writeln!(to, "{line}");
    let _ = to.flush();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_told_once() {
        let cause = std::io::Error::new(std::io::ErrorKind::NotFound, "no such file");
        let error = anyhow::Error::from(cause).context("ca.key: no such file").context("own keys");
        assert_eq!(explain(&error), "own keys: ca.key: no such file");
    }
}
