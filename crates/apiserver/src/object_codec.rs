//! Converts objects between the stored and the served version, and encodes watch events.

use api::Status;
use api::json::JsonObject;
use bytes::{BufMut as _, Bytes, BytesMut};
use object::StoredObject;
use serde_json::Value;

use crate::resource::Resource;

/// Encodes an object in the served version. Returns the cached bytes if it is stored in that version. Fails like
/// [`Resource::to_served`].
pub(crate) fn encode_served(stored: &StoredObject, resource: &Resource) -> Result<Bytes, Status> {
    if resource.is_stored_form(stored) {
        return Ok(stored.body.clone());
    }
    Ok(api::json::to_go_json(&decode_served(stored, resource)?).into())
}

/// Appends an object as an item of a list. Items of built-in kinds have neither `apiVersion` nor `kind`, as in
/// kube-apiserver: typed clients would take them for a difference. Fails like [`Resource::to_served`].
pub(crate) fn push_list_item(
    parts: &mut Vec<Bytes>,
    is_first: bool,
    stored: &StoredObject,
    resource: &Resource,
) -> Result<(), Status> {
    let item = if resource.as_custom().is_some() {
        [encode_served(stored, resource)?, Bytes::new(), Bytes::new()]
    } else if resource.is_stored_form(stored) {
        stored.body_without_type()
    } else {
        let mut object = decode_served(stored, resource)?;
        object::stored_object::remove_type(&mut object);
        [api::json::to_go_json(&object).into(), Bytes::new(), Bytes::new()]
    };
    if !is_first {
        parts.push(Bytes::from_static(b","));
    }
    parts.extend(item.into_iter().filter(|part| !part.is_empty()));
    Ok(())
}

/// Decodes an object and converts it to the served version. Fails like [`Resource::to_served`].
pub(crate) fn decode_served(stored: &StoredObject, resource: &Resource) -> Result<JsonObject, Status> {
    resource.to_served(stored)
}

/// Decodes an object in the version in which it is stored.
pub(crate) fn decode_stored(stored: &StoredObject) -> JsonObject {
    stored.to_object()
}

/// Encodes an object in its storage version, without `resourceVersion` and `selfLink`. Fails like
/// [`Resource::to_stored`].
pub(crate) fn encode_for_storage(mut object: JsonObject, resource: &Resource) -> Result<Bytes, Status> {
    resource.to_stored(&mut object)?;
    Ok(encode_unconverted(object))
}

/// Encodes an object for storage in the version that it has.
pub(crate) fn encode_unconverted(mut object: JsonObject) -> Bytes {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("resourceVersion");
        metadata.remove("selfLink");
    }
    let mut bytes = api::json::to_go_json(&object);
    bytes.push(b'\n');
    bytes.into()
}

/// The minimum size of objects that watches send as separate shared chunks. Smaller ones are copied into the line.
const SHARED_BYTES_MIN: usize = 16 << 10;

/// Encodes a watch event as chunks that concatenate to the line of [`encode_watch_event`].
pub(crate) fn watch_event_chunks(kind: &str, object: Bytes) -> impl Iterator<Item = Bytes> {
    let is_shared = object.len() >= SHARED_BYTES_MIN;
    let pieces = if is_shared {
        [Bytes::from(format!(r#"{{"type":"{kind}","object":"#)), object, Bytes::from_static(b"}\n")]
    } else {
        [encode_watch_event(kind, &object), Bytes::new(), Bytes::new()]
    };
    pieces.into_iter().filter(|piece| !piece.is_empty())
}

/// Encodes a watch event as one line.
pub(crate) fn encode_watch_event(event_type: &str, object: &[u8]) -> Bytes {
    let mut line = BytesMut::with_capacity(object.len() + event_type.len() + 24);
    line.put_slice(b"{\"type\":\"");
    line.put_slice(event_type.as_bytes());
    line.put_slice(b"\",\"object\":");
    line.put_slice(object);
    line.put_slice(b"}\n");
    line.freeze()
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
