//! The `scale` subresource of custom resources: the version's paths say where an object has the values.

use api::FieldError;
use api::json::JsonObject;
use object::Rejection;
use object::scale::{ScalePaths, ScaleSelector, ensure_uid_matches, requested_replicas, scale_from_object};
use object::unstructured::{metadata_mut, metadata_string, nested_object_mut};
use serde_json::Value;

use crate::definition::ScaleSubresource;
use crate::json_path::go_value;

/// Stands for absent replicas in the `Scale` that a patch is applied to.
const ABSENT_REPLICAS: i32 = i32::MIN;

/// Where the objects of a version have the values of a `Scale`.
#[derive(Clone, Debug)]
pub struct CustomScale {
    spec_replicas_path: String,
    spec_replicas: Vec<String>,
    status_replicas_path: String,
    status_replicas: Vec<String>,
    selector_path: String,
    selector: Option<Vec<String>>,
}

/// Why an object has no `Scale`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScaleError {
    /// The object has no desired replicas: 500 with the reason `InternalError`.
    #[error("the spec replicas field {0:?} does not exist")]
    NoReplicas(String),
    /// A value has the wrong type: 500 without a reason.
    #[error("{0}")]
    WrongType(String),
}

impl CustomScale {
    /// Splits the dotted paths of a version.
    pub fn new(scale: &ScaleSubresource) -> Self {
        let split = |path: &str| -> Vec<String> {
            path.strip_prefix('.').unwrap_or(path).split('.').map(str::to_owned).collect()
        };
        Self {
            spec_replicas_path: scale.spec_replicas_path.clone(),
            spec_replicas: split(&scale.spec_replicas_path),
            status_replicas_path: scale.status_replicas_path.clone(),
            status_replicas: split(&scale.status_replicas_path),
            selector_path: scale.label_selector_path.clone().unwrap_or_default(),
            selector: scale.label_selector_path.as_deref().filter(|path| !path.is_empty()).map(split),
        }
    }

    /// The path of the desired replicas as field names, for managed fields.
    pub fn spec_replicas(&self) -> &[String] {
        &self.spec_replicas
    }

    /// Validates the desired replicas of an object.
    pub fn validate_spec(&self, object: &JsonObject) -> Option<FieldError> {
        replicas_error(object, &self.spec_replicas_path, &self.spec_replicas)
    }

    /// Validates the actual replicas and the selector of an object.
    pub fn validate_status(&self, object: &JsonObject) -> Vec<FieldError> {
        let selector = self.selector.as_ref().and_then(|path| {
            let found = nested(object, path, "string", |value| value.as_str().map(str::to_owned));
            found.err().map(|error| FieldError::invalid(&self.selector_path, "", error.to_string()))
        });
        let replicas = replicas_error(object, &self.status_replicas_path, &self.status_replicas);
        replicas.into_iter().chain(selector).collect()
    }

    /// The `Scale` of an object, as a GET returns it.
    pub fn get(&self, object: &JsonObject) -> Result<JsonObject, ScaleError> {
        match self.scale(object)? {
            (scale, Some(_)) => Ok(scale),
            (_, None) => Err(ScaleError::NoReplicas(self.spec_replicas_path.clone())),
        }
    }

    /// The `Scale` of an object after a write, where absent replicas are zero.
    pub fn after_write(&self, object: &JsonObject) -> Result<JsonObject, ScaleError> {
        self.scale(object).map(|(scale, _)| scale)
    }

    /// The `Scale` that a patch is applied to; [`Self::apply`] refuses it if the patch sets no replicas and the object
    /// has none.
    pub fn before_patch(&self, object: &JsonObject) -> Result<JsonObject, ScaleError> {
        let (mut scale, replicas) = self.scale(object)?;
        if replicas.is_none() {
            nested_object_mut(&mut scale, "spec").insert("replicas".to_owned(), ABSENT_REPLICAS.into());
        }
        Ok(scale)
    }

    /// Copies the replicas of a `Scale` into the object, and the resourceVersion if it has one.
    pub fn apply(&self, object: &JsonObject, scale: &JsonObject) -> Result<JsonObject, Rejection> {
        let replicas = requested_replicas(scale)?;
        ensure_uid_matches(object, scale)?;
        if replicas == ABSENT_REPLICAS {
            let path = &self.spec_replicas_path;
            return Err(Rejection::BadRequest(format!("the spec replicas field {path:?} cannot be empty")));
        }
        let mut scaled = object.clone();
        let Some((last, parents)) = self.spec_replicas.split_last() else { return Ok(scaled) };
        let mut parent = &mut scaled;
        for (depth, name) in parents.iter().enumerate() {
            let value = parent.entry(name).or_insert_with(|| Value::Object(JsonObject::new()));
            parent = value.as_object_mut().ok_or_else(|| {
                let path = self.spec_replicas[..=depth].join(".");
                Rejection::Unclassified(format!(
                    "value cannot be set because .{path} is not a map[string]interface{{}}"
                ))
            })?;
        }
        parent.insert(last.clone(), replicas.into());
        let resource_version = metadata_string(scale, "resourceVersion");
        if !resource_version.is_empty() {
            metadata_mut(&mut scaled).insert("resourceVersion".to_owned(), resource_version.into());
        }
        Ok(scaled)
    }

    /// The `Scale`, and the desired replicas if the object has them.
    fn scale(&self, object: &JsonObject) -> Result<(JsonObject, Option<i64>), ScaleError> {
        let spec_replicas = nested(object, &self.spec_replicas, "int64", Value::as_i64)?;
        nested(object, &self.status_replicas, "int64", Value::as_i64)?;
        if let Some(selector) = &self.selector {
            nested(object, selector, "string", |value| value.as_str().map(str::to_owned))?;
        }
        let [spec, status] = [&self.spec_replicas, &self.status_replicas].map(|path| borrowed(path));
        let selector = self.selector.as_deref().map(borrowed);
        let paths = ScalePaths {
            spec_replicas: &spec,
            status_replicas: &status,
            selector: selector.as_deref().map_or(ScaleSelector::None, ScaleSelector::Serialized),
        };
        Ok((scale_from_object(object, &paths), spec_replicas))
    }
}

fn replicas_error(object: &JsonObject, field: &str, path: &[String]) -> Option<FieldError> {
    match nested(object, path, "int64", Value::as_i64) {
        Err(error) => Some(FieldError::invalid(field, 0, error.to_string())),
        Ok(Some(replicas)) if replicas < 0 => {
            Some(FieldError::invalid(field, replicas, "should be a non-negative integer"))
        }
        Ok(Some(replicas)) if replicas > i32::MAX.into() => {
            Some(FieldError::invalid(field, replicas, format!("should be less than or equal to {}", i32::MAX)))
        }
        Ok(_) => None,
    }
}

fn borrowed(path: &[String]) -> Vec<&str> {
    path.iter().map(String::as_str).collect()
}

/// The value at a path; `None` if a field of the path is missing. Null and other types are errors.
fn nested<T>(
    object: &JsonObject,
    path: &[String],
    go_type: &str,
    read: impl Fn(&Value) -> Option<T>,
) -> Result<Option<T>, ScaleError> {
    let wrong_type = |depth: usize, value: &Value, expected: &str| {
        let (path, found) = (path[..depth].join("."), crate::json_path::go_type(value));
        ScaleError::WrongType(format!(
            ".{path} accessor error: {} is of the type {found}, expected {expected}",
            go_value(value)
        ))
    };
    let Some((first, rest)) = path.split_first() else { return Ok(None) };
    let Some(mut value) = object.get(first) else { return Ok(None) };
    for (at, name) in rest.iter().enumerate() {
        value = match value {
            Value::Null => return Ok(None),
            Value::Object(fields) => match fields.get(name) {
                Some(value) => value,
                None => return Ok(None),
            },
            other @ (Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_)) => {
                return Err(wrong_type(at + 2, other, "map[string]interface{}"));
            }
        };
    }
    read(value).map(Some).ok_or_else(|| wrong_type(path.len(), value, go_type))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn scale() -> CustomScale {
        CustomScale::new(
            &serde_json::from_value(json!({
                "specReplicasPath": ".spec.size.count",
                "statusReplicasPath": ".status.count",
                "labelSelectorPath": ".status.selector",
            }))
            .unwrap(),
        )
    }

    fn object(value: &Value) -> JsonObject {
        value.as_object().expect("test value is an object").clone()
    }

    #[test]
    fn scale_has_the_values_at_the_paths() {
        let custom = json!({"metadata": {"name": "a", "uid": "u", "resourceVersion": "3", "labels": {"a": "b"}},
            "spec": {"size": {"count": 3}}, "status": {"count": 2, "selector": "a in (b)"}});
        assert_eq!(
            Value::Object(scale().get(&object(&custom)).unwrap()),
            json!({"kind": "Scale", "apiVersion": "autoscaling/v1",
                "metadata": {"name": "a", "uid": "u", "resourceVersion": "3"},
                "spec": {"replicas": 3}, "status": {"replicas": 2, "selector": "a in (b)"}})
        );
    }

    #[test]
    fn absent_and_wrong_values_are_errors() {
        for (custom, expected) in [
            (json!({}), "the spec replicas field \".spec.size.count\" does not exist"),
            (json!({"spec": {"size": null}}), "the spec replicas field \".spec.size.count\" does not exist"),
            (
                json!({"spec": {"size": 7}}),
                ".spec.size.count accessor error: 7 is of the type int64, expected map[string]interface{}",
            ),
            (
                json!({"spec": {"size": {"count": "x"}}}),
                ".spec.size.count accessor error: x is of the type string, expected int64",
            ),
            (
                json!({"spec": {"size": {"count": null}}}),
                ".spec.size.count accessor error: <nil> is of the type <nil>, expected int64",
            ),
            (
                json!({"spec": {"size": {"count": 1}}, "status": {"selector": [1]}}),
                ".status.selector accessor error: [1] is of the type []interface {}, expected string",
            ),
        ] {
            assert_eq!(scale().get(&object(&custom)).unwrap_err().to_string(), expected);
        }
        assert_eq!(scale().after_write(&JsonObject::new()).unwrap()["status"], json!({"replicas": 0}));
    }

    #[test]
    fn values_of_a_scale_are_validated() {
        let errors = |value: Value| {
            let object = object(&value);
            let all = scale().validate_spec(&object).into_iter().chain(scale().validate_status(&object));
            all.map(|error| error.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(errors(json!({})), Vec::<String>::new());
        assert_eq!(
            errors(json!({"spec": {"size": {"count": -1}}, "status": {"count": 3_000_000_000_u32, "selector": 7}})),
            [
                ".spec.size.count: Invalid value: -1: should be a non-negative integer",
                ".status.count: Invalid value: 3000000000: should be less than or equal to 2147483647",
                ".status.selector: Invalid value: \"\": .status.selector accessor error: 7 is of the type int64, expected \
                 string",
            ]
        );
        assert_eq!(
            errors(json!({"spec": {"size": {"count": "two"}}})),
            [
                ".spec.size.count: Invalid value: 0: .spec.size.count accessor error: two is of the type string, expected int64"
            ]
        );
    }

    #[test]
    fn apply_sets_replicas_and_a_given_resource_version() {
        let current = object(&json!({"metadata": {"resourceVersion": "3", "uid": "u"}, "spec": {}}));
        let apply = |body: Value| scale().apply(&current, &object(&body));
        assert_eq!(
            Value::Object(apply(json!({"spec": {"replicas": 4}})).unwrap()),
            json!({"metadata": {"resourceVersion": "3", "uid": "u"}, "spec": {"size": {"count": 4}}})
        );
        let given = apply(json!({"metadata": {"resourceVersion": "2"}})).unwrap();
        assert_eq!(
            (&given["metadata"]["resourceVersion"], &given["spec"]),
            (&json!("2"), &json!({"size": {"count": 0}}))
        );
        assert_eq!(
            scale().apply(&current, &scale().before_patch(&current).unwrap()).unwrap_err(),
            Rejection::BadRequest("the spec replicas field \".spec.size.count\" cannot be empty".to_owned())
        );
        assert_eq!(
            apply(json!({"metadata": {"uid": "other"}})).unwrap_err().to_string(),
            "Precondition failed: UID in precondition: other, UID in object meta: u"
        );
        assert_eq!(
            scale().apply(&object(&json!({"spec": 7})), &JsonObject::new()).unwrap_err().to_string(),
            "value cannot be set because .spec is not a map[string]interface{}"
        );
    }
}
