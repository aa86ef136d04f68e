//! The three patch formats: JSON patch (RFC 6902), merge patch (RFC 7396) and Kubernetes' strategic merge patch.
//!
//! A patch is parsed once and applied again to the latest state after each write conflict. Any result nests no deeper
//! than [`crate::decode::DEPTH_MAX`], and the work is bounded.

mod json;
mod merge;
mod strategic;

use api::{FieldError, GroupVersionKind};
use serde_json::{Map, Value};

use crate::decode::{self, BodyEncoding, Decoded};
use crate::rejection::{Rejection, RejectionSubject};

pub use json::{JsonPatch, is_failed_test};
pub use merge::MergePatch;
pub use strategic::StrategicPatch;

/// Checks that the result of a patch is an object of the expected kind whose metadata has the right types.
pub fn expect_kind(patched: Value, expected: GroupVersionKind<&str>) -> Result<Map<String, Value>, Rejection> {
    let mut object = match patched {
        Value::Object(object) => object,
        Value::Array(_) => return Err(invalid_result(&patched, "the result is not an object".to_owned())),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            return Err(Rejection::Unprocessable("the result is not an object".to_owned()));
        }
    };
    let matched = decode::ensure_kind_matches(&mut object, expected).map_err(|mismatch| mismatch.to_string());
    let checked = matched
        .and_then(|()| decode::check_metadata_types(&mut object, expected).map_err(|rejection| rejection.to_string()));
    match checked {
        Ok(()) => Ok(object),
        Err(reason) => Err(invalid_result(&Value::Object(object), reason)),
    }
}

/// The rejection of a patch whose result is not a valid object.
pub fn invalid_result(patched: &Value, reason: String) -> Rejection {
    let shown: String = patched.to_string().chars().take(EXCERPT_LENGTH_MAX).collect();
    Rejection::Invalid { subject: RejectionSubject::Patch, errors: vec![FieldError::invalid("patch", shown, reason)] }
}

/// Characters of a rejected result that the error message quotes.
const EXCERPT_LENGTH_MAX: usize = 1024;

/// Decodes a patch that must be a JSON object or null; `context` begins the messages.
fn decode_patch_object(body: &[u8], context: &str) -> Result<Decoded<Option<Map<String, Value>>>, Rejection> {
    let refuse = |reason: String| Rejection::BadRequest(format!("{context}{reason}"));
    let Decoded { value, duplicate_fields } = decode::decode_value(body, BodyEncoding::Json).map_err(refuse)?;
    match value {
        Value::Object(value) => Ok(Decoded { value: Some(value), duplicate_fields }),
        Value::Null => Ok(Decoded { value: None, duplicate_fields }),
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => Err(refuse(format!(
            "json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
            decode::go_json_type_name(&value)
        ))),
    }
}

#[cfg(test)]
mod tests;
