//! Pods.

pub mod binding;
pub(crate) mod defaults;
mod qos;
mod resize;
mod resize_validation;
mod table;
mod update;
pub(crate) mod validation;

use access::User;
use api::json::JsonObject;
use api::time::Time;
use object::rules::{GenerationRule, GracePeriodRule};
use object::selectable_fields::SelectableFields;
use object::unstructured;
use object::unstructured::nested_object_mut;
use object::{KindRules, Rejection};
use serde_json::json;

use crate::fields::restore_metadata_field;
use crate::pod::qos::qos_class;
use crate::reset_fields;
use crate::strategy::{KindStrategy, RULES, SubresourceStrategy, WritableFields};

pub(crate) static STRATEGY: KindStrategy = KindStrategy {
    reset_fields: reset_fields::POD,
    rules: KindRules {
        generation: GenerationRule::Counted,
        grace_period: GracePeriodRule::Graceful(grace_seconds),
        ..RULES
    },
    returns_deleted_object: true,
    prepare_for_create,
    subresources: &[
        SubresourceStrategy::new("binding", WritableFields::HandlerDefined),
        SubresourceStrategy::new("ephemeralcontainers", WritableFields::Fields(&["spec.ephemeralContainers"])),
        SubresourceStrategy::new("eviction", WritableFields::HandlerDefined),
        SubresourceStrategy {
            complete: |old, next, gates, _| resize::apply_resize(old, next, gates),
            ..SubresourceStrategy::new(
                "resize",
                WritableFields::Fields(&["spec.containers", "spec.initContainers", "spec.resources"]),
            )
        },
        SubresourceStrategy::status(prepare_status_update),
    ],
    validate: validation::check_pod,
    validate_create: validation::check_new_pod,
    validate_status: validation::check_pod_status,
    validate_update: |update, subresource| match subresource {
        "ephemeralcontainers" => update::check_ephemeral_containers(update),
        "resize" => resize_validation::check_resize(update),
        "status" => update::check_status(update),
        _ => update::check_pod(update),
    },
    columns: table::PODS,
    row_condition: table::completed_condition,
    selectable_fields: &SELECTABLE_FIELDS,
    ..KindStrategy::DEFAULT
};

/// The grace period of a pod without one: the default of `spec.terminationGracePeriodSeconds`.
const GRACE_SECONDS_DEFAULT: i64 = 30;

/// The grace period of a deletion; none if no node runs the pod.
fn grace_seconds(pod: &JsonObject, requested: Option<i64>) -> i64 {
    let is_scheduled = !unstructured::text(pod, &["spec", "nodeName"]).is_empty();
    let is_over = matches!(unstructured::text(pod, &["status", "phase"]), "Failed" | "Succeeded");
    if !is_scheduled || is_over {
        return 0;
    }
    let own =
        || unstructured::integer(pod, &["spec", "terminationGracePeriodSeconds"]).unwrap_or(GRACE_SECONDS_DEFAULT);
    let seconds = requested.unwrap_or_else(own);
    if seconds < 0 { 1 } else { seconds }
}

/// The fields that field selectors support.
static SELECTABLE_FIELDS: SelectableFields = SelectableFields {
    names: &[
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
    value: |pod, field| match field {
        "spec.host" => Some(unstructured::text(pod, &["spec", "nodeName"]).into()),
        "spec.hostNetwork" => Some(unstructured::flag(pod, &["spec", "hostNetwork"]).to_string().into()),
        "status.podIP" => Some(match unstructured::objects(pod, &["status", "podIPs"]).next() {
            Some(first) => unstructured::text(first, &["ip"]).into(),
            None => unstructured::text(pod, &["status", "podIP"]).into(),
        }),
        _ => None,
    },
    ..SelectableFields::LISTED
};

/// A new pod is pending, with the quality-of-service class of its containers.
fn prepare_for_create(_: &User, object: &mut JsonObject) -> Result<(), Rejection> {
    let mut status = json!({"phase": "Pending", "qosClass": qos_class(object)});
    if !unstructured::list(object, &["spec", "schedulingGates"]).is_empty() {
        status["conditions"] = json!([{
            "type": "PodScheduled",
            "status": "False",
            "reason": "SchedulingGated",
            "message": "Scheduling is blocked due to non-empty scheduling gates",
            "lastProbeTime": null,
            "lastTransitionTime": unstructured::metadata_string(object, "creationTimestamp"),
        }]);
    }
    object.insert("status".to_owned(), status);
    Ok(())
}

/// `pods/status`: keeps owner references, which old kubelets corrupted, and the quality-of-service class, which they
/// dropped.
fn prepare_status_update(old: &JsonObject, new: &mut JsonObject, _: Time) -> Result<(), Rejection> {
    restore_metadata_field(old, new, "ownerReferences");
    let class = unstructured::get(old, &["status", "qosClass"])
        .filter(|_| unstructured::text(new, &["status", "qosClass"]).is_empty());
    if let Some(class) = class.cloned() {
        nested_object_mut(new, "status").insert("qosClass".to_owned(), class);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn grace_period_is_requested_own_or_default() {
        let pod = |spec: Value, phase: &str| {
            let status = json!({"phase": phase});
            JsonObject::from_iter([("spec".to_owned(), spec), ("status".to_owned(), status)])
        };
        let own = json!({"nodeName": "n", "terminationGracePeriodSeconds": 20});
        for (spec, phase, requested, expected) in [
            (&own, "Running", None, 20),
            (&own, "Running", Some(5), 5),
            (&own, "Running", Some(-1), 1),
            (&own, "Succeeded", Some(5), 0),
            (&json!({"nodeName": "n"}), "Running", None, 30),
            (&json!({"terminationGracePeriodSeconds": 20}), "Pending", Some(5), 0),
        ] {
            assert_eq!(grace_seconds(&pod(spec.clone(), phase), requested), expected, "{spec} {phase} {requested:?}");
        }
    }

    #[test]
    fn new_pod_is_pending_with_qos_class() {
        let mut pod = JsonObject::from_iter([("spec".to_owned(), json!({"containers": [{}]}))]);
        prepare_for_create(&User::named("u"), &mut pod).unwrap();
        assert_eq!(pod["status"], json!({"phase": "Pending", "qosClass": "BestEffort"}));
    }

    #[test]
    fn status_update_keeps_owners_and_qos_class() {
        let object = |value: Value| value.as_object().unwrap().clone();
        let old = object(json!({"metadata": {"ownerReferences": ["a"]}, "status": {"qosClass": "Burstable"}}));
        let mut new =
            object(json!({"metadata": {"labels": {"a": "b"}, "ownerReferences": []}, "status": {"phase": "Running"}}));
        prepare_status_update(&old, &mut new, "2026-01-01T00:00:00Z".parse().unwrap()).unwrap();
        assert_eq!(new["metadata"], json!({"labels": {"a": "b"}, "ownerReferences": ["a"]}));
        assert_eq!(new["status"], json!({"phase": "Running", "qosClass": "Burstable"}));
        new["status"]["qosClass"] = json!("Guaranteed");
        prepare_status_update(&old, &mut new, "2026-01-01T00:00:00Z".parse().unwrap()).unwrap();
        assert_eq!(new["status"]["qosClass"], "Guaranteed", "update validation rejects it");
    }
}
