//! Decoding of `ObjectMeta` into its Go type and encoding it again.

use serde_json::{Map, Value};

use crate::type_check::unknown_field_paths;
use crate::{SpecialType, StructType, TypeForm, drop_unknown_fields, normalize};

/// The type `io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta` of a release.
pub type MetadataType<'t> = StructType<'t>;

/// Go's zero time; absent in JSON.
const ZERO_TIME: &str = "0001-01-01T00:00:00Z";

/// Decodes and encodes metadata. Returns the paths of unknown fields, or Go's error for a wrong type.
pub(super) fn round_trip(metadata: &mut Value, kind: MetadataType<'_>) -> Result<Vec<String>, String> {
    let object = match metadata {
        Value::Null => {
            *metadata = Value::Object(Map::new());
            return Ok(Vec::new());
        }
        Value::Object(object) => object,
        Value::Bool(_) => return Err(wrong_type("bool")),
        Value::Number(_) => return Err(wrong_type("number")),
        Value::String(_) => return Err(wrong_type("string")),
        Value::Array(_) => return Err(wrong_type("array")),
    };
    let unknown = unknown_field_paths(object, kind).map_err(|error| error.to_string())?;
    encode(object, kind);
    Ok(unknown)
}

/// Like [`round_trip`], but drops fields of wrong types one by one. Metadata that is no object is an error.
pub(super) fn salvage(metadata: &mut Value, kind: MetadataType<'_>) -> Result<(), String> {
    let found = match metadata {
        Value::Null => {
            *metadata = Value::Object(Map::new());
            return Ok(());
        }
        Value::Object(object) => {
            object.retain(|name, value| {
                let single = Map::from_iter([(name.clone(), value.clone())]);
                unknown_field_paths(&single, kind).is_ok()
            });
            encode(object, kind);
            return Ok(());
        }
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_i64() => "int64",
        Value::Number(_) => "float64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
    };
    Err(format!("invalid metadata: expected object, got {found}"))
}

fn wrong_type(found: &str) -> String {
    format!("json: cannot unmarshal {found} into Go value of type v1.ObjectMeta")
}

fn encode(object: &mut Map<String, Value>, kind: StructType<'_>) {
    drop_unknown_fields(object, kind);
    normalize(object, kind);
    omit_empty(object, kind);
}

/// Drops fields with the zero value of their Go type, and adds required ones.
fn omit_empty(object: &mut Map<String, Value>, kind: StructType<'_>) {
    object.retain(|name, value| {
        let Some(field) = kind.field(name) else { return true };
        if let (TypeForm::List(items), Value::Array(list)) = (field.value_type().form(), &mut *value)
            && let TypeForm::Struct(inner) = items.form()
        {
            list.iter_mut().filter_map(Value::as_object_mut).for_each(|item| omit_empty(item, inner));
        }
        let is_map = matches!(field.value_type().form(), TypeForm::Map(_));
        let is_empty_map = is_map && value.as_object().is_some_and(Map::is_empty);
        field.is_written_when_zero() || !(is_empty_map || is_zero(value))
    });
    for field in kind.fields().filter(|field| field.is_required() && !field.is_pointer()) {
        if !object.contains_key(field.name()) && matches!(field.value_type().form(), TypeForm::Text) {
            object.insert(field.name().to_owned(), "".into());
        }
    }
    if object.get("creationTimestamp").is_some_and(|time| time == ZERO_TIME)
        && kind
            .field("creationTimestamp")
            .is_some_and(|field| matches!(field.value_type().form(), TypeForm::Special(SpecialType::Time)))
    {
        object.remove("creationTimestamp");
    }
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_i64() == Some(0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        // A field set of a managed fields entry, which is a pointer in Go.
        Value::Object(_) => false,
    }
}
