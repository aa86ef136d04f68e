//! Flags of the commands, parsed by hand. An unknown flag is an error, never ignored.

use anyhow::{Result, bail};

use crate::tools::OptionalTool;

/// Arguments of `test`, `soak` and `ci`.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct TestArgs {
    /// Tools whose tests are skipped, in the order given, without duplicates.
    pub(crate) skipped_tools: Vec<OptionalTool>,
    /// Arguments before `--` that are not flags.
    pub(crate) names: Vec<String>,
    /// Arguments after `--`, passed to `cargo test`.
    pub(crate) cargo_args: Vec<String>,
}

impl TestArgs {
    /// Packages selected with `-p` or `--package` in the cargo arguments; empty for the whole workspace.
    pub(crate) fn selected_packages(&self) -> Vec<String> {
        let mut packages = Vec::new();
        // Arguments after a second `--` are for the test harness.
        let mut words = self.cargo_args.iter().take_while(|word| *word != "--");
        while let Some(word) = words.next() {
            if word == "-p" || word == "--package" {
                packages.extend(words.next().cloned());
            } else if let Some(name) = word.strip_prefix("--package=").or_else(|| word.strip_prefix("-p")) {
                packages.push(name.trim_start_matches('=').to_owned());
            }
        }
        packages
    }
}

/// True if `--help` or `-h` occurs before `--`; later arguments belong to another program.
pub(crate) fn has_help_flag(words: &[String]) -> bool {
    words.iter().take_while(|word| *word != "--").any(|word| word == "--help" || word == "-h")
}

/// Parses the arguments after `test`, `soak` or `ci`.
pub(crate) fn parse_test_args(words: &[String]) -> Result<TestArgs> {
    let mut parsed = TestArgs::default();
    let mut rest = words.iter();
    while let Some(word) = rest.next() {
        if word == "--" {
            parsed.cargo_args = rest.cloned().collect();
            break;
        }
        if let Some(list) = word.strip_prefix("--without=") {
            add_skipped_tools(&mut parsed, list)?;
        } else if word == "--without" {
            let Some(list) = rest.next() else { bail!("--without needs a list, such as `--without kubectl,browser`") };
            add_skipped_tools(&mut parsed, list)?;
        } else if word.starts_with('-') {
            bail!("unknown flag `{word}`; flags for `cargo test` come behind `--`");
        } else {
            parsed.names.push(word.clone());
        }
    }
    Ok(parsed)
}

fn add_skipped_tools(parsed: &mut TestArgs, list: &str) -> Result<()> {
    for name in list.split(',') {
        let tool = OptionalTool::from_name(name.trim())?;
        if !parsed.skipped_tools.contains(&tool) {
            parsed.skipped_tools.push(tool);
        }
    }
    Ok(())
}

/// Rejects any argument, for commands that take none.
pub(crate) fn expect_no_args(command: &str, words: &[String]) -> Result<()> {
    match words.first() {
        None => Ok(()),
        Some(word) => bail!("`cargo xtask {command}` takes no `{word}`; see `cargo xtask {command} --help`"),
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    #[track_caller]
    fn check(line: &str, expected: &Expect) {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let shown = match parse_test_args(&words) {
            Ok(TestArgs { skipped_tools, names, cargo_args }) => {
                format!("{skipped_tools:?} {names:?} {cargo_args:?}")
            }
            Err(error) => error.to_string(),
        };
        expected.assert_eq(&shown);
    }

    #[test]
    fn without_flag_skips_tools_by_name() {
        check("--without kubectl,browser", &expect!["[Kubectl, Browser] [] []"]);
        check("--without=python --without python", &expect!["[Python] [] []"]);
    }

    #[test]
    fn without_flag_rejects_unknown_tools() {
        check(
            "--without kubctl",
            &expect!["no optional tool is called `kubctl`; choose from kubectl, python, browser, nginx"],
        );
        check(
            "--without etcd",
            &expect!["no optional tool is called `etcd`; choose from kubectl, python, browser, nginx"],
        );
        check(
            "--without kubectl,",
            &expect!["no optional tool is called ``; choose from kubectl, python, browser, nginx"],
        );
        check("--without", &expect!["--without needs a list, such as `--without kubectl,browser`"]);
    }

    #[test]
    fn args_after_double_dash_are_passed_to_cargo() {
        check("-- -p store --help etcd::", &expect![[r#"[] [] ["-p", "store", "--help", "etcd::"]"#]]);
        check("crash", &expect![[r#"[] ["crash"] []"#]]);
        check("--nocapture", &expect!["unknown flag `--nocapture`; flags for `cargo test` come behind `--`"]);
    }

    #[test]
    fn selected_packages_reads_every_spelling_of_the_flag() {
        let packages = |line: &str| {
            let cargo = line.split_whitespace().map(str::to_owned).collect();
            TestArgs { cargo_args: cargo, ..TestArgs::default() }.selected_packages()
        };
        assert_eq!(packages("-p store watch --package=api -papi2 --package tasks"), ["store", "api", "api2", "tasks"]);
        assert!(packages("watch --no-run -- -p store").is_empty());
    }

    #[test]
    fn help_flag_after_double_dash_is_ignored() {
        let words = ["--", "--help"].map(str::to_owned);
        assert!(!has_help_flag(&words));
        assert!(has_help_flag(&["--help".to_owned()]));
    }
}
