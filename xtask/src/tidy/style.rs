//! Text rules that rustfmt and clippy do not check.

use super::{SourceFile, TidyFinding};

/// Checks a Rust file: no `mod.rs`, a `//!` comment, no ignored test.
pub(super) fn check_rust(source: &SourceFile) -> Vec<TidyFinding> {
    let path = &source.path;
    let mut findings = Vec::new();
    if path == "mod.rs" || path.ends_with("/mod.rs") {
        findings.push(TidyFinding::in_file(path, "a module `foo` is `foo.rs` beside `foo/`, never `mod.rs`"));
    }
    // `foo/tests.rs` holds the tests of `foo` and needs no comment.
    let is_tests = path.ends_with("/tests.rs");
    if !is_tests && !source.text.lines().any(|line| line.starts_with("//!")) {
        findings.push(TidyFinding::in_file(path, "the module has no `//!` comment"));
    }
    for (number, line) in source.text.lines().enumerate() {
        if line.trim_start().starts_with("#[ignore") {
            let advice = "`#[ignore]`: size the test down; `cargo xtask soak` runs it in full";
            findings.push(TidyFinding::at_line(path, number + 1, advice));
        }
    }
    findings
}

/// Reports tabs and trailing spaces in Markdown; rustfmt handles Rust files.
pub(super) fn check_markdown_spaces(source: &SourceFile) -> Vec<TidyFinding> {
    let mut findings = Vec::new();
    for (number, line) in source.text.lines().enumerate() {
        if line.ends_with([' ', '\t', '\r']) {
            findings.push(TidyFinding::at_line(&source.path, number + 1, "space at the end of the line"));
        }
        if line.contains('\t') {
            findings.push(TidyFinding::at_line(&source.path, number + 1, "tab"));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(path: &str, text: &str) -> SourceFile {
        SourceFile { path: path.to_owned(), text: text.to_owned() }
    }

    fn shown(findings: &[TidyFinding]) -> Vec<String> {
        findings.iter().map(TidyFinding::to_string).collect()
    }

    #[track_caller]
    fn check(path: &str, text: &str, expected: &[&str]) {
        assert_eq!(shown(&check_rust(&source(path, text))), expected);
    }

    #[test]
    fn module_without_doc_comment_is_reported() {
        check("src/a.rs", "//! Duty.\n", &[]);
        check("src/a.rs", "#![allow(x)]\n//! Duty.\n", &[]);
        check("src/a/tests.rs", "use super::*;\n", &[]);
        check("src/a.rs", "// Duty.\n", &["src/a.rs: the module has no `//!` comment"]);
    }

    #[test]
    fn mod_rs_is_reported() {
        check(
            "src/a/mod.rs",
            "//! Duty.\n",
            &["src/a/mod.rs: a module `foo` is `foo.rs` beside `foo/`, never `mod.rs`"],
        );
        check("src/a/commod.rs", "//! Duty.\n", &[]);
    }

    #[test]
    fn ignored_test_is_reported() {
        for attribute in ["#[ignore]", "#[ignore = \"slow\"]"] {
            let text = format!("//! Duty.\n    {attribute}\nfn a() {{}}\n");
            let found = shown(&check_rust(&source("a.rs", &text)));
            assert_eq!(
                found,
                ["a.rs:2: `#[ignore]`: size the test down; `cargo xtask soak` runs it in full"],
                "{attribute}"
            );
        }
    }

    #[test]
    fn markdown_spaces_are_reported() {
        let found = check_markdown_spaces(&source("a.md", "a \nb\tc\n"));
        assert_eq!(shown(&found), ["a.md:1: space at the end of the line", "a.md:2: tab"]);
    }
}
