//! Merge of a configuration without owners, as admission policies do.

use api::json::JsonObject;
use serde_json::Value;

use crate::ObjectType;
use crate::ownership::typed_object;
use crate::typed::{Type, atomic_paths, drop_supplied, merge, validate};

/// The object with the fields of a configuration. A configuration that does not fit the type, or that has an atomic list
/// or map, is refused with Kubernetes' text.
pub fn merge_unowned(
    object: &JsonObject,
    configuration: &JsonObject,
    object_type: ObjectType<'_>,
) -> Result<JsonObject, String> {
    let value_type = Type::from(object_type);
    validate(configuration, value_type)
        .map_err(|errors| format!("failed to convert patch object to typed object: {errors}"))?;
    let atomics = atomic_paths(&Value::Object(configuration.clone()), value_type);
    if !atomics.is_empty() {
        let paths = atomics.join(", ");
        return Err(format!("invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: {paths}"));
    }
    let live = typed_object(object, object_type);
    let mut merged = merge(&live, configuration, value_type);
    if matches!(object_type, ObjectType::BuiltIn(_)) {
        drop_supplied(&mut merged, value_type, [Some(object), Some(configuration)]);
    }
    Ok(merged)
}
