//! What is special about a kind, each in one line: everything that the catalogue's shape does not already say.

use std::time::Duration;

use catalogue::Served;
use object::KindRules;
use object::rules::{Dependents, Generation, Grace, NameRule, Scope, StatusPart};

/// How long events are kept; kube-apiserver's `--event-ttl`.
const EVENT_TTL: Duration = Duration::from_secs(60 * 60);

/// Kinds whose `metadata.generation` counts changes of the desired state.
const COUNTED: &[(&str, &[&str])] = &[
    ("", &["pods", "replicationcontrollers"]),
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
    ("resource.k8s.io", &["resourceslices", "devicetaintrules"]),
    ("scheduling.k8s.io", &["priorityclasses"]),
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

/// The rules of a resource.
pub(crate) fn rules_of(served: &Served) -> KindRules {
    let (group, plural) = (served.group.name, served.kind.plural);
    let is_in =
        |table: &[(&str, &[&str])]| table.iter().any(|(named, plurals)| *named == group && plurals.contains(&plural));
    let is_event = plural == "events";
    KindRules {
        scope: match served.kind.scope {
            catalogue::kind::Scope::Namespaced => Scope::Namespaced,
            catalogue::kind::Scope::Cluster => Scope::Cluster,
        },
        names: match (group, plural) {
            ("", "namespaces") => NameRule::Label,
            ("", "services") => NameRule::Label1035,
            ("rbac.authorization.k8s.io", _) => NameRule::PathSegment,
            _ => NameRule::Subdomain,
        },
        status: match served.subresource("status") {
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
