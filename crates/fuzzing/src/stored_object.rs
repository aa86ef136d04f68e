//! Stored objects, as any server of any release may have written them.

use api::json::to_go_json;
use object::StoredObject;
use serde_json::Value;

pub(crate) const SEEDS: &[&str] = &[
    "{\"kind\":\"Pod\",\"apiVersion\":\"v1\",\"metadata\":{\"name\":\"a\",\"namespace\":\"n\",\"uid\":\"u\",\"labels\":{\"b\":\"c\",\"a\":\"\"}},\"spec\":{}}\n",
    r#" { "metadata" : { } , "spec":{"a":[[[1]]]}}"#,
    r#"{"metadata":{"name":"a","resourceVersion":"3","labels":null},"apiVersion":"apps/v1"}"#,
    r#"{"kind":"List","a":[1.0,999000020000000.024]}"#,
    "k8s\0\n\x0c",
    "k8s:enc:aescbc:v1:key:",
];
pub(crate) const DICTIONARY: &[&str] = &[
    "\"metadata\":",
    "\"resourceVersion\":",
    "\"resourceVersion\":null,",
    "\"labels\":",
    "\"name\":",
    "{",
    "}",
    "[",
    "]",
    ":",
    ",",
    "\"",
    "null",
    "\\u0061",
    " ",
    "\n",
];

const REVISION: u64 = 7;

/// Any bytes give an object or an error. The object is valid JSON that differs from the stored bytes only in its
/// resourceVersion, and its parsed metadata agrees with its body.
pub fn stored_object(input: &[u8]) {
    let stored = match StoredObject::from_storage(input, REVISION) {
        Ok(stored) => stored,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    let value = Value::Object(stored.to_object());
    check_metadata(&stored, &value);
    check_body(input, &value);
    let later = stored.with_revision(REVISION + 1);
    assert_eq!(later.to_object()["metadata"]["resourceVersion"], (REVISION + 1).to_string());
    assert_eq!(json_without_revision(Value::Object(later.to_object())), json_without_revision(value));
    assert!(stored.memory_bytes() >= stored.body.len());
}

fn check_metadata(stored: &StoredObject, value: &Value) {
    let metadata = &value["metadata"];
    let text = |field: &Value| field.as_str().unwrap_or_default().to_owned();
    assert_eq!(*stored.api_version, *text(&value["apiVersion"]));
    assert_eq!(*stored.name, *text(&metadata["name"]));
    assert_eq!(*stored.namespace, *text(&metadata["namespace"]));
    assert_eq!(*stored.uid, *text(&metadata["uid"]));
    assert_eq!(metadata["resourceVersion"], REVISION.to_string());
    let labels = metadata["labels"].as_object().map(|labels| labels.len()).unwrap_or_default();
    assert_eq!(stored.labels.len(), labels);
    assert!(stored.labels.iter().all(|(key, value)| metadata["labels"][&**key] == **value));
    assert!(stored.labels.iter().all(|(key, value)| stored.label(key) == Some(&**value)));
}

fn check_body(input: &[u8], value: &Value) {
    let original: Value = serde_json::from_slice(input.trim_ascii_end()).expect("stored object is JSON");
    assert_eq!(json_without_revision(value.clone()), json_without_revision(original));
}

/// JSON without resourceVersion. Missing and empty metadata are equivalent, and so are 1 and 1.0, as in Go.
fn json_without_revision(mut value: Value) -> String {
    if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("resourceVersion");
    }
    let is_empty = |metadata: &Value| metadata.is_null() || metadata.as_object().is_some_and(serde_json::Map::is_empty);
    if let Value::Object(fields) = &mut value
        && fields.get("metadata").is_some_and(is_empty)
    {
        fields.remove("metadata");
    }
    String::from_utf8(to_go_json(&value)).expect("JSON is UTF-8")
}
