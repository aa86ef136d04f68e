//! Migration from client-side apply, which keeps its configuration in an annotation.
//!
//! Only the manager `kubectl` takes part: it may take over fields that client-side apply set, and the annotation follows
//! what it applies.

use api::json::{JsonObject, to_go_json};
use serde_json::Value;

use crate::ownership::typed_object;
use crate::typed::{Form, compare, has_duplicates, to_set, validate};
use crate::{FieldManager, FieldSet, ObjectType};

/// The manager of `kubectl apply --server-side`.
pub(crate) const MANAGER: &str = "kubectl";

const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Limit of the total size of an object's annotations.
const ANNOTATIONS_SIZE_MAX: usize = 256 << 10;

fn annotation(object: &JsonObject) -> Option<&str> {
    let text = object.get("metadata")?.get("annotations")?.get(ANNOTATION)?.as_str()?;
    (!text.is_empty()).then_some(text)
}

/// The fields whose live value is that of the annotation: conflicts at them are allowed.
pub(crate) fn allowed_conflicts(
    live: Option<&JsonObject>,
    writer: &FieldManager<'_>,
    object_type: ObjectType<'_>,
) -> Option<FieldSet> {
    let live = live?;
    let text = annotation(live)?;
    let last: JsonObject = serde_json::from_str(text).ok()?;
    if last.get("apiVersion")?.as_str()? != writer.api_version || !last.get("kind")?.is_string() {
        return None;
    }
    let live = typed_object(live, object_type);
    validate(&last, object_type.into()).ok()?;
    let live = Value::Object(live);
    if has_duplicates(&live, object_type.into()) {
        return None;
    }
    let comparison = compare(&last, live.as_object()?, object_type.into(), Form::Exact);
    let set = to_set(&last, object_type.into());
    Some(set.difference(&comparison.modified).difference(&comparison.added).difference(&comparison.removed))
}

/// Writes the applied configuration into the annotation if the object has it; drops the annotation if annotations
/// become too large.
pub(crate) fn refresh_annotation(object: &mut JsonObject, config: &JsonObject) {
    if annotation(object).is_none() {
        return;
    }
    let mut config = config.clone();
    if let Some(annotations) = annotations_mut(&mut config) {
        annotations.remove(ANNOTATION);
    }
    let mut text = String::from_utf8_lossy(&to_go_json(&config)).into_owned();
    text.push('\n');
    let Some(annotations) = annotations_mut(object) else { return };
    annotations.insert(ANNOTATION.to_owned(), text.into());
    let size = annotations.iter().map(|(name, value)| name.len() + value.as_str().map_or(0, str::len)).sum::<usize>();
    if size > ANNOTATIONS_SIZE_MAX {
        annotations.remove(ANNOTATION);
    }
}

fn annotations_mut(object: &mut JsonObject) -> Option<&mut JsonObject> {
    object.get_mut("metadata")?.get_mut("annotations")?.as_object_mut()
}
