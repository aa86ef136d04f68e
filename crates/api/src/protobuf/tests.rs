//! The recorded bodies are those of kube-apiserver 1.36.4: the same object, list and Status in JSON and in protobuf.

use super::*;
use crate::json::JsonObject;

const OBJECT_JSON: &[u8] = include_bytes!("recorded/object.json");
const OBJECT: &[u8] = include_bytes!("recorded/object.pb");
const LIST_JSON: &[u8] = include_bytes!("recorded/list.json");
const LIST: &[u8] = include_bytes!("recorded/list.pb");
const LIST_V1BETA1: &[u8] = include_bytes!("recorded/list-v1beta1.pb");
const STATUS_JSON: &[u8] = include_bytes!("recorded/status.json");
const STATUS: &[u8] = include_bytes!("recorded/status.pb");

#[track_caller]
fn check(encoded: &[u8], recorded: &[u8]) {
    assert!(encoded == recorded, "{}\n{}", encoded.escape_ascii(), recorded.escape_ascii());
}

#[test]
fn metadata_is_encoded_as_recorded() {
    let object: JsonObject = serde_json::from_slice(OBJECT_JSON).unwrap();
    check(&encode_partial_object_metadata(&object, MetaVersion::V1), OBJECT);
}

#[test]
fn metadata_list_is_encoded_as_recorded_in_both_versions() {
    let list: JsonObject = serde_json::from_slice(LIST_JSON).unwrap();
    let items: Vec<JsonObject> = serde_json::from_value(list["items"].clone()).unwrap();
    let metadata: ListMeta = serde_json::from_value(list["metadata"].clone()).unwrap();
    check(&encode_partial_object_metadata_list(&items, &metadata, MetaVersion::V1), LIST);
    check(&encode_partial_object_metadata_list(&items, &metadata, MetaVersion::V1Beta1), LIST_V1BETA1);
}

#[test]
fn status_is_encoded_as_recorded() {
    check(&encode_status(&Status::from_json(STATUS_JSON).unwrap()), STATUS);
}

#[test]
fn watch_event_is_framed_by_its_length() {
    let frame = encode_watch_event("ADDED", b"object");
    assert_eq!(frame, b"\0\0\0\x11\x0a\x05ADDED\x12\x08\x0a\x06object");
}

#[test]
fn bookmark_with_nothing_but_a_revision_writes_all_fields_that_are_no_pointers() {
    let object = serde_json::from_str(r#"{"metadata":{"resourceVersion":"7","creationTimestamp":null}}"#).unwrap();
    let mut metadata = Vec::new();
    write_partial_object_metadata(&mut metadata, &object);
    assert_eq!(metadata, b"\x0a\x11\x0a\x00\x12\x00\x1a\x00\x22\x00\x2a\x00\x32\x017\x38\x00\x42\x00");
}
