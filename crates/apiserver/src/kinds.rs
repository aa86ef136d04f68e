//! What is special about a kind: everything that the catalogue's shape does not already say, each in one small place.

mod certificate_signing_request;
mod config_map_and_secret;
mod daemon_set;
pub(crate) mod disruption_budget;
mod job;
mod namespace;
mod persistent_volume;
mod pod;
pub(crate) mod pod_binding;
mod rbac;
mod service;
mod storage_version;
mod writable_subresources;

pub(crate) use rbac::rbac_kind as rbac_kind_of;
pub(crate) use writable_subresources::is_writable_subresource;

use std::time::Duration;

use access::User;
use api::Status;
use api::json::JsonObject;
use api::time::Time;
use catalogue::{FeatureGates, ServedResource};
use object::delete::DeleteOutcome;
use object::rules::{GarbageCollectionPolicy, GenerationRule, GracePeriodRule, NameRule, StatusSubresource};
use object::{KindRules, Rejection};
use serde_json::Value;

use self::writable_subresources::WritableFields;

/// How long events are kept; kube-apiserver's `--event-ttl`.
const EVENT_TTL: Duration = Duration::from_secs(60 * 60);

/// Kinds whose `metadata.generation` counts changes of the desired state.
const WITH_GENERATION: &[(&str, &[&str])] = &[
    ("", &["pods", "podtemplates", "replicationcontrollers"]),
    (
        "admissionregistration.k8s.io",
        &[
            "mutatingadmissionpolicies",
            "mutatingadmissionpolicybindings",
            "mutatingwebhookconfigurations",
            "validatingadmissionpolicies",
            "validatingadmissionpolicybindings",
            "validatingwebhookconfigurations",
        ],
    ),
    ("apiextensions.k8s.io", &["customresourcedefinitions"]),
    ("apps", &["daemonsets", "replicasets", "statefulsets"]),
    ("batch", &["cronjobs", "jobs"]),
    ("discovery.k8s.io", &["endpointslices"]),
    ("flowcontrol.apiserver.k8s.io", &["flowschemas", "prioritylevelconfigurations"]),
    ("networking.k8s.io", &["ingressclasses", "ingresses", "networkpolicies"]),
    ("policy", &["poddisruptionbudgets"]),
    ("resource.k8s.io", &["deviceclasses", "devicetaintrules", "resourceslices"]),
    ("scheduling.k8s.io", &["priorityclasses"]),
];

/// Kinds whose status is written without labels, annotations, finalizers and owners.
const STATUS_WITHOUT_METADATA: &[(&str, &[&str])] = &[
    ("admissionregistration.k8s.io", &["validatingadmissionpolicies"]),
    ("apiregistration.k8s.io", &["apiservices"]),
    ("certificates.k8s.io", &["podcertificaterequests"]),
    ("flowcontrol.apiserver.k8s.io", &["flowschemas", "prioritylevelconfigurations"]),
    ("internal.apiserver.k8s.io", &["storageversions"]),
    ("lifecycle.k8s.io", &["evictionrequests", "evictions"]),
    ("networking.k8s.io", &["servicecidrs"]),
    ("resource.k8s.io", &["devicetaintrules", "resourceclaims", "resourcepoolstatusrequests"]),
    ("scheduling.k8s.io", &["compositepodgroups", "podgroups"]),
    ("storage.k8s.io", &["csinodes", "volumeattachments"]),
    ("storagemigration.k8s.io", &["storageversionmigrations"]),
];

/// Kinds that a PUT creates.
const ALLOWS_CREATE_ON_UPDATE: &[(&str, &[&str])] = &[
    ("", &["endpoints", "events", "limitranges", "services"]),
    ("coordination.k8s.io", &["leases"]),
    ("events.k8s.io", &["events"]),
    ("rbac.authorization.k8s.io", &["clusterrolebindings", "clusterroles", "rolebindings", "roles"]),
];

/// Kinds that a PUT must name the resourceVersion of.
const REQUIRES_RESOURCE_VERSION: &[(&str, &[&str])] = &[
    ("admissionregistration.k8s.io", &["mutatingwebhookconfigurations", "validatingwebhookconfigurations"]),
    ("apiextensions.k8s.io", &["customresourcedefinitions"]),
    ("apiregistration.k8s.io", &["apiservices"]),
    ("coordination.k8s.io", &["leases", "leasecandidates"]),
    ("internal.apiserver.k8s.io", &["storageversions"]),
    ("node.k8s.io", &["runtimeclasses"]),
    ("policy", &["poddisruptionbudgets"]),
    ("storage.k8s.io", &["csidrivers", "csinodes", "volumeattachments"]),
];

/// Kinds that answer a deletion with the object that went; all others answer with a Status.
const RETURNS_DELETED_OBJECT: &[(&str, &[&str])] = &[
    (
        "",
        &[
            "persistentvolumeclaims",
            "persistentvolumes",
            "pods",
            "podtemplates",
            "resourcequotas",
            "serviceaccounts",
            "services",
        ],
    ),
    (
        "resource.k8s.io",
        &[
            "deviceclasses",
            "devicetaintrules",
            "resourceclaims",
            "resourceclaimtemplates",
            "resourcepoolstatusrequests",
            "resourceslices",
        ],
    ),
    ("storage.k8s.io", &["csidrivers", "csinodes", "storageclasses", "volumeattachments", "volumeattributesclasses"]),
];

/// The rules of a resource.
pub(crate) fn kind_rules_for(resource: &ServedResource) -> KindRules {
    let (group, plural) = group_and_plural(resource);
    let is_in = |table| table_contains(table, resource);
    let is_event = plural == "events";
    KindRules {
        scope: resource.kind.scope,
        name_rule: match (group, plural) {
            ("", "namespaces") => NameRule::Label,
            ("", "services") => NameRule::Label1035,
            // Those of storage versions have a rule of their own, which is checked with the rest of them.
            ("rbac.authorization.k8s.io", _) | ("internal.apiserver.k8s.io", "storageversions") => {
                NameRule::PathSegment
            }
            _ => NameRule::Subdomain,
        },
        status: match resource.subresource("status") {
            Some(_) if is_in(STATUS_WITHOUT_METADATA) => StatusSubresource::StatusOnly,
            Some(_) => StatusSubresource::WithMetadata,
            None => StatusSubresource::None,
        },
        generation: match (group, plural) {
            ("apps", "deployments") => GenerationRule::CountedWithAnnotations,
            _ if is_in(WITH_GENERATION) => GenerationRule::Counted,
            _ => GenerationRule::Absent,
        },
        allows_create_on_update: is_in(ALLOWS_CREATE_ON_UPDATE),
        allows_unconditional_update: !is_in(REQUIRES_RESOURCE_VERSION),
        grace_period: if (group, plural) == ("", "pods") { GracePeriodRule::Pod } else { GracePeriodRule::None },
        garbage_collection: match plural {
            "events" => GarbageCollectionPolicy::Unsupported,
            "replicationcontrollers" => GarbageCollectionPolicy::OrphanDependents,
            _ => GarbageCollectionPolicy::DeleteDependents,
        },
        ttl: is_event.then_some(EVENT_TTL),
    }
}

/// Gives a new object what its kind always has, and refuses what it must not have. `user` is who creates it.
pub(crate) fn prepare_for_create(
    resource: &ServedResource,
    user: &User,
    object: &mut JsonObject,
) -> Result<(), Rejection> {
    match group_and_plural(resource) {
        ("", "namespaces") => namespace::prepare_for_create(object),
        ("", "secrets") => {
            config_map_and_secret::prepare_secret(object);
            config_map_and_secret::validate_data(None, object)?;
        }
        ("", "configmaps") => config_map_and_secret::validate_data(None, object)?,
        ("", "services") => service::prepare_for_create(object),
        ("", "pods") => pod::prepare_for_create(object),
        ("apps", "daemonsets") => daemon_set::prepare_for_create(object),
        ("batch", "jobs") => job::prepare_for_create(object),
        ("", "persistentvolumeclaims") => persistent_volume::prepare_claim_for_create(object),
        ("", "persistentvolumes") => persistent_volume::prepare_volume_for_create(object),
        ("certificates.k8s.io", "certificatesigningrequests") => {
            certificate_signing_request::prepare_for_create(user, object)
        }
        ("internal.apiserver.k8s.io", "storageversions") => storage_version::prepare_for_create(object)?,
        (access::rbac::RBAC_GROUP, _) => {
            if let Some(kind) = rbac::rbac_kind(resource) {
                rbac::default_and_validate(kind, object)?;
            }
        }
        _ => {}
    }
    Ok(())
}

/// Whether who creates an object says how it is: a node registers itself so. Of all others the status begins empty.
pub(crate) fn keeps_status_on_create(resource: &ServedResource) -> bool {
    group_and_plural(resource) == ("", "nodes")
}

/// Keeps what an update of this kind may not change, and refuses what it must not.
pub(crate) fn prepare_for_update(
    resource: &ServedResource,
    old: &JsonObject,
    new: &mut JsonObject,
) -> Result<(), Rejection> {
    match group_and_plural(resource) {
        ("", "namespaces") => namespace::prepare_for_update(old, new),
        ("", "secrets") => {
            config_map_and_secret::prepare_secret(new);
            config_map_and_secret::validate_data(Some(old), new)
        }
        ("", "configmaps") => config_map_and_secret::validate_data(Some(old), new),
        ("", "services") => {
            service::prepare_for_update(old, new);
            Ok(())
        }
        ("apps", "daemonsets") => {
            daemon_set::prepare_for_update(old, new);
            Ok(())
        }
        ("certificates.k8s.io", "certificatesigningrequests") => {
            certificate_signing_request::prepare_for_update(old, new);
            Ok(())
        }
        (access::rbac::RBAC_GROUP, _) => {
            rbac::rbac_kind(resource).map_or(Ok(()), |kind| rbac::default_and_validate(kind, new))
        }
        _ => Ok(()),
    }
}

/// Keeps what a write to a subresource may not change, and refuses what it must not.
pub(crate) fn prepare_subresource_update(
    resource: &ServedResource,
    subresource: &str,
    old: &JsonObject,
    new: &mut JsonObject,
    now: Time,
) -> Result<(), Rejection> {
    match (group_and_plural(resource), subresource) {
        (("", "namespaces"), "finalize") => namespace::check_finalizers(new),
        (("", "namespaces"), "status") => namespace::check_phase(new),
        (("", "pods"), "status") => {
            pod::prepare_status_update(old, new);
            Ok(())
        }
        (("apps", "deployments"), "status") => {
            restore_metadata_field(old, new, "labels");
            Ok(())
        }
        (("certificates.k8s.io", "certificatesigningrequests"), "approval") => {
            certificate_signing_request::check(old, new)
        }
        (("certificates.k8s.io", "certificatesigningrequests"), "status") => {
            certificate_signing_request::set_condition_times(old, new, now);
            certificate_signing_request::preserve_approval_conditions(old, new)
        }
        (("internal.apiserver.k8s.io", "storageversions"), "status") => storage_version::validate_status(new),
        _ => Ok(()),
    }
}

/// Takes a field of the metadata from the stored object.
fn restore_metadata_field(old: &JsonObject, new: &mut JsonObject, field: &str) {
    let kept = old.get("metadata").and_then(|metadata| metadata.get(field)).cloned();
    let Some(metadata) = new.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    object::unstructured::set_or_remove(metadata, field, kept);
}

/// Refuses to delete what must stay.
pub(crate) fn check_deletable(resource: &ServedResource, name: &str) -> Result<(), Status> {
    match group_and_plural(resource) {
        ("", "namespaces") => namespace::check_deletable(name),
        _ => Ok(()),
    }
}

/// Changes the decision to remove an object that its kind keeps for a while.
pub(crate) fn adjust_deletion(
    resource: &ServedResource,
    object: &JsonObject,
    deletion: DeleteOutcome,
    now: api::time::Time,
) -> DeleteOutcome {
    match (group_and_plural(resource), deletion) {
        (("", "namespaces"), DeleteOutcome::Remove(last)) => namespace::mark_terminating(&last, object, now),
        (_, deletion) => deletion,
    }
}

/// The state that a write through a subresource asks for: the stored object with the part that the subresource writes. `None`
/// for a write to the object itself, and for a status, which is taken over with its metadata later.
pub(crate) fn apply_subresource_write(
    resource: &ServedResource,
    subresource: &str,
    [old, new]: [&JsonObject; 2],
    gates: &FeatureGates,
    now: Time,
) -> Option<JsonObject> {
    let WritableFields::Fields(fields) =
        writable_subresources::find_writable_subresource(resource, subresource)?.writable_fields
    else {
        return None;
    };
    let mut next = writable_subresources::restrict_to_fields(old, new, fields);
    match (group_and_plural(resource), subresource) {
        (("", "pods"), "resize") => pod::apply_resize(old, &mut next, gates),
        (("", "namespaces"), "finalize") => namespace::set_name_label(&mut next),
        (("certificates.k8s.io", "certificatesigningrequests"), "approval") => {
            certificate_signing_request::set_condition_times(old, &mut next, now);
        }
        _ => {}
    }
    Some(next)
}

/// Whether a write has removed the last thing that held an object.
pub(crate) fn is_finalized(resource: &ServedResource, object: &JsonObject) -> bool {
    group_and_plural(resource) == ("", "namespaces") && namespace::is_finalized(object)
}

/// Whether a deletion is answered with the object that went.
pub(crate) fn returns_deleted_object(resource: &ServedResource) -> bool {
    table_contains(RETURNS_DELETED_OBJECT, resource)
}

fn table_contains(table: &[(&str, &[&str])], resource: &ServedResource) -> bool {
    let (group, plural) = group_and_plural(resource);
    table.iter().any(|(named, plurals)| *named == group && plurals.contains(&plural))
}

fn group_and_plural(resource: &ServedResource) -> (&'static str, &'static str) {
    (resource.group.name, resource.kind.plural)
}
