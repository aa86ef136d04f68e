//! Character classes.

use super::{Checked, escaped_char, push_literal, refuse};

/// The ranges of `\d` and its like, ASCII only.
pub(super) fn perl(c: char) -> &'static str {
    match c {
        'd' => "[0-9]",
        'D' => "[^0-9]",
        's' => r"[\t\n\x0C\r ]",
        'S' => r"[^\t\n\x0C\r ]",
        'w' => "[0-9A-Za-z_]",
        _ => "[^0-9A-Za-z_]",
    }
}

/// Translates `\pL` or `\p{Greek}` at the beginning of `text`; returns its length. `\p{^Greek}` is `\P{Greek}`.
pub(super) fn unicode_class(text: &str, out: &mut String) -> Checked<usize> {
    let body = &text[2..];
    let (name, length) = match body.strip_prefix('{') {
        Some(braced) => match braced.find('}') {
            Some(end) => (&braced[..end], end + 4),
            None => return refuse("invalid character class range", text),
        },
        None => {
            let c = body.chars().next().map_or(0, char::len_utf8);
            (&body[..c], 2 + c)
        }
    };
    let (is_excluded, name) = match name.strip_prefix('^') {
        Some(name) => (text.starts_with(r"\p"), name),
        None => (text.starts_with(r"\P"), name),
    };
    let translated = format!(r"\{}{{{name}}}", if is_excluded { 'P' } else { 'p' });
    // The names are categories and scripts; the `regex` crate knows them all, and more that Go does not.
    let known = !name.is_empty()
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
        && regex::Regex::new(&translated).is_ok();
    if !known {
        return refuse("invalid character class range", &text[..length]);
    }
    out.push_str(&translated);
    Ok(length)
}

/// Translates the class at the beginning of `text`; returns its length.
pub(super) fn translate(text: &str, out: &mut String) -> Checked<usize> {
    let mut rest = &text[1..];
    out.push('[');
    if let Some(negated) = rest.strip_prefix('^') {
        out.push('^');
        rest = negated;
    }
    let mut first = true;
    loop {
        let Some(c) = rest.chars().next() else {
            return refuse("missing closing ]", text);
        };
        if c == ']' && !first {
            out.push(']');
            return Ok(text.len() - rest.len() + 1);
        }
        first = false;
        if let Some(length) = named(rest, out)? {
            rest = &rest[length..];
            continue;
        }
        rest = range(rest, out, text)?;
    }
}

/// `[:alpha:]`, `\d`, `\pL` within a class.
fn named(rest: &str, out: &mut String) -> Checked<Option<usize>> {
    if let Some(inner) = rest.strip_prefix("[:") {
        let Some(end) = inner.find(":]") else { return Ok(None) };
        let name = inner[..end].trim_start_matches('^');
        const KNOWN: [&str; 14] = [
            "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space", "upper",
            "word", "xdigit",
        ];
        let length = end + 4;
        if !KNOWN.contains(&name) {
            return refuse("invalid character class range", &rest[..length]);
        }
        out.push_str(&rest[..length]);
        return Ok(Some(length));
    }
    let mut chars = rest.chars();
    if chars.next() != Some('\\') {
        return Ok(None);
    }
    match chars.next() {
        Some(c @ ('d' | 'D' | 's' | 'S' | 'w' | 'W')) => {
            out.push_str(perl(c));
            Ok(Some(2))
        }
        Some('p' | 'P') => unicode_class(rest, out).map(Some),
        _ => Ok(None),
    }
}

/// One character or a range of them.
fn range<'t>(rest: &'t str, out: &mut String, class: &str) -> Checked<&'t str> {
    let (low, after) = single(rest, class)?;
    push_literal(out, low);
    let Some(high) = after.strip_prefix('-').filter(|high| !high.starts_with(']')) else { return Ok(after) };
    if high.is_empty() {
        return Ok(after);
    }
    let (high, end) = single(high, class)?;
    if high < low {
        return refuse("invalid character class range", &rest[..rest.len() - end.len()]);
    }
    out.push('-');
    push_literal(out, high);
    Ok(end)
}

fn single<'t>(rest: &'t str, class: &str) -> Checked<(char, &'t str)> {
    let Some(c) = rest.chars().next() else {
        return refuse("missing closing ]", class);
    };
    if c == '\\' {
        let (c, length) = escaped_char(rest)?;
        return Ok((c, &rest[length..]));
    }
    Ok((c, &rest[c.len_utf8()..]))
}
