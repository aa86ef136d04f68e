//! Message types of protobuf, which environments without a Kubernetes release can have.
//!
//! A message is an object whose fields always have a value: unset fields read as the default of their type.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::error::EvalError;
use crate::time::Timestamp;
use crate::types::Type;
use crate::value::map::OwnedMap;
use crate::value::{Map, Value};

/// A message type: its full name and the types of its fields. Enumerations are [`Type::Int`], `google.protobuf.Value` and
/// `Any` are [`Type::Dyn`], other messages [`Type::Message`] by name.
///
/// Scalar fields have no presence, as in proto3: set to zero they are unset.
///
/// ```
/// use std::sync::Arc;
///
/// use k8s_cel::{Environment, Evaluation, MessageType, Type};
///
/// let fields = [("name".to_owned(), Type::String), ("parent".to_owned(), Type::Message("example.Person".into()))];
/// let person = Arc::new(MessageType::new("example.Person", fields));
/// let environment = Environment::language().message_type(person);
/// let program = environment.compile("example.Person{name: 'Ada'}.parent.name == ''")?;
/// assert_eq!(program.evaluate(&Evaluation::new(&[])).result?.as_bool(), Some(true));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct MessageType {
    pub(crate) name: Arc<str>,
    pub(crate) fields: BTreeMap<String, Type>,
}

impl MessageType {
    /// A message type with its full name, e.g. `example.Person`.
    pub fn new(name: &str, fields: impl IntoIterator<Item = (String, Type)>) -> Self {
        Self { name: Arc::from(name), fields: fields.into_iter().collect() }
    }

    /// The full name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The type of a field.
    pub fn field(&self, name: &str) -> Option<&Type> {
        self.fields.get(name)
    }

    /// A message with these fields set. Fails for fields that the type does not have.
    pub fn message<'a>(
        self: &Arc<Self>,
        fields: impl IntoIterator<Item = (&'a str, Value<'a>)>,
    ) -> Result<Value<'a>, EvalError> {
        let mut map = OwnedMap::for_message(Arc::clone(self));
        for (name, value) in fields {
            if !self.fields.contains_key(name) {
                return Err(EvalError::new(format!("no such field '{name}'")));
            }
            if self.keeps(name, &value) {
                map.insert(Value::from(name), value);
            }
        }
        Ok(Value::Map(Map::Owned(Arc::new(map))))
    }

    /// Whether a field with this value is set.
    pub(crate) fn keeps(&self, field: &str, value: &Value<'_>) -> bool {
        match self.fields.get(field) {
            None | Some(Type::Dyn) => true,
            Some(Type::Wrapper(_) | Type::Message(_) | Type::Duration | Type::Timestamp) => {
                !matches!(value, Value::Null)
            }
            Some(_) => !value.is_zero(),
        }
    }

    fn empty(self: &Arc<Self>) -> Value<'static> {
        Value::Map(Map::Owned(Arc::new(OwnedMap::for_message(Arc::clone(self)))))
    }
}

/// The message types of an environment.
#[derive(Clone, Debug, Default)]
pub(crate) struct MessageTypes(Vec<Arc<MessageType>>);

impl MessageTypes {
    pub(crate) fn add(&mut self, message: Arc<MessageType>) {
        self.0.push(message);
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Arc<MessageType>> {
        self.0.iter().find(|message| &*message.name == name)
    }

    pub(crate) fn starts_with(&self, starts: impl Fn(&str) -> bool) -> bool {
        self.0.iter().any(|message| starts(&message.name))
    }

    /// What an unset field of this type reads as.
    pub(crate) fn default_of(&self, declared: &Type) -> Value<'static> {
        match declared {
            Type::Bool => Value::Bool(false),
            Type::Int => Value::Int(0),
            Type::Uint => Value::Uint(0),
            Type::Double => Value::Double(0.0),
            Type::String => Value::from(""),
            Type::Bytes => Value::bytes(Vec::new()),
            Type::Duration => Value::Duration(0),
            Type::Timestamp => Timestamp::new(0, 0).map_or(Value::Null, Value::Timestamp),
            Type::List(_) => Value::list(Vec::new()),
            Type::Map(_) => Value::Map(Map::Owned(Arc::default())),
            Type::Message(name) => self.get(name).map_or(Value::Null, MessageType::empty),
            _ => Value::Null,
        }
    }
}

/// A `google.protobuf` message that expressions can construct, but whose value is one of the language's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WellKnown {
    Bool,
    Bytes,
    Double,
    Float,
    Int32,
    Int64,
    String,
    Uint32,
    Uint64,
    /// `google.protobuf.Value`.
    Dyn,
    Struct,
    List,
    Duration,
    Timestamp,
}

impl WellKnown {
    pub(crate) fn by_name(name: &str) -> Option<Self> {
        Some(match name.strip_prefix("google.protobuf.")? {
            "BoolValue" => Self::Bool,
            "BytesValue" => Self::Bytes,
            "DoubleValue" => Self::Double,
            "FloatValue" => Self::Float,
            "Int32Value" => Self::Int32,
            "Int64Value" => Self::Int64,
            "StringValue" => Self::String,
            "UInt32Value" => Self::Uint32,
            "UInt64Value" => Self::Uint64,
            "Value" => Self::Dyn,
            "Struct" => Self::Struct,
            "ListValue" => Self::List,
            "Duration" => Self::Duration,
            "Timestamp" => Self::Timestamp,
            _ => return None,
        })
    }

    /// The type of a wrapper's only field.
    fn wrapped(self) -> Option<Type> {
        Some(match self {
            Self::Bool => Type::Bool,
            Self::Bytes => Type::Bytes,
            Self::Double | Self::Float => Type::Double,
            Self::Int32 | Self::Int64 => Type::Int,
            Self::String => Type::String,
            Self::Uint32 | Self::Uint64 => Type::Uint,
            Self::Dyn | Self::Struct | Self::List | Self::Duration | Self::Timestamp => return None,
        })
    }

    /// The static type of a construction.
    pub(crate) fn result(self) -> Type {
        match self {
            Self::Struct => Type::map(Type::String, Type::Dyn),
            Self::List => Type::list(Type::Dyn),
            Self::Duration => Type::Duration,
            Self::Timestamp => Type::Timestamp,
            _ => self.wrapped().map_or(Type::Dyn, |wrapped| Type::Wrapper(Arc::new(wrapped))),
        }
    }

    pub(crate) fn field(self, name: &str) -> Option<Type> {
        Some(match (self, name) {
            (Self::Struct, "fields") | (Self::Dyn, "struct_value") => Type::map(Type::String, Type::Dyn),
            (Self::List, "values") | (Self::Dyn, "list_value") => Type::list(Type::Dyn),
            (Self::Duration | Self::Timestamp, "seconds" | "nanos") => Type::Int,
            (Self::Dyn, "null_value") => Type::Null,
            (Self::Dyn, "number_value") => Type::Double,
            (Self::Dyn, "string_value") => Type::String,
            (Self::Dyn, "bool_value") => Type::Bool,
            (_, "value") => return self.wrapped(),
            _ => return None,
        })
    }

    /// The value of a message with these fields.
    pub(crate) fn build<'a>(self, map: &OwnedMap<'a>) -> Result<Value<'a>, EvalError> {
        let number = |name: &'static str| match map.get(&Value::from(name)) {
            Some(Value::Int(number)) => *number,
            _ => 0,
        };
        let (seconds, nanos) = (number("seconds"), number("nanos"));
        let field = map.first().cloned();
        Ok(match self {
            Self::Duration => {
                let total = i128::from(seconds) * 1_000_000_000 + i128::from(nanos);
                Value::Duration(i64::try_from(total).map_err(|_| EvalError::new("range error"))?)
            }
            Self::Timestamp => {
                let nanos = u32::try_from(nanos).ok();
                let time = nanos.and_then(|nanos| Timestamp::new(seconds, nanos));
                Value::Timestamp(time.ok_or_else(|| EvalError::new("range error"))?)
            }
            Self::Struct => field.unwrap_or_else(|| Value::Map(Map::Owned(Arc::default()))),
            Self::List => field.unwrap_or_else(|| Value::list(Vec::new())),
            Self::Dyn => field.unwrap_or(Value::Null),
            _ => {
                let default = || self.wrapped().map_or(Value::Null, |t| MessageTypes::default().default_of(&t));
                self.in_range(field.unwrap_or_else(default))?
            }
        })
    }

    /// The 32-bit wrappers refuse larger numbers; `FloatValue` rounds.
    fn in_range(self, value: Value<'_>) -> Result<Value<'_>, EvalError> {
        match (self, &value) {
            (Self::Int32, Value::Int(number)) if i32::try_from(*number).is_err() => Err(EvalError::new("range error")),
            (Self::Uint32, Value::Uint(number)) if u32::try_from(*number).is_err() => {
                Err(EvalError::new("range error"))
            }
            #[allow(clippy::cast_possible_truncation)]
            (Self::Float, Value::Double(number)) => Ok(Value::Double(f64::from(*number as f32))),
            _ => Ok(value),
        }
    }
}
