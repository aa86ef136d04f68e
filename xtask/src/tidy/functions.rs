//! How long functions are.

use super::scan::{Part, code_only, parts};
use super::{Finding, Source};

/// More does not fit a screen; with fewer there is always a part that has a name of its own.
const LINES_MAX: usize = 70;

/// Every function, of tests too, from the line of its `fn` to its closing brace.
///
/// Lines that are wholly inside a literal do not count: an expected document is data.
pub(super) fn check(source: &Source) -> Vec<Finding> {
    if source.is_generated() {
        return Vec::new();
    }
    let too_long = functions(&source.text).into_iter().filter(|function| function.lines > LINES_MAX);
    let message =
        |f: &Function| format!("`{}` has {} lines; {LINES_MAX} is the limit: name its parts", f.name, f.lines);
    too_long.map(|function| Finding::at(&source.path, function.line, message(&function))).collect()
}

struct Function {
    name: String,
    /// Where its `fn` is; the first line is 1.
    line: usize,
    lines: usize,
}

/// Functions with a body, in the order of their `fn`.
fn functions(text: &str) -> Vec<Function> {
    let code = code_only(text);
    let data = data_lines(text);
    let mut found = Vec::new();
    for (start, _) in code.match_indices("fn ") {
        let part_of_a_word =
            code[..start].ends_with(|before: char| before.is_alphanumeric() || before == '_' || before == '#');
        let rest = code[start + 3..].trim_start();
        let name: String = rest.chars().take_while(|c| c.is_alphanumeric() || matches!(c, '_' | '#' | '$')).collect();
        if part_of_a_word || name.is_empty() {
            continue;
        }
        if let Some(length) = body_end(&code[start..]) {
            let line = code[..start].matches('\n').count() + 1;
            let end = line + code[start..start + length].matches('\n').count();
            let lines = (line..=end).filter(|number| !data[number - 1]).count();
            found.push(Function { name, line, lines });
        }
    }
    found
}

/// For every line whether it is wholly inside a literal, its line break too.
fn data_lines(text: &str) -> Vec<bool> {
    let parts = parts(text);
    let line = |bytes: &[Part]| bytes.iter().all(|part| *part == Part::Literal);
    let mut start = 0;
    let mut lines = Vec::new();
    for text in text.split_inclusive('\n') {
        lines.push(line(&parts[start..start + text.len()]));
        start += text.len();
    }
    lines
}

/// The length up to the brace that closes the body; none if a semicolon comes first.
fn body_end(code: &str) -> Option<usize> {
    let (mut brackets, mut braces) = (0_usize, 0_usize);
    for (position, c) in code.char_indices() {
        match c {
            '(' | '[' => brackets += 1,
            ')' | ']' => brackets = brackets.saturating_sub(1),
            ';' if brackets == 0 && braces == 0 => return None,
            // Within brackets of the signature a brace is a constant: `[u8; { N * 2 }]`.
            '{' if brackets == 0 || braces > 0 => braces += 1,
            '}' if braces > 0 => {
                braces -= 1;
                if braces == 0 {
                    return Some(position + 1);
                }
            }
            _ => (),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_found(text: &str, expected: &[(&str, usize, usize)]) {
        let found = functions(text);
        let shown: Vec<_> = found.iter().map(|f| (f.name.as_str(), f.line, f.lines)).collect();
        assert_eq!(shown, expected);
    }

    #[test]
    fn a_function_reaches_from_its_name_to_its_closing_brace() {
        check_found(
            "/// doc\n#[test]\nfn a() {}\n\npub(crate) async fn b(\n    x: u8,\n) -> u8 {\n    x\n}\n",
            &[("a", 3, 1), ("b", 5, 5)],
        );
    }

    #[test]
    fn braces_in_strings_and_comments_do_not_count() {
        check_found(
            "fn a() {\n    // }\n    let x = \"}\";\n    let y = '}';\n    r#\"}\"#\n}\nfn b() {}\n",
            &[("a", 1, 6), ("b", 7, 1)],
        );
    }

    #[test]
    fn lines_of_a_document_do_not_count() {
        check_found("fn a() {\n    check(r#\"\n        one\n\n        two\n    \"#);\n}\n", &[("a", 1, 4)]);
        check_found("fn a() {\n    // one\n\n    two();\n}\n", &[("a", 1, 5)]);
    }

    #[test]
    fn what_has_no_body_or_is_a_type_is_no_function() {
        check_found(
            "trait T { fn a(&self); fn b(&self) {\n} }\ntype F = fn (u8);\nstruct S { run: fn(u8) -> u8 }\n",
            &[("b", 1, 2)],
        );
    }

    #[test]
    fn braces_in_the_signature_are_not_the_body() {
        check_found("fn a(x: [u8; { 1 + 1 }]) -> [u8; { 2 }] {\n    x\n}\n", &[("a", 1, 3)]);
    }

    #[test]
    fn a_function_within_a_function_is_counted_too() {
        check_found("fn a() {\n    fn b() {\n    }\n}\n", &[("a", 1, 4), ("b", 2, 2)]);
        check_found("macro_rules! m { ($n:ident) => { fn $n() {} } }\n", &[("$n", 1, 1)]);
    }

    #[test]
    fn seventy_lines_pass_and_seventy_one_do_not() {
        let function = |lines: usize| format!("fn long() {{\n{}}}\n", "    x();\n".repeat(lines - 2));
        let findings = |path: &str, lines: usize| check(&Source { path: path.to_owned(), text: function(lines) });
        assert_eq!(findings("a.rs", 70), []);
        assert_eq!(
            findings("a.rs", 71),
            [Finding::at("a.rs", 1, "`long` has 71 lines; 70 is the limit: name its parts")]
        );
        assert_eq!(findings("src/generated/a.rs", 71), []);
    }
}
