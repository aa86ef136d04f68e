//! Errors of a validation, and how many checks passed.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use api::FieldError;
use serde_json::Value;

use super::number::go_float;

/// The limit of reported errors; a body can contain a million.
pub(in super::super) const ERRORS_MAX: usize = 1000;

/// The result of validating one value.
#[derive(Default)]
pub(super) struct Outcome {
    errors: Vec<Found>,
    /// Hashes of the messages, which Kubernetes reports only once each.
    seen: HashSet<u64>,
    /// Kubernetes reports the errors of the alternative of a junctor that has most of these.
    matches: usize,
}

/// An error, and the hash of its message.
type Found = (u64, FieldError);

impl Outcome {
    pub(super) fn is_valid(&self) -> bool {
        self.errors.is_empty()
    }

    pub(super) fn matches(&self) -> usize {
        self.matches
    }

    /// Counts a check that was made.
    pub(super) fn count(&mut self) {
        self.matches += 1;
    }

    /// Adds an error unless one with the same text is there.
    pub(super) fn add(&mut self, text: &str, error: impl FnOnce() -> FieldError) {
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        let hash = hasher.finish();
        if self.errors.len() < ERRORS_MAX && self.seen.insert(hash) {
            self.errors.push((hash, error()));
        }
    }

    pub(super) fn merge(&mut self, other: Self) {
        self.matches += other.matches;
        if other.errors.is_empty() {
            return;
        }
        if self.errors.is_empty() {
            (self.errors, self.seen) = (other.errors, other.seen);
            return;
        }
        for (hash, error) in other.errors {
            if self.errors.len() < ERRORS_MAX && self.seen.insert(hash) {
                self.errors.push((hash, error));
            }
        }
    }

    pub(super) fn clear_errors(&mut self) {
        self.errors.clear();
        self.seen.clear();
    }

    pub(super) fn into_errors(self) -> Vec<FieldError> {
        self.errors.into_iter().map(|(_, error)| error).collect()
    }
}

/// A value as Go's `%v` prints it.
pub(in super::super) fn go_value(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Number(number) => match number.as_i64() {
            Some(integer) => integer.to_string(),
            None => go_float(number.as_f64().unwrap_or_default()),
        },
        Value::String(text) => text.clone(),
        Value::Array(items) => {
            let items: Vec<_> = items.iter().map(go_value).collect();
            format!("[{}]", items.join(" "))
        }
        Value::Object(object) => {
            let fields: Vec<_> = object.iter().map(|(name, value)| format!("{name}:{}", go_value(value))).collect();
            format!("map[{}]", fields.join(" "))
        }
    }
}
