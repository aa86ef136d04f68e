//! YAML parser compatible with Kubernetes: YAML 1.1 scalars, keys converted to strings, merge keys.
//!
//! It builds the value from parser events without recursion, and limits the total size of alias expansion.

use std::collections::HashMap;

use granit_parser::{Event, Parser, ScalarStyle, Span, Tag};
use serde_json::{Map, Number, Value};

use super::{DEPTH_MAX, Decoded, REPORTED_DUPLICATES_MAX};

/// Limit of all anchored and aliased values of a body, measured by [`memory_bytes`]; real manifests need a few
/// kilobytes.
const ALIASED_BYTES_MAX: usize = 1 << 20;

/// Parses a body with one non-empty document. A second one is an error rather than silently ignored.
pub(super) fn parse(body: &[u8]) -> Result<Decoded<Value>, String> {
    let text = std::str::from_utf8(body).map_err(|_| "yaml: invalid UTF-8".to_owned())?;
    let options = granit_parser::options! { flow_nesting_limit: DEPTH_MAX, block_nesting_limit: DEPTH_MAX };
    let mut reader = YamlReader::default();
    for next in Parser::new_from_str_with_options(text, options) {
        let (event, span) =
            next.map_err(|error| format!("yaml: line {}: {}", error.marker().line(), error.info().replace('\n', " ")))?;
        reader.handle_event(event, &span).map_err(|error| format!("yaml: line {}: {error}", span.start.line()))?;
    }
    Ok(Decoded { value: reader.document.unwrap_or(Value::Null), duplicate_fields: reader.duplicates })
}

#[derive(Default)]
struct YamlReader {
    open_collections: Vec<OpenCollection>,
    anchors: HashMap<usize, Value>,
    aliased_weight: usize,
    document: Option<Value>,
    duplicates: Vec<String>,
}

/// A list or map whose end event is still to come.
struct OpenCollection {
    /// Anchor id; 0 without an anchor.
    anchor: usize,
    content: CollectionContent,
}

enum CollectionContent {
    List(Vec<Value>),
    Map { map: Map<String, Value>, key: Option<MapKey>, merges: Vec<Value> },
}

enum MapKey {
    Name(String),
    /// `<<`: the value is a map or a list of maps that supplies absent fields.
    Merge,
}

impl YamlReader {
    fn handle_event(&mut self, event: Event<'_>, span: &Span) -> Result<(), String> {
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let is_key = matches!(
                    self.open_collections.last(),
                    Some(OpenCollection { content: CollectionContent::Map { key: None, .. }, .. })
                );
                if is_key && text == "<<" && style == ScalarStyle::Plain && tag.is_none() {
                    return self.put_key(MapKey::Merge);
                }
                let value = parse_scalar(&text, style, tag.as_deref())?;
                self.record_anchor(anchor, &value)?;
                self.put_value(value, span)
            }
            Event::SequenceStart(_, anchor, _) => {
                self.push(OpenCollection { anchor, content: CollectionContent::List(Vec::new()) })
            }
            Event::MappingStart(_, anchor, _) => {
                let content = CollectionContent::Map { map: Map::new(), key: None, merges: Vec::new() };
                self.push(OpenCollection { anchor, content })
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let OpenCollection { anchor, content } = self.open_collections.pop().ok_or("unexpected end")?;
                let value = finish_collection(content)?;
                self.record_anchor(anchor, &value)?;
                self.put_value(value, span)
            }
            Event::Alias(id) => {
                let value = self.anchors.get(&id).ok_or("an anchor contains itself")?.clone();
                self.charge_alias(&value)?;
                if self.open_collections.len() + nesting_depth(&value) > DEPTH_MAX {
                    return Err("exceeded max depth".to_owned());
                }
                self.put_value(value, span)
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

    fn push(&mut self, open: OpenCollection) -> Result<(), String> {
        if self.open_collections.len() == DEPTH_MAX {
            return Err("exceeded max depth".to_owned());
        }
        self.open_collections.push(open);
        Ok(())
    }

    fn record_anchor(&mut self, id: usize, value: &Value) -> Result<(), String> {
        if id != 0 {
            self.charge_alias(value)?;
            self.anchors.insert(id, value.clone());
        }
        Ok(())
    }

    /// Adds a value to the alias total and fails beyond [`ALIASED_BYTES_MAX`], so that a small body cannot expand to
    /// gigabytes.
    fn charge_alias(&mut self, value: &Value) -> Result<(), String> {
        self.aliased_weight += memory_bytes(value);
        if self.aliased_weight > ALIASED_BYTES_MAX {
            return Err("document contains excessive aliasing".to_owned());
        }
        Ok(())
    }

    /// Adds a complete value to the innermost open collection, or makes it the document.
    fn put_value(&mut self, value: Value, span: &Span) -> Result<(), String> {
        match self.open_collections.last_mut().map(|open| &mut open.content) {
            None if value.is_null() => {}
            None if self.document.is_some() => {
                return Err("more than one document; send one object per request".to_owned());
            }
            None => self.document = Some(value),
            Some(CollectionContent::List(items)) => items.push(value),
            Some(CollectionContent::Map { map, key, merges }) => match key.take() {
                None => return self.put_key(MapKey::Name(key_to_string(&value)?)),
                Some(MapKey::Merge) => merges.push(value),
                Some(MapKey::Name(name)) => {
                    let note = format!("line {}: key {name:?} already set in map", span.start.line());
                    if map.insert(name, value).is_some() && self.duplicates.len() < REPORTED_DUPLICATES_MAX {
                        self.duplicates.push(note);
                    }
                }
            },
        }
        Ok(())
    }

    fn put_key(&mut self, new: MapKey) -> Result<(), String> {
        let Some(OpenCollection { content: CollectionContent::Map { key, .. }, .. }) = self.open_collections.last_mut()
        else {
            return Err("a key outside of a map".to_owned());
        };
        *key = Some(new);
        Ok(())
    }
}

/// Converts a complete collection into a value and applies merge keys.
fn finish_collection(content: CollectionContent) -> Result<Value, String> {
    let (mut map, merges) = match content {
        CollectionContent::List(items) => return Ok(Value::Array(items)),
        CollectionContent::Map { map, merges, .. } => (map, merges),
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

fn key_to_string(value: &Value) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Bool(_) | Value::Number(_) => Ok(value.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => Err(format!("unsupported map key: {value}")),
    }
}

fn parse_scalar(text: &str, style: ScalarStyle, tag: Option<&Tag>) -> Result<Value, String> {
    let Some(tag) = tag else {
        return if style == ScalarStyle::Plain { parse_plain_scalar(text) } else { Ok(text.into()) };
    };
    let name = tag.core_suffix().ok_or_else(|| format!("unsupported tag {}", tag.original()))?;
    let value = parse_plain_scalar(text)?;
    match (name, &value) {
        ("str", _) => Ok(text.into()),
        ("null", Value::Null) | ("bool", Value::Bool(_)) | ("float", Value::Number(_)) => Ok(value),
        ("int", Value::Number(number)) if !number.is_f64() => Ok(value),
        _ => Err(format!("cannot decode `{text}` as a !!{name}")),
    }
}

/// Parses an unquoted scalar. Timestamps stay strings.
fn parse_plain_scalar(text: &str) -> Result<Value, String> {
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
    integer(text)
        .or_else(|| float(text).and_then(Number::from_f64).map(|number| whole_number(&number).unwrap_or(number)))
}

/// The integer that a float without fraction is after Kubernetes has written it as JSON and read it again.
fn whole_number(number: &Number) -> Option<Number> {
    let float = number.as_f64().filter(|_| number.is_f64())?;
    // The text of a larger float has more digits than an integer may have.
    let is_whole = float.fract() == 0.0 && (-(2.0_f64.powi(63))..2.0_f64.powi(63)).contains(&float);
    #[expect(clippy::cast_possible_truncation, reason = "the float is a whole number in the range of integers")]
    is_whole.then(|| Number::from(float as i64))
}

/// Makes of a JSON value what it is when Kubernetes reads it as YAML: floats without fraction become integers. Recursion
/// is as deep as the value, whose depth the decoder limits.
pub fn read_numbers_as_yaml(value: &mut Value) {
    match value {
        Value::Number(number) => {
            if let Some(whole) = whole_number(number) {
                *number = whole;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(read_numbers_as_yaml),
        Value::Object(fields) => fields.values_mut().for_each(read_numbers_as_yaml),
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

/// Parses an integer with Go's and YAML 1.1's prefixes: `0x`, `0o`, `0b`, and a bare `0` for octal.
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

/// Approximate memory of a value in bytes.
fn memory_bytes(value: &Value) -> usize {
    let node = size_of::<Value>();
    match value {
        Value::Array(items) => node + items.iter().map(memory_bytes).sum::<usize>(),
        Value::Object(map) => node + map.iter().map(|(name, value)| name.len() + memory_bytes(value)).sum::<usize>(),
        Value::String(text) => node + text.len(),
        Value::Null | Value::Bool(_) | Value::Number(_) => node,
    }
}

/// Nesting depth of a value; 0 for a scalar.
fn nesting_depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(nesting_depth).max().unwrap_or_default(),
        Value::Object(map) => 1 + map.values().map(nesting_depth).max().unwrap_or_default(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}
