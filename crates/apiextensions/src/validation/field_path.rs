//! Paths of selectable fields and of the `fieldPath` of rules, resolved in a schema: `.spec.a`, `['k']`.

use super::schema_node::SchemaNode;

/// Whether a path may use `['key']`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ArrayNotation {
    Allowed,
    Forbidden,
}

/// The field that a path names.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FoundField<S> {
    /// As Kubernetes prints it: names with dots, keys of maps in brackets.
    pub(super) path: String,
    /// `None` below `additionalProperties: true`.
    pub(super) schema: Option<S>,
}

impl<S> FoundField<S> {
    /// The first name.
    pub(super) fn root(&self) -> &str {
        self.path.split(['.', '[']).next().unwrap_or_default()
    }
}

const NO_FIELD: &str = "does not refer to a valid field";
const UNEXPECTED_END: &str = "unexpected end of JSON path";

/// Resolves a path from the node `schema`.
pub(super) fn resolve_field_path<'a>(
    path: &str,
    schema: SchemaNode<'a>,
    notation: ArrayNotation,
) -> Result<FoundField<SchemaNode<'a>>, String> {
    let mut found = FoundField { path: String::new(), schema: Some(schema) };
    let mut tokens = Tokens(path);
    while let Some(token) = tokens.next() {
        match token {
            "[" => {
                if notation == ArrayNotation::Forbidden {
                    return Err("array notation is not allowed".to_owned());
                }
                let quoted = tokens.next().ok_or(UNEXPECTED_END)?;
                let inner = quoted.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\''));
                let inner = inner.ok_or_else(|| format!("expected single quoted string but got {quoted}"))?;
                step(&mut found, &unescape(inner)?)?;
                match tokens.next() {
                    Some("]") => {}
                    Some(other) => return Err(format!("expected ] but got {other}")),
                    None => return Err(UNEXPECTED_END.to_owned()),
                }
            }
            "." => step(&mut found, tokens.next().ok_or(UNEXPECTED_END)?)?,
            other => return Err(format!("expected [ or . but got: {other}")),
        }
    }
    Ok(found)
}

/// Follows one name or key.
fn step(found: &mut FoundField<SchemaNode<'_>>, name: &str) -> Result<(), String> {
    let schema = found.schema.ok_or(NO_FIELD)?;
    if schema.has_properties() {
        if !found.path.is_empty() {
            found.path.push('.');
        }
        found.path.push_str(name);
        found.schema = Some(schema.property(name).ok_or(NO_FIELD)?);
    } else if schema.is_set("additionalProperties") {
        found.path.push_str(&format!("[{name}]"));
        found.schema = schema.node("additionalProperties");
    } else {
        return Err(NO_FIELD.to_owned());
    }
    Ok(())
}

/// The delimiters `.`, `[` and `]`, quoted strings, and the text between them.
struct Tokens<'t>(&'t str);

impl<'t> Iterator for Tokens<'t> {
    type Item = &'t str;

    fn next(&mut self) -> Option<&'t str> {
        let rest = self.0;
        let length = match *rest.as_bytes() {
            [] => return None,
            [b'.' | b'[' | b']', ..] => 1,
            [b'\'', ref quoted @ ..] => {
                let end = quoted
                    .iter()
                    .zip([b'\''].iter().chain(quoted))
                    .position(|(byte, previous)| *byte == b'\'' && *previous != b'\\');
                end.map_or(rest.len(), |end| end + 2)
            }
            _ => rest.find(['.', '[', ']']).unwrap_or(rest.len()),
        };
        let (token, after) = rest.split_at(length);
        self.0 = after;
        Some(token)
    }
}

/// Resolves the escapes of a quoted key.
fn unescape(text: &str) -> Result<String, String> {
    let mut out = String::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        if character != '\\' {
            out.push(character);
            continue;
        }
        out.push(match characters.next() {
            Some('a') => '\x07',
            Some('b') => '\x08',
            Some('f') => '\x0c',
            Some('n') => '\n',
            Some('r') => '\r',
            Some('t') => '\t',
            Some('v') => '\x0b',
            Some(same @ ('\'' | '\\')) => same,
            Some(other) => return Err(format!("invalid string literal: invalid escape char {other}")),
            None => '\\',
        });
    }
    Ok(out)
}
