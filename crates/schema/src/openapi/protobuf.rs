//! `/openapi/v2` in protobuf, the only encoding that kubectl requests.
//!
//! The messages are those of gnostic's `openapi.v2`. All types are included, with the extensions that clients read.
//! Of the paths, only the parts that clients look up are included: the parameters of patches, by kind.

use prost::encoding::{WireType, encode_key, encode_varint};
use serde_json::{Map, Value};

/// The media types of requests: with a character that the grammar of media types does not allow, and without.
pub const MEDIA_TYPES: [&str; 2] = [
    "application/com.github.proto-openapi.spec.v2@v1.0+protobuf",
    "application/com.github.proto-openapi.spec.v2.v1.0+protobuf",
];
/// The media type of the response.
pub const CONTENT_TYPE: &str = MEDIA_TYPES[1];

/// The numbers of fields, by message.
mod number {
    pub(super) const DOCUMENT_SWAGGER: u32 = 1;
    pub(super) const DOCUMENT_INFO: u32 = 2;
    pub(super) const DOCUMENT_PATHS: u32 = 8;
    pub(super) const DOCUMENT_DEFINITIONS: u32 = 9;
    pub(super) const INFO_TITLE: u32 = 1;
    pub(super) const INFO_VERSION: u32 = 2;
    pub(super) const PATHS_PATH: u32 = 2;
    pub(super) const NAMED_NAME: u32 = 1;
    pub(super) const NAMED_VALUE: u32 = 2;
    pub(super) const PATH_PATCH: u32 = 8;
    pub(super) const OPERATION_PARAMETERS: u32 = 8;
    pub(super) const OPERATION_EXTENSION: u32 = 13;
    pub(super) const QUERY_IN: u32 = 2;
    pub(super) const QUERY_NAME: u32 = 4;
    pub(super) const QUERY_TYPE: u32 = 6;
    pub(super) const SCHEMA_REQUIRED: u32 = 19;
    pub(super) const SCHEMA_ENUM: u32 = 20;
    pub(super) const SCHEMA_ADDITIONAL: u32 = 21;
    pub(super) const SCHEMA_TYPE: u32 = 22;
    pub(super) const SCHEMA_ITEMS: u32 = 23;
    pub(super) const SCHEMA_PROPERTIES: u32 = 25;
    pub(super) const SCHEMA_EXAMPLE: u32 = 30;
    pub(super) const SCHEMA_EXTENSION: u32 = 31;
    pub(super) const ANY_YAML: u32 = 2;
    pub(super) const ADDITIONAL_BOOLEAN: u32 = 2;
    /// Of messages that wrap one other.
    pub(super) const ONLY: u32 = 1;
    /// Fields of a schema whose value is one text.
    pub(super) const SCHEMA_TEXTS: [(u32, &str); 5] =
        [(1, "$ref"), (2, "format"), (3, "title"), (4, "description"), (13, "pattern")];
    /// Fields of a schema whose value is a floating-point number.
    pub(super) const SCHEMA_DOUBLES: [(u32, &str); 3] = [(6, "multipleOf"), (7, "maximum"), (9, "minimum")];
    /// Fields of a schema whose value is an integer or a boolean.
    pub(super) const SCHEMA_INTEGERS: [(u32, &str); 9] = [
        (8, "exclusiveMaximum"),
        (10, "exclusiveMinimum"),
        (11, "maxLength"),
        (12, "minLength"),
        (14, "maxItems"),
        (15, "minItems"),
        (16, "uniqueItems"),
        (17, "maxProperties"),
        (18, "minProperties"),
    ];
}

/// The document, from the values that the JSON form is written from.
#[derive(Debug, Default)]
pub(super) struct SwaggerProtobuf {
    paths: EncodedMessage,
    definitions: EncodedMessage,
}

impl SwaggerProtobuf {
    /// Adds a path, if something is patched there.
    pub(super) fn push_path(&mut self, path: &str, item: &Value) {
        let Some(patch) = item.get("patch") else { return };
        let mut operation = EncodedMessage::default();
        let shared = item.get("parameters").and_then(Value::as_array);
        let own = patch.get("parameters").and_then(Value::as_array);
        for parameter in shared.into_iter().chain(own).flatten() {
            if let Some(query) = encode_query_parameter(parameter) {
                operation.push(number::OPERATION_PARAMETERS, &query);
            }
        }
        push_extensions(&mut operation, number::OPERATION_EXTENSION, patch);
        let item = EncodedMessage::wrapping(number::PATH_PATCH, &operation);
        self.paths.push(number::PATHS_PATH, &named_member(path, &item));
    }

    /// Adds a type.
    pub(super) fn push_definition(&mut self, name: &str, definition: &Value) {
        self.definitions.push(number::ONLY, &named_member(name, &encode_schema(definition)));
    }

    pub(super) fn finish(self, info: &Value) -> Vec<u8> {
        let mut about = EncodedMessage::default();
        about.push_text(number::INFO_TITLE, info["title"].as_str().unwrap_or_default());
        about.push_text(number::INFO_VERSION, info["version"].as_str().unwrap_or_default());
        let mut document = EncodedMessage::default();
        document.push_text(number::DOCUMENT_SWAGGER, "2.0");
        document.push(number::DOCUMENT_INFO, &about);
        document.push(number::DOCUMENT_PATHS, &self.paths);
        document.push(number::DOCUMENT_DEFINITIONS, &self.definitions);
        document.0
    }
}

/// A parameter of the query, within the four messages that tell it from others; `None` if it is one of those.
fn encode_query_parameter(parameter: &Value) -> Option<EncodedMessage> {
    let text = |name: &str| parameter.get(name).and_then(Value::as_str).unwrap_or_default();
    if text("in") != "query" {
        return None;
    }
    let mut query = EncodedMessage::default();
    query.push_text(number::QUERY_IN, "query");
    query.push_text(number::QUERY_NAME, text("name"));
    query.push_text(number::QUERY_TYPE, text("type"));
    // An item is a parameter (1), which is not in the body (2), but in the query (3).
    Some([3, 2, 1].into_iter().fold(query, |inner, number| EncodedMessage::wrapping(number, &inner)))
}

fn encode_schema(value: &Value) -> EncodedMessage {
    let mut message = EncodedMessage::default();
    let text = |name: &str| value.get(name).and_then(Value::as_str);
    for (number, name) in number::SCHEMA_TEXTS {
        if let Some(text) = text(name) {
            message.push_text(number, text);
        }
    }
    for (number, name) in number::SCHEMA_DOUBLES {
        if let Some(double) = value.get(name).and_then(Value::as_f64) {
            message.push_double(number, double);
        }
    }
    for (number, name) in number::SCHEMA_INTEGERS {
        let Some(value) = value.get(name) else { continue };
        if let Some(integer) = value.as_u64().or_else(|| value.as_bool().map(u64::from)) {
            message.push_integer(number, integer);
        }
    }
    for value in value.get("enum").and_then(Value::as_array).into_iter().flatten() {
        message.push(number::SCHEMA_ENUM, &encode_any(value));
    }
    if let Some(example) = value.get("example") {
        message.push(number::SCHEMA_EXAMPLE, &encode_any(example));
    }
    for name in value.get("required").and_then(Value::as_array).into_iter().flatten() {
        message.push_text(number::SCHEMA_REQUIRED, name.as_str().unwrap_or_default());
    }
    if let Some(values) = value.get("additionalProperties") {
        let mut additional = EncodedMessage::default();
        match values.as_bool() {
            Some(allows) => additional.push_integer(number::ADDITIONAL_BOOLEAN, allows.into()),
            None => additional.push(number::ONLY, &encode_schema(values)),
        }
        message.push(number::SCHEMA_ADDITIONAL, &additional);
    }
    if let Some(word) = text("type") {
        let mut words = EncodedMessage::default();
        words.push_text(number::ONLY, word);
        message.push(number::SCHEMA_TYPE, &words);
    }
    if let Some(items) = value.get("items") {
        message.push(number::SCHEMA_ITEMS, &EncodedMessage::wrapping(number::ONLY, &encode_schema(items)));
    }
    if let Some(fields) = value.get("properties").and_then(Value::as_object) {
        message.push(number::SCHEMA_PROPERTIES, &encode_properties(fields));
    }
    push_extensions(&mut message, number::SCHEMA_EXTENSION, value);
    message
}

fn encode_properties(fields: &Map<String, Value>) -> EncodedMessage {
    let mut properties = EncodedMessage::default();
    for (name, value) in fields {
        properties.push(number::ONLY, &named_member(name, &encode_schema(value)));
    }
    properties
}

/// Kubernetes' extensions as YAML; JSON is valid YAML.
fn push_extensions(message: &mut EncodedMessage, number: u32, value: &Value) {
    let fields = value.as_object().into_iter().flatten();
    for (name, value) in fields.filter(|(name, _)| name.starts_with("x-")) {
        message.push(number, &named_member(name, &encode_any(value)));
    }
}

fn encode_any(value: &Value) -> EncodedMessage {
    let mut any = EncodedMessage::default();
    any.push_text(number::ANY_YAML, &value.to_string());
    any
}

fn named_member(name: &str, value: &EncodedMessage) -> EncodedMessage {
    let mut named = EncodedMessage::default();
    named.push_text(number::NAMED_NAME, name);
    named.push(number::NAMED_VALUE, value);
    named
}

/// The bytes of a message.
#[derive(Debug, Default)]
struct EncodedMessage(Vec<u8>);

impl EncodedMessage {
    /// A message that only wraps another one.
    fn wrapping(number: u32, inner: &EncodedMessage) -> Self {
        let mut outer = Self::default();
        outer.push(number, inner);
        outer
    }

    fn push(&mut self, number: u32, inner: &EncodedMessage) {
        self.push_bytes(number, &inner.0);
    }

    fn push_text(&mut self, number: u32, text: &str) {
        self.push_bytes(number, text.as_bytes());
    }

    fn push_double(&mut self, number: u32, value: f64) {
        encode_key(number, WireType::SixtyFourBit, &mut self.0);
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    fn push_integer(&mut self, number: u32, value: u64) {
        encode_key(number, WireType::Varint, &mut self.0);
        encode_varint(value, &mut self.0);
    }

    fn push_bytes(&mut self, number: u32, bytes: &[u8]) {
        encode_key(number, WireType::LengthDelimited, &mut self.0);
        encode_varint(bytes.len() as u64, &mut self.0);
        self.0.extend_from_slice(bytes);
    }
}
