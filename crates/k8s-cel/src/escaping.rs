//! Names of properties as identifiers: `my-field` is written `my__dash__field`.

use std::borrow::Cow;

use crate::parser::is_reserved;

/// The identifier for a property, or nothing if none can express it.
pub fn escape(property: &str) -> Option<Cow<'_, str>> {
    let first = *property.as_bytes().first()?;
    if first.is_ascii_digit() {
        return None;
    }
    if is_reserved(property) {
        return Some(Cow::Owned(format!("__{property}__")));
    }
    if !property.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-' | b'/')) {
        return None;
    }
    if !property.contains(['.', '-', '/']) && !property.contains("__") {
        return Some(Cow::Borrowed(property));
    }
    let mut out = String::with_capacity(property.len() + 8);
    let mut rest = property;
    while let Some(c) = rest.chars().next() {
        let (escaped, length) = match c {
            '.' => ("__dot__", 1),
            '-' => ("__dash__", 1),
            '/' => ("__slash__", 1),
            '_' if rest.starts_with("__") => ("__underscores__", 2),
            _ => (&rest[..1], 1),
        };
        out.push_str(escaped);
        rest = &rest[length..];
    }
    Some(Cow::Owned(out))
}

/// The property an identifier stands for, or nothing if it contains an unknown escape.
pub fn unescape(identifier: &str) -> Option<Cow<'_, str>> {
    if !identifier.contains("__") {
        return Some(Cow::Borrowed(identifier));
    }
    let mut out = String::with_capacity(identifier.len());
    let mut rest = identifier;
    while let Some(at) = rest.find("__") {
        // An escape is `__`, one or more characters other than `_`, and `__`.
        let body = &rest[at + 2..];
        let length = body.find('_').unwrap_or(body.len());
        if length == 0 || !body[length..].starts_with("__") {
            out.push_str(&rest[..=at]);
            rest = &rest[at + 1..];
            continue;
        }
        out.push_str(&rest[..at]);
        match &body[..length] {
            "underscores" => out.push_str("__"),
            "dot" => out.push('.'),
            "dash" => out.push('-'),
            "slash" => out.push('/'),
            word if is_reserved(word) && length + 4 == identifier.len() => out.push_str(word),
            _ => return None,
        }
        rest = &body[length + 2..];
    }
    out.push_str(rest);
    Some(Cow::Owned(out))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_escaped_and_unescaped() {
        for (property, identifier) in [
            ("a", "a"),
            ("a_b", "a_b"),
            ("a-b.c/d", "a__dash__b__dot__c__slash__d"),
            ("a__b", "a__underscores__b"),
            ("___", "__underscores___"),
            ("if", "__if__"),
            ("namespace", "__namespace__"),
            ("int", "int"),
        ] {
            assert_eq!(escape(property).as_deref(), Some(identifier), "{property}");
            assert_eq!(unescape(identifier).as_deref(), Some(property), "{identifier}");
        }
        for property in ["", "1a", "a b", "ü", "a$"] {
            assert_eq!(escape(property), None, "{property}");
        }
        assert_eq!(unescape("a__if__"), None);
        assert_eq!(unescape("__nope__"), None);
    }
}
