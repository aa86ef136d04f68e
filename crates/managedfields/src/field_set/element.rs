//! One step of a path: a field, or an item of a list.

use std::cmp::Ordering;
use std::fmt::{self, Write as _};
use std::sync::Arc;

use api::json::to_go_json;
use api::quote::{GoFloat, Quoted};
use serde_json::Value;

/// One step of a path. Ordered like Kubernetes orders the keys of a field set: fields, keys, values, indices.
#[derive(Clone, Debug)]
pub(crate) enum PathElement {
    /// A field of an object, or a key of a map.
    Field(Arc<str>),
    /// An item of a list of type `map`: its keys, sorted by name.
    Key(Arc<[(Box<str>, Value)]>),
    /// An item of a list of type `set`.
    Value(Arc<Value>),
    /// A position. Entries of other programs may have it; this crate makes none.
    Index(i64),
}

/// A key of a field set that Kubernetes rejects.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ElementError {
    /// Written by a newer release: ignored with all below it.
    UnknownKind,
    Malformed(String),
}

impl PathElement {
    pub(crate) fn field(name: &str) -> Self {
        Self::Field(name.into())
    }

    /// Parses a key of a field set: `f:spec`, `k:{"name":"a"}`, `v:"x"`, `i:0`.
    pub(crate) fn parse(key: &str) -> Result<Self, ElementError> {
        let bytes = key.as_bytes();
        if bytes.len() < 2 {
            return Err(ElementError::Malformed("key must be 2 characters long:".to_owned()));
        }
        if bytes[1] != b':' {
            return Err(ElementError::Malformed(format!("missing colon: {key}")));
        }
        let Some(content) = key.get(2..) else { return Err(ElementError::UnknownKind) };
        match bytes[0] {
            b'f' => Ok(Self::field(content)),
            b'v' => Ok(Self::Value(Arc::new(first_value(content)?))),
            b'k' => {
                let mut fields: Vec<(Box<str>, Value)> = match first_value(content)? {
                    Value::Object(fields) => fields.into_iter().map(|(name, value)| (name.into(), value)).collect(),
                    Value::Null => Vec::new(),
                    Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                        return Err(ElementError::Malformed(format!("key is no object: {key}")));
                    }
                };
                fields.sort_by(|one, other| one.0.cmp(&other.0));
                Ok(Self::Key(fields.into()))
            }
            b'i' => match content.parse() {
                Ok(index) => Ok(Self::Index(index)),
                Err(_) => Err(ElementError::Malformed(format!("invalid index: {key}"))),
            },
            _ => Err(ElementError::UnknownKind),
        }
    }

    /// The key of a field set.
    pub(crate) fn to_key(&self) -> String {
        let mut key = String::new();
        match self {
            Self::Field(name) => {
                key.push_str("f:");
                key.push_str(name);
            }
            Self::Key(fields) => {
                key.push_str("k:{");
                for (position, (name, value)) in fields.iter().enumerate() {
                    if position > 0 {
                        key.push(',');
                    }
                    push_json(&mut key, &Value::String(name.to_string()));
                    key.push(':');
                    push_json(&mut key, value);
                }
                key.push('}');
            }
            Self::Value(value) => {
                key.push_str("v:");
                push_json(&mut key, value);
            }
            Self::Index(index) => {
                let _ = write!(key, "i:{index}");
            }
        }
        key
    }
}

/// The first JSON value of a text; like Kubernetes' parser this ignores what follows. Numbers are read as floats.
fn first_value(text: &str) -> Result<Value, ElementError> {
    match serde_json::Deserializer::from_str(text).into_iter::<Value>().next() {
        Some(Ok(value)) => Ok(value),
        Some(Err(error)) => Err(ElementError::Malformed(error.to_string())),
        None => Err(ElementError::Malformed("unexpected end of a path element".to_owned())),
    }
}

fn push_json(text: &mut String, value: &Value) {
    text.push_str(&String::from_utf8_lossy(&to_go_json(value)));
}

impl Ord for PathElement {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Field(one), Self::Field(other)) => one.cmp(other),
            (Self::Key(one), Self::Key(other)) => compare_keys(one, other),
            (Self::Value(one), Self::Value(other)) => compare_values(one, other),
            (Self::Index(one), Self::Index(other)) => one.cmp(other),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl PathElement {
    fn rank(&self) -> u8 {
        match self {
            Self::Field(_) => 0,
            Self::Key(_) => 1,
            Self::Value(_) => 2,
            Self::Index(_) => 3,
        }
    }
}

impl PartialOrd for PathElement {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for PathElement {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for PathElement {}

fn compare_keys(one: &[(Box<str>, Value)], other: &[(Box<str>, Value)]) -> Ordering {
    for ((name, value), (other_name, other_value)) in one.iter().zip(other) {
        let order = name.cmp(other_name).then_with(|| compare_values(value, other_value));
        if order != Ordering::Equal {
            return order;
        }
    }
    one.len().cmp(&other.len())
}

/// Kubernetes' order of values: numbers, texts, booleans, lists, maps, null.
pub(crate) fn compare_values(one: &Value, other: &Value) -> Ordering {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => match (one.as_i64(), other.as_i64()) {
            (Some(one), Some(other)) => one.cmp(&other),
            _ => one.as_f64().unwrap_or_default().total_cmp(&other.as_f64().unwrap_or_default()),
        },
        (Value::String(one), Value::String(other)) => one.cmp(other),
        (Value::Bool(one), Value::Bool(other)) => one.cmp(other),
        (Value::Array(one), Value::Array(other)) => {
            let unequal = one.iter().zip(other).map(|(one, other)| compare_values(one, other));
            unequal.into_iter().find(|order| order.is_ne()).unwrap_or_else(|| one.len().cmp(&other.len()))
        }
        (Value::Object(one), Value::Object(other)) => {
            let unequal = one.iter().zip(other).map(|((name, value), (other_name, other_value))| {
                name.cmp(other_name).then_with(|| compare_values(value, other_value))
            });
            unequal.into_iter().find(|order| order.is_ne()).unwrap_or_else(|| one.len().cmp(&other.len()))
        }
        _ => value_rank(one).cmp(&value_rank(other)),
    }
}

fn value_rank(value: &Value) -> u8 {
    match value {
        Value::Number(_) => 0,
        Value::String(_) => 1,
        Value::Bool(_) => 2,
        Value::Array(_) => 3,
        Value::Object(_) => 4,
        Value::Null => 5,
    }
}

/// The form in messages: `.spec`, `[name="a"]`, `[="x"]`, `[0]`.
impl fmt::Display for PathElement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(f, ".{name}"),
            Self::Key(fields) => {
                f.write_char('[')?;
                for (position, (name, value)) in fields.iter().enumerate() {
                    let comma = if position > 0 { "," } else { "" };
                    write!(f, "{comma}{name}={}", Shown(value))?;
                }
                f.write_char(']')
            }
            Self::Value(value) => write!(f, "[={}]", Shown(value)),
            Self::Index(index) => write!(f, "[{index}]"),
        }
    }
}

/// A value in messages, as Kubernetes prints it.
pub(crate) struct Shown<'a>(pub(crate) &'a Value);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Value::Null => f.write_str("null"),
            Value::Bool(value) => write!(f, "{value}"),
            Value::Number(number) => match number.as_i64() {
                Some(integer) => write!(f, "{integer}"),
                None => write!(f, "{}", GoFloat(number.as_f64().unwrap_or_default())),
            },
            Value::String(text) => write!(f, "{}", Quoted(text)),
            Value::Array(items) => {
                f.write_char('[')?;
                for (position, item) in items.iter().enumerate() {
                    let comma = if position > 0 { "," } else { "" };
                    write!(f, "{comma}{}", Shown(item))?;
                }
                f.write_char(']')
            }
            Value::Object(fields) => fields.iter().try_for_each(|(name, value)| write!(f, "{name}={}", Shown(value))),
        }
    }
}
