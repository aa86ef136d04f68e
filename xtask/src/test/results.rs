//! Counts the results of a `cargo test` run from its output.

use std::collections::BTreeMap;

/// Parses cargo's `Running …` lines and the harness's `test result: …` lines.
///
/// Invariant: a test executable that started and gave no result, because it crashed, counts as one failure.
pub(crate) struct TestResults<'a> {
    packages: &'a BTreeMap<String, String>,
    counts: BTreeMap<String, TestCounts>,
    /// The package whose executable is running.
    running: Option<String>,
}

#[derive(Default)]
struct TestCounts {
    passed: u64,
    failed: u64,
    ignored: u64,
    filtered_out: u64,
}

impl<'a> TestResults<'a> {
    /// `packages` maps the file name of a test executable to its package.
    pub(crate) fn new(packages: &'a BTreeMap<String, String>) -> TestResults<'a> {
        TestResults { packages, counts: BTreeMap::new(), running: None }
    }

    pub(crate) fn read_line(&mut self, line: &str) {
        let line = without_colours(line);
        let line = line.trim();
        if let Some(package) = self.parse_start(line) {
            self.finish_executable();
            self.running = Some(package);
        } else if let Some(counts) = parse_result(line) {
            let package = self.running.take().unwrap_or_else(|| "?".to_owned());
            self.counts.entry(package).or_default().add(&counts);
        }
    }

    /// Ends the current executable; without a result it counts as failed.
    pub(crate) fn finish_executable(&mut self) {
        if let Some(package) = self.running.take() {
            self.counts.entry(package).or_default().failed += 1;
        }
    }

    pub(crate) fn passed(&self) -> u64 {
        self.counts.values().map(|counts| counts.passed).sum()
    }

    pub(crate) fn failed(&self) -> u64 {
        self.counts.values().map(|counts| counts.failed).sum()
    }

    pub(crate) fn ignored(&self) -> u64 {
        self.counts.values().map(|counts| counts.ignored).sum()
    }

    pub(crate) fn filtered_out(&self) -> u64 {
        self.counts.values().map(|counts| counts.filtered_out).sum()
    }

    /// One row per package, below a header.
    pub(crate) fn rows(&self) -> Vec<Vec<String>> {
        let head = vec!["package".to_owned(), "passed".to_owned(), "failed".to_owned()];
        let row = |(package, counts): (&String, &TestCounts)| {
            vec![package.clone(), counts.passed.to_string(), counts.failed.to_string()]
        };
        std::iter::once(head).chain(self.counts.iter().map(row)).collect()
    }

    /// Parses `Running unittests src/lib.rs (target/debug/deps/api-0123)` and `Doc-tests api`.
    fn parse_start(&self, line: &str) -> Option<String> {
        if let Some(package) = line.strip_prefix("Doc-tests ") {
            return Some(package.to_owned());
        }
        let path = line.strip_prefix("Running ")?.strip_suffix(')')?.rsplit_once('(')?.1;
        let file = path.rsplit('/').next()?;
        Some(self.packages.get(file).cloned().unwrap_or_else(|| file.to_owned()))
    }
}

impl TestCounts {
    fn add(&mut self, other: &TestCounts) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.ignored += other.ignored;
        self.filtered_out += other.filtered_out;
    }
}

/// Parses `test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 1 filtered out; finished in 0.00s`.
fn parse_result(line: &str) -> Option<TestCounts> {
    let (_, numbers) = line.strip_prefix("test result: ")?.split_once(". ")?;
    let mut counts = TestCounts::default();
    for part in numbers.split("; ") {
        match part.split_once(' ') {
            Some((count, "passed")) => counts.passed = count.parse().ok()?,
            Some((count, "failed")) => counts.failed = count.parse().ok()?,
            Some((count, "ignored")) => counts.ignored = count.parse().ok()?,
            Some((count, "filtered out")) => counts.filtered_out = count.parse().ok()?,
            Some(_) | None => (),
        }
    }
    Some(counts)
}

/// Removes terminal colours, which the user may have forced on.
fn without_colours(line: &str) -> String {
    let mut plain = String::with_capacity(line.len());
    let mut rest = line.chars();
    while let Some(next) = rest.next() {
        if next == '\u{1b}' {
            let _colour = rest.by_ref().find(|end| end.is_ascii_alphabetic());
        } else {
            plain.push(next);
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    #[track_caller]
    fn check(output: &str, expected: &Expect) {
        let packages = [("it-01", "store"), ("it-02", "api"), ("api-03", "api")];
        let packages = packages.map(|(file, package)| (file.to_owned(), package.to_owned())).into();
        let mut results = TestResults::new(&packages);
        output.lines().for_each(|line| results.read_line(line));
        results.finish_executable();
        let rows: Vec<String> = results.rows().iter().skip(1).map(|row| row.join(" ")).collect();
        let (ignored, filtered_out) = (results.ignored(), results.filtered_out());
        let counts = format!(
            "{} passed, {} failed, {ignored} ignored, {filtered_out} filtered out",
            results.passed(),
            results.failed()
        );
        expected.assert_eq(&format!("{}\n{counts}", rows.join("\n")));
    }

    #[test]
    fn test_results_are_summed_by_package() {
        check(
            "     Running unittests src/lib.rs (target/debug/deps/api-03)\n\
             test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 1 filtered out; finished in 0.00s\n\
             \u{20}    Running tests/it/main.rs (/elsewhere/debug/deps/it-01)\n\
             test a ... FAILED\n\
             test result: FAILED. 4 passed; 1 failed; 2 ignored; 0 measured; 0 filtered out; finished in 1.20s\n\
             \u{20}    Running tests/it/main.rs (target/debug/deps/it-02)\n\
             test result: ok. 5 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s\n",
            &expect![[r#"
                api 8 0
                store 4 1
                12 passed, 1 failed, 2 ignored, 1 filtered out"#]],
        );
    }

    #[test]
    fn crashed_executable_counts_as_failure() {
        check(
            "Running tests/it/main.rs (target/debug/deps/it-01)\n\
             test a ... ok\n\
             Running tests/it/main.rs (target/debug/deps/it-02)\n\
             test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s\n\
             Doc-tests store\n",
            &expect![[r#"
                api 1 0
                store 0 2
                1 passed, 2 failed, 0 ignored, 0 filtered out"#]],
        );
    }

    #[test]
    fn results_are_parsed_through_terminal_colours() {
        check(
            "\u{1b}[1m\u{1b}[32m     Running\u{1b}[0m tests/it/main.rs (target/debug/deps/it-01)\n\
             test result: \u{1b}[31mFAILED\u{1b}[0m. 0 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s\n",
            &expect![[r#"
                store 0 2
                0 passed, 2 failed, 0 ignored, 0 filtered out"#]],
        );
    }
}
