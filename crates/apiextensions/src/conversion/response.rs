//! The checks of a webhook's response, in Kubernetes' order and words.

use std::fmt::Display;

use api::json::JsonObject;
use api::validation::{validate_label_key, validate_label_value};
use api::{FieldError, GroupVersion};
use object::unstructured::{metadata_string, text};
use serde_json::Value;

use super::{ConversionCall, ReviewVersion};
use crate::json_path::go_type;

/// All annotations of an object together have at most so many bytes.
const ANNOTATIONS_LENGTH_MAX: usize = 256 * 1024;

/// A conversion failed: 500 without a reason. The variants are the values of the metric's label `failure_type`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConversionError {
    /// The webhook did not respond, or with something that is no `ConversionReview`.
    #[error("{0}")]
    Call(String),
    /// The response is not one to the request, or says that the conversion failed.
    #[error("{0}")]
    MalformedResponse(String),
    /// The number of objects differs.
    #[error("{0}")]
    PartialResponse(String),
    /// An object is not a conversion of the original.
    #[error("{0}")]
    InvalidConvertedObject(String),
}

impl ConversionError {
    /// The value of the metric's label `failure_type`.
    pub fn failure_type(&self) -> &'static str {
        match self {
            Self::Call(_) => "conversion_webhook_call_failure",
            Self::MalformedResponse(_) => "conversion_webhook_malformed_response_failure",
            Self::PartialResponse(_) => "conversion_webhook_partial_response_failure",
            Self::InvalidConvertedObject(_) => "conversion_webhook_invalid_converted_object_failure",
        }
    }
}

impl ConversionCall<'_> {
    /// The error of a call that had no response.
    pub fn call_error(self, error: impl Display) -> ConversionError {
        ConversionError::Call(format!("conversion webhook for {} failed: {error}", self.subject))
    }

    /// Checks a response and returns the objects, in the order of the request, with the metadata of the originals.
    pub fn converted_objects(self, body: &[u8]) -> Result<Vec<JsonObject>, ConversionError> {
        let subject = self.subject;
        let mut review: JsonObject = serde_json::from_slice(body).map_err(|error| self.call_error(error))?;
        self.check_review(&review).map_err(|problem| {
            ConversionError::MalformedResponse(format!("conversion webhook for {subject} failed: {problem}"))
        })?;
        let converted = review.get_mut("response").and_then(|response| response.get_mut("convertedObjects"));
        let converted = match converted.map(Value::take) {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Array(objects)) => objects,
            Some(other) => {
                let found = go_type(&other);
                return Err(self.call_error(format_args!("convertedObjects is of the type {found}, expected a list")));
            }
        };
        if converted.len() != self.objects.len() {
            return Err(ConversionError::PartialResponse(format!(
                "conversion webhook for {subject} returned {} objects, expected {}",
                converted.len(),
                self.objects.len()
            )));
        }
        let pairs = self.objects.iter().zip(converted).enumerate();
        let check = |(index, (original, converted)): (usize, (&&JsonObject, Value))| {
            self.check_object(index, original, converted).map_err(ConversionError::InvalidConvertedObject)
        };
        pairs.map(check).collect()
    }

    fn check_review(self, review: &JsonObject) -> Result<(), String> {
        let is_v1 = self.review_version == ReviewVersion::V1;
        let (group_version, kind) = (text(review, &["apiVersion"]), text(review, &["kind"]));
        if is_v1 && (group_version, kind) != (self.review_version.api_version(), "ConversionReview") {
            let found =
                if group_version.contains('/') { group_version.to_owned() } else { format!("/{group_version}") };
            return Err(format!(
                "expected webhook response of apiextensions.k8s.io/v1, Kind=ConversionReview, got {found}, Kind={kind}"
            ));
        }
        let Some(response) = review.get("response").and_then(Value::as_object) else {
            return Err("no response provided".to_owned());
        };
        let uid = text(response, &["uid"]);
        if is_v1 && uid != self.uid {
            return Err(format!("expected response.uid={:?}, got {uid:?}", self.uid));
        }
        match (text(response, &["result", "status"]), text(response, &["result", "message"])) {
            ("Success", _) => Ok(()),
            (status, "") => Err(format!("response.result.status was '{status}', not 'Success'")),
            (_, message) => Err(message.to_owned()),
        }
    }

    fn check_object(self, index: usize, original: &JsonObject, converted: Value) -> Result<JsonObject, String> {
        let Self { subject, desired, is_list, .. } = self;
        let at_index = || match is_list {
            true => format!("conversion webhook for {subject} returned invalid converted object at index {index}"),
            false => format!("conversion webhook for {subject} returned invalid object at index 0"),
        };
        let mut converted = read_object(converted).map_err(|problem| match is_list {
            true => format!("{}: {problem}", at_index()),
            false => problem,
        })?;
        let found = text(&converted, &["apiVersion"]);
        if GroupVersion::parse(found).ok() != Some(desired) {
            return Err(format!("{}: invalid groupVersion (expected {desired}, received {found})", at_index()));
        }
        let (expected, found) = (text(original, &["kind"]), text(&converted, &["kind"]));
        if !is_list && subject.kind != found || is_list && expected != found {
            return Err(format!("{}: invalid kind (expected {expected}, received {found})", at_index()));
        }
        check_identity(original, &converted).map_err(|problem| match is_list {
            true => format!("{}: {problem}", at_index()),
            false => format!("conversion webhook for {subject} returned invalid object: {problem}"),
        })?;
        restore_metadata(original, &mut converted).map_err(|problem| match is_list {
            true => format!(
                "conversion webhook for {subject} returned invalid metadata in object at index {index}: {problem}"
            ),
            false => format!("conversion webhook for {subject} returned invalid metadata: {problem}"),
        })?;
        Ok(converted)
    }
}

fn read_object(value: Value) -> Result<JsonObject, String> {
    let json = String::from_utf8_lossy(&api::json::to_go_json(&value)).into_owned();
    match value {
        Value::Object(object) if text(&object, &["kind"]).is_empty() => {
            Err(format!("Object 'Kind' is missing in '{json}'"))
        }
        Value::Object(object) => Ok(object),
        other @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_)) => {
            let found = go_type(&other);
            Err(format!("json: cannot unmarshal {found} into Go value of type map[string]interface {{}}"))
        }
    }
}

fn check_identity(original: &JsonObject, converted: &JsonObject) -> Result<(), String> {
    for (label, field) in [("name", "name"), ("namespace", "namespace"), ("UID", "uid")] {
        let [before, after] = [original, converted].map(|object| metadata_string(object, field));
        if before != after {
            return Err(format!("must have the same {label}: {before} != {after}"));
        }
    }
    Ok(())
}

/// Gives the converted object the metadata of the original, with its own labels and annotations.
fn restore_metadata(original: &JsonObject, converted: &mut JsonObject) -> Result<(), String> {
    let response = match converted.get_mut("metadata").map(Value::take) {
        None => return Err("missing metadata in converted object".to_owned()),
        Some(Value::Object(metadata)) => metadata,
        Some(other) => return Err(format!("invalid metadata of type {} in converted object", go_type(&other))),
    };
    let mut metadata = match original.get("metadata") {
        None => JsonObject::new(),
        Some(Value::Object(metadata)) => metadata.clone(),
        Some(other) => return Err(format!("invalid metadata of type {} in input object", go_type(other))),
    };
    let mut response = response;
    for field in ["labels", "annotations"] {
        let map = match response.remove(field) {
            None | Some(Value::Null) => {
                metadata.remove(field);
                continue;
            }
            Some(Value::Object(map)) => map,
            Some(other) => {
                return Err(format!("invalid metadata.{field} of type {} in converted object", go_type(&other)));
            }
        };
        let before = match metadata.get(field) {
            None | Some(Value::Null) => None,
            Some(Value::Object(map)) => Some(map),
            Some(other) => {
                return Err(format!("invalid metadata.{field} of type {} in original object", go_type(other)));
            }
        };
        if let Some((key, value)) = map.iter().find(|(_, value)| !value.is_string()) {
            let found = go_type(value);
            return Err(format!("metadata.{field}[{key}] must be a string, but is {found} in converted object"));
        }
        if before != Some(&map)
            && let Some(problem) = FieldError::aggregate(&map_errors(field, &map))
        {
            return Err(problem);
        }
        metadata.insert(field.to_owned(), Value::Object(map));
    }
    converted.insert("metadata".to_owned(), Value::Object(metadata));
    Ok(())
}

fn map_errors(field: &str, map: &JsonObject) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut push = |path: &str, value: &str, problems: api::validation::ValidationErrors| {
        errors.extend(problems.into_iter().map(|problem| FieldError::invalid(path, value, problem)));
    };
    let mut length = 0;
    for (key, value) in map {
        let value = value.as_str().unwrap_or_default();
        if field == "labels" {
            push("metadata.labels", key, validate_label_key(key));
            push("metadata.labels", value, validate_label_value(value));
        } else {
            // Kubernetes' own path here, without the last letter.
            push("metadata.annotation", key, validate_label_key(&key.to_lowercase()));
            length += key.len() + value.len();
        }
    }
    if length > ANNOTATIONS_LENGTH_MAX {
        errors.push(FieldError::too_long("metadata.annotation", ANNOTATIONS_LENGTH_MAX));
    }
    errors
}
