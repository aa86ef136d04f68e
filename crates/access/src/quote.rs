//! Strings as Go prints them with `%q`, because Kubernetes' messages are compared by people and by tests.

use std::fmt::{self, Write as _};

/// A string in double quotes, escaped as Go does.
pub(crate) struct Quoted<'a>(pub(crate) &'a str);

/// A list of strings as Go prints one: `["a" "b"]`.
pub(crate) struct QuotedList<'a, S>(pub(crate) &'a [S]);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for character in self.0.chars() {
            match character {
                '"' => f.write_str("\\\"")?,
                '\\' => f.write_str("\\\\")?,
                '\u{7}' => f.write_str("\\a")?,
                '\u{8}' => f.write_str("\\b")?,
                '\u{c}' => f.write_str("\\f")?,
                '\n' => f.write_str("\\n")?,
                '\r' => f.write_str("\\r")?,
                '\t' => f.write_str("\\t")?,
                '\u{b}' => f.write_str("\\v")?,
                ' '..='~' => f.write_char(character)?,
                _ if character.is_ascii() => write!(f, "\\x{:02x}", u32::from(character))?,
                _ if is_printable(character) => f.write_char(character)?,
                _ if u32::from(character) < 0x1_0000 => write!(f, "\\u{:04x}", u32::from(character))?,
                _ => write!(f, "\\U{:08x}", u32::from(character))?,
            }
        }
        f.write_char('"')
    }
}

impl<S: AsRef<str>> fmt::Display for QuotedList<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('[')?;
        for (index, item) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_char(' ')?;
            }
            Quoted(item.as_ref()).fmt(f)?;
        }
        f.write_char(']')
    }
}

/// Behind another character the standard library escapes what Go escapes; alone it would escape combining marks too.
fn is_printable(character: char) -> bool {
    ['a', character].iter().collect::<String>().escape_debug().count() == 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_quoted_as_go_does() {
        for (text, quoted) in [
            ("", r#""""#),
            ("system:node:a", r#""system:node:a""#),
            ("a\"b\\c", r#""a\"b\\c""#),
            ("\u{7}\u{8}\u{c}\n\r\t\u{b}\0\u{7f}", r#""\a\b\f\n\r\t\v\x00\x7f""#),
            ("é世😀", r#""é世😀""#),
            ("\u{feff}\u{e000}\u{10ffff}\u{a0}\u{85}", r#""\ufeff\ue000\U0010ffff\u00a0\u0085""#),
        ] {
            assert_eq!(Quoted(text).to_string(), quoted);
        }
        assert_eq!(QuotedList(&["a", "b c"]).to_string(), r#"["a" "b c"]"#);
        assert_eq!(QuotedList::<&str>(&[]).to_string(), "[]");
    }
}
