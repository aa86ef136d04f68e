//! The text of an expression, positions in it, and compile errors in cel-go's format.

use std::fmt;

use crate::types::Type;

/// A position in an expression: 1-based line, 0-based column in code points.
///
/// Errors without a position (recursion limit, size limit) use line -1 and column -1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// 1-based line, or -1.
    pub line: i32,
    /// 0-based column in code points, or -1.
    pub column: i32,
}

impl Position {
    /// The position of errors about the expression as a whole.
    pub const NONE: Position = Position { line: -1, column: -1 };
}

/// One problem found while compiling.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issue {
    /// Where the problem is.
    pub position: Position,
    /// What the problem is, without position.
    pub message: String,
}

/// Adds a problem. Problems that will not be shown are only counted: finding a position takes time.
pub(crate) fn add_issue(issues: &mut Vec<Issue>, source: &str, offset: usize, message: String) {
    issues.push(if issues.len() < MAX_ISSUES {
        Issue { position: position(source, offset), message }
    } else {
        Issue { position: Position::NONE, message: String::new() }
    });
}

/// All problems of one expression. `Display` prints them as Kubernetes shows them: one `ERROR: <input>:line:column: message`
/// each, with the source line and a caret below.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompileError {
    issues: Vec<Issue>,
    /// Problems beyond the first `MAX_ISSUES`.
    truncated: usize,
    source: String,
    /// Set if the expression is valid but its constants are not, e.g. `int('a')`.
    instantiation: Option<Instantiation>,
}

#[derive(Clone, Debug)]
struct Instantiation {
    message: String,
    output: Type,
}

impl PartialEq for Instantiation {
    fn eq(&self, other: &Self) -> bool {
        self.message == other.message && self.output.is_exactly(&other.output)
    }
}

impl Eq for Instantiation {}

/// cel-go reports at most this many problems.
const MAX_ISSUES: usize = 100;
/// Source lines longer than this are not shown.
const MAX_SNIPPET_BYTES: usize = 16384;

impl CompileError {
    pub(crate) fn new(source: &str, mut issues: Vec<Issue>) -> Self {
        let truncated = issues.len().saturating_sub(MAX_ISSUES);
        issues.truncate(MAX_ISSUES);
        issues.sort_by_key(|issue| issue.position);
        Self { issues, truncated, source: source.to_owned(), instantiation: None }
    }

    pub(crate) fn instantiation(source: &str, message: String, output: Type) -> Self {
        let instantiation = Some(Instantiation { message, output });
        Self { issues: Vec::new(), truncated: 0, source: source.to_owned(), instantiation }
    }

    /// True if the expression passed all checks and only a constant could not be converted; Kubernetes reports these as
    /// `program instantiation failed`.
    pub fn is_instantiation(&self) -> bool {
        self.instantiation.is_some()
    }

    /// The static type of the result where [`is_instantiation`](Self::is_instantiation) holds.
    pub fn instantiation_type(&self) -> Option<&Type> {
        self.instantiation.as_ref().map(|instantiation| &instantiation.output)
    }

    /// The problems, ordered by position.
    pub fn issues(&self) -> &[Issue] {
        &self.issues
    }
}

impl fmt::Display for CompileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(instantiation) = &self.instantiation {
            return f.write_str(&instantiation.message);
        }
        for (index, issue) in self.issues.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            write_issue(f, issue, &self.source)?;
        }
        if self.truncated > 0 {
            write!(f, "\n{} more errors were truncated", self.truncated)?;
        }
        Ok(())
    }
}

impl std::error::Error for CompileError {}

fn write_issue(f: &mut fmt::Formatter<'_>, issue: &Issue, source: &str) -> fmt::Result {
    let Position { line, column } = issue.position;
    write!(f, "ERROR: <input>:{line}:{}: {}", column + 1, issue.message)?;
    let Some(snippet) = usize::try_from(line - 1).ok().and_then(|index| source.split('\n').nth(index)) else {
        return Ok(());
    };
    if snippet.len() > MAX_SNIPPET_BYTES {
        return Ok(());
    }
    let snippet = snippet.replace('\t', " ");
    write!(f, "\n | {snippet}\n | ")?;
    let mut chars = snippet.chars();
    for _ in 0..column {
        match chars.next() {
            Some(c) => f.write_str(if c.len_utf8() > 1 { "\u{ff0e}" } else { "." })?,
            None => break,
        }
    }
    f.write_str(if chars.next().is_some_and(|c| c.len_utf8() > 1) { "\u{ff3e}" } else { "^" })
}

/// Converts a byte offset into a line and a column in code points.
pub(crate) fn position(source: &str, offset: usize) -> Position {
    let before = &source.as_bytes()[..offset.min(source.len())];
    let line = before.iter().filter(|&&b| b == b'\n').count();
    let start = before.iter().rposition(|&b| b == b'\n').map_or(0, |at| at + 1);
    // Continuation bytes do not start a code point.
    let column = before[start..].iter().filter(|&&b| b & 0xC0 != 0x80).count();
    Position { line: as_i32(line + 1), column: as_i32(column) }
}

fn as_i32(n: usize) -> i32 {
    i32::try_from(n).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn issue_prints_caret_below_the_code_point() {
        let source = "a\n\tü + b";
        let issue = Issue { position: position(source, source.find('+').unwrap()), message: "bad".into() };
        let error = CompileError::new(source, vec![issue]);
        assert_eq!(error.to_string(), "ERROR: <input>:2:4: bad\n |  ü + b\n | .\u{ff0e}.^");
    }

    #[test]
    fn issues_are_sorted_and_truncated() {
        let issue = |column| Issue { position: Position { line: 1, column }, message: "m".into() };
        let error = CompileError::new("abc", vec![issue(2), issue(0)]);
        assert_eq!(error.issues()[0].position.column, 0);
        let many = CompileError::new("abc", vec![issue(0); 103]);
        assert!(many.to_string().ends_with("\n3 more errors were truncated"));
    }
}
