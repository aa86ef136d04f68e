//! A message of a type with fields, by the numbers of the table.
//!
//! As in Go: of a value that comes twice the last counts, objects that come twice are merged, lists grow. Go writes plain
//! values even if they are zero, and JSON leaves most of those out, so that they are left out here.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Map, Number, Value};

use super::wire::{Fault, Fields, Payload, fixed64s, varints};
use super::{DEPTH_MAX, OBJECTS_MAX, special};
use crate::schema::{Field, Form, Shape, Struct};

/// A fault and where it is: the names of fields, the innermost first.
#[derive(Debug)]
pub(super) struct Failure {
    path: Vec<&'static str>,
    pub(super) fault: Fault,
}

impl Failure {
    /// `spec.containers.name`
    pub(super) fn path(&self) -> String {
        self.path.iter().rev().copied().collect::<Vec<_>>().join(".")
    }

    fn within(mut self, field: Field) -> Self {
        self.path.push(field.name());
        self
    }
}

impl From<Fault> for Failure {
    fn from(fault: Fault) -> Self {
        Self { path: Vec::new(), fault }
    }
}

/// Reads the object of a kind.
pub(super) fn read(message: &[u8], kind: Struct) -> Result<Map<String, Value>, Failure> {
    let mut object = Map::new();
    Reader::of(kind, Room(DEPTH_MAX), &Seen::default())?.fill(&mut object, message)?;
    Ok(object)
}

/// How many more levels of objects and lists there may be.
#[derive(Clone, Copy)]
pub(super) struct Room(usize);

impl Room {
    pub(super) fn enter(self) -> Result<Self, Fault> {
        self.0.checked_sub(1).map(Self).ok_or(Fault::TooDeep)
    }

    pub(super) fn levels(self) -> usize {
        self.0
    }
}

/// A field, and its numbers from the outermost message in; zeros fill the row.
struct Slot {
    numbers: [u32; NUMBERS_MAX + 1],
    field: Field,
}

/// JSON has at most so many messages inline in each other, the field included: rules with operations.
const NUMBERS_MAX: usize = 3;

/// What one body has had so far.
#[derive(Default)]
struct Seen {
    /// A list of many items must not sort their fields as many times.
    types: RefCell<HashMap<TypeName, Rc<[Slot]>>>,
    objects: Cell<usize>,
}

/// Package and name.
type TypeName = (&'static str, &'static str);

impl Seen {
    fn count_object(&self) -> Result<(), Fault> {
        self.objects.set(self.objects.get() + 1);
        if self.objects.get() > OBJECTS_MAX { Err(Fault::TooMany) } else { Ok(()) }
    }

    /// By numbers.
    fn slots(&self, kind: Struct) -> Rc<[Slot]> {
        let mut types = self.types.borrow_mut();
        types.entry((kind.package(), kind.name())).or_insert_with(|| slots(kind)).clone()
    }
}

fn slots(kind: Struct) -> Rc<[Slot]> {
    let mut slots = Vec::new();
    for field in kind.fields() {
        let mut numbers = [0; NUMBERS_MAX + 1];
        numbers.iter_mut().zip(field.numbers().take(NUMBERS_MAX)).for_each(|(slot, number)| *slot = number);
        if numbers[0] != 0 {
            slots.push(Slot { numbers, field });
        }
    }
    slots.sort_unstable_by_key(|slot| slot.numbers);
    slots.into()
}

/// Reads messages of one type.
pub(super) struct Reader<'t> {
    kind: Struct,
    slots: Rc<[Slot]>,
    /// What is left within the object.
    room: Room,
    seen: &'t Seen,
}

impl<'t> Reader<'t> {
    fn of(kind: Struct, room: Room, seen: &'t Seen) -> Result<Self, Fault> {
        seen.count_object()?;
        Ok(Self { kind, slots: seen.slots(kind), room: room.enter()?, seen })
    }

    fn fill(&self, object: &mut Map<String, Value>, message: &[u8]) -> Result<(), Failure> {
        self.fill_inline(object, message, &self.slots, 0)
    }

    /// Reads a message whose fields are those of `slots`, which differ at `level` of their numbers or behind it.
    fn fill_inline(
        &self,
        object: &mut Map<String, Value>,
        message: &[u8],
        slots: &[Slot],
        level: usize,
    ) -> Result<(), Failure> {
        for field in Fields::of(message) {
            let (number, payload) = field?;
            let start = slots.partition_point(|slot| slot.numbers[level] < number);
            let end = slots.partition_point(|slot| slot.numbers[level] <= number);
            match &slots[start..end] {
                [] => {}
                [slot] if slot.numbers[level + 1] == 0 => {
                    self.put(object, slot.field, payload).map_err(|failure| failure.within(slot.field))?;
                }
                inline => self.fill_inline(object, payload.bytes()?, inline, level + 1)?,
            }
        }
        Ok(())
    }

    fn put(&self, object: &mut Map<String, Value>, field: Field, payload: Payload<'_>) -> Result<(), Failure> {
        let name = field.name();
        match field.shape().form() {
            Form::Struct(inner) => {
                Reader::of(inner, self.room, self.seen)?.fill(part(object, name), payload.bytes()?)?
            }
            Form::Map(values) => {
                let (key, value) = self.entry(values, payload.bytes()?)?;
                part(object, name).insert(key, value);
            }
            Form::List(items) => {
                let new = self.items(items, payload)?;
                match object.get_mut(name) {
                    Some(Value::Array(list)) => list.extend(new),
                    _ if new.is_empty() => {}
                    _ => drop(object.insert(name.to_owned(), new.into())),
                }
            }
            form @ (Form::Text
            | Form::Int32
            | Form::Int64
            | Form::Double
            | Form::Bool
            | Form::Bytes
            | Form::Special(_)) => {
                let value = self.plain(form, payload, self.room)?;
                let is_special = matches!(form, Form::Special(_));
                let is_omitted = if is_special { value.is_null() } else { !field.keeps_zero() && is_zero(&value) };
                match is_omitted {
                    true => object.remove(name),
                    false => object.insert(name.to_owned(), value),
                };
            }
        }
        Ok(())
    }

    /// One item, or all of a packed list.
    fn items(&self, shape: Shape, payload: Payload<'_>) -> Result<Vec<Value>, Failure> {
        let room = self.room.enter()?;
        let item = |payload: Result<_, Fault>| self.item(shape, payload?, room);
        match (shape.form(), payload) {
            (Form::Int32 | Form::Int64 | Form::Bool, Payload::Bytes(packed)) => varints(packed).map(item).collect(),
            (Form::Double, Payload::Bytes(packed)) => fixed64s(packed).map(item).collect(),
            _ => Ok(vec![item(Ok(payload))?]),
        }
    }

    /// An entry of a map is a message of its own: the key is field 1, the value field 2.
    fn entry(&self, values: Shape, message: &[u8]) -> Result<(String, Value), Failure> {
        let (mut key, mut value) = ("", nothing(values));
        for field in Fields::of(message) {
            match field? {
                (1, payload) => key = payload.text()?,
                (2, payload) => value = payload,
                _ => {}
            }
        }
        Ok((key.to_owned(), self.item(values, value, self.room.enter()?)?))
    }

    /// What stands in a list or a map, with the room that there is in it.
    fn item(&self, shape: Shape, payload: Payload<'_>, room: Room) -> Result<Value, Failure> {
        match shape.form() {
            Form::Struct(inner) => self.object(inner, payload.bytes()?, room),
            // A list in a map is a message whose field 1 has the items.
            Form::List(items) => {
                let wrapped = Fields::of(payload.bytes()?).filter(|field| !matches!(field, Ok((2.., _))));
                let room = room.enter()?;
                wrapped.map(|field| self.item(items, field?.1, room)).collect()
            }
            // No type has a map there, and protobuf none either.
            Form::Map(_) => Err(Fault::WrongForm.into()),
            form @ (Form::Text
            | Form::Int32
            | Form::Int64
            | Form::Double
            | Form::Bool
            | Form::Bytes
            | Form::Special(_)) => self.plain(form, payload, room),
        }
    }

    /// An object of the type itself: a schema within a schema.
    pub(super) fn another(&self, message: &[u8], room: Room) -> Result<Value, Failure> {
        self.object(self.kind, message, room)
    }

    fn object(&self, kind: Struct, message: &[u8], room: Room) -> Result<Value, Failure> {
        let mut object = Map::new();
        Reader::of(kind, room, self.seen)?.fill(&mut object, message)?;
        Ok(object.into())
    }

    fn plain(&self, form: Form, payload: Payload<'_>, room: Room) -> Result<Value, Failure> {
        Ok(match form {
            Form::Text => payload.text()?.into(),
            // Negative numbers have 64 bits even here, and Go drops the upper half of any.
            Form::Int32 => (payload.varint()?.cast_signed() as i32).into(),
            Form::Int64 => payload.varint()?.cast_signed().into(),
            Form::Double => double(f64::from_bits(payload.fixed64()?))?.into(),
            Form::Bool => (payload.varint()? != 0).into(),
            Form::Bytes => BASE64_STANDARD.encode(payload.bytes()?).into(),
            Form::Special(special) => special::read(special, payload.bytes()?, self, room)?,
            Form::List(_) | Form::Map(_) | Form::Struct(_) => return Err(Fault::WrongForm.into()),
        })
    }
}

fn part<'o>(object: &'o mut Map<String, Value>, name: &str) -> &'o mut Map<String, Value> {
    let part = object.entry(name).or_insert_with(|| Map::new().into());
    part.as_object_mut().expect("a field has one form, and here it is an object")
}

/// What an entry of a map has for a value if there is none.
fn nothing(shape: Shape) -> Payload<'static> {
    match shape.form() {
        Form::Int32 | Form::Int64 | Form::Bool => Payload::Varint(0),
        Form::Double => Payload::Fixed64(0),
        Form::Text | Form::Bytes | Form::Special(_) | Form::List(_) | Form::Map(_) | Form::Struct(_) => {
            Payload::Bytes(&[])
        }
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

/// Go writes whole numbers without a fraction, and they are read as integers.
fn double(value: f64) -> Result<Number, Fault> {
    /// Up to here every whole number has its own floating-point number.
    const WHOLE_MAX: f64 = 9_007_199_254_740_992.0;
    if value.fract() == 0.0 && value.abs() <= WHOLE_MAX {
        return Ok((value as i64).into());
    }
    Number::from_f64(value).ok_or_else(|| Fault::NotFinite(value.to_string()))
}
