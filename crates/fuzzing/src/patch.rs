//! Patches: the first line is the object, the rest is the patch.

use api::GroupVersionKind;
use object::decode::{self, BodyEncoding, DEPTH_MAX};
use object::patch::{JsonPatch, MergePatch, expect_kind};
use serde_json::{Map, Value};

use crate::object_body::depth;

pub(crate) const SEEDS: &[&str] = &[
    "{\"spec\":{\"a\":[1,2,3],\"b\":{\"c/d\":1,\"e~f\":2}}}\n[{\"op\":\"add\",\"path\":\"/spec/a/-\",\"value\":4},{\"op\":\"remove\",\"path\":\"/spec/a/0\"},{\"op\":\"replace\",\"path\":\"/spec/b/c~1d\",\"value\":{\"x\":[]}},{\"op\":\"move\",\"from\":\"/spec/b/e~0f\",\"path\":\"/moved\"},{\"op\":\"copy\",\"from\":\"/spec\",\"path\":\"/copied\"},{\"op\":\"test\",\"path\":\"/copied/a/1\",\"value\":3}]",
    "{\"a\":{\"b\":1,\"c\":[1]},\"metadata\":{\"name\":\"n\"}}\n{\"a\":{\"b\":null,\"c\":{\"d\":null,\"e\":1}},\"metadata\":{\"labels\":{\"x\":\"y\"}},\"f\":{\"g\":null}}",
    "{\"a\":[[],{}]}\n[{\"op\":\"add\",\"path\":\"/a/-1\",\"value\":null},{\"op\":\"add\",\"path\":\"\",\"value\":{}},{\"op\":\"copy\",\"from\":\"\",\"path\":\"/a\"}]",
];
pub(crate) const DICTIONARY: &[&str] = &[
    "{\"op\":\"add\",\"path\":\"/a/0\",\"value\":1},",
    "{\"op\":\"copy\",\"from\":\"/a\",\"path\":\"/a/a\"},",
    "\"remove\"",
    "\"move\"",
    "\"replace\"",
    "\"test\"",
    "/-",
    "/-1",
    "/0",
    "~0",
    "~1",
    "~2",
    "null",
    "{",
    "}",
    "[",
    "]",
    ",",
    "\n",
    "99999999999999999999",
];

const WIDGET: GroupVersionKind<&str> = GroupVersionKind { group: "example.com", version: "v1", kind: "Widget" };

/// A patch of an object gives a result of bounded depth or an error. Applying a merge patch twice equals applying it
/// once, and an accepted result is accepted again unchanged.
pub fn patch(input: &[u8]) {
    let line_end = input.iter().position(|byte| *byte == b'\n').unwrap_or(input.len());
    let (object, patch) = input.split_at(line_end);
    let Ok(Value::Object(object)) = decode::decode_value(object, BodyEncoding::Json).map(|decoded| decoded.value)
    else {
        return;
    };
    check_json_patch(&object, patch);
    check_merge_patch(&object, patch);
}

fn check_json_patch(object: &Map<String, Value>, patch: &[u8]) {
    match JsonPatch::parse(patch).and_then(|patch| patch.value.apply(object)) {
        Ok(patched) => check_patched(patched),
        Err(refusal) => assert!(!refusal.to_string().is_empty()),
    }
}

fn check_merge_patch(object: &Map<String, Value>, patch: &[u8]) {
    let Ok(patch) = MergePatch::parse(patch) else { return };
    let Value::Object(once) = patch.value.apply(object) else { panic!("merge patch of an object is an object") };
    assert_eq!(patch.value.apply(&once), Value::Object(once.clone()));
    check_patched(Value::Object(once));
}

fn check_patched(patched: Value) {
    assert!(depth(&patched) <= DEPTH_MAX);
    match expect_kind(patched, WIDGET) {
        Ok(accepted) => {
            let again =
                expect_kind(Value::Object(accepted.clone()), WIDGET).expect("accepted object is accepted again");
            assert_eq!(again, accepted);
        }
        Err(refusal) => assert!(!refusal.to_string().is_empty()),
    }
}
