//! The three patches: JSON patch (RFC 6902), merge patch (RFC 7396) and Kubernetes' strategic merge patch.
//!
//! A patch is read once and may then be applied to one state after another, until a write succeeds. Whatever a client sends,
//! the result nests no deeper than [`crate::decode::DEPTH_MAX`] and costs bounded work.

mod json;
mod merge;
mod strategic;

use api::{FieldError, GroupVersionKind};
use serde_json::{Map, Value};

use crate::decode::{self, Decoded, Encoding};
use crate::refusal::{Refusal, Subject};

pub use json::JsonPatch;
pub use merge::MergePatch;
pub use strategic::StrategicPatch;

/// Accepts what a patch has made of an object: it must still be one of its kind, with metadata of the right types.
pub fn accept(patched: Value, expected: GroupVersionKind<&str>) -> Result<Map<String, Value>, Refusal> {
    let Value::Object(mut object) = patched else {
        return Err(refused(&patched, "the result is not an object".to_owned()));
    };
    let matched = decode::match_kind(&mut object, expected).map_err(|mismatch| mismatch.to_string());
    let checked =
        matched.and_then(|()| decode::check_types(&mut object, expected).map_err(|refusal| refusal.to_string()));
    match checked {
        Ok(()) => Ok(object),
        Err(reason) => Err(refused(&Value::Object(object), reason)),
    }
}

/// Why what a patch has made of an object cannot be stored.
pub fn refused(patched: &Value, reason: String) -> Refusal {
    let shown: String = patched.to_string().chars().take(SHOWN_LENGTH_MAX).collect();
    Refusal::Invalid { subject: Subject::Patch, errors: vec![FieldError::invalid("patch", shown, reason)] }
}

/// How much of a refused result is repeated to the client, in characters.
const SHOWN_LENGTH_MAX: usize = 1024;

/// Reads a patch that must be a JSON object.
fn read_object(body: &[u8]) -> Result<Decoded<Map<String, Value>>, Refusal> {
    let refuse = |reason: String| Refusal::BadRequest(format!("error decoding patch: {reason}"));
    let Decoded { value, duplicates } = decode::value(body, Encoding::Json).map_err(refuse)?;
    match value {
        Value::Object(value) => Ok(Decoded { value, duplicates }),
        Value::Null => Err(Refusal::BadRequest("Invalid JSON Patch".to_owned())),
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => Err(refuse(format!(
            "json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
            decode::go_name(&value)
        ))),
    }
}

#[cfg(test)]
mod tests;
