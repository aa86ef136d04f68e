//! Request bodies in YAML, whose aliases, merges and scalars JSON does not have.

use api::json::to_go_json;
use object::decode::{BodyEncoding, DEPTH_MAX, decode_value};
use serde_json::Value;

use crate::object_body::depth;

pub(crate) const SEEDS: &[&str] = &[
    "apiVersion: v1\nkind: Pod\nmetadata:\n  name: a\n  labels: {a: b, \"c\": 'd'}\nspec:\n  containers:\n  - name: x\n    args: [\"-c\", >-\n      folded\n      text\n    ]\n    ports:\n    - {containerPort: 0x50}\n",
    "a: &a [x, x]\nb: &b [*a, *a]\nc: &c {<<: {k: *b}, l: *a}\nd: {<<: [*c, {m: 1}]}\n",
    "- 1\n- 1.5\n- 1e3\n- 0o17\n- 017\n- 0b11\n- 1_000\n- 190:20:30\n- .inf\n- .NaN\n- ~\n- yes\n- 'no'\n- !!str true\n- 2001-12-14t21:59:43.10-05:00\n",
    "%YAML 1.2\n%TAG ! tag:example.com,2000:\n---\n? |\n  key\n: - !!int \"3\"\n  - !!binary aGk=\n  - \"\\x41\\u00e9\\U0001F600\\n\"\n... # end\n",
    r#"{"a":{"b":[1,2.5,"c",null,true]},"d":"\u00e9\ud83d\ude00"}"#,
    "- \"\\x82\\u0FD00\\n\"\n",
];
pub(crate) const DICTIONARY: &[&str] = &[
    "\n",
    "  ",
    "- ",
    ": ",
    "? ",
    ", ",
    "&a ",
    "*a",
    "<<: ",
    "!!int ",
    "!!str ",
    "!!binary ",
    "!<x> ",
    "|\n",
    "|2-\n",
    ">+\n",
    "---\n",
    "...\n",
    "# ",
    "%YAML 1.1\n",
    "%TAG ! x\n",
    ".inf",
    "'",
    "\"",
    "\\x",
    "\\u",
    "~",
    "[",
    "]",
    "{",
    "}",
    "0x",
    "1e400",
    "\t",
    "\r\n",
    "\u{85}",
    "\u{feff}",
];

/// Limit of values in what a body of the tests' size decodes to: its own bytes, and what aliases may add.
const VALUES_MAX: usize = 1 << 20;

/// A key of JSON may be longer than one of YAML, with quotes and escapes.
const KEY_LENGTH_MAX: usize = 1024;

/// Any bytes are a value of bounded depth and size, or an error message with a line. A value is the same after it was written
/// as JSON and read as YAML, unless it has something that YAML reads otherwise: a long key, a negative zero.
pub fn yaml_body(input: &[u8]) {
    let value = match decode_value(input, BodyEncoding::Yaml) {
        Ok(decoded) => decoded.value,
        Err(error) => return assert!(error.starts_with("yaml: "), "{error}"),
    };
    assert!(depth(&value) <= DEPTH_MAX && count_values(&value) <= VALUES_MAX.max(input.len()));
    let json = to_go_json(&value);
    if !is_same_in_yaml(&value) || !String::from_utf8_lossy(&json).chars().all(is_printable_in_yaml) {
        return;
    }
    let read = decode_value(&json, BodyEncoding::Yaml).expect("JSON is YAML");
    assert_eq!(String::from_utf8_lossy(&to_go_json(&read.value)), String::from_utf8_lossy(&json));
}

/// The printable characters of YAML. The others need an escape there; JSON allows them in strings, but for those below a space.
fn is_printable_in_yaml(character: char) -> bool {
    matches!(
        character,
        '\t' | '\n' | '\r' | ' '..='~' | '\u{85}' | '\u{a0}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..
    )
}

/// False for long keys, and for a negative zero: `-0e3` is a float, and `-0` the integer 0.
fn is_same_in_yaml(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.iter().all(is_same_in_yaml),
        Value::Object(fields) => {
            fields.iter().all(|(key, value)| to_go_json(key).len() < KEY_LENGTH_MAX && is_same_in_yaml(value))
        }
        Value::Number(number) => number.as_f64().is_none_or(|float| float != 0.0 || float.is_sign_positive()),
        Value::Null | Value::Bool(_) | Value::String(_) => true,
    }
}

fn count_values(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(count_values).sum::<usize>(),
        Value::Object(fields) => fields.values().map(count_values).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}
