//! The command line, as typed.

use std::ffi::OsString;

use catalogue::Release;
use clap::{Parser, Subcommand};

/// What the user asked for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Command {
    /// Print the version.
    Version,
    /// Print what two releases differ in.
    ReleasesDiff {
        /// The release to start from.
        from: Release,
        /// The release to compare it with.
        to: Release,
    },
    /// Run an API server; its flags are read as kube-apiserver reads them.
    Serve {
        /// Everything after `serve`.
        args: Vec<String>,
    },
    /// Run a gateway; its flags are read as kube-apiserver reads them.
    Gateway {
        /// Everything after `gateway`.
        args: Vec<String>,
    },
    /// A job of the design that this build does not have yet.
    Planned {
        /// Its name on the command line.
        job: &'static str,
    },
}

/// Reads the command line; help and version requests are `Err` too, as clap has it.
pub(crate) fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Command, clap::Error> {
    let typed = Typed::try_parse_from(args)?;
    Ok(match typed.job {
        Job::Version => Command::Version,
        Job::Releases { question: Question::Diff { from, to } } => Command::ReleasesDiff { from, to },
        Job::Serve(typed) => Command::Serve { args: typed.texts() },
        Job::Up(_) => Command::Planned { job: "up" },
        Job::Gateway(typed) => Command::Gateway { args: typed.texts() },
    })
}

/// The answer to a job that is not built: what it will be, and what can be done today.
pub(crate) fn not_built(job: &str) -> String {
    format!(
        "unskew {job}: not built yet in version {}.\n\
         `unskew serve` runs one API server on SQLite or etcd, and several may share either; \
         `unskew serve --help` lists its flags.\n\
         `cargo xtask test` runs the tests, `cargo xtask bench` measures; README.md lists what comes next.",
        env!("CARGO_PKG_VERSION")
    )
}

/// Several Kubernetes API servers at different versions answer as one.
#[derive(Debug, Parser)]
#[command(name = "unskew", version, disable_help_subcommand = true, after_help = EXIT_CODES)]
struct Typed {
    #[command(subcommand)]
    job: Job,
}

const EXIT_CODES: &str = "Exit codes: 0 done, 64 wrong usage, 69 not available.";

#[derive(Debug, Subcommand)]
enum Job {
    /// Print the version
    Version,
    /// What Kubernetes releases serve and store
    Releases {
        #[command(subcommand)]
        question: Question,
    },
    /// Run a Kubernetes API server on SQLite or etcd
    Serve(Untouched),
    /// Run a mixed-version control plane on this machine (not built yet)
    Up(Untouched),
    /// Run the mixed-version proxy in front of stock kube-apiservers
    Gateway(Untouched),
}

#[derive(Debug, Subcommand)]
enum Question {
    /// What appears, disappears and changes storage between two releases
    ///
    /// For example: unskew releases diff 1.33 1.34
    Diff {
        /// The release to start from, such as 1.33
        from: Release,
        /// The release to compare it with, such as 1.34
        to: Release,
    },
}

/// Flags that are not clap's to read: a server's have pflag's rules, and those of a job that is not built get the answer
/// "not built" and not "unknown flag".
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true)]
struct Untouched {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    rest: Vec<OsString>,
}

impl Untouched {
    fn texts(self) -> Vec<String> {
        self.rest.into_iter().map(|arg| arg.to_string_lossy().into_owned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    #[track_caller]
    fn check(line: &str, expected: &Expect) {
        let args = line.split_whitespace().map(OsString::from);
        let shown = match parse(args) {
            Ok(command) => format!("{command:?}"),
            Err(error) => error.to_string().lines().next().unwrap_or_default().to_owned(),
        };
        expected.assert_eq(&shown);
    }

    #[test]
    fn version_is_a_command() {
        check("unskew version", &expect!["Version"]);
    }

    #[test]
    fn a_planned_job_is_recognized_with_whatever_flags() {
        check("unskew up --servers 1.33,1.36", &expect![[r#"Planned { job: "up" }"#]]);
        check("unskew serve --secure-port=0 --help", &expect![[r#"Serve { args: ["--secure-port=0", "--help"] }"#]]);
    }

    #[test]
    fn two_releases_are_compared_and_unknown_ones_named() {
        check("unskew releases diff 1.33 1.34", &expect!["ReleasesDiff { from: R33, to: R34 }"]);
        check(
            "unskew releases diff 1.33 1.12",
            &expect![[
                r#"error: invalid value '1.12' for '<TO>': "1.12" is not a Kubernetes release this server knows: give one of 1.31 to 1.37"#
            ]],
        );
    }

    #[test]
    fn an_unknown_command_or_flag_is_named() {
        check("unskew upp", &expect!["error: unrecognized subcommand 'upp'"]);
        check("unskew --frob", &expect!["error: unexpected argument '--frob' found"]);
    }
}
