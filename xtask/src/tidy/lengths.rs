//! Limits for the length of files.

use super::{SourceFile, TidyFinding};

/// A longer Rust file has more than one responsibility.
const RUST_LINES_MAX: usize = 500;

/// New contributors read these in full, so they must be short.
const DOCUMENT_LINES_MAX: [(&str, usize); 2] = [("README.md", 120), ("ARCHITECTURE.md", 320)];

pub(super) fn check(source: &SourceFile) -> Option<TidyFinding> {
    let document = DOCUMENT_LINES_MAX.iter().find(|(path, _)| *path == source.path);
    let limit = match document {
        Some((_, limit)) => *limit,
        None if source.is_rust() => RUST_LINES_MAX,
        None => return None,
    };
    let lines = source.text.lines().count();
    (lines > limit).then(|| TidyFinding::in_file(&source.path, format!("{lines} lines; {limit} is the limit")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_lines(path: &str, lines: usize, expected: Option<&str>) {
        let found = check(&SourceFile { path: path.to_owned(), text: "x\n".repeat(lines) });
        assert_eq!(found.map(|finding| finding.message).as_deref(), expected);
    }

    #[test]
    fn line_limits_are_inclusive() {
        check_lines("a.rs", 500, None);
        check_lines("a.rs", 501, Some("501 lines; 500 is the limit"));
        check_lines("README.md", 120, None);
        check_lines("README.md", 121, Some("121 lines; 120 is the limit"));
        check_lines("ARCHITECTURE.md", 321, Some("321 lines; 320 is the limit"));
    }

    #[test]
    fn other_documents_have_no_limit() {
        check_lines("docs/kep-map.md", 900, None);
        check_lines("crates/x/README.md", 900, None);
    }
}
