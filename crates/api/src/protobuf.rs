//! Encodes Status, metadata and watch events in protobuf exactly like kube-apiserver: fields in the order of their
//! numbers, and those that are no pointers in Go even if empty.

use prost::encoding::{WireType, encode_key, encode_varint};
use serde_json::Value;

use crate::Status;
use crate::json::{JsonObject, to_go_json};
use crate::media::MetaVersion;
use crate::metadata::ListMeta;
use crate::status::{StatusDetails, StatusOutcome};
use crate::time::Time;

/// The prefix of every body.
const PREFIX: &[u8] = b"k8s\0";

/// Wraps an encoded object in `runtime.Unknown`, which contains its API version and kind.
pub fn wrap_in_unknown(api_version: &str, kind: &str, object: &[u8]) -> Vec<u8> {
    let mut body = PREFIX.to_vec();
    write_message(&mut body, 1, |type_meta| {
        write_string(type_meta, 1, api_version);
        write_string(type_meta, 2, kind);
    });
    write_bytes(&mut body, 2, object);
    write_string(&mut body, 3, "");
    write_string(&mut body, 4, "");
    body
}

/// Encodes a Status.
pub fn encode_status(status: &Status) -> Vec<u8> {
    let mut object = Vec::new();
    let outcome = match status.outcome {
        StatusOutcome::Failure => "Failure",
        StatusOutcome::Success => "Success",
    };
    write_message(&mut object, 1, |out| write_list_meta(out, &status.metadata));
    write_string(&mut object, 2, outcome);
    write_string(&mut object, 3, &status.message);
    write_string(&mut object, 4, status.reason.as_str());
    if let Some(details) = &status.details {
        write_message(&mut object, 5, |out| write_status_details(out, details));
    }
    write_integer(&mut object, 6, status.code.into());
    wrap_in_unknown("v1", "Status", &object)
}

fn write_status_details(out: &mut Vec<u8>, details: &StatusDetails) {
    write_string(out, 1, &details.name);
    write_string(out, 2, &details.group);
    write_string(out, 3, &details.kind);
    for cause in &details.causes {
        write_message(out, 4, |out| {
            write_string(out, 1, &cause.reason);
            write_string(out, 2, &cause.message);
            write_string(out, 3, &cause.field);
        });
    }
    write_integer(out, 5, details.retry_after_seconds.into());
    write_string(out, 6, &details.uid);
}

/// Encodes the `PartialObjectMetadata` of an object.
pub fn encode_partial_object_metadata(object: &JsonObject, version: MetaVersion) -> Vec<u8> {
    let mut encoded = Vec::new();
    write_partial_object_metadata(&mut encoded, object);
    wrap_in_unknown(version.api_version(), "PartialObjectMetadata", &encoded)
}

/// Encodes the `PartialObjectMetadataList` of some objects.
pub fn encode_partial_object_metadata_list<'o>(
    objects: impl IntoIterator<Item = &'o JsonObject>,
    metadata: &ListMeta,
    version: MetaVersion,
) -> Vec<u8> {
    let (metadata_number, items_number) = match version {
        MetaVersion::V1 => (1, 2),
        MetaVersion::V1Beta1 => (2, 1),
    };
    let [mut list_meta, mut items] = [Vec::new(), Vec::new()];
    write_message(&mut list_meta, metadata_number, |out| write_list_meta(out, metadata));
    for object in objects {
        write_message(&mut items, items_number, |out| write_partial_object_metadata(out, object));
    }
    let list = if metadata_number < items_number { [list_meta, items] } else { [items, list_meta] }.concat();
    wrap_in_unknown(version.api_version(), "PartialObjectMetadataList", &list)
}

/// Encodes a watch event of an encoded object, with its length before it.
pub fn encode_watch_event(event_type: &str, object: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; size_of::<u32>()];
    write_string(&mut frame, 1, event_type);
    write_message(&mut frame, 2, |raw_extension| write_bytes(raw_extension, 1, object));
    let length = u32::try_from(frame.len() - size_of::<u32>()).expect("an object is smaller than 4 GiB");
    frame[..size_of::<u32>()].copy_from_slice(&length.to_be_bytes());
    frame
}

fn write_partial_object_metadata(out: &mut Vec<u8>, object: &JsonObject) {
    let none = JsonObject::new();
    let metadata = object.get("metadata").and_then(Value::as_object).unwrap_or(&none);
    write_message(out, 1, |out| write_object_meta(out, metadata));
}

fn write_object_meta(out: &mut Vec<u8>, metadata: &JsonObject) {
    for (number, name) in
        [(1, "name"), (2, "generateName"), (3, "namespace"), (4, "selfLink"), (5, "uid"), (6, "resourceVersion")]
    {
        write_text_member(out, number, metadata, name);
    }
    write_integer(out, 7, integer(metadata, "generation").unwrap_or_default());
    write_message(out, 8, |out| write_time(out, metadata.get("creationTimestamp")));
    if let Some(time) = member(metadata, "deletionTimestamp") {
        write_message(out, 9, |out| write_time(out, Some(time)));
    }
    if let Some(seconds) = integer(metadata, "deletionGracePeriodSeconds") {
        write_integer(out, 10, seconds);
    }
    write_text_map(out, 11, metadata.get("labels"));
    write_text_map(out, 12, metadata.get("annotations"));
    for owner in objects(metadata, "ownerReferences") {
        write_message(out, 13, |out| write_owner_reference(out, owner));
    }
    for finalizer in metadata.get("finalizers").and_then(Value::as_array).into_iter().flatten() {
        write_string(out, 14, finalizer.as_str().unwrap_or_default());
    }
    for entry in objects(metadata, "managedFields") {
        write_message(out, 17, |out| write_managed_fields_entry(out, entry));
    }
}

fn write_owner_reference(out: &mut Vec<u8>, owner: &JsonObject) {
    for (number, name) in [(1, "kind"), (3, "name"), (4, "uid"), (5, "apiVersion")] {
        write_text_member(out, number, owner, name);
    }
    for (number, name) in [(6, "controller"), (7, "blockOwnerDeletion")] {
        if let Some(value) = owner.get(name).and_then(Value::as_bool) {
            write_integer(out, number, value.into());
        }
    }
}

fn write_managed_fields_entry(out: &mut Vec<u8>, entry: &JsonObject) {
    for (number, name) in [(1, "manager"), (2, "operation"), (3, "apiVersion")] {
        write_text_member(out, number, entry, name);
    }
    if let Some(time) = member(entry, "time") {
        write_message(out, 4, |out| write_time(out, Some(time)));
    }
    write_text_member(out, 6, entry, "fieldsType");
    if let Some(fields) = member(entry, "fieldsV1") {
        write_message(out, 7, |out| write_bytes(out, 1, &to_go_json(fields)));
    }
    write_text_member(out, 8, entry, "subresource");
}

fn write_list_meta(out: &mut Vec<u8>, metadata: &ListMeta) {
    // The selfLink.
    write_string(out, 1, "");
    write_string(out, 2, &metadata.resource_version);
    write_string(out, 3, &metadata.continue_token);
    if let Some(count) = metadata.remaining_item_count {
        write_integer(out, 4, count);
    }
}

/// Writes seconds since 1970; nothing for a time that is absent.
fn write_time(out: &mut Vec<u8>, time: Option<&Value>) {
    let time = time.and_then(Value::as_str).and_then(|text| text.parse::<Time>().ok());
    if let Some(time) = time {
        write_integer(out, 1, time.timestamp().as_second());
        // The nanoseconds.
        write_integer(out, 2, 0);
    }
}

fn write_text_map(out: &mut Vec<u8>, number: u32, map: Option<&Value>) {
    let mut members: Vec<_> = map.and_then(Value::as_object).into_iter().flatten().collect();
    members.sort_unstable_by_key(|(name, _)| *name);
    for (name, value) in members {
        write_message(out, number, |out| {
            write_string(out, 1, name);
            write_string(out, 2, value.as_str().unwrap_or_default());
        });
    }
}

fn write_text_member(out: &mut Vec<u8>, number: u32, object: &JsonObject, name: &str) {
    write_string(out, number, object.get(name).and_then(Value::as_str).unwrap_or_default());
}

/// A member that is present and not null.
fn member<'o>(object: &'o JsonObject, name: &str) -> Option<&'o Value> {
    object.get(name).filter(|value| !value.is_null())
}

fn integer(object: &JsonObject, name: &str) -> Option<i64> {
    object.get(name).and_then(Value::as_i64)
}

fn objects<'o>(object: &'o JsonObject, name: &str) -> impl Iterator<Item = &'o JsonObject> {
    object.get(name).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_object)
}

/// Writes a string.
pub fn write_string(out: &mut Vec<u8>, number: u32, text: &str) {
    write_bytes(out, number, text.as_bytes());
}

/// Writes the content to a buffer first, because its length precedes it.
pub fn write_message(out: &mut Vec<u8>, number: u32, write: impl FnOnce(&mut Vec<u8>)) {
    let mut content = Vec::new();
    write(&mut content);
    write_bytes(out, number, &content);
}

fn write_bytes(out: &mut Vec<u8>, number: u32, content: &[u8]) {
    encode_key(number, WireType::LengthDelimited, out);
    encode_varint(content.len() as u64, out);
    out.extend_from_slice(content);
}

/// Writes an integer or a boolean.
pub fn write_integer(out: &mut Vec<u8>, number: u32, value: i64) {
    encode_key(number, WireType::Varint, out);
    encode_varint(value.cast_unsigned(), out);
}

#[cfg(test)]
mod tests;
