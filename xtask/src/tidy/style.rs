//! Small rules about the text of a file.

use super::scan::{Part, code_only, parts};
use super::{Finding, Source};

/// Macros and attributes that must not be committed, and what to do instead.
const FORBIDDEN: [(&str, &str); 4] = [
    ("todo!(", "finish it, or leave it out"),
    ("dbg!(", "log it, or leave it out"),
    ("#[ignore", "a test runs or does not exist; long ones are sized down and run in full by `cargo xtask soak`"),
    ("#![ignore", "a test runs or does not exist; long ones are sized down and run in full by `cargo xtask soak`"),
];

/// What every Rust file keeps.
pub(super) fn check_rust(source: &Source) -> Vec<Finding> {
    let path = &source.path;
    let mut findings = Vec::new();
    if path == "mod.rs" || path.ends_with("/mod.rs") {
        findings.push(Finding::of(path, "a module `foo` is `foo.rs` beside `foo/`, never `mod.rs`"));
    }
    // `foo/tests.rs` is the tests of `foo`, which its place says already.
    let said_by_place = path.ends_with("/tests.rs");
    if !said_by_place && !source.text.lines().any(|line| line.starts_with("//!")) {
        findings.push(Finding::of(path, "no `//!` says what this module is for"));
    }
    for (number, line) in code_only(&source.text).lines().enumerate() {
        let found = FORBIDDEN.iter().filter(|(word, _)| has_word(line, word));
        findings.extend(found.map(|(word, advice)| {
            Finding::at(path, number + 1, format!("`{}`: {advice}", word.trim_end_matches('(')))
        }));
    }
    findings
}

/// Not as the end of a longer name.
fn has_word(line: &str, word: &str) -> bool {
    let names = |before: char| before.is_alphanumeric() || before == '_';
    line.match_indices(word).any(|(start, _)| !line[..start].ends_with(names))
}

/// No tabs and no spaces at the end of a line, in Rust outside of literals, and in Markdown.
pub(super) fn check_spaces(source: &Source) -> Vec<Finding> {
    let literal: Box<dyn Fn(usize) -> bool> = if source.is_rust() {
        let parts = parts(&source.text);
        Box::new(move |position| parts[position] == Part::Literal)
    } else if source.is_markdown() {
        Box::new(|_| false)
    } else {
        return Vec::new();
    };
    let mut findings = Vec::new();
    let mut start = 0;
    for (number, line) in source.text.split('\n').enumerate() {
        if line.ends_with([' ', '\t', '\r']) && !literal(start + line.len() - 1) {
            findings.push(Finding::at(&source.path, number + 1, "space at the end of the line"));
        }
        if line.bytes().enumerate().any(|(column, byte)| byte == b'\t' && !literal(start + column)) {
            findings.push(Finding::at(&source.path, number + 1, "tab"));
        }
        start += line.len() + 1;
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(findings: &[Finding]) -> Vec<String> {
        findings.iter().map(Finding::to_string).collect()
    }

    #[track_caller]
    fn check(path: &str, text: &str, expected: &[&str]) {
        let source = Source { path: path.to_owned(), text: text.to_owned() };
        assert_eq!(shown(&check_rust(&source)), expected);
    }

    #[test]
    fn a_module_says_what_it_is_for() {
        check("src/a.rs", "//! Duty.\n", &[]);
        check("src/a.rs", "#![allow(x)]\n//! Duty.\n", &[]);
        check("src/a/tests.rs", "use super::*;\n", &[]);
        check("src/a.rs", "// Duty.\n", &["src/a.rs: no `//!` says what this module is for"]);
    }

    #[test]
    fn modules_are_not_called_mod() {
        check(
            "src/a/mod.rs",
            "//! Duty.\n",
            &["src/a/mod.rs: a module `foo` is `foo.rs` beside `foo/`, never `mod.rs`"],
        );
        check("src/a/commod.rs", "//! Duty.\n", &[]);
    }

    #[test]
    fn unfinished_code_is_found_in_code_alone() {
        check("a.rs", "//! Duty.\nfn a() {\n    todo!()\n}\n", &["a.rs:3: `todo!`: finish it, or leave it out"]);
        check("a.rs", "//! Duty.\nlet x = dbg!(1);\n", &["a.rs:2: `dbg!`: log it, or leave it out"]);
        check("a.rs", "//! No todo!() here.\nlet x = \"dbg!(1)\"; not_todo!();\n", &[]);
    }

    #[test]
    fn no_test_is_ignored() {
        for attribute in ["#[ignore]", "#[ignore = \"slow\"]"] {
            let text = format!("//! Duty.\n{attribute}\nfn a() {{}}\n");
            let found = check_rust(&Source { path: "a.rs".to_owned(), text });
            assert_eq!(found.len(), 1, "{attribute}");
        }
    }

    #[track_caller]
    fn check_text(path: &str, text: &str, expected: &[&str]) {
        assert_eq!(shown(&check_spaces(&Source { path: path.to_owned(), text: text.to_owned() })), expected);
    }

    #[test]
    fn spaces_at_the_end_and_tabs_are_found() {
        check_text("a.md", "a \nb\tc\n", &["a.md:1: space at the end of the line", "a.md:2: tab"]);
        check_text(
            "a.rs",
            "// a \nb\r\n",
            &["a.rs:1: space at the end of the line", "a.rs:2: space at the end of the line"],
        );
    }

    #[test]
    fn a_literal_may_hold_them() {
        check_text("a.rs", "let x = \"a\tb \n c\";\n", &[]);
        check_text("a.rs", "let x = \"a\";\t\n", &["a.rs:1: space at the end of the line", "a.rs:1: tab"]);
    }

    #[test]
    fn other_files_are_their_own_affair() {
        check_text("Makefile", "\ta \n", &[]);
    }
}
