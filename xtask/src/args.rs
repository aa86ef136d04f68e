//! The few flags of the commands, parsed by hand: a flag nobody knows is an error, never ignored.

use anyhow::{Result, bail};

use crate::tools::Optional;

/// What `test`, `soak` and `ci` understand.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct TestArgs {
    /// Tools whose tests are left out, in the order given, each once.
    pub(crate) without: Vec<Optional>,
    /// Words that are neither flags nor behind `--`.
    pub(crate) names: Vec<String>,
    /// Everything behind `--`, for `cargo test`.
    pub(crate) cargo: Vec<String>,
}

impl TestArgs {
    /// The packages that the words for cargo select; none if they select no package.
    pub(crate) fn packages(&self) -> Vec<String> {
        let mut packages = Vec::new();
        // Behind a second `--` are words for the test harness.
        let mut words = self.cargo.iter().take_while(|word| *word != "--");
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

/// Words behind `--` are another program's, its `--help` too.
pub(crate) fn asks_for_help(words: &[String]) -> bool {
    words.iter().take_while(|word| *word != "--").any(|word| word == "--help" || word == "-h")
}

/// Reads the words after `test`, `soak` or `ci`.
pub(crate) fn parse_test(words: &[String]) -> Result<TestArgs> {
    let mut parsed = TestArgs::default();
    let mut rest = words.iter();
    while let Some(word) = rest.next() {
        if word == "--" {
            parsed.cargo = rest.cloned().collect();
            break;
        }
        if let Some(list) = word.strip_prefix("--without=") {
            add_without(&mut parsed, list)?;
        } else if word == "--without" {
            let Some(list) = rest.next() else { bail!("--without needs a list, such as `--without kubectl,browser`") };
            add_without(&mut parsed, list)?;
        } else if word.starts_with('-') {
            bail!("unknown flag `{word}`; flags for `cargo test` come behind `--`");
        } else {
            parsed.names.push(word.clone());
        }
    }
    Ok(parsed)
}

fn add_without(parsed: &mut TestArgs, list: &str) -> Result<()> {
    for name in list.split(',') {
        let tool = Optional::named(name.trim())?;
        if !parsed.without.contains(&tool) {
            parsed.without.push(tool);
        }
    }
    Ok(())
}

/// For commands that take no words at all.
pub(crate) fn expect_none(command: &str, words: &[String]) -> Result<()> {
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
        let shown = match parse_test(&words) {
            Ok(TestArgs { without, names, cargo }) => format!("{without:?} {names:?} {cargo:?}"),
            Err(error) => error.to_string(),
        };
        expected.assert_eq(&shown);
    }

    #[test]
    fn tools_are_left_out_by_name() {
        check("--without kubectl,browser", &expect!["[Kubectl, Browser] [] []"]);
        check("--without=python --without python", &expect!["[Python] [] []"]);
    }

    #[test]
    fn an_unknown_tool_is_an_error() {
        check(
            "--without kubctl",
            &expect!["nothing called `kubctl` can be left out; choose from kubectl, python, browser, nginx"],
        );
        check(
            "--without etcd",
            &expect!["nothing called `etcd` can be left out; choose from kubectl, python, browser, nginx"],
        );
        check(
            "--without kubectl,",
            &expect!["nothing called `` can be left out; choose from kubectl, python, browser, nginx"],
        );
        check("--without", &expect!["--without needs a list, such as `--without kubectl,browser`"]);
    }

    #[test]
    fn words_behind_the_dashes_are_for_cargo() {
        check("-- -p store --help etcd::", &expect![[r#"[] [] ["-p", "store", "--help", "etcd::"]"#]]);
        check("crash", &expect![[r#"[] ["crash"] []"#]]);
        check("--nocapture", &expect!["unknown flag `--nocapture`; flags for `cargo test` come behind `--`"]);
    }

    #[test]
    fn packages_are_read_however_they_are_written() {
        let packages = |line: &str| {
            let cargo = line.split_whitespace().map(str::to_owned).collect();
            TestArgs { cargo, ..TestArgs::default() }.packages()
        };
        assert_eq!(packages("-p store watch --package=api -papi2 --package tasks"), ["store", "api", "api2", "tasks"]);
        assert!(packages("watch --no-run -- -p store").is_empty());
    }

    #[test]
    fn help_behind_the_dashes_is_not_ours() {
        let words = ["--", "--help"].map(str::to_owned);
        assert!(!asks_for_help(&words));
        assert!(asks_for_help(&["--help".to_owned()]));
    }
}
