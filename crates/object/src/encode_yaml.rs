//! Writes JSON values as YAML, for responses.
//!
//! **Invariant:** a reader of YAML 1.1 or 1.2 gets the same value: whatever it could take for another type is quoted.

use serde_json::{Map, Value};

/// A value as a YAML document in block style. Recursion is as deep as the value, whose depth the decoder limits.
pub fn to_yaml(value: &Value) -> String {
    let mut text = String::new();
    match value {
        Value::Object(fields) if !fields.is_empty() => write_fields(&mut text, fields, 0),
        Value::Array(items) if !items.is_empty() => write_items(&mut text, items, 0),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) | Value::Object(_) => {
            write_inline(&mut text, value)
        }
    }
    text
}

/// Writes the fields of an object, the first of them without indentation.
fn write_fields(text: &mut String, fields: &Map<String, Value>, indentation: usize) {
    for (at, (name, value)) in fields.iter().enumerate() {
        if at > 0 {
            indent(text, indentation);
        }
        write_string(text, name);
        text.push(':');
        match value {
            Value::Object(fields) if !fields.is_empty() => {
                text.push('\n');
                indent(text, indentation + 2);
                write_fields(text, fields, indentation + 2);
            }
            Value::Array(items) if !items.is_empty() => {
                text.push('\n');
                indent(text, indentation);
                write_items(text, items, indentation);
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) | Value::Object(_) => {
                text.push(' ');
                write_inline(text, value);
            }
        }
    }
}

/// Writes the items of a list, the first of them without indentation.
fn write_items(text: &mut String, items: &[Value], indentation: usize) {
    for (at, item) in items.iter().enumerate() {
        if at > 0 {
            indent(text, indentation);
        }
        text.push_str("- ");
        match item {
            Value::Object(fields) if !fields.is_empty() => write_fields(text, fields, indentation + 2),
            Value::Array(items) if !items.is_empty() => write_items(text, items, indentation + 2),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) | Value::Object(_) => {
                write_inline(text, item)
            }
        }
    }
}

fn indent(text: &mut String, indentation: usize) {
    text.extend(std::iter::repeat_n(' ', indentation));
}

/// Writes a scalar or an empty container, and the end of the line.
fn write_inline(text: &mut String, value: &Value) {
    match value {
        Value::String(string) => write_string(text, string),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            text.push_str(&value.to_string());
        }
    }
    text.push('\n');
}

fn write_string(text: &mut String, string: &str) {
    if is_plain(string) {
        return text.push_str(string);
    }
    // The escapes of JSON are escapes of YAML, too.
    for character in Value::from(string).to_string().chars() {
        match character {
            '\u{7f}'..='\u{9f}' | '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}' => {
                text.push_str(&format!("\\u{:04x}", u32::from(character)));
            }
            printable => text.push(printable),
        }
    }
}

/// True for a string that cannot be taken for anything else when it is not quoted.
fn is_plain(string: &str) -> bool {
    const RESERVED: [&str; 9] = ["y", "n", "yes", "no", "on", "off", "true", "false", "null"];
    string.starts_with(|first: char| first.is_ascii_alphabetic() || first == '/')
        && string.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_./-".contains(&byte))
        && !RESERVED.contains(&string.to_ascii_lowercase().as_str())
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use serde_json::json;

    use super::*;
    use crate::decode::{BodyEncoding, decode_value};

    #[test]
    fn objects_are_written_in_block_style() {
        let value = json!({
            "apiVersion": "v1", "data": {"a.b/c": "x: y", "empty": {}, "none": null},
            "items": [{"name": "a", "ports": [80, 1.5]}, [["deep"], []], "on", true, "2024-01-01T00:00:00Z"],
        });
        expect![[r#"
            apiVersion: v1
            data:
              a.b/c: "x: y"
              empty: {}
              none: null
            items:
            - name: a
              ports:
              - 80
              - 1.5
            - - - deep
              - []
            - "on"
            - true
            - "2024-01-01T00:00:00Z"
        "#]]
        .assert_eq(&to_yaml(&value));
    }

    #[test]
    fn yaml_is_read_as_the_same_value() {
        let long = "x".repeat(300);
        let strings = vec![
            "",
            " ",
            "a",
            "No",
            "~",
            "1",
            "0x1f",
            "1e3",
            ".5",
            "-",
            "- a",
            "a: b",
            "#c",
            "a #c",
            "a\nb\n",
            "\t",
            "é日本",
            "\u{7f}\u{85}",
            "\u{2028}\u{feff}",
            "\u{1}\"\\",
            "'",
            "{}",
            "[",
            "*a",
            "&a",
            "!b",
            "%",
            "@",
            "`",
            "|",
            ">",
            "?",
            "=",
            "<<",
            &long,
        ];
        let map: Map<String, Value> = strings.iter().map(|text| ((*text).to_owned(), (*text).into())).collect();
        for value in
            [json!(strings), json!({"list": [strings, [map]], "map": strings}), json!([]), json!("on"), json!(null)]
        {
            let text = to_yaml(&value);
            let read = decode_value(text.as_bytes(), BodyEncoding::Yaml).map(|decoded| decoded.value);
            assert_eq!(read, Ok(value), "{text}");
        }
    }
}
