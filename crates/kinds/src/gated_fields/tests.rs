use api::GroupVersionKind;
use serde_json::json;

use super::*;
use crate::release::Release;
use crate::types::types_of;

#[track_caller]
fn check(flags: &str, old: Option<Value>, new: Value, expected: &Value) {
    check_in(Release::R36, flags, old, new, expected);
}

#[track_caller]
fn check_in(release: Release, flags: &str, old: Option<Value>, new: Value, expected: &Value) {
    let gates = FeatureGates::parse(release, flags).unwrap();
    let kind = GroupVersionKind { group: "", version: "v1", kind: "Pod" };
    let kind = types_of(release).for_kind(kind).unwrap();
    let pod = |spec: Value| JsonObject::from_iter([("spec".to_owned(), spec)]);
    let (old, mut new) = (old.map(pod), pod(new));
    drop_disabled_fields(old.as_ref(), &mut new, kind, &gates);
    assert_eq!(new["spec"], *expected);
}

#[test]
fn fields_of_disabled_gates_are_dropped_unless_in_use() {
    let claims = json!({"resourceClaims": [{"name": "a"}]});
    let group = json!({"schedulingGroup": {"podGroupName": "a"}});
    check("", None, group.clone(), &json!({}));
    check("GenericWorkload=true", None, group.clone(), &group);
    check("", Some(group.clone()), group.clone(), &group);
    check("", Some(json!({})), group, &json!({}));
    check("", None, claims.clone(), &claims);
}

#[test]
fn struct_without_other_fields_is_dropped_with_its_field() {
    let container = |lifecycle: Value| json!({"containers": [{"name": "a", "lifecycle": lifecycle}]});
    check("", None, container(json!({"stopSignal": "SIGTERM"})), &json!({"containers": [{"name": "a"}]}));
    let hook = json!({"preStop": {"sleep": {"seconds": 1}}});
    check("", None, container(hook.clone()), &container(hook));
}

#[test]
fn image_volume_is_dropped_with_its_mounts() {
    let spec = json!({
        "volumes": [{"name": "a", "image": {"reference": "x"}}, {"name": "b", "emptyDir": {}}],
        "containers": [{"name": "c", "volumeMounts": [{"name": "a", "mountPath": "/a"}, {"name": "b", "mountPath": "/b"}]}],
    });
    let kept = json!({
        "volumes": [{"name": "b", "emptyDir": {}}],
        "containers": [{"name": "c", "volumeMounts": [{"name": "b", "mountPath": "/b"}]}],
    });
    check_in(Release::R34, "", None, spec.clone(), &kept);
    check_in(Release::R34, "", Some(spec.clone()), spec.clone(), &spec);
    check("", None, spec.clone(), &spec);
}

#[test]
fn restart_policy_of_gate_is_dropped() {
    let spec =
        |policy: Value, of_init: &str| json!({"containers": [policy], "initContainers": [{"restartPolicy": of_init}]});
    check_in(Release::R34, "", None, spec(json!({"restartPolicy": "Never"}), "Always"), &spec(json!({}), "Always"));
    let before_the_gate = spec(json!({"restartPolicy": "Never"}), "Always");
    check_in(Release::R33, "", None, before_the_gate.clone(), &before_the_gate);
}

#[test]
fn rows_are_sorted_and_name_gates_and_fields_of_some_release() {
    assert!(GATED_FIELDS.is_sorted_by_key(|(name, _)| *name), "the search needs order");
    let known: BTreeSet<&str> = Release::ALL
        .into_iter()
        .flat_map(|release| FeatureGates::new(release).all().collect::<Vec<_>>())
        .map(|(name, ..)| name)
        .collect();
    for (kind, fields) in GATED_FIELDS {
        for (field, gate) in *fields {
            assert!(known.contains(gate), "{kind}.{field}: no gate {gate}");
        }
    }
}

#[test]
fn data_source_of_other_namespace_is_dropped_unless_claim_has_one() {
    let gates = FeatureGates::parse(Release::R36, "").unwrap();
    let kind = GroupVersionKind { group: "", version: "v1", kind: "PersistentVolumeClaim" };
    let kind = types_of(Release::R36).for_kind(kind).unwrap();
    let claim = |source: Value| JsonObject::from_iter([("spec".to_owned(), json!({"dataSourceRef": source}))]);
    let (near, far) = (json!({"kind": "K", "name": "n"}), json!({"kind": "K", "name": "n", "namespace": "other"}));
    for (old, new, is_kept) in [(None, &near, true), (None, &far, false), (Some(&near), &far, true)] {
        let (old, mut new) = (old.map(|source| claim(source.clone())), claim(new.clone()));
        drop_disabled_fields(old.as_ref(), &mut new, kind, &gates);
        assert_eq!(new["spec"].get("dataSourceRef").is_some(), is_kept, "{old:?} {new:?}");
    }
}
