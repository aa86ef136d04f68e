//! Maps: views on JSON objects, and maps that an expression made.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::{Map as JsonMap, Value as Json};

use super::{Text, Value, view};
use crate::decl::{DeclKind, DeclType};
use crate::error::EvalError;
use crate::escaping::{escape, unescape};
use crate::message::MessageType;
use crate::types::Type;

/// A map or object.
#[derive(Clone, Debug)]
pub enum Map<'a> {
    /// An object of the document with its declared type.
    Json(&'a JsonMap<String, Json>, &'a DeclType),
    /// Entries that an expression made.
    Owned(Arc<OwnedMap<'a>>),
}

/// Entries in insertion order.
#[derive(Clone, Debug, Default)]
pub struct OwnedMap<'a> {
    entries: Vec<(Value<'a>, Value<'a>)>,
    /// Built once there are many entries.
    index: Option<HashMap<Key, usize>>,
    /// The type of a constructed object.
    object: Option<ObjectType>,
}

/// The type of an object that an expression constructed.
#[derive(Clone, Debug)]
enum ObjectType {
    Declared(Arc<DeclType>),
    Message(Arc<MessageType>),
}

/// A key in a form that can be hashed. Integers of both kinds are one key if they are equal.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Key {
    Bool(bool),
    Int(i128),
    /// Bits of a number that is no integer.
    Double(u64),
    Duration(i64),
    Timestamp(i64, u32),
    String(Arc<str>),
}

/// From this number of entries on, keys are looked up by hash.
const INDEXED: usize = 16;

impl Key {
    fn of(value: &Value<'_>) -> Option<Key> {
        Some(match value {
            Value::Bool(value) => Key::Bool(*value),
            Value::Int(value) => Key::Int(i128::from(*value)),
            Value::Uint(value) => Key::Int(i128::from(*value)),
            Value::Double(value) if value.fract() == 0.0 && value.abs() < 2f64.powi(64) => Key::Int(*value as i128),
            Value::Double(value) if !value.is_nan() => Key::Double(value.to_bits()),
            Value::Duration(nanos) => Key::Duration(*nanos),
            Value::Timestamp(time) => Key::Timestamp(time.seconds, time.nanos),
            Value::String(Text::Shared(text)) => Key::String(Arc::clone(text)),
            Value::String(Text::Borrowed(text)) => Key::String(Arc::from(*text)),
            _ => return None,
        })
    }
}

/// Whether two keys are the same, numbers compared by value.
fn same_key(a: &Value<'_>, b: &Value<'_>) -> bool {
    match (a, b) {
        (Value::String(a), Value::String(b)) => **a == **b,
        (Value::Int(a), Value::Int(b)) => a == b,
        (Value::Bool(a), Value::Bool(b)) => a == b,
        (Value::String(_), _) | (_, Value::String(_)) => false,
        _ => Key::of(a).is_some_and(|a| Some(a) == Key::of(b)),
    }
}

impl<'a> OwnedMap<'a> {
    pub(crate) fn for_object(decl: Arc<DeclType>) -> Self {
        Self { object: Some(ObjectType::Declared(decl)), ..Self::default() }
    }

    pub(crate) fn for_message(message: Arc<MessageType>) -> Self {
        Self { object: Some(ObjectType::Message(message)), ..Self::default() }
    }

    /// The value of the first entry.
    pub(crate) fn first(&self) -> Option<&Value<'a>> {
        self.entries.first().map(|(_, value)| value)
    }

    fn position(&self, key: &Value<'_>) -> Option<usize> {
        match &self.index {
            Some(index) => index.get(&Key::of(key)?).copied(),
            None => self.entries.iter().position(|(known, _)| same_key(known, key)),
        }
    }

    pub(crate) fn get(&self, key: &Value<'_>) -> Option<&Value<'a>> {
        self.position(key).map(|at| &self.entries[at].1)
    }

    /// Adds an entry; a later value replaces an earlier one.
    pub(crate) fn insert(&mut self, key: Value<'a>, value: Value<'a>) {
        if let Some(at) = self.position(&key) {
            self.entries[at].1 = value;
            return;
        }
        self.entries.push((key, value));
        let at = self.entries.len() - 1;
        match &mut self.index {
            Some(index) => {
                if let Some(key) = Key::of(&self.entries[at].0) {
                    index.insert(key, at);
                }
            }
            None if self.entries.len() >= INDEXED => {
                let keys = self.entries.iter().enumerate();
                self.index = Some(keys.filter_map(|(at, (key, _))| Some((Key::of(key)?, at))).collect());
            }
            None => {}
        }
    }

    pub(crate) fn remove(&mut self, key: &Value<'_>) {
        if let Some(at) = self.position(key) {
            self.entries.remove(at);
            self.index = None;
        }
    }
}

impl<'a> FromIterator<(Value<'a>, Value<'a>)> for Map<'a> {
    /// Of entries with equal keys the last one remains.
    fn from_iter<I: IntoIterator<Item = (Value<'a>, Value<'a>)>>(entries: I) -> Self {
        let mut map = OwnedMap::default();
        for (key, value) in entries {
            map.insert(key, value);
        }
        Map::Owned(Arc::new(map))
    }
}

impl<'a> Map<'a> {
    /// The number of entries.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        match self {
            Map::Json(map, _) => map.len(),
            Map::Owned(map) => map.entries.len(),
        }
    }

    /// The value of a key. Keys of documents are strings: any other key is an error.
    pub fn find(&self, key: &Value<'_>) -> Result<Option<Value<'a>>, EvalError> {
        match self {
            Map::Owned(map) => Ok(map.get(key).cloned()),
            Map::Json(map, decl) => match key {
                Value::String(name) => find_json(map, decl, name),
                _ if matches!(decl.kind, DeclKind::Dyn) => Ok(None),
                _ => Err(EvalError::no_such_overload()),
            },
        }
    }

    /// The keys; of a document's object only the declared ones, as expressions write them.
    pub fn keys(&self) -> Vec<Value<'a>> {
        match self {
            Map::Owned(map) => map.entries.iter().map(|(key, _)| key.clone()).collect(),
            Map::Json(map, decl) => match &decl.kind {
                DeclKind::Object(object) => map
                    .keys()
                    .filter_map(|name| escape(name))
                    .filter(|name| object.fields.contains_key(&**name))
                    .map(|name| Value::from(name.into_owned()))
                    .collect(),
                _ => map.keys().map(|name| Value::from(name.as_str())).collect(),
            },
        }
    }

    /// Whether a schema declares the map or object.
    pub(crate) fn is_declared(&self) -> bool {
        matches!(self, Map::Json(_, decl) if !matches!(decl.kind, DeclKind::Dyn))
    }

    /// The type of a constructed object.
    pub(crate) fn object_type(&self) -> Option<Type> {
        match self {
            Map::Owned(map) => map.object.as_ref().map(|object| match object {
                ObjectType::Declared(decl) => Type::Object(Arc::clone(decl)),
                ObjectType::Message(message) => Type::Message(Arc::clone(&message.name)),
            }),
            Map::Json(..) => None,
        }
    }

    /// An empty map, of the type of this object if an expression constructed it.
    pub(super) fn empty_of_same_type<'o>(&self) -> OwnedMap<'o> {
        let object = match self {
            Map::Owned(map) => map.object.clone(),
            Map::Json(..) => None,
        };
        OwnedMap { object, ..OwnedMap::default() }
    }

    /// The type of a message.
    pub(crate) fn message_type(&self) -> Option<&Arc<MessageType>> {
        match self {
            Map::Owned(map) => match &map.object {
                Some(ObjectType::Message(message)) => Some(message),
                _ => None,
            },
            Map::Json(..) => None,
        }
    }
}

/// The value of a key, as expressions write it, in a map or a declared object of a document. Null in an object is absent.
fn find_json<'a>(
    map: &'a JsonMap<String, Json>,
    decl: &'a DeclType,
    name: &str,
) -> Result<Option<Value<'a>>, EvalError> {
    match &decl.kind {
        DeclKind::Object(object) => {
            let Some(property) = unescape(name) else { return Ok(None) };
            let Some(value) = map.get(&*property).filter(|value| !value.is_null()) else { return Ok(None) };
            match object.property(&property) {
                Some(Some(decl)) => view(value, decl).map(Some),
                // A property of unknown type is equal to nothing, so that `==` with a constructed map fails.
                Some(None) | None => Ok(None),
            }
        }
        _ => match map.get(name) {
            Some(value) => view(value, super::list::element_decl(decl)).map(Some),
            None => Ok(None),
        },
    }
}
