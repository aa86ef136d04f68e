//! The tests of the CEL specification: protobuf text read into the cases of [`super`].

use serde_json::{Map, Value as Json, json};

use super::messages;

/// A field's content. Scalars stay as written; texts are bytes.
#[derive(Debug)]
enum Content {
    Word(String),
    Text(Vec<u8>),
    Message(Vec<(String, Content)>),
}

type Fields = [(String, Content)];

struct Reader<'t> {
    text: &'t [u8],
    at: usize,
}

impl Reader<'_> {
    fn peek(&mut self) -> Option<u8> {
        loop {
            match self.text.get(self.at)? {
                b'#' => {
                    while self.text.get(self.at).is_some_and(|byte| *byte != b'\n') {
                        self.at += 1;
                    }
                }
                b' ' | b'\t' | b'\n' | b'\r' | b',' | b';' => self.at += 1,
                byte => return Some(*byte),
            }
        }
    }

    fn take(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn word(&mut self) -> String {
        let begin = self.at;
        let part = |byte: &u8| byte.is_ascii_alphanumeric() || b"_.-+".contains(byte);
        while self.text.get(self.at).is_some_and(part) {
            self.at += 1;
        }
        String::from_utf8_lossy(&self.text[begin..self.at]).into_owned()
    }

    /// The fields up to the end of a message.
    fn fields(&mut self) -> Vec<(String, Content)> {
        let mut fields = Vec::new();
        while let Some(byte) = self.peek() {
            if byte == b'}' {
                self.at += 1;
                break;
            }
            let name = if self.take(b'[') {
                let begin = self.at;
                while !self.take(b']') {
                    self.at += 1;
                }
                String::from_utf8_lossy(&self.text[begin..self.at - 1]).into_owned()
            } else {
                self.word()
            };
            self.take(b':');
            if self.take(b'[') {
                while !self.take(b']') {
                    let content = self.content();
                    fields.push((name.clone(), content));
                }
            } else {
                let content = self.content();
                fields.push((name, content));
            }
        }
        fields
    }

    fn content(&mut self) -> Content {
        match self.peek() {
            Some(b'{') => {
                self.at += 1;
                Content::Message(self.fields())
            }
            Some(b'"' | b'\'') => {
                let mut text = Vec::new();
                while let Some(quote @ (b'"' | b'\'')) = self.peek() {
                    self.at += 1;
                    self.quoted(quote, &mut text);
                }
                Content::Text(text)
            }
            _ => {
                let word = self.word();
                assert!(!word.is_empty(), "unexpected text at byte {}", self.at);
                Content::Word(word)
            }
        }
    }

    fn quoted(&mut self, quote: u8, text: &mut Vec<u8>) {
        loop {
            let byte = self.text[self.at];
            self.at += 1;
            match byte {
                b'\\' => self.escape(text),
                _ if byte == quote => return,
                _ => text.push(byte),
            }
        }
    }

    fn escape(&mut self, text: &mut Vec<u8>) {
        let byte = self.text[self.at];
        self.at += 1;
        let simple = |byte| b"abfnrtv".iter().position(|known| *known == byte).map(|at| b"\x07\x08\x0c\n\r\t\x0b"[at]);
        match byte {
            b'0'..=b'7' => {
                self.at -= 1;
                let code = self.digits(8, 3);
                text.push(u8::try_from(code).expect("an octal escape is a byte"));
            }
            b'x' | b'X' => {
                let code = self.digits(16, 2);
                text.push(u8::try_from(code).expect("two hexadecimal digits are a byte"));
            }
            b'u' | b'U' => {
                let code = self.digits(16, if byte == b'u' { 4 } else { 8 });
                let character = char::from_u32(code).expect("an escape is a code point");
                text.extend(character.to_string().bytes());
            }
            other => text.push(simple(other).unwrap_or(other)),
        }
    }

    fn digits(&mut self, radix: u32, count: usize) -> u32 {
        let digits = self.text[self.at..].iter().take(count);
        let digits: String = digits.map(|byte| char::from(*byte)).take_while(|c| c.is_digit(radix)).collect();
        self.at += digits.len();
        u32::from_str_radix(&digits, radix).expect("an escape has digits")
    }
}

fn get<'c>(fields: &'c Fields, name: &str) -> Option<&'c Content> {
    fields.iter().find(|(known, _)| known == name).map(|(_, content)| content)
}

fn message<'c>(fields: &'c Fields, name: &str) -> Option<&'c Fields> {
    match get(fields, name)? {
        Content::Message(fields) => Some(fields),
        Content::Word(_) | Content::Text(_) => None,
    }
}

fn text(fields: &Fields, name: &str) -> Option<String> {
    match get(fields, name)? {
        Content::Text(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        Content::Word(word) => Some(word.clone()),
        Content::Message(_) => None,
    }
}

fn all<'c>(fields: &'c Fields, name: &str) -> Vec<&'c Fields> {
    let messages = fields.iter().filter(|(known, _)| known == name);
    messages
        .filter_map(|(_, content)| if let Content::Message(fields) = content { Some(&**fields) } else { None })
        .collect()
}

/// The cases of one file.
pub(super) fn read(source: &[u8]) -> Vec<Json> {
    let file = Reader { text: source, at: 0 }.fields();
    let mut cases = Vec::new();
    for section in all(&file, "section") {
        for test in all(section, "test") {
            let mut case = case(test);
            case.insert("file".into(), text(&file, "name").into());
            case.insert("section".into(), text(section, "name").into());
            cases.push(Json::Object(case));
        }
    }
    cases
}

fn case(test: &Fields) -> Map<String, Json> {
    let mut case = Map::new();
    for name in ["name", "expr", "container"] {
        if let Some(text) = text(test, name) {
            case.insert(name.into(), text.into());
        }
    }
    for flag in ["disable_check", "check_only"] {
        if text(test, flag).as_deref() == Some("true") {
            case.insert(flag.into(), true.into());
        }
    }
    let declared = all(test, "type_env");
    if declared.iter().any(|declared| get(declared, "function").is_some()) {
        case.insert("functions".into(), true.into());
    }
    let variables = declared.iter().filter_map(|declared| {
        let declared_type = message(message(declared, "ident")?, "type")?;
        Some(json!([text(declared, "name"), type_name(declared_type)]))
    });
    let variables: Vec<Json> = variables.collect();
    let bindings = all(test, "bindings").into_iter().map(|binding| {
        let bound = message(binding, "value").and_then(|bound| message(bound, "value"));
        json!([text(binding, "key"), bound.map(value)])
    });
    let bindings: Vec<Json> = bindings.collect();
    for (name, list) in [("types", variables), ("bindings", bindings)] {
        if !list.is_empty() {
            case.insert(name.into(), list.into());
        }
    }
    expectation(test, &mut case);
    case
}

/// What must come of the case; `true` if nothing else is said.
fn expectation(test: &Fields, case: &mut Map<String, Json>) {
    if let Some(typed) = message(test, "typed_result") {
        if let Some(deduced) = message(typed, "deduced_type") {
            case.insert("type".into(), type_name(deduced).into());
        }
        if let Some(result) = message(typed, "result") {
            case.insert("value".into(), value(result));
        }
    } else if let Some(expected) = message(test, "value") {
        case.insert("value".into(), value(expected));
    } else if get(test, "eval_error").is_some() || get(test, "any_eval_errors").is_some() {
        case.insert("error".into(), true.into());
    } else {
        case.insert("value".into(), json!({"bool": true}));
    }
}

/// The type in the notation of the checker.
fn type_name(fields: &Fields) -> String {
    let Some((kind, content)) = fields.first() else { return "dyn".into() };
    let word = |content: &Content| match content {
        Content::Word(word) => word.to_lowercase().replace("64", ""),
        Content::Text(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Content::Message(_) => String::new(),
    };
    let inner = |name: &str| match content {
        Content::Message(fields) => message(fields, name).map_or_else(|| "dyn".into(), type_name),
        Content::Word(_) | Content::Text(_) => String::new(),
    };
    match (kind.as_str(), content) {
        ("list_type", _) => format!("list({})", inner("elem_type")),
        ("map_type", _) => format!("map({}, {})", inner("key_type"), inner("value_type")),
        ("wrapper", _) => format!("wrapper({})", word(content)),
        ("type", Content::Message(inner)) => format!("type({})", type_name(inner)),
        ("abstract_type", Content::Message(fields)) => {
            let parameters: Vec<String> = all(fields, "parameter_types").into_iter().map(type_name).collect();
            format!("{}({})", text(fields, "name").unwrap_or_default(), parameters.join(", "))
        }
        ("message_type", Content::Text(bytes)) if bytes == b"google.protobuf.Duration" => "duration".into(),
        ("message_type", Content::Text(bytes)) if bytes == b"google.protobuf.Timestamp" => "timestamp".into(),
        ("primitive" | "well_known" | "message_type", _) => word(content),
        (other, _) => other.into(),
    }
}

/// A value with the tag of its kind.
fn value(fields: &Fields) -> Json {
    let Some((kind, content)) = fields.first() else { return Json::Null };
    match (kind.as_str(), content) {
        ("null_value", _) => json!({"null": true}),
        ("bool_value", Content::Word(word)) => json!({"bool": word == "true"}),
        ("int64_value", Content::Word(word)) => json!({"int": word}),
        ("uint64_value", Content::Word(word)) => json!({"uint": word}),
        ("double_value", Content::Word(word)) => json!({"double": word}),
        ("string_value", Content::Text(bytes)) => json!({"string": String::from_utf8_lossy(bytes)}),
        ("bytes_value", Content::Text(bytes)) => json!({"bytes": hex(bytes)}),
        ("type_value", Content::Text(bytes)) => json!({"type": String::from_utf8_lossy(bytes)}),
        ("list_value", Content::Message(list)) => {
            json!({"list": all(list, "values").into_iter().map(value).collect::<Vec<_>>()})
        }
        ("map_value", Content::Message(map)) => {
            let part = |entry: &Fields, name: &str| message(entry, name).map(value);
            let entries = all(map, "entries").into_iter();
            json!({"map": entries.map(|entry| json!([part(entry, "key"), part(entry, "value")])).collect::<Vec<_>>()})
        }
        ("object_value", Content::Message(object)) => match object.first() {
            Some((name, Content::Message(fields))) => {
                let name = name.rsplit('/').next().unwrap_or(name);
                object_value(name, fields)
            }
            _ => Json::Null,
        },
        (other, _) => json!({ other: true }),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn object_value(name: &str, fields: &Fields) -> Json {
    let number = |name: &str| text(fields, name).unwrap_or_else(|| "0".into());
    match name {
        "google.protobuf.Duration" => {
            let nanos: i64 = number("nanos").parse().unwrap_or(0);
            let seconds: i64 = number("seconds").parse().unwrap_or(0);
            json!({"duration": (i128::from(seconds) * 1_000_000_000 + i128::from(nanos)).to_string()})
        }
        "google.protobuf.Timestamp" => json!({"timestamp": [number("seconds"), number("nanos").parse::<u32>().ok()]}),
        _ => {
            let set = fields.iter().map(|(field, content)| json!([field, scalar(name, field, content)]));
            json!({"message": [name, set.collect::<Vec<_>>()]})
        }
    }
}

/// A field of a message; the tests set scalar fields only.
fn scalar(message: &str, field: &str, content: &Content) -> Json {
    let tag = messages::field_type(message, field).map_or_else(String::new, |declared| declared.to_string());
    match content {
        Content::Word(word) if tag == "bool" => json!({"bool": word == "true"}),
        Content::Word(word) => json!({ tag: word }),
        Content::Text(bytes) if tag == "bytes" => json!({"bytes": hex(bytes)}),
        Content::Text(bytes) => json!({"string": String::from_utf8_lossy(bytes)}),
        Content::Message(_) => Json::Null,
    }
}
