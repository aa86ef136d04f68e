//! Decodes a message of a struct type, by the field numbers of the table.
//!
//! As in Go, the last of repeated scalars applies, repeated objects are merged, and lists are appended to. Go encodes
//! zero scalars in protobuf but omits most of them in JSON, so the decoder omits them too.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Map, Number, Value};

use super::wire::{Payload, WireError, WireFields, unpack_fixed64s, unpack_varints};
use super::{DEPTH_MAX, OBJECTS_MAX, special};
use crate::{StructField, StructType, TypeForm, ValueType};

/// An error and its path: the names of fields, the innermost first.
#[derive(Debug)]
pub(super) struct MessageError<'t> {
    path: Vec<&'t str>,
    pub(super) error: WireError,
}

impl<'t> MessageError<'t> {
    /// `spec.containers.name`
    pub(super) fn path(&self) -> String {
        self.path.iter().rev().copied().collect::<Vec<_>>().join(".")
    }

    fn in_field(mut self, field: StructField<'t>) -> Self {
        self.path.push(field.name());
        self
    }
}

impl From<WireError> for MessageError<'_> {
    fn from(fault: WireError) -> Self {
        Self { path: Vec::new(), error: fault }
    }
}

/// Decodes the object of a kind.
pub(super) fn read_message<'t>(message: &[u8], kind: StructType<'t>) -> Result<Map<String, Value>, MessageError<'t>> {
    let mut object = Map::new();
    MessageReader::new(kind, DepthBudget(DEPTH_MAX), &BodyContext::default())?.read_into(&mut object, message)?;
    Ok(object)
}

/// The remaining levels of objects and lists.
#[derive(Clone, Copy)]
pub(super) struct DepthBudget(usize);

impl DepthBudget {
    pub(super) fn descend(self) -> Result<Self, WireError> {
        self.0.checked_sub(1).map(Self).ok_or(WireError::TooDeep)
    }

    pub(super) fn levels(self) -> usize {
        self.0
    }
}

/// A field, and its numbers from the outermost message inwards, padded with zeros.
struct FieldSlot<'t> {
    numbers: [u32; INLINE_LEVELS_MAX + 1],
    field: StructField<'t>,
}

/// Maximum number of nested messages that JSON inlines, the field included; reached by rules with operations.
const INLINE_LEVELS_MAX: usize = 3;

/// The state of decoding one body.
#[derive(Default)]
struct BodyContext<'t> {
    /// Sorted fields by type, cached so that a long list does not sort them for each item.
    types: RefCell<HashMap<TypeName<'t>, Rc<[FieldSlot<'t>]>>>,
    objects: Cell<usize>,
}

/// Package and name.
type TypeName<'t> = (&'t str, &'t str);

impl<'t> BodyContext<'t> {
    fn count_object(&self) -> Result<(), WireError> {
        self.objects.set(self.objects.get() + 1);
        if self.objects.get() > OBJECTS_MAX { Err(WireError::TooManyObjects) } else { Ok(()) }
    }

    /// Fields sorted by numbers.
    fn field_slots(&self, kind: StructType<'t>) -> Rc<[FieldSlot<'t>]> {
        let mut types = self.types.borrow_mut();
        types.entry((kind.package(), kind.name())).or_insert_with(|| field_slots(kind)).clone()
    }
}

fn field_slots(kind: StructType<'_>) -> Rc<[FieldSlot<'_>]> {
    let mut slots = Vec::new();
    for field in kind.fields() {
        let mut numbers = [0; INLINE_LEVELS_MAX + 1];
        numbers
            .iter_mut()
            .zip(field.protobuf_numbers().take(INLINE_LEVELS_MAX))
            .for_each(|(slot, number)| *slot = number);
        if numbers[0] != 0 {
            slots.push(FieldSlot { numbers, field });
        }
    }
    slots.sort_unstable_by_key(|slot| slot.numbers);
    slots.into()
}

/// Reads messages of one type.
pub(super) struct MessageReader<'c, 't> {
    kind: StructType<'t>,
    slots: Rc<[FieldSlot<'t>]>,
    /// Remaining depth within the object.
    depth_budget: DepthBudget,
    context: &'c BodyContext<'t>,
}

impl<'c, 't> MessageReader<'c, 't> {
    fn new(kind: StructType<'t>, room: DepthBudget, seen: &'c BodyContext<'t>) -> Result<Self, WireError> {
        seen.count_object()?;
        Ok(Self { kind, slots: seen.field_slots(kind), depth_budget: room.descend()?, context: seen })
    }

    fn read_into(&self, object: &mut Map<String, Value>, message: &[u8]) -> Result<(), MessageError<'t>> {
        self.read_inline_into(object, message, &self.slots, 0)
    }

    /// Reads a message whose fields are those of `slots`, which differ at `level` of their numbers or behind it.
    fn read_inline_into(
        &self,
        object: &mut Map<String, Value>,
        message: &[u8],
        slots: &[FieldSlot<'t>],
        level: usize,
    ) -> Result<(), MessageError<'t>> {
        for field in WireFields::new(message) {
            let (number, payload) = field?;
            let start = slots.partition_point(|slot| slot.numbers[level] < number);
            let end = slots.partition_point(|slot| slot.numbers[level] <= number);
            match &slots[start..end] {
                [] => {}
                [slot] if slot.numbers[level + 1] == 0 => {
                    self.put_field(object, slot.field, payload).map_err(|failure| failure.in_field(slot.field))?;
                }
                inline => self.read_inline_into(object, payload.bytes()?, inline, level + 1)?,
            }
        }
        Ok(())
    }

    fn put_field(
        &self,
        object: &mut Map<String, Value>,
        field: StructField<'t>,
        payload: Payload<'_>,
    ) -> Result<(), MessageError<'t>> {
        let name = field.name();
        match field.value_type().form() {
            TypeForm::Struct(inner) => MessageReader::new(inner, self.depth_budget, self.context)?
                .read_into(object_field_mut(object, name), payload.bytes()?)?,
            TypeForm::Map(values) => {
                let (key, value) = self.read_map_entry(values, payload.bytes()?)?;
                object_field_mut(object, name).insert(key, value);
            }
            TypeForm::List(items) => {
                let new = self.read_items(items, payload)?;
                match object.get_mut(name) {
                    Some(Value::Array(list)) => list.extend(new),
                    _ if new.is_empty() => {}
                    _ => drop(object.insert(name.to_owned(), new.into())),
                }
            }
            form @ (TypeForm::Text
            | TypeForm::Int32
            | TypeForm::Int64
            | TypeForm::Double
            | TypeForm::Bool
            | TypeForm::Bytes
            | TypeForm::Special(_)) => {
                let value = self.read_scalar(form, payload, self.depth_budget)?;
                let is_special = matches!(form, TypeForm::Special(_));
                let is_omitted =
                    if is_special { value.is_null() } else { !field.is_written_when_zero() && is_zero(&value) };
                match is_omitted {
                    true => object.remove(name),
                    false => object.insert(name.to_owned(), value),
                };
            }
        }
        Ok(())
    }

    /// One item, or all of a packed list.
    fn read_items(&self, shape: ValueType<'t>, payload: Payload<'_>) -> Result<Vec<Value>, MessageError<'t>> {
        let room = self.depth_budget.descend()?;
        let item = |payload: Result<_, WireError>| self.read_item(shape, payload?, room);
        match (shape.form(), payload) {
            (TypeForm::Int32 | TypeForm::Int64 | TypeForm::Bool, Payload::Bytes(packed)) => {
                unpack_varints(packed).map(item).collect()
            }
            (TypeForm::Double, Payload::Bytes(packed)) => unpack_fixed64s(packed).map(item).collect(),
            _ => Ok(vec![item(Ok(payload))?]),
        }
    }

    /// An entry of a map is a message of its own: the key is field 1, the value field 2.
    fn read_map_entry(&self, values: ValueType<'t>, message: &[u8]) -> Result<(String, Value), MessageError<'t>> {
        let (mut key, mut value) = ("", empty_payload(values));
        for field in WireFields::new(message) {
            match field? {
                (1, payload) => key = payload.text()?,
                (2, payload) => value = payload,
                _ => {}
            }
        }
        Ok((key.to_owned(), self.read_item(values, value, self.depth_budget.descend()?)?))
    }

    /// Decodes an item of a list or a value of a map; `room` is the remaining depth.
    fn read_item(
        &self,
        shape: ValueType<'t>,
        payload: Payload<'_>,
        room: DepthBudget,
    ) -> Result<Value, MessageError<'t>> {
        match shape.form() {
            TypeForm::Struct(inner) => self.read_object(inner, payload.bytes()?, room),
            // A list in a map is a message whose field 1 has the items.
            TypeForm::List(items) => {
                let wrapped = WireFields::new(payload.bytes()?).filter(|field| !matches!(field, Ok((2.., _))));
                let room = room.descend()?;
                wrapped.map(|field| self.read_item(items, field?.1, room)).collect()
            }
            // No type has a map in a list or map, and protobuf cannot express it.
            TypeForm::Map(_) => Err(WireError::WrongWireType.into()),
            form @ (TypeForm::Text
            | TypeForm::Int32
            | TypeForm::Int64
            | TypeForm::Double
            | TypeForm::Bool
            | TypeForm::Bytes
            | TypeForm::Special(_)) => self.read_scalar(form, payload, room),
        }
    }

    /// An object of the type itself: a schema within a schema.
    pub(super) fn read_same_type(&self, message: &[u8], room: DepthBudget) -> Result<Value, MessageError<'t>> {
        self.read_object(self.kind, message, room)
    }

    fn read_object(&self, kind: StructType<'t>, message: &[u8], room: DepthBudget) -> Result<Value, MessageError<'t>> {
        let mut object = Map::new();
        MessageReader::new(kind, room, self.context)?.read_into(&mut object, message)?;
        Ok(object.into())
    }

    fn read_scalar(
        &self,
        form: TypeForm<'t>,
        payload: Payload<'_>,
        room: DepthBudget,
    ) -> Result<Value, MessageError<'t>> {
        Ok(match form {
            TypeForm::Text => payload.text()?.into(),
            // Negative int32 values are encoded with 64 bits; like Go, drop the upper half.
            TypeForm::Int32 => (payload.varint()?.cast_signed() as i32).into(),
            TypeForm::Int64 => payload.varint()?.cast_signed().into(),
            TypeForm::Double => json_number(f64::from_bits(payload.fixed64()?))?.into(),
            TypeForm::Bool => (payload.varint()? != 0).into(),
            TypeForm::Bytes => BASE64_STANDARD.encode(payload.bytes()?).into(),
            TypeForm::Special(special) => special::read_special(special, payload.bytes()?, self, room)?,
            TypeForm::List(_) | TypeForm::Map(_) | TypeForm::Struct(_) => return Err(WireError::WrongWireType.into()),
        })
    }
}

fn object_field_mut<'o>(object: &'o mut Map<String, Value>, name: &str) -> &'o mut Map<String, Value> {
    let part = object.entry(name).or_insert_with(|| Map::new().into());
    part.as_object_mut().expect("a field always has the same type, an object")
}

/// Payload of an absent map value: the zero value of its type.
fn empty_payload(shape: ValueType<'_>) -> Payload<'static> {
    match shape.form() {
        TypeForm::Int32 | TypeForm::Int64 | TypeForm::Bool => Payload::Varint(0),
        TypeForm::Double => Payload::Fixed64(0),
        TypeForm::Text
        | TypeForm::Bytes
        | TypeForm::Special(_)
        | TypeForm::List(_)
        | TypeForm::Map(_)
        | TypeForm::Struct(_) => Payload::Bytes(&[]),
    }
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(_) | Value::Object(_) => false,
    }
}

/// Converts a whole number to an integer, as Go encodes it without a fraction.
fn json_number(value: f64) -> Result<Number, WireError> {
    /// 2^53: up to this, `f64` represents every whole number exactly.
    const WHOLE_MAX: f64 = 9_007_199_254_740_992.0;
    if value.fract() == 0.0 && value.abs() <= WHOLE_MAX {
        return Ok((value as i64).into());
    }
    Number::from_f64(value).ok_or_else(|| WireError::NotFinite(value.to_string()))
}
