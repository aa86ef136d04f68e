//! Round trip of every kind of the oldest and the newest release.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::json;

use super::*;
use crate::{SpecialType, StructType, TypeForm, ValueType};
use test_message::{TestMessage, encode_envelope};

/// Maximum depth of kinds, recursive types aside.
const LEVELS_MAX: usize = 12;

#[test]
fn every_field_of_every_kind_round_trips() {
    for release in [31, 37] {
        let mut count = 0;
        for kind in built_in_types(release).all() {
            let Some(name) = kind.kind() else { continue };
            let (mut object, message) = sample(kind, LEVELS_MAX);
            let api_version = name.group_version().to_string();
            object.insert("kind".to_owned(), name.kind.into());
            object.insert("apiVersion".to_owned(), api_version.clone().into());
            let body = encode_envelope(&api_version, name.kind, &message.0);
            assert_eq!(decode(&body, built_in_types(release), NO_KIND), Ok(object), "{kind:?}");
            count += 1;
        }
        assert!(count > 150, "{count} kinds in {release}");
    }
}

/// An object with every field that protobuf has, and its encoding.
fn sample(kind: StructType<'_>, levels: usize) -> (Map<String, Value>, TestMessage) {
    let (mut object, mut message) = (Map::new(), TestMessage::new());
    for field in kind.fields() {
        let numbers: Vec<u32> = field.protobuf_numbers().collect();
        let Some((last, outer)) = numbers.split_last() else { continue };
        let Some((value, payload)) = value(field.value_type(), *last, kind, levels) else { continue };
        object.insert(field.name().to_owned(), value);
        // Each field is in a separate inline message; the decoder merges them.
        message =
            message.and(outer.iter().rev().fold(payload, |inner, number| TestMessage::new().with(*number, inner)));
    }
    (object, message)
}

fn value(shape: ValueType<'_>, number: u32, home: StructType<'_>, levels: usize) -> Option<(Value, TestMessage)> {
    let message = TestMessage::new();
    let levels = levels.checked_sub(1)?;
    Some(match shape.form() {
        TypeForm::Text => ("text".into(), message.text(number, "text")),
        TypeForm::Int32 => ((-7).into(), message.varint(number, (-7_i64).cast_unsigned())),
        TypeForm::Int64 => (i64::MIN.into(), message.varint(number, i64::MIN.cast_unsigned())),
        TypeForm::Double => (2.5.into(), message.fixed64(number, 2.5_f64.to_bits())),
        TypeForm::Bool => (true.into(), message.varint(number, 1)),
        TypeForm::Bytes => (BASE64_STANDARD.encode(b"\0\xff").into(), message.bytes(number, b"\0\xff")),
        TypeForm::Special(special) => {
            let (value, inner) = special_value(special, home, levels)?;
            (value, message.with(number, inner))
        }
        TypeForm::Struct(inner) => {
            let (object, inner) = sample(inner, levels);
            (object.into(), message.with(number, inner))
        }
        TypeForm::List(items) => {
            let (item, payload) = value(items, number, home, levels)?;
            let twice = TestMessage::new().raw(&payload.0).and(payload);
            (vec![item.clone(), item].into(), twice)
        }
        TypeForm::Map(values) => {
            let (inner, payload) = if let TypeForm::List(items) = values.form() {
                let (item, payload) = value(items, 1, home, levels)?;
                (vec![item].into(), message.with(2, payload))
            } else {
                value(values, 2, home, levels)?
            };
            (json!({"key": inner}), TestMessage::new().with(number, TestMessage::new().text(1, "key").and(payload)))
        }
    })
}

fn special_value(special: SpecialType, home: StructType<'_>, levels: usize) -> Option<(Value, TestMessage)> {
    let message = TestMessage::new();
    Some(match special {
        SpecialType::Quantity => ("5Gi".into(), message.text(1, "5Gi")),
        SpecialType::IntOrString => ("50%".into(), message.varint(1, 1).varint(2, 0).text(3, "50%")),
        SpecialType::Time => ("1970-01-01T00:00:09Z".into(), message.varint(1, 9)),
        SpecialType::MicroTime => ("1970-01-01T00:00:09.000001Z".into(), message.varint(1, 9).varint(2, 1001)),
        SpecialType::Raw | SpecialType::Fields | SpecialType::Json => {
            (json!({"a": [1]}), message.text(1, r#"{"a":[1]}"#))
        }
        SpecialType::Patch => return None,
        SpecialType::SchemaOrArray | SpecialType::SchemaOrStrings => {
            let (schema, inner) = sample(home, levels.checked_sub(8)?);
            (schema.into(), message.with(1, inner))
        }
        SpecialType::SchemaOrBool => (true.into(), message.varint(1, 1)),
    })
}
