//! YAML to a value, read as Kubernetes reads it: YAML 1.1 scalars, keys turned into strings, merge keys.
//!
//! The parser yields events, so that nesting costs no stack here, and each alias is charged for what it repeats.

use std::collections::HashMap;

use granit_parser::{Event, Parser, ScalarStyle, Span, Tag};
use serde_json::{Map, Number, Value};

use super::{DEPTH_MAX, DUPLICATES_MAX, Decoded};

/// How much the aliases of a document may repeat in all, by [`weight`]; real manifests need some kilobytes.
const ALIASED_WEIGHT_MAX: usize = 1 << 20;

/// Reads the one document that is not empty. A second one is an error, since it would be lost without a word.
pub(super) fn parse(body: &[u8]) -> Result<Decoded<Value>, String> {
    let text = std::str::from_utf8(body).map_err(|_| "yaml: invalid UTF-8".to_owned())?;
    let options = granit_parser::options! { flow_nesting_limit: DEPTH_MAX, block_nesting_limit: DEPTH_MAX };
    let mut reader = Reader::default();
    for next in Parser::new_from_str_with_options(text, options) {
        let (event, span) =
            next.map_err(|error| format!("yaml: line {}: {}", error.marker().line(), error.info().replace('\n', " ")))?;
        reader.take(event, &span).map_err(|error| format!("yaml: line {}: {error}", span.start.line()))?;
    }
    Ok(Decoded { value: reader.document.unwrap_or(Value::Null), duplicates: reader.duplicates })
}

#[derive(Default)]
struct Reader {
    open: Vec<Open>,
    anchors: HashMap<usize, Value>,
    aliased: usize,
    document: Option<Value>,
    duplicates: Vec<String>,
}

/// A list or map whose end has not come yet.
struct Open {
    /// 0 for none.
    anchor: usize,
    content: Content,
}

enum Content {
    List(Vec<Value>),
    Map { map: Map<String, Value>, key: Option<Key>, merges: Vec<Value> },
}

enum Key {
    Name(String),
    /// `<<`: the value is a map, or a list of maps, whose fields stand in for absent ones.
    Merge,
}

impl Reader {
    fn take(&mut self, event: Event<'_>, span: &Span) -> Result<(), String> {
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let is_key = matches!(self.open.last(), Some(Open { content: Content::Map { key: None, .. }, .. }));
                if is_key && text == "<<" && style == ScalarStyle::Plain && tag.is_none() {
                    return self.put_key(Key::Merge);
                }
                let value = scalar(&text, style, tag.as_deref())?;
                self.anchor(anchor, &value)?;
                self.put(value, span)
            }
            Event::SequenceStart(_, anchor, _) => self.push(Open { anchor, content: Content::List(Vec::new()) }),
            Event::MappingStart(_, anchor, _) => {
                let content = Content::Map { map: Map::new(), key: None, merges: Vec::new() };
                self.push(Open { anchor, content })
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let Open { anchor, content } = self.open.pop().ok_or("unexpected end")?;
                let value = close(content)?;
                self.anchor(anchor, &value)?;
                self.put(value, span)
            }
            Event::Alias(id) => {
                let value = self.anchors.get(&id).ok_or("an anchor contains itself")?.clone();
                self.charge(&value)?;
                if self.open.len() + depth(&value) > DEPTH_MAX {
                    return Err("exceeded max depth".to_owned());
                }
                self.put(value, span)
            }
            Event::UnresolvedAlias(name) => Err(format!("unknown anchor '{name}' referenced")),
            Event::StreamStart
            | Event::StreamEnd
            | Event::DocumentStart(..)
            | Event::DocumentEnd
            | Event::Anchor(..)
            | Event::Comment(..) => Ok(()),
            _ => Err("unexpected content".to_owned()),
        }
    }

    fn push(&mut self, open: Open) -> Result<(), String> {
        if self.open.len() == DEPTH_MAX {
            return Err("exceeded max depth".to_owned());
        }
        self.open.push(open);
        Ok(())
    }

    fn anchor(&mut self, id: usize, value: &Value) -> Result<(), String> {
        if id != 0 {
            self.charge(value)?;
            self.anchors.insert(id, value.clone());
        }
        Ok(())
    }

    /// Counts a value that is about to be repeated, so that a few lines cannot grow to gigabytes.
    fn charge(&mut self, value: &Value) -> Result<(), String> {
        self.aliased += weight(value);
        if self.aliased > ALIASED_WEIGHT_MAX {
            return Err("document contains excessive aliasing".to_owned());
        }
        Ok(())
    }

    /// Puts a finished value where it belongs: as the document, an item, a key or the value of a key.
    fn put(&mut self, value: Value, span: &Span) -> Result<(), String> {
        match self.open.last_mut().map(|open| &mut open.content) {
            None if value.is_null() => {}
            None if self.document.is_some() => {
                return Err("more than one document; send one object per request".to_owned());
            }
            None => self.document = Some(value),
            Some(Content::List(items)) => items.push(value),
            Some(Content::Map { map, key, merges }) => match key.take() {
                None => return self.put_key(Key::Name(key_text(&value)?)),
                Some(Key::Merge) => merges.push(value),
                Some(Key::Name(name)) => {
                    let note = format!("line {}: key {name:?} already set in map", span.start.line());
                    if map.insert(name, value).is_some() && self.duplicates.len() < DUPLICATES_MAX {
                        self.duplicates.push(note);
                    }
                }
            },
        }
        Ok(())
    }

    fn put_key(&mut self, new: Key) -> Result<(), String> {
        let Some(Open { content: Content::Map { key, .. }, .. }) = self.open.last_mut() else {
            return Err("a key outside of a map".to_owned());
        };
        *key = Some(new);
        Ok(())
    }
}

/// A finished list or map, merged fields included.
fn close(content: Content) -> Result<Value, String> {
    let (mut map, merges) = match content {
        Content::List(items) => return Ok(Value::Array(items)),
        Content::Map { map, merges, .. } => (map, merges),
    };
    for merge in merges {
        let sources = if let Value::Array(items) = merge { items } else { vec![merge] };
        for source in sources {
            let Value::Object(source) = source else {
                return Err("map merge requires map or sequence of maps as the value".to_owned());
            };
            for (name, value) in source {
                map.entry(name).or_insert(value);
            }
        }
    }
    Ok(Value::Object(map))
}

fn key_text(value: &Value) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Bool(_) | Value::Number(_) => Ok(value.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => Err(format!("unsupported map key: {value}")),
    }
}

fn scalar(text: &str, style: ScalarStyle, tag: Option<&Tag>) -> Result<Value, String> {
    let Some(tag) = tag else {
        return if style == ScalarStyle::Plain { plain(text) } else { Ok(text.into()) };
    };
    let name = tag.core_suffix().ok_or_else(|| format!("unsupported tag {}", tag.original()))?;
    let value = plain(text)?;
    match (name, &value) {
        ("str", _) => Ok(text.into()),
        ("null", Value::Null) | ("bool", Value::Bool(_)) | ("float", Value::Number(_)) => Ok(value),
        ("int", Value::Number(number)) if !number.is_f64() => Ok(value),
        _ => Err(format!("cannot decode `{text}` as a !!{name}")),
    }
}

/// An unquoted scalar. Times stay strings.
fn plain(text: &str) -> Result<Value, String> {
    Ok(match text {
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => true.into(),
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => false.into(),
        _ if is_infinite_or_nan(text) => return Err(format!("json: unsupported value: {text}")),
        _ if text.starts_with(|first: char| first.is_ascii_digit() || "+-.".contains(first)) => {
            number(&text.replace('_', "")).map_or_else(|| text.into(), Value::Number)
        }
        _ => text.into(),
    })
}

fn is_infinite_or_nan(text: &str) -> bool {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    matches!(unsigned, ".inf" | ".Inf" | ".INF") || matches!(text, ".nan" | ".NaN" | ".NAN")
}

fn number(text: &str) -> Option<Number> {
    integer(text).or_else(|| float(text).and_then(Number::from_f64))
}

/// With the prefixes of Go and of YAML 1.1: `0x`, `0o`, `0b`, and a bare `0` for octal.
fn integer(text: &str) -> Option<Number> {
    let (sign, digits) = match text.strip_prefix(['+', '-']) {
        Some(digits) if text.starts_with('-') => ("-", digits),
        Some(digits) => ("", digits),
        None => ("", text),
    };
    let lower = digits.to_ascii_lowercase();
    let (radix, digits) = match (lower.get(..2), lower.as_str()) {
        (Some("0x"), _) => (16, &lower[2..]),
        (Some("0o"), _) => (8, &lower[2..]),
        (Some("0b"), _) => (2, &lower[2..]),
        (Some(_), digits) if digits.starts_with('0') => (8, &lower[1..]),
        (_, digits) => (10, digits),
    };
    if digits.starts_with(['+', '-']) {
        return None;
    }
    let signed = i64::from_str_radix(&format!("{sign}{digits}"), radix).ok().map(Number::from);
    let large = || u64::from_str_radix(digits, radix).ok().filter(|_| sign.is_empty());
    signed.or_else(|| large().and_then(|large| Number::from_f64(large as f64)))
}

fn float(text: &str) -> Option<f64> {
    let is_shaped = text.bytes().all(|byte| byte.is_ascii_digit() || b"+-.eE".contains(&byte));
    text.parse::<f64>().ok().filter(|value| is_shaped && value.is_finite())
}

/// Roughly the bytes of memory that a value takes.
fn weight(value: &Value) -> usize {
    let node = size_of::<Value>();
    match value {
        Value::Array(items) => node + items.iter().map(weight).sum::<usize>(),
        Value::Object(map) => node + map.iter().map(|(name, value)| name.len() + weight(value)).sum::<usize>(),
        Value::String(text) => node + text.len(),
        Value::Null | Value::Bool(_) | Value::Number(_) => node,
    }
}

/// How many lists and maps lie in each other.
fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or_default(),
        Value::Object(map) => 1 + map.values().map(depth).max().unwrap_or_default(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}
