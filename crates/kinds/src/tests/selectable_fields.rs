//! Field selectors of each kind.

use api::selector::FieldSelector;
use object::Rejection;
use serde_json::json;

use crate::groups::strategy_of;

fn selector(text: &str) -> FieldSelector {
    FieldSelector::parse(text).expect("a test writes selectors")
}

#[track_caller]
fn check_rejected(group: &str, kind: &str, text: &str, expected: &str) {
    let rejection = strategy_of(group, kind).unwrap().selectable_fields.check_selector(&selector(text)).unwrap_err();
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
        assert_eq!(
            strategy_of(group, kind).unwrap().selectable_fields.check_selector(&selector(text)),
            Ok(()),
            "{kind}"
        );
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
    let event = json!({"involvedObject": {"name": "p"}, "reportingComponent": "c", "source": {"component": "kubelet"}});
    let new_event = json!({"regarding": {"name": "p"}, "reportingController": "c"});
    for (group, kind, object, text, expected) in [
        ("", "Pod", &pod, "metadata.name=a", true),
        ("", "Pod", &pod, "metadata.name!=a", false),
        ("", "Pod", &pod, "metadata.name=a,spec.nodeName=m", false),
        ("", "Pod", &pod, "spec.host=n", true),
        ("", "Pod", &pod, "spec.hostNetwork=false", true),
        ("", "Pod", &pod, "status.podIP=10.0.0.1", true),
        ("", "Pod", &pod, "status.nominatedNodeName=", true),
        ("", "Pod", &pod, "spec.color.deep=7", true),
        ("", "Pod", &json!({"status": {"podIP": "10.0.0.9"}}), "status.podIP=10.0.0.9", true),
        ("batch", "Job", &json!({"status": {"succeeded": 3}}), "status.successful=3", true),
        ("batch", "Job", &json!({}), "status.successful=0", true),
        ("", "ReplicationController", &json!({}), "status.replicas=0", true),
        ("", "Node", &json!({}), "spec.unschedulable!=true", true),
        ("", "Secret", &json!({"type": "Opaque"}), "type=Opaque", true),
        ("", "Event", &event, "involvedObject.name=p,source=kubelet,reportingComponent=c", true),
        ("", "Event", &new_event, "involvedObject.name=p,source=c,reportingComponent=c", true),
        ("events.k8s.io", "Event", &new_event, "regarding.name=p,reportingController=c", true),
        ("events.k8s.io", "Event", &event, "regarding.name=q", false),
    ] {
        let fields = strategy_of(group, kind).unwrap().selectable_fields;
        assert_eq!(fields.matches(&selector(text), object.as_object().unwrap()), expected, "{text}");
    }
}
