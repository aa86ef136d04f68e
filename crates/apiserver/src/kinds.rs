//! What is special about a kind: everything that the catalogue's shape does not already say, each in one small place.

pub(crate) mod binding;
pub(crate) mod budget;
mod daemon_set;
mod fixed_data;
mod job;
mod namespace;
mod parts;
mod pod;
mod rbac;
mod service;
mod signing_request;
mod storage_version;
mod volume;

pub(crate) use parts::is_written;
pub(crate) use rbac::kind_of as rbac_kind_of;

use std::time::Duration;

use access::User;
use api::Status;
use api::time::Time;
use catalogue::{Gates, Served};
use object::delete::Deletion;
use object::rules::{Dependents, Generation, Grace, NameRule, StatusPart};
use object::{KindRules, Refusal};
use serde_json::Value;

use self::parts::Changes;
use crate::forms::Object;

/// How long events are kept; kube-apiserver's `--event-ttl`.
const EVENT_TTL: Duration = Duration::from_secs(60 * 60);

/// Kinds whose `metadata.generation` counts changes of the desired state.
const COUNTED: &[(&str, &[&str])] = &[
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
const CREATED_BY_PUT: &[(&str, &[&str])] = &[
    ("", &["endpoints", "events", "limitranges", "services"]),
    ("coordination.k8s.io", &["leases"]),
    ("events.k8s.io", &["events"]),
    ("rbac.authorization.k8s.io", &["clusterrolebindings", "clusterroles", "rolebindings", "roles"]),
];

/// Kinds that a PUT must name the resourceVersion of.
const CONDITIONAL: &[(&str, &[&str])] = &[
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
const SHOWN_WHEN_DELETED: &[(&str, &[&str])] = &[
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
pub(crate) fn rules_of(served: &Served) -> KindRules {
    let (group, plural) = name_of(served);
    let is_in = |table| is_listed(table, served);
    let is_event = plural == "events";
    KindRules {
        scope: served.kind.scope,
        names: match (group, plural) {
            ("", "namespaces") => NameRule::Label,
            ("", "services") => NameRule::Label1035,
            // Those of storage versions have a rule of their own, which is checked with the rest of them.
            ("rbac.authorization.k8s.io", _) | ("internal.apiserver.k8s.io", "storageversions") => {
                NameRule::PathSegment
            }
            _ => NameRule::Subdomain,
        },
        status: match served.subresource("status") {
            Some(_) if is_in(STATUS_WITHOUT_METADATA) => StatusPart::Only,
            Some(_) => StatusPart::WithMetadata,
            None => StatusPart::None,
        },
        generation: match (group, plural) {
            ("apps", "deployments") => Generation::CountedWithAnnotations,
            _ if is_in(COUNTED) => Generation::Counted,
            _ => Generation::Absent,
        },
        create_on_update: is_in(CREATED_BY_PUT),
        unconditional_update: !is_in(CONDITIONAL),
        grace: if (group, plural) == ("", "pods") { Grace::Pod } else { Grace::None },
        dependents: match plural {
            "events" => Dependents::Ignore,
            "replicationcontrollers" => Dependents::Orphan,
            _ => Dependents::Delete,
        },
        ttl: is_event.then_some(EVENT_TTL),
    }
}

/// Gives a new object what its kind always has, and refuses what it must not have. `user` is who creates it.
pub(crate) fn complete(served: &Served, user: &User, object: &mut Object) -> Result<(), Refusal> {
    match name_of(served) {
        ("", "namespaces") => namespace::complete(object),
        ("", "secrets") => {
            fixed_data::complete_secret(object);
            fixed_data::check(None, object)?;
        }
        ("", "configmaps") => fixed_data::check(None, object)?,
        ("", "services") => service::complete(object),
        ("", "pods") => pod::complete(object),
        ("apps", "daemonsets") => daemon_set::complete(object),
        ("batch", "jobs") => job::complete(object),
        ("", "persistentvolumeclaims") => volume::complete_claim(object),
        ("", "persistentvolumes") => volume::complete_volume(object),
        ("certificates.k8s.io", "certificatesigningrequests") => signing_request::complete(user, object),
        ("internal.apiserver.k8s.io", "storageversions") => storage_version::complete(object)?,
        (access::rbac::GROUP, _) => {
            if let Some(kind) = rbac::kind_of(served) {
                rbac::complete(kind, object)?;
            }
        }
        _ => {}
    }
    Ok(())
}

/// Whether who creates an object says how it is: a node registers itself so. Of all others the status begins empty.
pub(crate) fn is_created_with_status(served: &Served) -> bool {
    name_of(served) == ("", "nodes")
}

/// Keeps what an update of this kind may not change, and refuses what it must not.
pub(crate) fn keep(served: &Served, old: &Object, new: &mut Object) -> Result<(), Refusal> {
    match name_of(served) {
        ("", "namespaces") => namespace::keep(old, new),
        ("", "secrets") => {
            fixed_data::complete_secret(new);
            fixed_data::check(Some(old), new)
        }
        ("", "configmaps") => fixed_data::check(Some(old), new),
        ("", "services") => {
            service::keep(old, new);
            Ok(())
        }
        ("apps", "daemonsets") => {
            daemon_set::keep(old, new);
            Ok(())
        }
        ("certificates.k8s.io", "certificatesigningrequests") => {
            signing_request::keep(old, new);
            Ok(())
        }
        (access::rbac::GROUP, _) => rbac::kind_of(served).map_or(Ok(()), |kind| rbac::complete(kind, new)),
        _ => Ok(()),
    }
}

/// Keeps what a write to a subresource may not change, and refuses what it must not.
pub(crate) fn keep_part(
    served: &Served,
    subresource: &str,
    old: &Object,
    new: &mut Object,
    now: Time,
) -> Result<(), Refusal> {
    match (name_of(served), subresource) {
        (("", "namespaces"), "finalize") => namespace::check_finalizers(new),
        (("", "namespaces"), "status") => namespace::check_phase(new),
        (("", "pods"), "status") => {
            pod::keep_status(old, new);
            Ok(())
        }
        (("apps", "deployments"), "status") => {
            keep_metadata(old, new, "labels");
            Ok(())
        }
        (("certificates.k8s.io", "certificatesigningrequests"), "approval") => signing_request::check(old, new),
        (("certificates.k8s.io", "certificatesigningrequests"), "status") => {
            signing_request::stamp_conditions(old, new, now);
            signing_request::keep_verdicts(old, new)
        }
        (("internal.apiserver.k8s.io", "storageversions"), "status") => storage_version::check_status(new),
        _ => Ok(()),
    }
}

/// Takes a field of the metadata from the stored object.
fn keep_metadata(old: &Object, new: &mut Object, field: &str) {
    let kept = old.get("metadata").and_then(|metadata| metadata.get(field)).cloned();
    let Some(metadata) = new.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    object::access::set(metadata, field, kept);
}

/// Refuses to delete what must stay.
pub(crate) fn refuse_deletion(served: &Served, name: &str) -> Result<(), Status> {
    match name_of(served) {
        ("", "namespaces") => namespace::refuse_protected(name),
        _ => Ok(()),
    }
}

/// Changes the decision to remove an object that its kind keeps for a while.
pub(crate) fn delay(served: &Served, object: &Object, deletion: Deletion, now: api::time::Time) -> Deletion {
    match (name_of(served), deletion) {
        (("", "namespaces"), Deletion::Remove(last)) => namespace::terminate(&last, object, now),
        (_, deletion) => deletion,
    }
}

/// The state that a write through a subresource asks for: the stored object with the part that the subresource writes. `None`
/// for a write to the object itself, and for a status, which is taken over with its metadata later.
pub(crate) fn write_part(
    served: &Served,
    subresource: &str,
    [old, new]: [&Object; 2],
    gates: &Gates,
    now: Time,
) -> Option<Object> {
    let Changes::Fields(fields) = parts::of(served, subresource)?.changes else { return None };
    let mut next = parts::confine(old, new, fields);
    match (name_of(served), subresource) {
        (("", "pods"), "resize") => pod::resize(old, &mut next, gates),
        (("", "namespaces"), "finalize") => namespace::label(&mut next),
        (("certificates.k8s.io", "certificatesigningrequests"), "approval") => {
            signing_request::stamp_conditions(old, &mut next, now);
        }
        _ => {}
    }
    Some(next)
}

/// Whether a write has removed the last thing that held an object.
pub(crate) fn is_finished(served: &Served, object: &Object) -> bool {
    name_of(served) == ("", "namespaces") && namespace::is_finished(object)
}

/// Whether a deletion is answered with the object that went.
pub(crate) fn shows_what_it_deletes(served: &Served) -> bool {
    is_listed(SHOWN_WHEN_DELETED, served)
}

fn is_listed(table: &[(&str, &[&str])], served: &Served) -> bool {
    let (group, plural) = name_of(served);
    table.iter().any(|(named, plurals)| *named == group && plurals.contains(&plural))
}

fn name_of(served: &Served) -> (&'static str, &'static str) {
    (served.group.name, served.kind.plural)
}
