//! One object in the version and form that a client asked for.

use api::Status;
use api::json::JsonObject;
use bytes::{BufMut as _, Bytes, BytesMut};
use kinds::ServedResource;
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
        convert(&mut object, resource.group_version_kind(), resource.kind.strategy.conversion);
    }
    object
}

/// An object in the version in which it is stored.
pub(crate) fn decode_stored(stored: &StoredObject) -> JsonObject {
    let Value::Object(object) = stored.to_value() else { unreachable!("a stored object is an object") };
    object
}

/// The bytes to store: in the storage version, without a resourceVersion.
pub(crate) fn encode_for_storage(mut object: JsonObject, resource: &ServedResource) -> Bytes {
    let stored_resource = resource.stored_resource.as_ref().expect("a bound resource is persisted");
    convert(&mut object, stored_resource.encoding, resource.kind.strategy.conversion);
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

/// Whether an object is stored in the served version, so that its stored bytes are those of every reader.
pub(crate) fn is_stored_in_version(stored: &StoredObject, resource: &ServedResource) -> bool {
    let name = resource.group_version_kind();
    match stored.api_version.split_once('/') {
        Some((group, version)) => group == name.group && version == name.version,
        None => name.group.is_empty() && *stored.api_version == *name.version,
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
