//! Variables and the fields and indices selected from them.

use serde_json::Value as Json;

type JsonObject = serde_json::Map<String, Json>;

use super::{Context, Evaluated, Input, LazyFields};
use crate::decl::{DeclKind, DeclType};
use crate::error::EvalError;
use crate::message::MessageType;
use crate::number::double_to_int;
use crate::program::{Attribute, Base, FieldQualifier, Node, Qualifier, QualifierKind};
use crate::value::{List, Map, Value, view, view_object};

/// Where a chain of selections has got to: JSON is turned into a value at the end only.
enum Cursor<'a> {
    Json(&'a Json, &'a DeclType),
    Value(Value<'a>),
    Lazy(&'a dyn LazyFields),
}

impl<'a> Cursor<'a> {
    fn is_scalar(&self) -> bool {
        match self {
            Cursor::Json(json, _) => !matches!(json, Json::Object(_) | Json::Array(_)),
            Cursor::Value(value) => !matches!(value, Value::Map(_) | Value::List(_) | Value::Optional(_)),
            Cursor::Lazy(_) => false,
        }
    }

    fn value(self) -> Evaluated<'a> {
        match self {
            Cursor::Json(json, decl) => view(json, decl),
            Cursor::Value(value) => Ok(value),
            Cursor::Lazy(_) => Err(EvalError::no_such_overload()),
        }
    }
}

impl<'a> Context<'a> {
    /// An attribute as an expression of its own: costs one more than its qualifiers, except after `?:` and in `has()`.
    pub(super) fn attribute(&mut self, attribute: &'a Attribute) -> Evaluated<'a> {
        let value = self.resolve(attribute);
        let free = attribute.test_only || matches!(&attribute.base, Base::Node(Node::Conditional(_)));
        if !free {
            self.charge_after(&value, 1)?;
        }
        value
    }

    pub(super) fn resolve(&mut self, attribute: &'a Attribute) -> Evaluated<'a> {
        let Some((found, decl)) = self.declared_field(attribute) else { return self.resolve_any(attribute) };
        for _ in &attribute.qualifiers {
            self.charge(1)?;
        }
        match found {
            Some(json) if !attribute.test_only => view(json, decl),
            _ => Ok(Value::Bool(found.is_some())),
        }
    }

    /// The usual case, with less ado: a declared field of an object of the document. It is there, or `has()` asks whether.
    fn declared_field(&self, attribute: &'a Attribute) -> Option<(Option<&'a Json>, &'a DeclType)> {
        let (last, parents) = attribute.qualifiers.split_last()?;
        let (mut map, mut decl) = self.declared_object(&attribute.base)?;
        for parent in parents {
            let (Some(Json::Object(inner)), declared) = select_declared(map, decl, parent)? else { return None };
            (map, decl) = (inner, declared);
        }
        let (found, declared) = select_declared(map, decl, last)?;
        (found.is_some() || attribute.test_only).then_some((found, declared))
    }

    fn declared_object(&self, base: &'a Base) -> Option<(&'a JsonObject, &'a DeclType)> {
        match base {
            Base::Variable(at) => {
                let variable = &self.program.variables[*at as usize];
                match self.variables.iter().find(|(name, _)| *name == &*variable.name) {
                    Some((_, Input::Json(Json::Object(map)))) => Some((map, &variable.decl)),
                    Some((_, Input::Object(map))) => Some((*map, &variable.decl)),
                    _ => None,
                }
            }
            Base::Local(slot) => match self.locals.get(*slot as usize) {
                Some(Value::Map(Map::Json(map, decl))) => Some((*map, decl)),
                _ => None,
            },
            Base::Lazy(_) | Base::Node(_) => None,
        }
    }

    fn resolve_any(&mut self, attribute: &'a Attribute) -> Evaluated<'a> {
        let mut cursor = self.base(&attribute.base)?;
        if attribute.qualifiers.is_empty() {
            return cursor.value().map(Value::flatten_optional);
        }
        let absent = || Ok(if attribute.test_only { Value::Bool(false) } else { Value::Optional(None) });
        let mut optional = false;
        if let Cursor::Json(_, decl) = &cursor
            && matches!(decl.kind, DeclKind::Optional(_))
        {
            cursor = Cursor::Value(cursor.value()?);
        }
        if let Cursor::Value(Value::Optional(inner)) = cursor {
            let Some(inner) = inner else { return absent() };
            cursor = Cursor::Value((*inner).clone());
            optional = true;
        }
        let last = attribute.qualifiers.len() - 1;
        for (at, qualifier) in attribute.qualifiers.iter().enumerate() {
            optional |= qualifier.optional;
            if attribute.test_only && at == last {
                return self.test(cursor, qualifier, optional);
            }
            let found = self.qualify(cursor, qualifier, optional);
            if optional {
                match found? {
                    Some(value) => cursor = value,
                    None => return absent(),
                }
                self.charge(1)?;
                continue;
            }
            match &found {
                Err(error) if error.is_cost_limit() => return Err(error.clone()),
                _ => self.charge(1)?,
            }
            let Some(value) = found? else { return Err(EvalError::no_such_overload()) };
            cursor = value;
        }
        let value = cursor.value()?;
        Ok(if optional { Value::some(value) } else { value })
    }

    fn base(&mut self, base: &'a Base) -> Result<Cursor<'a>, EvalError> {
        match base {
            Base::Variable(at) => {
                let variable = &self.program.variables[*at as usize];
                let input = self.variables.iter().find(|(name, _)| *name == &*variable.name);
                match input {
                    Some((_, Input::Json(json))) => Ok(Cursor::Json(json, &variable.decl)),
                    Some((_, Input::Object(map))) => view_object(map, &variable.decl).map(Cursor::Value),
                    Some((_, Input::Value(value))) => Ok(Cursor::Value(value.clone())),
                    Some((_, Input::Lazy(fields))) => Ok(Cursor::Lazy(*fields)),
                    None => Err(EvalError::new(format!("no such attribute(s): {}", variable.name))),
                }
            }
            Base::Local(slot) => match self.locals.get(*slot as usize) {
                Some(value) => Ok(Cursor::Value(value.clone())),
                None => Err(EvalError::new("no such attribute(s)")),
            },
            Base::Lazy(bind) => self.lazy(*bind).map(Cursor::Value),
            Base::Node(node) => self.eval(node).map(Cursor::Value),
        }
    }

    /// The presence test at the end of `has()`.
    fn test(&mut self, cursor: Cursor<'a>, qualifier: &'a Qualifier, optional: bool) -> Evaluated<'a> {
        let found = self.qualify(cursor, qualifier, true);
        match &found {
            Err(error) if error.is_cost_limit() => return Err(error.clone()),
            Ok(None) | Err(_) if optional => {}
            _ => self.charge(1)?,
        }
        Ok(Value::Bool(found?.is_some()))
    }

    /// Selects from the cursor. What is absent is an error, or nothing where `presence` asks for it.
    fn qualify(
        &mut self,
        cursor: Cursor<'a>,
        qualifier: &'a Qualifier,
        presence: bool,
    ) -> Result<Option<Cursor<'a>>, EvalError> {
        if let (Cursor::Value(Value::Map(map)), QualifierKind::Field(field)) = (&cursor, &qualifier.kind)
            && let Some(message) = map.message_type()
        {
            return self.message_field(map, message, &field.name, presence);
        }
        match &qualifier.kind {
            // The specification refuses fields of scalars, Kubernetes treats them as absent.
            QualifierKind::Field(_) if self.is_language() && cursor.is_scalar() => Err(EvalError::no_such_overload()),
            QualifierKind::Field(field) => match select_field(cursor, field)? {
                None if !presence => Err(EvalError::no_such_key(&field.name)),
                found => Ok(found),
            },
            QualifierKind::Const(key) => select(cursor, key, presence),
            QualifierKind::Dynamic(node) => {
                let key = self.eval_bare(node)?;
                match key {
                    Value::String(_) | Value::Int(_) | Value::Uint(_) | Value::Bool(_) | Value::Double(_) => {
                        select(cursor, &key, presence)
                    }
                    _ => Err(EvalError::new(format!("invalid qualifier type: {}", key.go_type()))),
                }
            }
        }
    }
}

impl<'a> Context<'a> {
    /// A field of a message. Unset fields have the default value, unless `presence` asks whether they are set.
    fn message_field(
        &self,
        map: &Map<'a>,
        message: &MessageType,
        name: &str,
        presence: bool,
    ) -> Result<Option<Cursor<'a>>, EvalError> {
        let Some(declared) = message.fields.get(name) else {
            return Err(EvalError::new(format!("no such field '{name}'")));
        };
        Ok(match map.find(&Value::from(name))? {
            Some(value) => Some(Cursor::Value(value)),
            None if presence => None,
            None => Some(Cursor::Value(self.program.messages.default_of(declared))),
        })
    }
}

/// A field that the type of the object declares, where the qualifier is such a field; what is null is not there.
fn select_declared<'a>(
    map: &'a JsonObject,
    decl: &DeclType,
    qualifier: &'a Qualifier,
) -> Option<(Option<&'a Json>, &'a DeclType)> {
    let QualifierKind::Field(FieldQualifier { declared: Some((property, declared)), .. }) = &qualifier.kind else {
        return None;
    };
    if qualifier.optional || !matches!(decl.kind, DeclKind::Object(_)) {
        return None;
    }
    Some((map.get(&**property).filter(|value| !value.is_null()), declared))
}

fn select_field<'a>(cursor: Cursor<'a>, field: &'a FieldQualifier) -> Result<Option<Cursor<'a>>, EvalError> {
    match cursor {
        Cursor::Json(Json::Object(map), decl) => {
            if let (Some((property, declared)), DeclKind::Object(_)) = (&field.declared, &decl.kind) {
                let value = map.get(&**property).filter(|value| !value.is_null());
                return Ok(value.map(|value| Cursor::Json(value, declared)));
            }
            match &decl.kind {
                DeclKind::Dyn => Ok(map.get(&*field.name).map(|value| Cursor::Json(value, decl))),
                DeclKind::Map { values } => Ok(map.get(&*field.name).map(|value| Cursor::Json(value, values))),
                _ => select(Cursor::Value(view(&Json::Null, decl)?), &Value::from(&*field.name), true),
            }
        }
        Cursor::Json(json, decl) => select(Cursor::Value(view(json, decl)?), &Value::from(&*field.name), true),
        Cursor::Value(Value::Map(Map::Json(map, decl))) => {
            if let (Some((property, declared)), DeclKind::Object(_)) = (&field.declared, &decl.kind) {
                let value = map.get(&**property).filter(|value| !value.is_null());
                return Ok(value.map(|value| Cursor::Json(value, declared)));
            }
            select(Cursor::Value(Value::Map(Map::Json(map, decl))), &Value::from(&*field.name), true)
        }
        value => select(value, &Value::from(&*field.name), true),
    }
}

/// The entry or element for a key.
fn select<'a>(cursor: Cursor<'a>, key: &Value<'_>, presence: bool) -> Result<Option<Cursor<'a>>, EvalError> {
    if let (Cursor::Lazy(fields), Value::String(name)) = (&cursor, key) {
        return match fields.field(name) {
            Some(value) => value.map(|value| Some(Cursor::Value(value))),
            None if presence => Ok(None),
            None => Err(EvalError::no_such_key(key)),
        };
    }
    let (found, missing): (Option<Value<'a>>, fn(&Value<'_>) -> EvalError) = match cursor.value()? {
        Value::Map(map) => (map.find(key)?, |key| EvalError::no_such_key(key)),
        Value::List(list) => (element(&list, key)?, |key| EvalError::index_out_of_bounds(key)),
        _ => (None, |key| EvalError::no_such_key(key)),
    };
    match found {
        Some(value) => Ok(Some(Cursor::Value(value))),
        None if presence => Ok(None),
        None => Err(missing(key)),
    }
}

fn element<'a>(list: &List<'a>, key: &Value<'_>) -> Result<Option<Value<'a>>, EvalError> {
    let index = match key {
        Value::Int(index) => *index,
        Value::Uint(index) => i64::try_from(*index).unwrap_or(i64::MAX),
        Value::Double(index) => match double_to_int(*index).filter(|whole| *whole as f64 == *index) {
            Some(index) => index,
            None => return Err(EvalError::new(format!("unsupported index value {key} in list"))),
        },
        _ => return Err(EvalError::new(format!("unsupported index type '{}' in list", key.type_name()))),
    };
    match usize::try_from(index).ok().filter(|at| *at < list.len()) {
        Some(at) => list.get(at).map(Some),
        None => Ok(None),
    }
}
