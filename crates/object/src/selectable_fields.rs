//! The fields of an object that field selectors may name.
//!
//! Every kind can be selected by name and namespace; a few have fields of their own. Objects are read in whatever served
//! version they come.

use std::borrow::Cow;

use api::GroupKind;
use api::selector::{FieldOperator, FieldSelector};
use serde_json::{Map, Value};

use crate::rejection::Rejection;
use crate::unstructured::{self, objects, text};

/// Refuses a selector that names a field by which objects of a built-in kind cannot be selected.
pub fn check_selector(selector: &FieldSelector, kind: GroupKind<&str>) -> Result<(), Rejection> {
    let fields = selectable_fields_of(kind);
    let known = fields.unwrap_or(&["metadata.name", "metadata.namespace"]);
    let Some(unknown) = selector.terms().iter().find(|term| !known.contains(&term.field.as_str())) else {
        return Ok(());
    };
    let field = &unknown.field;
    Err(Rejection::BadRequest(match (fields, kind.kind) {
        (None, _) => {
            format!("{field:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
        }
        (Some(_), "Job" | "CronJob") => format!("field label {field:?} not supported for {}", kind.kind),
        (Some(_), "ResourceSlice") => format!("field label not supported for ResourceSlice: {field}"),
        (Some(_), _) => format!("field label not supported: {field}"),
    }))
}

/// Whether an object is selected. The selector has been checked.
pub fn matches(selector: &FieldSelector, object: &Map<String, Value>) -> bool {
    selector.terms().iter().all(|term| {
        let is_equal = value(object, &term.field) == term.value;
        match term.operator {
            FieldOperator::Equals => is_equal,
            FieldOperator::NotEquals => !is_equal,
        }
    })
}

/// The value of a selectable field; empty when absent.
pub fn value<'o>(object: &'o Map<String, Value>, field: &str) -> Cow<'o, str> {
    let number = |path: &[&str]| unstructured::integer(object, path).unwrap_or_default().to_string().into();
    match field {
        "spec.host" => text(object, &["spec", "nodeName"]).into(),
        "spec.hostNetwork" => unstructured::flag(object, &["spec", "hostNetwork"]).to_string().into(),
        "spec.unschedulable" => unstructured::flag(object, &["spec", "unschedulable"]).to_string().into(),
        "status.successful" => number(&["status", "succeeded"]),
        "status.replicas" => number(&["status", "replicas"]),
        "status.podIP" => match objects(object, &["status", "podIPs"]).next() {
            Some(first) => text(first, &["ip"]).into(),
            None => text(object, &["status", "podIP"]).into(),
        },
        "reportingComponent" | "reportingController" => reporter(object).into(),
        "source" => match first_non_empty(object, &["source", "component"], &["deprecatedSource", "component"]) {
            "" => reporter(object).into(),
            component => component.into(),
        },
        _ => match field.strip_prefix("involvedObject.").or_else(|| field.strip_prefix("regarding.")) {
            Some(part) => first_non_empty(object, &["involvedObject", part], &["regarding", part]).into(),
            None => scalar_at(object, field),
        },
    }
}

/// A string, number or bool at a dotted path, as text.
fn scalar_at<'o>(object: &'o Map<String, Value>, path: &str) -> Cow<'o, str> {
    let path: Vec<&str> = path.split('.').collect();
    match unstructured::get(object, &path) {
        Some(Value::String(text)) => text.into(),
        Some(scalar @ (Value::Bool(_) | Value::Number(_))) => scalar.to_string().into(),
        Some(Value::Null | Value::Array(_) | Value::Object(_)) | None => "".into(),
    }
}

/// Who reports an event.
fn reporter(event: &Map<String, Value>) -> &str {
    first_non_empty(event, &["reportingComponent"], &["reportingController"])
}

/// A field under its name in the core group or, if that is absent, in `events.k8s.io`.
fn first_non_empty<'o>(event: &'o Map<String, Value>, core: &[&str], events: &[&str]) -> &'o str {
    match text(event, core) {
        "" => text(event, events),
        text => text,
    }
}

/// The fields of the kinds that list theirs, name and namespace included where they count.
fn selectable_fields_of(kind: GroupKind<&str>) -> Option<&'static [&'static str]> {
    Some(match (kind.group, kind.kind) {
        ("", "Pod") => &[
            "metadata.name",
            "metadata.namespace",
            "spec.nodeName",
            "spec.host",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.podIPs",
            "status.nominatedNodeName",
        ],
        ("", "Node") => &["metadata.name", "spec.unschedulable"],
        ("", "Namespace") => &["metadata.name", "status.phase"],
        ("", "Secret") => &["metadata.name", "metadata.namespace", "type"],
        ("", "Service") => &["metadata.name", "metadata.namespace", "spec.clusterIP", "spec.type"],
        ("", "ReplicationController") => &["metadata.name", "metadata.namespace", "status.replicas"],
        ("", "Event") => &[
            "metadata.name",
            "metadata.namespace",
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ],
        ("events.k8s.io", "Event") => &[
            "metadata.name",
            "metadata.namespace",
            "regarding.kind",
            "regarding.namespace",
            "regarding.name",
            "regarding.uid",
            "regarding.apiVersion",
            "regarding.resourceVersion",
            "regarding.fieldPath",
            "reason",
            "reportingController",
            "type",
        ],
        ("batch", "Job") => &["metadata.name", "metadata.namespace", "status.successful"],
        ("certificates.k8s.io", "CertificateSigningRequest" | "ClusterTrustBundle") => {
            &["metadata.name", "spec.signerName"]
        }
        ("certificates.k8s.io", "PodCertificateRequest") => {
            &["metadata.name", "spec.signerName", "spec.podName", "spec.nodeName"]
        }
        ("resource.k8s.io", "ResourceSlice") => &["metadata.name", "spec.nodeName", "spec.driver"],
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn selector(text: &str) -> FieldSelector {
        FieldSelector::parse(text).expect("a test writes selectors")
    }

    #[track_caller]
    fn check_rejected(group: &str, kind: &str, text: &str, expected: &str) {
        let rejection = check_selector(&selector(text), GroupKind { group, kind }).unwrap_err();
        assert_eq!(rejection, Rejection::BadRequest(expected.to_owned()));
    }

    #[test]
    fn check_selector_accepts_fields_of_kind() {
        for (group, kind, text) in [
            ("", "ConfigMap", "metadata.name=a,metadata.namespace!=b"),
            ("", "Pod", "spec.nodeName=a,spec.host=a,status.phase=Running,status.podIPs=x,metadata.namespace=b"),
            ("", "Event", "involvedObject.uid=u,source=x,reportingComponent=y,type=Normal"),
            ("events.k8s.io", "Event", "regarding.uid=u,reportingController=y,type=Normal"),
            ("batch", "Job", "status.successful!=0"),
            ("certificates.k8s.io", "CertificateSigningRequest", "spec.signerName=s"),
            ("resource.k8s.io", "ResourceSlice", "spec.driver=d"),
        ] {
            assert_eq!(check_selector(&selector(text), GroupKind { group, kind }), Ok(()), "{kind}");
        }
    }

    #[test]
    fn check_selector_rejects_unknown_fields() {
        check_rejected(
            "apps",
            "ReplicaSet",
            "status.replicas=1",
            r#""status.replicas" is not a known field selector: only "metadata.name", "metadata.namespace""#,
        );
        check_rejected("", "Pod", "metadata.name=a,spec.x=1", "field label not supported: spec.x");
        check_rejected("", "Node", "metadata.namespace=a", "field label not supported: metadata.namespace");
        check_rejected("batch", "Job", "spec.x=1", r#"field label "spec.x" not supported for Job"#);
        check_rejected(
            "resource.k8s.io",
            "ResourceSlice",
            "spec.x=1",
            "field label not supported for ResourceSlice: spec.x",
        );
    }

    #[test]
    fn field_selector_matches_object_fields() {
        let pod = json!({"metadata": {"name": "a"}, "spec": {"nodeName": "n", "color": {"deep": 7}},
                         "status": {"phase": "Running", "podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}]}});
        let event =
            json!({"involvedObject": {"name": "p"}, "reportingComponent": "c", "source": {"component": "kubelet"}});
        let new_event = json!({"regarding": {"name": "p"}, "reportingController": "c"});
        for (object, text, expected) in [
            (&pod, "metadata.name=a", true),
            (&pod, "metadata.name!=a", false),
            (&pod, "metadata.name=a,spec.nodeName=m", false),
            (&pod, "spec.host=n", true),
            (&pod, "spec.hostNetwork=false,spec.unschedulable!=true", true),
            (&pod, "status.podIP=10.0.0.1", true),
            (&pod, "status.nominatedNodeName=", true),
            (&pod, "spec.color.deep=7", true),
            (&json!({"status": {"podIP": "10.0.0.9"}}), "status.podIP=10.0.0.9", true),
            (&json!({"status": {"succeeded": 3}}), "status.successful=3", true),
            (&json!({}), "status.successful=0,status.replicas=0", true),
            (&json!({"type": "Opaque"}), "type=Opaque", true),
            (&event, "involvedObject.name=p,source=kubelet,reportingComponent=c", true),
            (&new_event, "involvedObject.name=p,source=c,reportingComponent=c", true),
            (&new_event, "regarding.name=p,reportingController=c", true),
            (&event, "regarding.name=q", false),
        ] {
            assert_eq!(matches(&selector(text), object.as_object().unwrap()), expected, "{text}");
        }
    }
}
