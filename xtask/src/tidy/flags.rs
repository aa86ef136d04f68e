//! Checks that program and manual list the same flags.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::TidyFinding;
use crate::process::TimedCommand;

/// Manual that describes every flag.
pub(super) const DOCUMENT: &str = "docs/operating.md";

/// Flags that need no description.
const COMMON_FLAGS: [&str; 2] = ["--help", "--version"];

const HELP_TIMEOUT: Duration = Duration::from_secs(30);

/// Limit for nested commands; ours have one level.
const DEPTH_MAX: usize = 3;

/// Command line, such as `unskew serve`, → its flags.
pub(super) type FlagsByCommand = BTreeMap<String, BTreeSet<String>>;

/// Reads the flags from `--help` of the program and each command.
pub(super) fn read_flags(binary: &Path) -> Result<FlagsByCommand> {
    let mut helps = FlagsByCommand::new();
    let mut commands: Vec<Vec<String>> = vec![Vec::new()];
    while let Some(command) = commands.pop() {
        if command.len() > DEPTH_MAX {
            bail!("`unskew {}` is deeper than {DEPTH_MAX} commands", command.join(" "));
        }
        let text = TimedCommand::new(binary, HELP_TIMEOUT).args(&command).arg("--help").output_text();
        let text = text.context("cannot read the flags of `unskew --help`")?;
        commands.extend(subcommands(&text).map(|name| [command.as_slice(), &[name.to_owned()]].concat()));
        helps.insert(
            ["unskew".to_owned()].into_iter().chain(command).collect::<Vec<_>>().join(" "),
            flags_in_help(&text),
        );
    }
    Ok(helps)
}

/// Reports flags of the program that the manual lacks, and flags in the manual's tables that the program lacks.
pub(super) fn check(helps: &FlagsByCommand, manual: Option<&str>) -> Vec<TidyFinding> {
    let manual = manual.unwrap_or_default();
    let mentioned = flags_in_text(manual);
    let mut findings = Vec::new();
    for (command, flags) in helps {
        let missing = flags.iter().filter(|flag| !mentioned.contains(*flag) && !COMMON_FLAGS.contains(&flag.as_str()));
        findings
            .extend(missing.map(|flag| {
                TidyFinding::in_file(DOCUMENT, format!("`{flag}` of `{command} --help` is not described"))
            }));
    }
    for (number, line) in manual.lines().enumerate() {
        let Some(cell) = line.trim_start().strip_prefix('|').and_then(|rest| rest.split('|').next()) else { continue };
        let unknown = flags_in_text(cell).into_iter().filter(|flag| !helps.values().any(|flags| flags.contains(flag)));
        findings.extend(
            unknown
                .map(|flag| TidyFinding::at_line(DOCUMENT, number + 1, format!("no command of unskew has `{flag}`"))),
        );
    }
    findings
}

/// Command names between `Commands:` and `Options:`, without `help` and commands that are not built.
pub(crate) fn subcommands(help: &str) -> impl Iterator<Item = &str> {
    let lines = help.lines().skip_while(|line| line.trim() != "Commands:").skip(1);
    let lines = lines.take_while(|line| line.trim() != "Options:");
    // A name is indented by two spaces; a continued description by more.
    let built = lines.filter(|line| !line.ends_with("(not built yet)"));
    let names = built.filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    names.filter(|name| !name.is_empty() && *name != "help")
}

/// Flags at the start of a line, as in `-p, --port <PORT>`; not those that a description mentions.
fn flags_in_help(help: &str) -> BTreeSet<String> {
    let starts = help.lines().map(str::trim_start).filter(|line| line.starts_with('-'));
    starts.flat_map(|line| flags_in_text(line.split("  ").next().unwrap_or(line))).collect()
}

/// Every `--flag` in the text.
pub(super) fn flags_in_text(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (start, _) in text.match_indices("--") {
        let joined = text[..start].ends_with(|before: char| before == '-' || before.is_alphanumeric());
        let name: String = text[start + 2..].chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '-').collect();
        if !joined && name.starts_with(|first: char| first.is_ascii_alphabetic()) {
            found.insert(format!("--{}", name.trim_end_matches('-')));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    const HELP: &str = "\
Several API servers answer as one

Usage: unskew [OPTIONS] <COMMAND>

Commands:

Run:
  serve    Serves the API
           and more of it
  gateway  Stands before servers

Lab:
  up       Runs a cluster (not built yet)
  help     Print this message

Options:
  -v, --verbose          Says more; see --quiet
      --data-dir <DIR>   Where the state is
                         [default: --here]
      --etcd-servers[=<URL>...]
          Beside --nothing
  -h, --help             Print help
";

    #[test]
    fn commands_and_flags_are_parsed_from_help() {
        assert_eq!(subcommands(HELP).collect::<Vec<_>>(), ["serve", "gateway"]);
        let flags: Vec<String> = flags_in_help(HELP).into_iter().collect();
        assert_eq!(flags, ["--data-dir", "--etcd-servers", "--help", "--verbose"]);
    }

    fn helps() -> FlagsByCommand {
        let flags = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        FlagsByCommand::from([
            ("unskew".to_owned(), flags(&["--help", "--verbose"])),
            ("unskew serve".to_owned(), flags(&["--help", "--port"])),
        ])
    }

    #[track_caller]
    fn check_manual(manual: Option<&str>, expected: &Expect) {
        let found: Vec<String> = check(&helps(), manual).iter().map(TidyFinding::to_string).collect();
        expected.assert_eq(&found.join("\n"));
    }

    #[test]
    fn flag_missing_from_the_manual_is_reported() {
        check_manual(Some("| `--verbose` | says more |\n\nBelow `--port` there is nothing.\n"), &expect![""]);
        check_manual(
            Some("| `--verbose` | |\n`--port-range`\n"),
            &expect!["docs/operating.md: `--port` of `unskew serve --help` is not described"],
        );
        check_manual(
            None,
            &expect![[r#"
                docs/operating.md: `--verbose` of `unskew --help` is not described
                docs/operating.md: `--port` of `unskew serve --help` is not described"#]],
        );
    }

    #[test]
    fn unknown_flag_in_the_manual_is_reported() {
        check_manual(
            Some("--verbose --port\n\n| Flag | Meaning |\n|---|---|\n| `--gone <X>` | see `--other` |\n"),
            &expect!["docs/operating.md:5: no command of unskew has `--gone`"],
        );
    }
}
