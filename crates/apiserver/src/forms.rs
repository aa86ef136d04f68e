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

/// Bodies of at least this size are sent as they are, between the rest of their line: a copy would exist once per watch.
const SHARED_BYTES_MIN: usize = 16 << 10;

/// One line of a watch, as pieces that together are what [`frame`] makes.
pub(crate) fn pieces(kind: &str, object: Bytes) -> impl Iterator<Item = Bytes> {
    let is_shared = object.len() >= SHARED_BYTES_MIN;
    let pieces = if is_shared {
        [Bytes::from(format!(r#"{{"type":"{kind}","object":"#)), object, Bytes::from_static(b"}\n")]
    } else {
        [frame(kind, &object), Bytes::new(), Bytes::new()]
    };
    pieces.into_iter().filter(|piece| !piece.is_empty())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_a_line_are_the_line_and_share_large_objects() {
        for (size, expected) in [(2, 1), (SHARED_BYTES_MIN - 1, 1), (SHARED_BYTES_MIN, 3)] {
            let object = Bytes::from(vec![b'x'; size]);
            let pieces: Vec<Bytes> = pieces("ADDED", object.clone()).collect();
            assert_eq!((pieces.len(), pieces.concat()), (expected, frame("ADDED", &object).to_vec()), "{size}");
            assert_eq!(pieces.iter().any(|piece| piece.as_ptr() == object.as_ptr()), expected == 3, "{size}");
        }
    }
}
