//! Request bodies in JSON and YAML.

use api::GroupVersionKind;
use api::json::to_go_json;
use object::decode::{BodyEncoding, DEPTH_MAX, check_metadata_types, decode_object, decode_value, drop_nulls};
use serde_json::Value;

pub(crate) const SEEDS: &[&str] = &[
    r#"{"kind":"Widget","apiVersion":"example.com/v1","metadata":{"name":"a","namespace":"n","labels":{"a":"b","c":null},"annotations":{},"generation":3,"creationTimestamp":"2024-05-06T07:08:09Z","finalizers":["x/y"],"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"p","uid":"u","controller":true}],"managedFields":[{"manager":"m","operation":"Apply","apiVersion":"v1","time":"2024-05-06T07:08:09Z","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{}}}]},"spec":{"a":[1,-2.5e3,18446744073709551615,1e400,"\u00e9\ud83d\ude00",null,true]}}"#,
    r#"{"large":184467440737095500000,"small":2.2250738585072011e-308,"metadata":{"name":"a","name":"b"},"a":{"b":{"c":[[[]]]}}}"#,
    "kind: Widget\napiVersion: example.com/v1\nmetadata:\n  name: a\n  labels: {a: 'b', \"c\": |-\n    x\n    y\n  }\nspec:\n- 0x1f\n- 0o17\n- 017\n- 1_000\n- 1e3\n- .5\n- yes\n- ~\n- 2024-05-06\n",
    "base: &base\n  a: 1\n  b: [x, y]\nderived:\n  <<: *base\n  b: *base\nmany: [*base, *base]\n",
    "%YAML 1.1\n---\n? a\n: !!str 5\n? [1]\n: b\n...\n---\n",
];
pub(crate) const DICTIONARY: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    ":",
    ",",
    "\"",
    "null",
    "1e309",
    "-0",
    "18446744073709551616",
    "\\ud800",
    "\\u0000",
    "\"metadata\":",
    "\n",
    "  ",
    "- ",
    ": ",
    "&a ",
    "*a",
    "<<: ",
    "!!int ",
    "!!str ",
    "|\n",
    ">-\n",
    "---\n",
    "? ",
    "# ",
    ".inf",
    "'",
    "~",
];

const WIDGET: GroupVersionKind<&str> = GroupVersionKind { group: "example.com", version: "v1", kind: "Widget" };

/// Any bytes give a value of bounded depth or an error message. A decoded value is encoded and decoded without change,
/// and an accepted object is accepted again.
pub fn object_body(input: &[u8]) {
    for encoding in [BodyEncoding::Json, BodyEncoding::Yaml] {
        match decode_value(input, encoding) {
            Ok(decoded) => check_value(decoded.value),
            Err(error) => assert!(!error.is_empty()),
        }
        match decode_object(input, encoding, WIDGET) {
            Ok(decoded) => check_object(&Value::Object(decoded.value)),
            Err(refusal) => assert!(!refusal.to_string().is_empty()),
        }
    }
}

fn check_value(mut read: Value) {
    assert!(depth(&read) <= DEPTH_MAX);
    let written = to_go_json(&read);
    let again = decode_value(&written, BodyEncoding::Json).expect("encoded value decodes");
    assert!(again.duplicate_fields.is_empty());
    assert_eq!(json_text(&to_go_json(&again.value)), json_text(&written), "decoding changes the object");
    drop_nulls(&mut read);
    let mut twice = read.clone();
    drop_nulls(&mut twice);
    assert_eq!(twice, read);
}

fn check_object(read: &Value) {
    assert_eq!((&read["kind"], &read["apiVersion"]), (&"Widget".into(), &"example.com/v1".into()));
    let written = to_go_json(read);
    let again = decode_object(&written, BodyEncoding::Json, WIDGET).expect("an accepted object is accepted again");
    assert_eq!(json_text(&to_go_json(&again.value)), json_text(&written));
    let mut checked = again.value.clone();
    check_metadata_types(&mut checked, WIDGET).expect("accepted metadata passes again");
    assert_eq!(checked, again.value);
}

fn json_text(json: &[u8]) -> &str {
    std::str::from_utf8(json).expect("JSON is UTF-8")
}

/// Nesting depth of arrays and objects.
pub(crate) fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or_default(),
        Value::Object(fields) => 1 + fields.values().map(depth).max().unwrap_or_default(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}
