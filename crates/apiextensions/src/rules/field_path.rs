//! Field paths of rules, such as `.spec['a b'].c`.

use schema::structural::{AdditionalProperties, SchemaNode};
use serde_json::Value;

/// Why a path does not refer to a field of a schema. Displays Kubernetes' message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldPathError(String);

impl std::fmt::Display for FieldPathError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for FieldPathError {}

impl FieldPathError {
    fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }
}

const NO_FIELD: &str = "does not refer to a valid field";
const UNEXPECTED_END: &str = "unexpected end of JSON path";

/// A schema of whose fields paths are made.
pub(crate) trait PathSchema: Copy {
    /// True if the schema has `properties`.
    fn has_properties(self) -> bool;
    fn property(self, name: &str) -> Option<Self>;
    /// `additionalProperties`: absent, without a schema, or with one.
    fn additional(self) -> Option<Option<Self>>;
}

impl PathSchema for &SchemaNode {
    fn has_properties(self) -> bool {
        !self.properties().is_empty()
    }

    fn property(self, name: &str) -> Option<Self> {
        SchemaNode::property(self, name)
    }

    fn additional(self) -> Option<Option<Self>> {
        match self.additional_properties() {
            AdditionalProperties::Absent => None,
            AdditionalProperties::Allowed(_) => Some(None),
            AdditionalProperties::Schema(schema) => Some(Some(schema)),
        }
    }
}

/// The JSON form of a schema, in a definition.
impl PathSchema for &Value {
    fn has_properties(self) -> bool {
        self["properties"].as_object().is_some_and(|properties| !properties.is_empty())
    }

    fn property(self, name: &str) -> Option<Self> {
        self["properties"].get(name)
    }

    fn additional(self) -> Option<Option<Self>> {
        match &self["additionalProperties"] {
            Value::Null => None,
            schema @ Value::Object(_) => Some(Some(schema)),
            Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => Some(None),
        }
    }
}

/// Resolves a path of fields and map keys against a schema. Returns the path as error messages print it, and the schema
/// of the field, which is `None` for a value of `additionalProperties: true`.
///
/// Bracket notation is an error unless `allow_brackets`.
pub fn resolve_field_path<'s>(
    path: &str,
    schema: &'s SchemaNode,
    allow_brackets: bool,
) -> Result<(String, Option<&'s SchemaNode>), FieldPathError> {
    resolve(path, schema, allow_brackets)
}

pub(crate) fn resolve<S: PathSchema>(
    path: &str,
    schema: S,
    allow_brackets: bool,
) -> Result<(String, Option<S>), FieldPathError> {
    let mut tokens = Tokens(path);
    let mut resolved = String::new();
    let mut schema = Some(schema);
    while let Some(token) = tokens.next() {
        match token {
            "[" if !allow_brackets => return Err(FieldPathError::new("array notation is not allowed")),
            "[" => {
                let quoted = tokens.next().ok_or_else(|| FieldPathError::new(UNEXPECTED_END))?;
                let text = quoted.strip_prefix('\'').and_then(|text| text.strip_suffix('\''));
                let Some(text) = text else {
                    return Err(FieldPathError::new(format!("expected single quoted string but got {quoted}")));
                };
                schema = step(&mut resolved, schema, &unescape(text)?)?;
                match tokens.next() {
                    Some("]") => {}
                    Some(other) => return Err(FieldPathError::new(format!("expected ] but got {other}"))),
                    None => return Err(FieldPathError::new(UNEXPECTED_END)),
                }
            }
            "." => {
                let name = tokens.next().ok_or_else(|| FieldPathError::new(UNEXPECTED_END))?;
                schema = step(&mut resolved, schema, name)?;
            }
            _ => return Err(FieldPathError::new(format!("expected [ or . but got: {token}"))),
        }
    }
    Ok((resolved, schema))
}

/// Goes to a field or to the value of a map key.
fn step<S: PathSchema>(path: &mut String, schema: Option<S>, name: &str) -> Result<Option<S>, FieldPathError> {
    let schema = schema.ok_or_else(|| FieldPathError::new(NO_FIELD))?;
    if schema.has_properties() {
        if !path.is_empty() {
            path.push('.');
        }
        path.push_str(name);
        return schema.property(name).map(Some).ok_or_else(|| FieldPathError::new(NO_FIELD));
    }
    let values = schema.additional().ok_or_else(|| FieldPathError::new(NO_FIELD))?;
    path.push('[');
    path.push_str(name);
    path.push(']');
    Ok(values)
}

/// Splits a path into delimiters, quoted strings and names.
struct Tokens<'p>(&'p str);

impl<'p> Iterator for Tokens<'p> {
    type Item = &'p str;

    fn next(&mut self) -> Option<&'p str> {
        let bytes = self.0.as_bytes();
        let end = match *bytes.first()? {
            b'\'' => {
                let is_end = |at: &usize| bytes[*at] == b'\'' && bytes[*at - 1] != b'\\';
                (1..bytes.len()).find(is_end).map_or(bytes.len(), |at| at + 1)
            }
            b'.' | b'[' | b']' => 1,
            _ => self.0.find(['.', '[', ']']).unwrap_or(bytes.len()),
        };
        let (token, rest) = self.0.split_at(end);
        self.0 = rest;
        Some(token)
    }
}

fn unescape(text: &str) -> Result<String, FieldPathError> {
    let mut unescaped = String::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        if character != '\\' {
            unescaped.push(character);
            continue;
        }
        let character = match characters.next() {
            Some('a') => '\u{7}',
            Some('b') => '\u{8}',
            Some('f') => '\u{c}',
            Some('n') => '\n',
            Some('r') => '\r',
            Some('t') => '\t',
            Some('v') => '\u{b}',
            Some(quote @ ('\'' | '\\')) => quote,
            // A line break or the end of the text is no escape.
            None => '\\',
            Some('\n') => {
                unescaped.push('\\');
                '\n'
            }
            Some(other) => {
                return Err(FieldPathError::new(format!("invalid string literal: invalid escape char \\{other}")));
            }
        };
        unescaped.push(character);
    }
    Ok(unescaped)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn paths_resolve_to_fields_and_keys() {
        let schema = json!({"properties": {
            "a": {"properties": {"b.c": {"properties": {"d'": {}}}}},
            "m": {"additionalProperties": {"properties": {"x": {}}}},
            "any": {"additionalProperties": true},
        }});
        for (path, expected) in [
            (".a", Ok("a")),
            ("['a']", Ok("a")),
            (".a['b.c'][\'d\\'\']", Ok("a.b.c.d'")),
            (".m.k.x", Ok("m[k].x")),
            (".m['k.l']['x']", Ok("m[k.l].x")),
            (".any.k", Ok("any[k]")),
            (".any.k.l", Err("does not refer to a valid field")),
            (".a.b", Err("does not refer to a valid field")),
            (".", Err("unexpected end of JSON path")),
            ("a", Err("expected [ or . but got: a")),
            (".a[", Err("unexpected end of JSON path")),
            (".a['b.c'", Err("unexpected end of JSON path")),
            (".a['b.c'x", Err("expected ] but got x")),
            (".a[0]", Err("expected single quoted string but got 0")),
            (".a[']", Err("expected single quoted string but got ']")),
            (".a['\\x']", Err("invalid string literal: invalid escape char \\x")),
        ] {
            let found = resolve(path, &schema, true).map(|(path, _)| path).map_err(|error| error.to_string());
            assert_eq!(found.as_deref().map_err(|error| &**error), expected, "{path}");
        }
        assert!(resolve("['a']", &schema, false).is_err());
    }
}
