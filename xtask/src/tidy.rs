//! `cargo xtask tidy`: project rules that a program can check.

mod crate_dependencies;
mod documents;
mod flags;
mod lengths;
mod monitoring;
mod style;

use std::fmt;
use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::args;
use crate::process::TimedCommand;
use crate::workspace::Workspace;
pub(crate) use flags::subcommands;

pub(crate) const HELP: &str = "\
cargo xtask tidy

Checks the dependencies between crates against the table and against the diagram in ARCHITECTURE.md, the length of files,
that every module has a `//!` comment, that links in documents resolve, that the flags in docs/operating.md are those of the
program, and that the metrics in docs/monitoring and the flags in docs/deploy exist.
";

const BUILD_TIMEOUT: Duration = Duration::from_secs(30 * 60);
const GIT_TIMEOUT: Duration = Duration::from_secs(60);

/// A violated rule.
#[derive(Debug, PartialEq)]
struct TidyFinding {
    path: String,
    /// Line number from 1; `None` for the whole file.
    line: Option<usize>,
    message: String,
}

impl TidyFinding {
    fn at_line(path: &str, line: usize, message: impl Into<String>) -> TidyFinding {
        TidyFinding { path: path.to_owned(), line: Some(line), message: message.into() }
    }

    fn in_file(path: &str, message: impl Into<String>) -> TidyFinding {
        TidyFinding { path: path.to_owned(), line: None, message: message.into() }
    }
}

impl fmt::Display for TidyFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TidyFinding { path, line, message } = self;
        match line {
            Some(line) => write!(f, "{path}:{line}: {message}"),
            None => write!(f, "{path}: {message}"),
        }
    }
}

/// A text file of the checkout; `path` is relative to the root.
struct SourceFile {
    path: String,
    text: String,
}

impl SourceFile {
    fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    fn is_markdown(&self) -> bool {
        self.path.ends_with(".md")
    }
}

pub(crate) fn main(words: &[String]) -> Result<()> {
    args::expect_no_args("tidy", words)?;
    let workspace = Workspace::open()?;
    // The binary is needed for its flags; `ci` has built it with the tests.
    workspace.cargo("build", BUILD_TIMEOUT).args(["--quiet", "--locked", "--package", "unskew"]).run()?;
    check(&workspace)
}

/// Prints all findings and fails if there are any. The `unskew` binary must have been built.
pub(crate) fn check(workspace: &Workspace) -> Result<()> {
    let sources = read_sources(workspace)?;
    let text_of = |path| sources.iter().find(|source| source.path == path).map(|source| source.text.as_str());
    let architecture = text_of(crate_dependencies::ARCHITECTURE_FILE).context("ARCHITECTURE.md is missing")?;
    let mut findings = crate_dependencies::check(&workspace.metadata, architecture)?;
    for source in &sources {
        findings.extend(lengths::check(source));
        if source.is_rust() {
            findings.extend(style::check_rust(source));
        }
        if source.is_markdown() {
            findings.extend(style::check_markdown_spaces(source));
            findings.extend(documents::check_links(source, &|path| workspace.root.join(path).exists()));
        }
    }
    let helps = flags::read_flags(&workspace.debug_binary("unskew"))?;
    findings.extend(flags::check(&helps, text_of(flags::DOCUMENT)));
    findings.extend(monitoring::check_metrics(&sources));
    findings.extend(monitoring::check_deploy(&sources, &helps));
    for finding in &findings {
        println!("{finding}");
    }
    if !findings.is_empty() {
        bail!("tidy has {} findings", findings.len());
    }
    println!("tidy: {} files, no findings", sources.len());
    Ok(())
}

/// Reads all text files that git tracks or would track.
fn read_sources(workspace: &Workspace) -> Result<Vec<SourceFile>> {
    let list = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
    let names = TimedCommand::new("git", GIT_TIMEOUT).args(list).current_dir(&workspace.root).output_text();
    let names = names.context("tidy needs git to list the files")?;
    let mut names: Vec<&str> = names.split('\0').filter(|name| !name.is_empty()).collect();
    names.sort_unstable();
    names.dedup();
    // A deleted file may still be listed, and a binary file has no lines to check: skip both.
    let read = |name: &&str| {
        Some(SourceFile { path: (*name).to_owned(), text: fs::read_to_string(workspace.root.join(name)).ok()? })
    };
    Ok(names.iter().filter_map(read).collect())
}
