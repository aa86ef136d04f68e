//! One object in the version and form that a client asked for.

use api::{GroupVersion, GroupVersionKind, Status};
use bytes::{BufMut as _, Bytes, BytesMut};
use catalogue::Served;
use object::Stored;
use object::convert::convert;
use serde_json::{Map, Value};

/// An object as a map.
pub(crate) type Object = Map<String, Value>;

/// The bytes of an object in a served version: those that the cache holds, unless it is stored in another one.
pub(crate) fn body_of(stored: &Stored, served: &Served) -> Bytes {
    if is_stored_as(stored, served) {
        return stored.body.clone();
    }
    api::json::to_go_json(&object_of(stored, served)).into()
}

/// An object in a served version, to be read and changed.
pub(crate) fn object_of(stored: &Stored, served: &Served) -> Object {
    let mut object = stored_object(stored);
    if !is_stored_as(stored, served) {
        convert_to(&mut object, served.response_kind());
    }
    object
}

/// An object in the version in which it is stored.
pub(crate) fn stored_object(stored: &Stored) -> Object {
    let Value::Object(object) = stored.value() else { unreachable!("a stored object is an object") };
    object
}

/// The bytes to store: in the storage version, without a resourceVersion.
pub(crate) fn storage_bytes(mut object: Object, encoding: GroupVersionKind<&str>) -> Bytes {
    convert_to(&mut object, encoding);
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("resourceVersion");
        metadata.remove("selfLink");
    }
    let mut bytes = api::json::to_go_json(&object);
    bytes.push(b'\n');
    bytes.into()
}

/// One line of a watch.
pub(crate) fn frame(kind: &str, object: &[u8]) -> Bytes {
    let mut line = BytesMut::with_capacity(object.len() + kind.len() + 24);
    line.put_slice(b"{\"type\":\"");
    line.put_slice(kind.as_bytes());
    line.put_slice(b"\",\"object\":");
    line.put_slice(object);
    line.put_slice(b"}\n");
    line.freeze()
}

/// The line that ends a watch with a reason.
pub(crate) fn error_frame(status: &Status) -> Bytes {
    frame("ERROR", status.to_json().trim_ascii_end())
}

fn is_stored_as(stored: &Stored, served: &Served) -> bool {
    let name = served.response_kind();
    match stored.api_version.split_once('/') {
        Some((group, version)) => group == name.group && version == name.version,
        None => name.group.is_empty() && *stored.api_version == *name.version,
    }
}

/// Brings an object into another version of its kind.
fn convert_to(object: &mut Object, kind: GroupVersionKind<&str>) {
    let to = GroupVersion { group: kind.group, version: kind.version };
    object.insert("kind".to_owned(), kind.kind.into());
    let from = object.get("apiVersion").and_then(Value::as_str).unwrap_or_default().to_owned();
    match GroupVersion::parse(&from) {
        Ok(from) if from != to && !from.version.is_empty() => convert(object, from, to),
        Ok(_) | Err(_) => {
            object.insert("apiVersion".to_owned(), to.to_string().into());
        }
    }
}
