//! One object in the version and form that a client asked for.

use api::json::JsonObject;
use api::{GroupVersion, GroupVersionKind, Status};
use bytes::{BufMut as _, Bytes, BytesMut};
use catalogue::ServedResource;
use object::StoredObject;
use object::convert::convert;
use serde_json::Value;

/// The bytes of an object in a served version: those that the cache holds, unless it is stored in another one.
pub(crate) fn encode_served(stored: &StoredObject, resource: &ServedResource) -> Bytes {
    if is_stored_in_version(stored, resource) {
        return stored.body.clone();
    }
    api::json::to_go_json(&decode_served(stored, resource)).into()
}

/// An object in a served version, to be read and changed.
pub(crate) fn decode_served(stored: &StoredObject, resource: &ServedResource) -> JsonObject {
    let mut object = decode_stored(stored);
    if !is_stored_in_version(stored, resource) {
        convert_to_version(&mut object, resource.group_version_kind());
    }
    object
}

/// An object in the version in which it is stored.
pub(crate) fn decode_stored(stored: &StoredObject) -> JsonObject {
    let Value::Object(object) = stored.to_value() else { unreachable!("a stored object is an object") };
    object
}

/// The bytes to store: in the storage version, without a resourceVersion.
pub(crate) fn encode_for_storage(mut object: JsonObject, encoding: GroupVersionKind<&str>) -> Bytes {
    convert_to_version(&mut object, encoding);
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

/// One line of a watch, as pieces that together are what [`encode_watch_event`] makes.
pub(crate) fn watch_event_chunks(kind: &str, object: Bytes) -> impl Iterator<Item = Bytes> {
    let is_shared = object.len() >= SHARED_BYTES_MIN;
    let pieces = if is_shared {
        [Bytes::from(format!(r#"{{"type":"{kind}","object":"#)), object, Bytes::from_static(b"}\n")]
    } else {
        [encode_watch_event(kind, &object), Bytes::new(), Bytes::new()]
    };
    pieces.into_iter().filter(|piece| !piece.is_empty())
}

/// One line of a watch.
pub(crate) fn encode_watch_event(event_type: &str, object: &[u8]) -> Bytes {
    let mut line = BytesMut::with_capacity(object.len() + event_type.len() + 24);
    line.put_slice(b"{\"type\":\"");
    line.put_slice(event_type.as_bytes());
    line.put_slice(b"\",\"object\":");
    line.put_slice(object);
    line.put_slice(b"}\n");
    line.freeze()
}

/// The line that ends a watch with a reason.
pub(crate) fn encode_error_event(status: &Status) -> Bytes {
    encode_watch_event("ERROR", status.to_json().trim_ascii_end())
}

fn is_stored_in_version(stored: &StoredObject, resource: &ServedResource) -> bool {
    let name = resource.group_version_kind();
    match stored.api_version.split_once('/') {
        Some((group, version)) => group == name.group && version == name.version,
        None => name.group.is_empty() && *stored.api_version == *name.version,
    }
}

/// Brings an object into another version of its kind.
fn convert_to_version(object: &mut JsonObject, kind: GroupVersionKind<&str>) {
    let target_version = GroupVersion { group: kind.group, version: kind.version };
    object.insert("kind".to_owned(), kind.kind.into());
    let stored_version = object.get("apiVersion").and_then(Value::as_str).unwrap_or_default().to_owned();
    match GroupVersion::parse(&stored_version) {
        Ok(stored_version) if stored_version != target_version && !stored_version.version.is_empty() => {
            convert(object, stored_version, target_version)
        }
        Ok(_) | Err(_) => {
            object.insert("apiVersion".to_owned(), target_version.to_string().into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watch_event_chunks_join_to_the_line_and_share_large_objects() {
        for (size, expected) in [(2, 1), (SHARED_BYTES_MIN - 1, 1), (SHARED_BYTES_MIN, 3)] {
            let object = Bytes::from(vec![b'x'; size]);
            let pieces: Vec<Bytes> = watch_event_chunks("ADDED", object.clone()).collect();
            assert_eq!(
                (pieces.len(), pieces.concat()),
                (expected, encode_watch_event("ADDED", &object).to_vec()),
                "{size}"
            );
            assert_eq!(pieces.iter().any(|piece| piece.as_ptr() == object.as_ptr()), expected == 3, "{size}");
        }
    }
}
