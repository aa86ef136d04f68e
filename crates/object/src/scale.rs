//! The `scale` subresource: how many replicas, read from an object and written back to it.

use api::FieldError;
use serde_json::{Map, Value, json};

use crate::access::{self, get, metadata_mut, metadata_text, part_mut};
use crate::label_selector;
use crate::refusal::{Refusal, Subject};

/// Where an object keeps what its `Scale` says.
#[derive(Clone, Copy, Debug)]
pub struct ScalePaths<'a> {
    /// How many replicas are wanted, such as `["spec", "replicas"]`; never empty.
    pub wanted: &'a [&'a str],
    /// How many replicas there are.
    pub present: &'a [&'a str],
    /// Which pods they are.
    pub selector: ScaleSelector<'a>,
}

/// How an object says which pods are its replicas.
#[derive(Clone, Copy, Debug)]
pub enum ScaleSelector<'a> {
    /// As a label selector.
    LabelSelector(&'a [&'a str]),
    /// As a map of labels: replication controllers.
    Labels(&'a [&'a str]),
    /// As one line of text: custom resources.
    Text(&'a [&'a str]),
    /// Not at all.
    None,
}

impl ScalePaths<'static> {
    /// Deployments, replica sets and stateful sets.
    pub const WORKLOAD: Self = Self {
        wanted: &["spec", "replicas"],
        present: &["status", "replicas"],
        selector: ScaleSelector::LabelSelector(&["spec", "selector"]),
    };
    /// Replication controllers.
    pub const CONTROLLER: Self = Self { selector: ScaleSelector::Labels(&["spec", "selector"]), ..Self::WORKLOAD };
}

/// The `Scale` of an object.
pub fn read(object: &Map<String, Value>, paths: &ScalePaths<'_>) -> Map<String, Value> {
    let mut scale = Map::new();
    scale.insert("kind".to_owned(), "Scale".into());
    scale.insert("apiVersion".to_owned(), "autoscaling/v1".into());
    let metadata = metadata_mut(&mut scale);
    for name in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        access::set(metadata, name, get(object, &["metadata", name]).cloned());
    }
    let wanted = access::integer(object, paths.wanted).unwrap_or_default();
    let spec = part_mut(&mut scale, "spec");
    access::set(spec, "replicas", (wanted != 0).then(|| wanted.into()));
    let selector = match paths.selector {
        ScaleSelector::LabelSelector(path) => access::part(object, path).and_then(label_selector::to_text),
        ScaleSelector::Labels(path) => access::part(object, path).map(label_selector::labels_to_text),
        ScaleSelector::Text(path) => Some(access::text(object, path).to_owned()),
        ScaleSelector::None => None,
    };
    let mut status = json!({"replicas": access::integer(object, paths.present).unwrap_or_default()});
    if let Some(selector) = selector.filter(|selector| !selector.is_empty()) {
        status["selector"] = selector.into();
    }
    scale.insert("status".to_owned(), status);
    scale
}

/// The object with the replicas of a `Scale`, and with its resourceVersion, which [`crate::metadata::prepare_update`] checks.
///
/// Absent replicas are none, since that is how zero is written.
pub fn write(
    object: &Map<String, Value>,
    scale: &Map<String, Value>,
    paths: &ScalePaths<'_>,
) -> Result<Map<String, Value>, Refusal> {
    let replicas = wanted(scale)?;
    let (uid, expected) = (metadata_text(object, "uid"), metadata_text(scale, "uid"));
    if !expected.is_empty() && expected != uid {
        return Err(Refusal::conflict(format!(
            "Precondition failed: UID in precondition: {expected}, UID in object meta: {uid}"
        )));
    }
    let mut scaled = object.clone();
    access::set(metadata_mut(&mut scaled), "resourceVersion", get(scale, &["metadata", "resourceVersion"]).cloned());
    let (last, parents) = paths.wanted.split_last().expect("the path is never empty");
    let parent = parents.iter().fold(&mut scaled, |object, name| part_mut(object, name));
    parent.insert((*last).to_owned(), replicas.into());
    Ok(scaled)
}

fn wanted(scale: &Map<String, Value>) -> Result<i32, Refusal> {
    let value = match get(scale, &["spec", "replicas"]) {
        None | Some(Value::Null) => return Ok(0),
        Some(value) => value,
    };
    let Some(replicas) = value.as_i64().and_then(|replicas| i32::try_from(replicas).ok()) else {
        return Err(Refusal::BadRequest(format!(
            "Scale in version \"v1\" cannot be handled as a Scale: json: cannot unmarshal {} into Go struct field \
             ScaleSpec.spec.replicas of type int32",
            crate::decode::go_name(value)
        )));
    };
    if replicas < 0 {
        let error = FieldError::invalid("spec.replicas", replicas, "must be greater than or equal to 0");
        return Err(Refusal::Invalid { subject: Subject::Scale, errors: vec![error] });
    }
    Ok(replicas)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(value: &Value) -> Map<String, Value> {
        value.as_object().expect("a test writes objects").clone()
    }

    fn deployment() -> Map<String, Value> {
        object(&json!({
            "metadata": {"name": "a", "namespace": "n", "uid": "u", "resourceVersion": "7", "labels": {"l": "v"}},
            "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "paused": true},
            "status": {"replicas": 1},
        }))
    }

    #[test]
    fn a_scale_is_read_from_the_object() {
        assert_eq!(
            Value::Object(read(&deployment(), &ScalePaths::WORKLOAD)),
            json!({
                "kind": "Scale",
                "apiVersion": "autoscaling/v1",
                "metadata": {"name": "a", "namespace": "n", "uid": "u", "resourceVersion": "7"},
                "spec": {"replicas": 2},
                "status": {"replicas": 1, "selector": "app=web"},
            })
        );
        let paths = ScalePaths {
            wanted: &["spec", "size", "count"],
            present: &["status", "count"],
            selector: ScaleSelector::Text(&["status", "labels"]),
        };
        let custom = json!({"spec": {"size": {"count": 3}}, "status": {"count": 2, "labels": "x=y"}});
        let scale = read(&object(&custom), &paths);
        assert_eq!(
            (&scale["spec"], &scale["status"]),
            (&json!({"replicas": 3}), &json!({"replicas": 2, "selector": "x=y"}))
        );
        let scale = read(&Map::new(), &ScalePaths { selector: ScaleSelector::None, ..paths });
        assert_eq!((&scale["spec"], &scale["status"]), (&json!({}), &json!({"replicas": 0})));
        let controller = object(&json!({"spec": {"selector": {"a": "b", "c": "d"}}}));
        assert_eq!(read(&controller, &ScalePaths::CONTROLLER)["status"]["selector"], "a=b,c=d");
    }

    #[test]
    fn a_scale_is_written_to_the_object() {
        let scale = object(&json!({"metadata": {"name": "a", "resourceVersion": "6"}, "spec": {"replicas": 5}}));
        let scaled = write(&deployment(), &scale, &ScalePaths::WORKLOAD).unwrap();
        let mut expected = deployment();
        expected["spec"]["replicas"] = 5.into();
        expected["metadata"]["resourceVersion"] = "6".into();
        assert_eq!(scaled, expected);

        let paths = ScalePaths { wanted: &["spec", "size", "count"], ..ScalePaths::WORKLOAD };
        let scaled = write(&Map::new(), &scale, &paths).unwrap();
        assert_eq!(scaled["spec"], json!({"size": {"count": 5}}));
        let scaled = write(&deployment(), &object(&json!({"spec": {}})), &ScalePaths::WORKLOAD).unwrap();
        assert_eq!(scaled["spec"]["replicas"], 0);
        assert_eq!(get(&scaled, &["metadata", "resourceVersion"]), None);
    }

    #[test]
    fn a_wrong_scale_is_refused() {
        let refused = |scale: Value| write(&deployment(), &object(&scale), &ScalePaths::WORKLOAD).unwrap_err();
        assert_eq!(
            refused(json!({"spec": {"replicas": -1}})).to_string(),
            "spec.replicas: Invalid value: -1: must be greater than or equal to 0"
        );
        for replicas in [json!("3"), json!(1.5), json!(3_000_000_000_i64)] {
            assert!(matches!(refused(json!({"spec": {"replicas": replicas}})), Refusal::BadRequest(_)));
        }
        assert_eq!(
            refused(json!({"metadata": {"uid": "v"}})).to_string(),
            "Precondition failed: UID in precondition: v, UID in object meta: u"
        );
    }
}
