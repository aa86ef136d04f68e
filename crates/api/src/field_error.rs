//! Validation errors of single fields, with Kubernetes' messages.

use std::collections::HashSet;
use std::fmt;

use serde_json::Value;

use crate::json::to_go_json;
use crate::quote::{GoFloat, Quoted};

/// A validation error of one field. Displays as `<field>: <body>`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    kind: FieldErrorKind,
    field: String,
    /// `None` where Kubernetes does not show the value.
    value: Option<Value>,
    /// The text in place of the value, where Go prints it in another order than ours.
    shown: Option<String>,
    detail: String,
}

/// The class of a [`FieldError`]; its machine-readable name is the reason of a Status cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldErrorKind {
    /// The value refers to something that does not exist.
    NotFound,
    /// A mandatory value is missing.
    Required,
    /// A unique value occurs twice.
    Duplicate,
    /// The value is malformed.
    Invalid,
    /// The value is not one of an enumeration.
    NotSupported,
    /// The value is well-formed but not permitted.
    Forbidden,
    /// The value exceeds a length limit.
    TooLong,
    /// A list or map has too many entries.
    TooMany,
    /// A list or map has too few entries.
    TooFew,
    /// The value is shorter than allowed.
    TooShort,
    /// The value has another JSON type than its schema says.
    TypeInvalid,
    /// A check could not be made.
    Internal,
}

impl FieldErrorKind {
    /// Returns the machine-readable name.
    pub fn reason(self) -> &'static str {
        match self {
            Self::NotFound => "FieldValueNotFound",
            Self::Required => "FieldValueRequired",
            Self::Duplicate => "FieldValueDuplicate",
            Self::Invalid => "FieldValueInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Forbidden => "FieldValueForbidden",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
            Self::TooFew => "FieldValueTooFew",
            Self::TooShort => "FieldValueTooShort",
            Self::TypeInvalid => "FieldValueTypeInvalid",
            Self::Internal => "InternalError",
        }
    }

    fn message_prefix(self) -> &'static str {
        match self {
            Self::NotFound => "Not found",
            Self::Required => "Required value",
            Self::Duplicate => "Duplicate value",
            Self::Invalid | Self::TypeInvalid => "Invalid value",
            Self::NotSupported => "Unsupported value",
            Self::Forbidden => "Forbidden",
            Self::TooLong => "Too long",
            Self::TooMany => "Too many",
            Self::TooFew => "Too few",
            Self::TooShort => "Too short",
            Self::Internal => "Internal error",
        }
    }
}

impl FieldError {
    /// Creates an error for a malformed value.
    pub fn invalid(field: impl Into<String>, value: impl Into<Value>, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Invalid, field, Some(value.into()), detail)
    }

    /// Creates an error for a malformed value that the caller has printed already.
    pub fn invalid_printed(field: impl Into<String>, printed_value: &str, detail: &str) -> Self {
        Self::new(FieldErrorKind::Invalid, field, None, format!("{printed_value}: {detail}"))
    }

    /// Leaves the value out of the message, as Kubernetes does for objects and arrays that a rule refuses.
    pub fn without_value(self) -> Self {
        Self { value: None, ..self }
    }

    /// Creates an error for a malformed value that is not repeated.
    pub fn invalid_without_value(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Invalid, field, None, detail)
    }

    /// Creates an error for a missing value.
    pub fn required(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Required, field, None, detail)
    }

    /// Adds an explanation to an error that was created without one.
    pub fn with_detail(self, detail: impl Into<String>) -> Self {
        Self { detail: detail.into(), ..self }
    }

    /// Shows this text in place of the value.
    pub fn showing(self, text: impl Into<String>) -> Self {
        Self { shown: Some(text.into()), ..self }
    }

    /// Creates an error for a repeated value.
    pub fn duplicate(field: impl Into<String>, value: impl Into<Value>) -> Self {
        Self::new(FieldErrorKind::Duplicate, field, Some(value.into()), "")
    }

    /// Creates an error for a reference to something that does not exist.
    pub fn not_found(field: impl Into<String>, value: impl Into<Value>) -> Self {
        Self::new(FieldErrorKind::NotFound, field, Some(value.into()), "")
    }

    /// Creates an error for a value that is not permitted.
    pub fn forbidden(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Forbidden, field, None, detail)
    }

    /// Creates an error for a value outside an enumeration.
    pub fn not_supported(field: impl Into<String>, value: impl Into<Value>, supported: &[&str]) -> Self {
        let quoted: Vec<_> = supported.iter().map(|value| Quoted(value).to_string()).collect();
        let detail = if quoted.is_empty() { String::new() } else { format!("supported values: {}", quoted.join(", ")) };
        Self::new(FieldErrorKind::NotSupported, field, Some(value.into()), detail)
    }

    /// Creates an error for a value with more than `bytes_max` bytes; the value is not repeated.
    pub fn too_long(field: impl Into<String>, bytes_max: usize) -> Self {
        let unit = if bytes_max == 1 { "byte" } else { "bytes" };
        Self::new(FieldErrorKind::TooLong, field, None, format!("may not be more than {bytes_max} {unit}"))
    }

    /// Creates an error for a list or map of `actual` entries, more than `max`.
    pub fn too_many(field: impl Into<String>, actual: usize, max: usize) -> Self {
        let unit = if max == 1 { "item" } else { "items" };
        Self::new(FieldErrorKind::TooMany, field, Some(actual.into()), format!("must have at most {max} {unit}"))
    }

    /// Creates an error for a value of another JSON type than its schema says.
    pub fn type_invalid(field: impl Into<String>, value: impl Into<Value>, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::TypeInvalid, field, Some(value.into()), detail)
    }

    /// Creates an error for a check that could not be made.
    pub fn internal(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Internal, field, None, detail)
    }

    /// Returns the class.
    pub fn kind(&self) -> FieldErrorKind {
        self.kind
    }

    /// Returns the path of the field, such as `spec.ports[0].name`.
    pub fn field(&self) -> &str {
        &self.field
    }

    /// Puts a path before that of the field, for a check that does not know where its value is.
    pub fn below(self, parent: &str) -> Self {
        if parent.is_empty() { self } else { Self { field: format!("{parent}.{}", self.field), ..self } }
    }

    /// Moves the error to another path.
    pub fn with_field(self, field: impl Into<String>) -> Self {
        Self { field: field.into(), ..self }
    }

    /// Returns the message without the field.
    pub fn body(&self) -> String {
        let mut body = self.kind.message_prefix().to_owned();
        if let Some(shown) = &self.shown {
            body.push_str(": ");
            body.push_str(shown);
        } else if let Some(value) = &self.value {
            body.push_str(": ");
            match value {
                Value::String(text) => body.push_str(&Quoted(text).to_string()),
                Value::Number(number) if number.as_i64().is_none() => {
                    body.push_str(&GoFloat(number.as_f64().unwrap_or_default()).to_string());
                }
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
                    body.push_str(&String::from_utf8_lossy(&to_go_json(value)));
                }
            }
        }
        if !self.detail.is_empty() {
            body.push_str(": ");
            body.push_str(&self.detail);
        }
        body
    }

    /// Joins errors without duplicates, in brackets if there are several; `None` if there are none.
    pub fn aggregate(errors: &[Self]) -> Option<String> {
        let mut seen = HashSet::new();
        let mut messages: Vec<_> = errors.iter().map(Self::to_string).collect();
        messages.retain(|message| seen.insert(message.clone()));
        match messages.len() {
            0 => None,
            1 => messages.pop(),
            _ => Some(format!("[{}]", messages.join(", "))),
        }
    }

    fn new(kind: FieldErrorKind, field: impl Into<String>, value: Option<Value>, detail: impl Into<String>) -> Self {
        Self { kind, field: field.into(), value, shown: None, detail: detail.into() }
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.body())
    }
}

impl std::error::Error for FieldError {}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use serde_json::json;

    use super::*;

    #[test]
    fn field_error_texts_match_kubernetes() {
        let errors = [
            FieldError::invalid("metadata.name", "A\n", "must be lower case"),
            FieldError::invalid("spec.replicas", -1, "must be greater than or equal to 0"),
            FieldError::invalid("spec.selector", json!({"a": ["<"]}), ""),
            FieldError::invalid("spec", Value::Null, "x"),
            FieldError::invalid("spec.a", 1e10, "x"),
            FieldError::invalid("spec.a", 0.000_025, "x"),
            FieldError::invalid("spec.a", -100_000.5, "x"),
            FieldError::invalid("spec.ratio", 1e-7, "x"),
            FieldError::required("metadata.name", "name or generateName is required"),
            FieldError::required("spec.a", ""),
            FieldError::duplicate("status.storageVersions[1].apiServerID", "a"),
            FieldError::not_found("spec.ref", "b"),
            FieldError::forbidden("spec.b", "is immutable"),
            FieldError::not_supported("spec.type", "X", &["A", "B"]),
            FieldError::not_supported("spec.type", "X", &[]),
            FieldError::too_long("spec.c", 1),
            FieldError::too_long("spec.c", 253),
            FieldError::too_many("spec.d", 3, 1),
            FieldError::type_invalid("spec.e", "string", "spec.e in body must be of type integer: \"string\""),
            FieldError::internal("spec.f", "no such key: g"),
            FieldError::invalid("spec.g", json!({}), "failed rule: self.a").without_value(),
            FieldError::duplicate("spec.g", json!([])).without_value(),
            FieldError::invalid_printed("spec.h", r#"{"B":1,"A":2}"#, "x"),
        ];
        let lines: Vec<_> = errors.iter().map(|error| format!("{} | {error}", error.kind().reason())).collect();
        expect![[r#"
            FieldValueInvalid | metadata.name: Invalid value: "A\n": must be lower case
            FieldValueInvalid | spec.replicas: Invalid value: -1: must be greater than or equal to 0
            FieldValueInvalid | spec.selector: Invalid value: {"a":["\u003c"]}
            FieldValueInvalid | spec: Invalid value: null: x
            FieldValueInvalid | spec.a: Invalid value: 1e+10: x
            FieldValueInvalid | spec.a: Invalid value: 2.5e-05: x
            FieldValueInvalid | spec.a: Invalid value: -100000.5: x
            FieldValueInvalid | spec.ratio: Invalid value: 1e-07: x
            FieldValueRequired | metadata.name: Required value: name or generateName is required
            FieldValueRequired | spec.a: Required value
            FieldValueDuplicate | status.storageVersions[1].apiServerID: Duplicate value: "a"
            FieldValueNotFound | spec.ref: Not found: "b"
            FieldValueForbidden | spec.b: Forbidden: is immutable
            FieldValueNotSupported | spec.type: Unsupported value: "X": supported values: "A", "B"
            FieldValueNotSupported | spec.type: Unsupported value: "X"
            FieldValueTooLong | spec.c: Too long: may not be more than 1 byte
            FieldValueTooLong | spec.c: Too long: may not be more than 253 bytes
            FieldValueTooMany | spec.d: Too many: 3: must have at most 1 item
            FieldValueTypeInvalid | spec.e: Invalid value: "string": spec.e in body must be of type integer: "string"
            InternalError | spec.f: Internal error: no such key: g
            FieldValueInvalid | spec.g: Invalid value: failed rule: self.a
            FieldValueDuplicate | spec.g: Duplicate value
            FieldValueInvalid | spec.h: Invalid value: {"B":1,"A":2}: x"#]]
        .assert_eq(&lines.join("\n"));
    }

    #[test]
    fn aggregate_brackets_and_deduplicates_errors() {
        let [a, b] = [FieldError::required("a", ""), FieldError::required("b", "")];
        assert_eq!(FieldError::aggregate(&[]), None);
        assert_eq!(FieldError::aggregate(&[a.clone(), a.clone()]).as_deref(), Some("a: Required value"));
        assert_eq!(
            FieldError::aggregate(&[a.clone(), b, a]).as_deref(),
            Some("[a: Required value, b: Required value]")
        );
    }
}
