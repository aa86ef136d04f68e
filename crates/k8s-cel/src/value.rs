//! Run-time values. Values of a document are views: strings, lists and maps borrow from its JSON.

mod json;
pub(crate) mod list;
pub(crate) mod map;
mod show;
mod view;

use std::ops::Deref;
use std::sync::Arc;

use crate::error::EvalError;
use crate::library::Opaque;
use crate::time::Timestamp;
use crate::types::Type;

pub use list::List;
pub use map::Map;
pub(crate) use view::{view, view_object};

/// A value of the expression language, borrowing from the document and the program.
#[derive(Clone, Debug)]
pub enum Value<'a> {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A signed integer.
    Int(i64),
    /// An unsigned integer.
    Uint(u64),
    /// A floating point number.
    Double(f64),
    /// Text.
    String(Text<'a>),
    /// Bytes.
    Bytes(Blob<'a>),
    /// Nanoseconds.
    Duration(i64),
    /// An instant.
    Timestamp(Timestamp),
    /// A list.
    List(List<'a>),
    /// A map or an object of a document.
    Map(Map<'a>),
    /// An optional value.
    Optional(Option<Arc<Value<'a>>>),
    /// A type.
    Type(Type),
    /// A value of a Kubernetes library.
    Opaque(Arc<Opaque>),
}

/// Text, borrowed or shared.
#[derive(Clone, Debug)]
pub enum Text<'a> {
    /// A slice of the document or of the expression.
    Borrowed(&'a str),
    /// Text that an expression made.
    Shared(Arc<str>),
}

/// Bytes, borrowed or shared.
#[derive(Clone, Debug)]
pub enum Blob<'a> {
    /// A slice of the expression.
    Borrowed(&'a [u8]),
    /// Bytes that an expression made or that were decoded.
    Shared(Arc<[u8]>),
}

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        match self {
            Text::Borrowed(text) => text,
            Text::Shared(text) => text,
        }
    }
}

impl Deref for Blob<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Blob::Borrowed(bytes) => bytes,
            Blob::Shared(bytes) => bytes,
        }
    }
}

impl From<String> for Value<'_> {
    fn from(text: String) -> Self {
        Value::String(Text::Shared(Arc::from(text)))
    }
}

impl<'a> From<&'a str> for Value<'a> {
    fn from(text: &'a str) -> Self {
        Value::String(Text::Borrowed(text))
    }
}

impl From<bool> for Value<'_> {
    fn from(value: bool) -> Self {
        Value::Bool(value)
    }
}

impl From<i64> for Value<'_> {
    fn from(value: i64) -> Self {
        Value::Int(value)
    }
}

/// The number of code points; most text is ASCII.
pub(crate) fn char_count(text: &str) -> usize {
    if text.is_ascii() { text.len() } else { text.chars().count() }
}

impl<'a> Value<'a> {
    pub(crate) fn bytes(bytes: Vec<u8>) -> Self {
        Value::Bytes(Blob::Shared(Arc::from(bytes)))
    }

    pub(crate) fn list(items: Vec<Value<'a>>) -> Self {
        Value::List(List::owned(items))
    }

    pub(crate) fn some(value: Value<'a>) -> Self {
        Value::Optional(Some(Arc::new(value)))
    }

    pub(crate) fn opaque(value: Opaque) -> Self {
        Value::Opaque(Arc::new(value))
    }

    /// Text of a string.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Value::String(text) => Some(text),
            _ => None,
        }
    }

    /// The bool, if it is one.
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Value::Bool(value) => Some(*value),
            _ => None,
        }
    }

    /// Code points, bytes, elements or entries; nothing for values without size.
    pub(crate) fn size(&self) -> Option<usize> {
        match self {
            Value::String(text) => Some(char_count(text)),
            Value::Bytes(bytes) => Some(bytes.len()),
            Value::List(list) => Some(list.len()),
            Value::Map(map) => Some(map.len()),
            Value::Opaque(opaque) => opaque.size(),
            _ => None,
        }
    }

    /// The size that costs are computed from: 1 for scalars.
    pub(crate) fn cost_size(&self) -> u64 {
        match self {
            Value::Optional(Some(value)) => value.cost_size(),
            _ => self.size().map_or(1, |size| size as u64),
        }
    }

    /// The type as `type(x)` returns it.
    pub fn runtime_type(&self) -> Type {
        match self {
            Value::Null => Type::Null,
            Value::Bool(_) => Type::Bool,
            Value::Int(_) => Type::Int,
            Value::Uint(_) => Type::Uint,
            Value::Double(_) => Type::Double,
            Value::String(_) => Type::String,
            Value::Bytes(_) => Type::Bytes,
            Value::Duration(_) => Type::Duration,
            Value::Timestamp(_) => Type::Timestamp,
            Value::List(_) => Type::list(Type::Dyn),
            Value::Map(map) => map.object_type().unwrap_or_else(|| Type::map(Type::Dyn, Type::Dyn)),
            Value::Optional(_) => Type::optional(Type::Dyn),
            Value::Type(_) => Type::Type(None),
            Value::Opaque(opaque) => Type::Named(opaque.type_name()),
        }
    }

    /// The name of the type in run-time errors.
    pub(crate) fn type_name(&self) -> String {
        type_name(&self.runtime_type())
    }

    /// The name of the type in the reference implementation, which some of its messages show.
    pub(crate) fn go_type(&self) -> String {
        match self {
            Value::Null => "types.Null".to_owned(),
            Value::Bool(_) => "types.Bool".to_owned(),
            Value::Int(_) => "types.Int".to_owned(),
            Value::Uint(_) => "types.Uint".to_owned(),
            Value::Double(_) => "types.Double".to_owned(),
            Value::String(_) => "types.String".to_owned(),
            Value::Bytes(_) => "types.Bytes".to_owned(),
            Value::Duration(_) => "types.Duration".to_owned(),
            Value::Timestamp(_) => "types.Timestamp".to_owned(),
            Value::Optional(_) => "*types.Optional".to_owned(),
            Value::Type(_) => "*types.Type".to_owned(),
            Value::List(List::Json(..)) => "[]interface {}".to_owned(),
            Value::List(_) => "*types.baseList".to_owned(),
            Value::Map(Map::Json(..)) => "map[string]interface {}".to_owned(),
            Value::Map(Map::Owned(_)) => "*types.baseMap".to_owned(),
            Value::Opaque(_) => {
                let name = self.type_name();
                format!("cel.{}", name.rsplit('.').next().unwrap_or(&name))
            }
        }
    }

    /// Whether `optional.ofNonZeroValue` treats the value as absent.
    pub(crate) fn is_zero(&self) -> bool {
        match self {
            Value::Null => true,
            Value::Bool(value) => !value,
            Value::Int(value) => *value == 0,
            Value::Uint(value) => *value == 0,
            Value::Double(value) => *value == 0.0,
            Value::Duration(value) => *value == 0,
            Value::String(text) => text.is_empty(),
            Value::Bytes(bytes) => bytes.is_empty(),
            Value::List(list) => list.len() == 0 && list.decl().is_none(),
            Value::Map(map) => map.len() == 0 && !map.is_declared(),
            Value::Timestamp(timestamp) => timestamp.seconds == -62_135_596_800 && timestamp.nanos == 0,
            Value::Optional(_) | Value::Type(_) | Value::Opaque(_) => false,
        }
    }

    /// An optional in an optional becomes one: references and `?:` pass on values without their inner optionals.
    pub(crate) fn flatten_optional(self) -> Self {
        let Value::Optional(Some(outer)) = &self else { return self };
        if !matches!(**outer, Value::Optional(_)) {
            return self;
        }
        let mut inner = outer;
        while let Value::Optional(Some(next)) = &**inner {
            inner = next;
        }
        let inner = if matches!(**inner, Value::Optional(_)) { Value::Null } else { (**inner).clone() };
        Value::some(inner)
    }

    /// A copy that borrows nothing. Lists and maps are copied element by element.
    pub fn into_owned(self) -> Result<Value<'static>, EvalError> {
        Ok(match self {
            Value::Null => Value::Null,
            Value::Bool(value) => Value::Bool(value),
            Value::Int(value) => Value::Int(value),
            Value::Uint(value) => Value::Uint(value),
            Value::Double(value) => Value::Double(value),
            Value::Duration(value) => Value::Duration(value),
            Value::Timestamp(value) => Value::Timestamp(value),
            Value::Type(value) => Value::Type(value),
            Value::Opaque(value) => Value::Opaque(value),
            Value::String(text) => Value::String(Text::Shared(match text {
                Text::Borrowed(text) => Arc::from(text),
                Text::Shared(text) => text,
            })),
            Value::Bytes(bytes) => Value::Bytes(Blob::Shared(match bytes {
                Blob::Borrowed(bytes) => Arc::from(bytes),
                Blob::Shared(bytes) => bytes,
            })),
            Value::Optional(None) => Value::Optional(None),
            Value::Optional(Some(value)) => Value::some((*value).clone().into_owned()?),
            Value::List(list) => {
                let mut items = Vec::with_capacity(list.len());
                for at in 0..list.len() {
                    items.push(list.get(at)?.into_owned()?);
                }
                Value::list(items)
            }
            Value::Map(map) => {
                let mut owned = map.empty_of_same_type();
                for key in map.keys() {
                    let value = map.find(&key)?.unwrap_or(Value::Null);
                    owned.insert(key.into_owned()?, value.into_owned()?);
                }
                Value::Map(Map::Owned(Arc::new(owned)))
            }
        })
    }
}

/// Names without type parameters, as run-time errors print them.
pub(crate) fn type_name(value: &Type) -> String {
    match value {
        Type::List(_) => "list".to_owned(),
        Type::Map(_) => "map".to_owned(),
        Type::Optional(_) => "optional_type".to_owned(),
        Type::Type(_) => "type".to_owned(),
        Type::Null => "null_type".to_owned(),
        Type::Duration => "google.protobuf.Duration".to_owned(),
        Type::Timestamp => "google.protobuf.Timestamp".to_owned(),
        _ => value.to_string(),
    }
}
