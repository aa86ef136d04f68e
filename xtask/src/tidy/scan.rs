//! Which bytes of a Rust file are code, which are comments, and which are inside literals.
//!
//! Enough of Rust's grammar for counting braces and finding words: nested block comments, raw strings, byte and C strings,
//! character literals beside lifetimes.

/// What a byte belongs to. Quotes belong to their literal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Part {
    Code,
    Comment,
    Literal,
}

/// One part for every byte of the text.
pub(crate) fn parts(text: &str) -> Vec<Part> {
    let mut scanner = Scanner { bytes: text.as_bytes(), parts: Vec::with_capacity(text.len()) };
    while scanner.position() < scanner.bytes.len() {
        scanner.step();
    }
    scanner.parts
}

/// The text with everything but code replaced by spaces; lines stay where they are.
pub(crate) fn code_only(text: &str) -> String {
    let blank = |(byte, part): (u8, Part)| if part == Part::Code || byte == b'\n' { byte } else { b' ' };
    let bytes = text.bytes().zip(parts(text)).map(blank).collect();
    // Code outside of literals and comments may hold any letter; blanking never splits one, for it blanks whole tokens.
    String::from_utf8(bytes).unwrap_or_default()
}

struct Scanner<'a> {
    bytes: &'a [u8],
    /// Its length is the position of the scanner.
    parts: Vec<Part>,
}

impl Scanner<'_> {
    fn position(&self) -> usize {
        self.parts.len()
    }

    fn rest(&self) -> &[u8] {
        &self.bytes[self.position()..]
    }

    fn step(&mut self) {
        if self.rest().starts_with(b"//") {
            let end = self.rest().iter().position(|byte| *byte == b'\n').unwrap_or(self.rest().len());
            self.take(end, Part::Comment);
        } else if self.rest().starts_with(b"/*") {
            self.take(block_comment(self.rest()), Part::Comment);
        } else if let Some(length) = self.literal() {
            self.take(length, Part::Literal);
        } else {
            self.take(1, Part::Code);
        }
    }

    fn take(&mut self, length: usize, part: Part) {
        let end = (self.position() + length.max(1)).min(self.bytes.len());
        self.parts.resize(end, part);
    }

    /// The length of the literal that starts here.
    fn literal(&self) -> Option<usize> {
        let rest = self.rest();
        match rest[0] {
            b'"' => Some(quoted(rest)),
            b'\'' => character(rest),
            b'r' | b'b' | b'c' if !self.within_word() => prefixed(rest),
            _ => None,
        }
    }

    /// A letter right before, so that an `r` here ends a name and starts no raw string.
    fn within_word(&self) -> bool {
        let before = self.position().checked_sub(1).map(|position| self.bytes[position]);
        before.is_some_and(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || !byte.is_ascii())
    }
}

fn block_comment(text: &[u8]) -> usize {
    let (mut position, mut depth) = (0, 0_usize);
    while position < text.len() {
        if text[position..].starts_with(b"/*") {
            depth += 1;
            position += 2;
        } else if text[position..].starts_with(b"*/") {
            depth -= 1;
            position += 2;
            if depth == 0 {
                return position;
            }
        } else {
            position += 1;
        }
    }
    text.len()
}

/// From a double quote to its end, escapes skipped.
fn quoted(text: &[u8]) -> usize {
    let mut position = 1;
    while position < text.len() {
        match text[position] {
            b'\\' => position += 2,
            b'"' => return position + 1,
            _ => position += 1,
        }
    }
    text.len()
}

/// From a single quote; none if it is a lifetime.
fn character(text: &[u8]) -> Option<usize> {
    if text.get(1) == Some(&b'\\') {
        // `'\''`: the escaped byte is skipped, then the closing quote is looked for.
        let end = text.iter().skip(3).position(|byte| *byte == b'\'')?;
        return Some(end + 4);
    }
    // One character, of up to four bytes, and a quote: everything else is a lifetime.
    let length = match *text.get(1)? {
        0..0x80 => 1,
        0x80..0xe0 => 2,
        0xe0..0xf0 => 3,
        0xf0.. => 4,
    };
    (text.get(1 + length) == Some(&b'\'')).then_some(length + 2)
}

/// `r"…"`, `r#"…"#`, `b"…"`, `br#"…"#`, `b'…'`, `c"…"`, `cr"…"`; none if it is only a name.
fn prefixed(text: &[u8]) -> Option<usize> {
    let letters = if text.starts_with(b"br") || text.starts_with(b"cr") { 2 } else { 1 };
    let hashes = text[letters..].iter().take_while(|byte| **byte == b'#').count();
    let start = letters + hashes;
    match text.get(start)? {
        b'"' if text[letters - 1] == b'r' => Some(raw(text, start, hashes)),
        b'"' if hashes == 0 => Some(start + quoted(&text[start..])),
        b'\'' if text[0] == b'b' && start == 1 => Some(start + character(&text[start..])?),
        _ => None,
    }
}

/// To the quote that is followed by as many hashes as there were.
fn raw(text: &[u8], start: usize, hashes: usize) -> usize {
    let ends =
        |at: usize| text[at] == b'"' && text[at + 1..].iter().take_while(|byte| **byte == b'#').count() >= hashes;
    (start + 1..text.len()).find(|at| ends(*at)).map_or(text.len(), |at| at + 1 + hashes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Code as it is, comments as `-`, literals as `=`.
    #[track_caller]
    fn check(text: &str, expected: &str) {
        let shown = |(byte, part): (u8, Part)| match part {
            Part::Code => byte as char,
            Part::Comment => '-',
            Part::Literal => '=',
        };
        assert_eq!(text.bytes().zip(parts(text)).map(shown).collect::<String>(), expected);
    }

    #[test]
    fn comments_nest_and_end() {
        check("a // { \"\nb", "a ------\nb");
        check("a /* { /* } */ \" */ b", "a ----------------- b");
        check("a /* open", "a -------");
    }

    #[test]
    fn strings_with_escapes() {
        check(r#"a("{ \" }") b"#, "a(========) b");
        check(r#"a("\\") b"#, "a(====) b");
        check(r#"a("open"#, "a(=====");
        check(r#"b"{" c"}" x"#, "==== ==== x");
    }

    #[test]
    fn raw_strings() {
        check(r###"r"{\" x"###, "===== x");
        check(r###"r#"{"}"# x"###, "======== x");
        check(r####"br##"{"#"## x"####, "=========== x");
        check(r###"cr"{" x"###, "===== x");
    }

    #[test]
    fn raw_names_and_names_that_end_in_a_prefix_are_code() {
        check("r#fn()", "r#fn()");
        check(r#"expr"x""#, "expr===");
        check("b + c", "b + c");
        check(r##"br#x"##, "br#x");
    }

    #[test]
    fn characters_and_lifetimes() {
        check("'{' 'a: 'b", "=== 'a: 'b");
        check(r"'\'' '\\' b'\'' x", "==== ==== ===== x");
        check(r"'\u{7b}' x", "======== x");
        check("&'a str, '\"', x", "&'a str, ===, x");
        check("'ä' '→' '🦀' x", "==== ===== ====== x");
        check("<'_>", "<'_>");
    }

    #[test]
    fn blanking_keeps_the_lines() {
        assert_eq!(code_only("a /* ä\n */ b \"x\ny\""), "a      \n    b   \n  ");
    }
}
