//! The `scale` subresource: converts an object to a `Scale`, and applies a `Scale` to an object.

use api::FieldError;
use serde_json::{Map, Value, json};

use crate::label_selector;
use crate::rejection::{Rejection, RejectionSubject};
use crate::rules::KindRules;
use crate::unstructured::{self, get, metadata_mut, metadata_string, nested_object_mut};
use crate::validate;

/// Field paths of the values that a `Scale` exposes.
#[derive(Clone, Copy, Debug)]
pub struct ScalePaths<'a> {
    /// Path of the desired number of replicas, such as `["spec", "replicas"]`; never empty.
    pub spec_replicas: &'a [&'a str],
    /// Path of the current number of replicas.
    pub status_replicas: &'a [&'a str],
    /// Path and form of the pod selector.
    pub selector: ScaleSelector<'a>,
}

/// Path and form of the pod selector in an object.
#[derive(Clone, Copy, Debug)]
pub enum ScaleSelector<'a> {
    /// A `LabelSelector`.
    LabelSelector(&'a [&'a str]),
    /// A map of labels: replication controllers.
    Labels(&'a [&'a str]),
    /// A selector string: custom resources.
    Serialized(&'a [&'a str]),
    /// The object has no selector.
    None,
}

impl ScalePaths<'static> {
    /// Paths of the built-in workloads: `spec.replicas`, `status.replicas` and a label selector in `spec.selector`.
    pub const WORKLOAD: Self = Self {
        spec_replicas: &["spec", "replicas"],
        status_replicas: &["status", "replicas"],
        selector: ScaleSelector::LabelSelector(&["spec", "selector"]),
    };
}

/// Builds the `Scale` of an object.
pub fn scale_from_object(object: &Map<String, Value>, paths: &ScalePaths<'_>) -> Map<String, Value> {
    let mut scale = Map::new();
    scale.insert("kind".to_owned(), "Scale".into());
    scale.insert("apiVersion".to_owned(), "autoscaling/v1".into());
    let metadata = metadata_mut(&mut scale);
    for name in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        unstructured::set_or_remove(metadata, name, get(object, &["metadata", name]).cloned());
    }
    let wanted = unstructured::integer(object, paths.spec_replicas).unwrap_or_default();
    let spec = nested_object_mut(&mut scale, "spec");
    unstructured::set_or_remove(spec, "replicas", (wanted != 0).then(|| wanted.into()));
    let selector = match paths.selector {
        ScaleSelector::LabelSelector(path) => {
            unstructured::nested_object(object, path).and_then(label_selector::selector_to_string)
        }
        ScaleSelector::Labels(path) => unstructured::nested_object(object, path).map(label_selector::labels_to_string),
        ScaleSelector::Serialized(path) => Some(unstructured::text(object, path).to_owned()),
        ScaleSelector::None => None,
    };
    let mut status = json!({"replicas": unstructured::integer(object, paths.status_replicas).unwrap_or_default()});
    if let Some(selector) = selector.filter(|selector| !selector.is_empty()) {
        status["selector"] = selector.into();
    }
    scale.insert("status".to_owned(), status);
    scale
}

/// Copies replicas and resourceVersion of a `Scale` into the object; [`crate::metadata::prepare_update`] then checks
/// the latter.
///
/// Absent replicas mean zero, because Go omits zero values.
pub fn apply_scale(
    object: &Map<String, Value>,
    scale: &Map<String, Value>,
    paths: &ScalePaths<'_>,
) -> Result<Map<String, Value>, Rejection> {
    let replicas = requested_replicas(scale)?;
    let mut errors = validate::validate_metadata_of_subresource(scale, &KindRules::NAMESPACED);
    errors.extend(validate::validate_finalizer_names(scale));
    if replicas < 0 {
        errors.push(FieldError::invalid("spec.replicas", replicas, "must be greater than or equal to 0"));
    }
    if !errors.is_empty() {
        return Err(Rejection::Invalid { subject: RejectionSubject::Scale, errors });
    }
    ensure_uid_matches(object, scale)?;
    let mut scaled = object.clone();
    unstructured::set_or_remove(
        metadata_mut(&mut scaled),
        "resourceVersion",
        get(scale, &["metadata", "resourceVersion"]).cloned(),
    );
    let (last, parents) = paths.spec_replicas.split_last().expect("the path is never empty");
    let parent = parents.iter().fold(&mut scaled, |object, name| nested_object_mut(object, name));
    parent.insert((*last).to_owned(), replicas.into());
    Ok(scaled)
}

/// Rejects a `Scale` with the uid of another object than this one.
pub fn ensure_uid_matches(object: &Map<String, Value>, scale: &Map<String, Value>) -> Result<(), Rejection> {
    let (uid, expected) = (metadata_string(object, "uid"), metadata_string(scale, "uid"));
    if !expected.is_empty() && expected != uid {
        return Err(Rejection::conflict(format!(
            "Precondition failed: UID in precondition: {expected}, UID in object meta: {uid}"
        )));
    }
    Ok(())
}

/// The replicas that a `Scale` asks for; 0 if absent. May be negative.
pub fn requested_replicas(scale: &Map<String, Value>) -> Result<i32, Rejection> {
    let value = match get(scale, &["spec", "replicas"]) {
        None | Some(Value::Null) => return Ok(0),
        Some(value) => value,
    };
    let Some(replicas) = value.as_i64().and_then(|replicas| i32::try_from(replicas).ok()) else {
        return Err(Rejection::BadRequest(format!(
            "Scale in version \"v1\" cannot be handled as a Scale: json: cannot unmarshal {} into Go struct field \
             ScaleSpec.spec.replicas of type int32",
            crate::decode::go_json_type_name(value)
        )));
    };
    Ok(replicas)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(value: &Value) -> Map<String, Value> {
        value.as_object().expect("test value is an object").clone()
    }

    fn deployment() -> Map<String, Value> {
        object(&json!({
            "metadata": {"name": "a", "namespace": "n", "uid": "u", "resourceVersion": "7", "labels": {"l": "v"}},
            "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "paused": true},
            "status": {"replicas": 1},
        }))
    }

    #[test]
    fn scale_from_object_reads_replicas_and_selector() {
        assert_eq!(
            Value::Object(scale_from_object(&deployment(), &ScalePaths::WORKLOAD)),
            json!({
                "kind": "Scale",
                "apiVersion": "autoscaling/v1",
                "metadata": {"name": "a", "namespace": "n", "uid": "u", "resourceVersion": "7"},
                "spec": {"replicas": 2},
                "status": {"replicas": 1, "selector": "app=web"},
            })
        );
        let paths = ScalePaths {
            spec_replicas: &["spec", "size", "count"],
            status_replicas: &["status", "count"],
            selector: ScaleSelector::Serialized(&["status", "labels"]),
        };
        let custom = json!({"spec": {"size": {"count": 3}}, "status": {"count": 2, "labels": "x=y"}});
        let scale = scale_from_object(&object(&custom), &paths);
        assert_eq!(
            (&scale["spec"], &scale["status"]),
            (&json!({"replicas": 3}), &json!({"replicas": 2, "selector": "x=y"}))
        );
        let scale = scale_from_object(&Map::new(), &ScalePaths { selector: ScaleSelector::None, ..paths });
        assert_eq!((&scale["spec"], &scale["status"]), (&json!({}), &json!({"replicas": 0})));
        let controller = object(&json!({"spec": {"selector": {"a": "b", "c": "d"}}}));
        assert_eq!(
            scale_from_object(
                &controller,
                &ScalePaths { selector: ScaleSelector::Labels(&["spec", "selector"]), ..ScalePaths::WORKLOAD }
            )["status"]["selector"],
            "a=b,c=d"
        );
    }

    #[test]
    fn apply_scale_sets_replicas() {
        let scale = object(
            &json!({"metadata": {"name": "a", "namespace": "n", "resourceVersion": "6"}, "spec": {"replicas": 5}}),
        );
        let scaled = apply_scale(&deployment(), &scale, &ScalePaths::WORKLOAD).unwrap();
        let mut expected = deployment();
        expected["spec"]["replicas"] = 5.into();
        expected["metadata"]["resourceVersion"] = "6".into();
        assert_eq!(scaled, expected);

        let paths = ScalePaths { spec_replicas: &["spec", "size", "count"], ..ScalePaths::WORKLOAD };
        let scaled = apply_scale(&Map::new(), &scale, &paths).unwrap();
        assert_eq!(scaled["spec"], json!({"size": {"count": 5}}));
        let scale = object(&json!({"metadata": {"name": "a", "namespace": "n"}, "spec": {}}));
        let scaled = apply_scale(&deployment(), &scale, &ScalePaths::WORKLOAD).unwrap();
        assert_eq!(scaled["spec"]["replicas"], 0);
        assert_eq!(get(&scaled, &["metadata", "resourceVersion"]), None);
    }

    #[test]
    fn apply_scale_rejects_invalid_replicas_and_uid() {
        let refused = |scale: Value| apply_scale(&deployment(), &object(&scale), &ScalePaths::WORKLOAD).unwrap_err();
        assert_eq!(
            refused(
                json!({"metadata": {"name": "A", "namespace": "n", "finalizers": ["x"]}, "spec": {"replicas": -1}})
            )
            .to_string(),
            "[metadata.name: Invalid value: \"A\": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric \
             characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for \
             validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*'), metadata.finalizers[0]: \
             Invalid value: \"x\": name is neither a standard finalizer name nor is it fully qualified, spec.replicas: Invalid \
             value: -1: must be greater than or equal to 0]"
        );
        for replicas in [json!("3"), json!(1.5), json!(3_000_000_000_i64)] {
            assert!(matches!(refused(json!({"spec": {"replicas": replicas}})), Rejection::BadRequest(_)));
        }
        assert_eq!(
            refused(json!({"metadata": {"name": "a", "namespace": "n", "uid": "v"}})).to_string(),
            "Precondition failed: UID in precondition: v, UID in object meta: u"
        );
    }
}
