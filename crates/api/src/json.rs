//! Writes JSON byte for byte like Go's `encoding/json`, for output that is hashed or compared.
//!
//! Differences from `serde_json`: `<`, `>`, `&`, U+2028 and U+2029 are escaped in strings, floats have no trailing
//! `.0` and Go's exponents, and raw values are compacted.

use std::io;

use serde::{Deserialize, Serialize};
use serde_json::ser::{Formatter, Serializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// A JSON object, such as a whole Kubernetes object.
pub type JsonObject = Map<String, Value>;

/// Unparsed JSON; compared as text.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RawJson(pub Box<RawValue>);

impl PartialEq for RawJson {
    fn eq(&self, other: &Self) -> bool {
        self.0.get() == other.0.get()
    }
}

impl Eq for RawJson {}

/// Serializes a value on one line, without a trailing newline.
///
/// # Panics
/// If serialization fails, which only a hand-written `Serialize` or a map with non-string keys can cause.
pub fn to_go_json(value: &(impl Serialize + ?Sized)) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(128);
    value
        .serialize(&mut Serializer::with_formatter(&mut bytes, GoFormatter))
        .expect("writing to memory cannot fail and all map keys are strings");
    bytes
}

/// Indents compact JSON by two spaces, like Go's `MarshalIndent`, for `pretty` responses.
///
/// For input that is not JSON the output is unspecified.
pub fn indent(compact: &[u8]) -> Vec<u8> {
    let mut pretty = Vec::with_capacity(compact.len() * 2);
    let mut depth = 0_usize;
    let mut strings = StringTracker::default();
    let mut previous = 0;
    for &byte in compact {
        let opens = matches!(previous, b'{' | b'[');
        if strings.is_in_string(byte) {
            if opens {
                push_indented_newline(&mut pretty, depth);
            }
            pretty.push(byte);
            previous = b'"';
            continue;
        }
        let closes = matches!(byte, b'}' | b']');
        if closes {
            depth = depth.saturating_sub(1);
        }
        if opens != closes {
            push_indented_newline(&mut pretty, depth);
        }
        pretty.push(byte);
        match byte {
            b'{' | b'[' => depth += 1,
            b',' => push_indented_newline(&mut pretty, depth),
            b':' => pretty.push(b' '),
            _ => {}
        }
        previous = byte;
    }
    pretty
}

/// Lines are not indented beyond this depth, so that nesting cannot make the output quadratic.
const INDENT_DEPTH_MAX: usize = 1000;

fn push_indented_newline(pretty: &mut Vec<u8>, depth: usize) {
    pretty.push(b'\n');
    pretty.extend(std::iter::repeat_n(b' ', 2 * depth.min(INDENT_DEPTH_MAX)));
}

/// Tracks which bytes of JSON text are inside a string, quotes included.
#[derive(Default)]
struct StringTracker {
    in_string: bool,
    escaped: bool,
}

impl StringTracker {
    fn is_in_string(&mut self, byte: u8) -> bool {
        if !self.in_string {
            self.in_string = byte == b'"';
            return self.in_string;
        }
        if self.escaped {
            self.escaped = false;
        } else if byte == b'\\' {
            self.escaped = true;
        } else if byte == b'"' {
            self.in_string = false;
        }
        true
    }
}

struct GoFormatter;

impl Formatter for GoFormatter {
    fn write_string_fragment<W: ?Sized + io::Write>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()> {
        write_escaped(writer, fragment)
    }

    fn write_raw_fragment<W: ?Sized + io::Write>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()> {
        let mut strings = StringTracker::default();
        let mut start = 0;
        for (at, byte) in fragment.bytes().enumerate() {
            if !strings.is_in_string(byte) && matches!(byte, b' ' | b'\n' | b'\r' | b'\t') {
                write_escaped(writer, &fragment[start..at])?;
                start = at + 1;
            }
        }
        write_escaped(writer, &fragment[start..])
    }

    fn write_f64<W: ?Sized + io::Write>(&mut self, writer: &mut W, value: f64) -> io::Result<()> {
        let size = value.abs();
        if size != 0.0 && !(1e-6..1e21).contains(&size) {
            let text = format!("{value:e}");
            let text = if size < 1.0 { text } else { text.replace('e', "e+") };
            writer.write_all(text.as_bytes())
        } else {
            write!(writer, "{value}")
        }
    }
}

/// Reports whether a byte may start a character that Go escapes: `<`, `>`, `&`, or the lead byte of U+2028 and U+2029.
fn may_start_go_escape(byte: u8) -> bool {
    matches!(byte, b'<' | b'>' | b'&' | 0xe2)
}

fn write_escaped<W: ?Sized + io::Write>(writer: &mut W, text: &str) -> io::Result<()> {
    let mut rest = text;
    while let Some(at) = rest.bytes().position(may_start_go_escape) {
        let (unescaped, special_and_rest) = rest.split_at(at);
        writer.write_all(unescaped.as_bytes())?;
        let mut characters = special_and_rest.chars();
        match characters.next() {
            Some(special @ ('<' | '>' | '&' | '\u{2028}' | '\u{2029}')) => write!(writer, "\\u{:04x}", special as u32)?,
            Some(other) => write!(writer, "{other}")?,
            None => {}
        }
        rest = characters.as_str();
    }
    writer.write_all(rest.as_bytes())
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(value: &impl Serialize, expected: &Expect) {
        expected.assert_eq(std::str::from_utf8(&to_go_json(value)).unwrap());
    }

    #[test]
    fn to_go_json_escapes_strings_like_go() {
        check(&"<a href=\"x\">&</a>", &expect![[r#""\u003ca href=\"x\"\u003e\u0026\u003c/a\u003e""#]]);
        check(&"a\u{2028}b\u{2029}c\u{2027}d\u{e9}\u{1f600}", &expect![[r#""a\u2028b\u2029c‧dé😀""#]]);
        check(&"\0\u{1}\u{8}\t\n\u{b}\u{c}\r\u{1f}\\", &expect![[r#""\u0000\u0001\b\t\n\u000b\f\r\u001f\\""#]]);
        assert_eq!(to_go_json("\u{7f}"), b"\"\x7f\"");
        check(&json!({"<": 1}), &expect![[r#"{"\u003c":1}"#]]);
    }

    #[test]
    fn to_go_json_prints_floats_like_go() {
        check(
            &[0.0, -0.0, 1.0, -1.5, 0.1, 1e20, 1e21, -1.5e300, 1e-6, 1.5e-7, 123_456_789.125],
            &expect!["[0,-0,1,-1.5,0.1,100000000000000000000,1e+21,-1.5e+300,0.000001,1.5e-7,123456789.125]"],
        );
    }

    #[test]
    fn to_go_json_compacts_and_escapes_raw_values() {
        let raw = RawValue::from_string("{ \"a b\" : [1 ,\n\t2], \"q\\\" <\" : \"\\\\\" }".to_owned()).unwrap();
        check(&raw, &expect![[r#"{"a b":[1,2],"q\" \u003c":"\\"}"#]]);
    }

    #[test]
    fn indent_matches_go_marshal_indent() {
        let value = json!({"a": [], "b": {}, "c": [1, {"d": "x,{:}[]\"\\"}], "e": "", "f": [[]]});
        expect![[r#"
            {
              "a": [],
              "b": {},
              "c": [
                1,
                {
                  "d": "x,{:}[]\"\\"
                }
              ],
              "e": "",
              "f": [
                []
              ]
            }"#]]
        .assert_eq(std::str::from_utf8(&indent(&to_go_json(&value))).unwrap());
    }

    proptest! {
        #[test]
        fn go_json_round_trips_through_serde_json(text in any::<String>(), number in any::<f64>()) {
            let bytes = to_go_json(&(&text, number));
            let (read, value): (String, Option<f64>) = serde_json::from_slice(&bytes).unwrap();
            prop_assert_eq!(&read, &text);
            prop_assert!(value.is_none_or(|value| (value - number).abs() <= number.abs() * 1e-15));
            prop_assert_eq!(serde_json::from_slice::<(String, Option<f64>)>(&indent(&bytes)).unwrap().0, text);
        }

        #[test]
        fn indent_never_panics(bytes in any::<Vec<u8>>()) {
            indent(&bytes);
        }
    }
}
