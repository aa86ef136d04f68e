//! What holds the cluster together: leases, access, certificates, versions.

use api::GroupKind;
use serde_json::Value;

use super::cells::{AGE, NAME, boolean, condition, first_few, number, number_at, text, text_at, text_or, wide};
use super::{Column, human_duration};
use crate::access::{self, Object, objects};

pub(super) fn columns(kind: GroupKind<&str>) -> Option<&'static [Column]> {
    Some(match (kind.group, kind.kind) {
        ("coordination.k8s.io", "Lease") => LEASES,
        ("coordination.k8s.io", "LeaseCandidate") => LEASE_CANDIDATES,
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => ROLE_BINDINGS,
        ("certificates.k8s.io", "CertificateSigningRequest") => SIGNING_REQUESTS,
        ("certificates.k8s.io", "ClusterTrustBundle") => TRUST_BUNDLES,
        ("scheduling.k8s.io", "PriorityClass") => PRIORITY_CLASSES,
        ("node.k8s.io", "RuntimeClass") => RUNTIME_CLASSES,
        ("internal.apiserver.k8s.io", "StorageVersion") => STORAGE_VERSIONS,
        ("storagemigration.k8s.io", "StorageVersionMigration") => MIGRATIONS,
        ("apiregistration.k8s.io", "APIService") => API_SERVICES,
        _ => return None,
    })
}

const LEASES: &[Column] =
    &[NAME, text("Holder", "Who holds it.", |lease, _| text_at(lease, &["spec", "holderIdentity"])), AGE];

const LEASE_CANDIDATES: &[Column] = &[
    NAME,
    text("LeaseName", "The lease it wants.", |candidate, _| text_at(candidate, &["spec", "leaseName"])),
    text("BinaryVersion", "Its version.", |candidate, _| text_at(candidate, &["spec", "binaryVersion"])),
    text("EmulationVersion", "The version it behaves like.", |candidate, _| {
        text_at(candidate, &["spec", "emulationVersion"])
    }),
    AGE,
];

const ROLE_BINDINGS: &[Column] = &[
    NAME,
    text("Role", "The role it grants.", |binding, _| {
        let field = |name: &str| access::text(binding, &["roleRef", name]);
        format!("{}/{}", field("kind"), field("name")).into()
    }),
    AGE,
    wide("Users", "The users it is granted to.", |binding, _| subjects(binding, "User")),
    wide("Groups", "The groups it is granted to.", |binding, _| subjects(binding, "Group")),
    wide("ServiceAccounts", "The service accounts it is granted to.", |binding, _| subjects(binding, "ServiceAccount")),
];

fn subjects(binding: &Object, kind: &str) -> Value {
    let of_kind = objects(binding, &["subjects"]).filter(|subject| access::text(subject, &["kind"]) == kind);
    let names = of_kind.map(|subject| {
        let name = access::text(subject, &["name"]);
        match kind {
            "ServiceAccount" => format!("{}/{name}", access::text(subject, &["namespace"])),
            _ => name.to_owned(),
        }
    });
    names.collect::<Vec<_>>().join(", ").into()
}

const SIGNING_REQUESTS: &[Column] = &[
    NAME,
    AGE,
    text("SignerName", "Who is to sign it.", |request, _| text_or(request, &["spec", "signerName"], "<none>")),
    text("Requestor", "Who made it.", |request, _| text_at(request, &["spec", "username"])),
    text("RequestedDuration", "How long the certificate is to be valid.", |request, _| {
        let seconds = access::integer(request, &["spec", "expirationSeconds"]);
        seconds
            .map_or_else(|| "<none>".into(), |seconds| human_duration(jiff::SignedDuration::from_secs(seconds)).into())
    }),
    text("Condition", "How far it is.", |request, _| signing_state(request).into()),
];

fn signing_state(request: &Object) -> String {
    let has = |kind: &str| condition(request, kind).is_some();
    let mut state = match (has("Denied"), has("Approved")) {
        (true, _) => "Denied",
        (false, true) => "Approved",
        (false, false) => "Pending",
    }
    .to_owned();
    if has("Failed") {
        state.push_str(",Failed");
    }
    if !access::text(request, &["status", "certificate"]).is_empty() {
        state.push_str(",Issued");
    }
    state
}

const TRUST_BUNDLES: &[Column] =
    &[NAME, text("SignerName", "Whose it is.", |bundle, _| text_or(bundle, &["spec", "signerName"], "<none>"))];

const PRIORITY_CLASSES: &[Column] = &[
    NAME,
    number("Value", "Higher comes first.", |class, _| number_at(class, &["value"])),
    boolean("Global-Default", "Whether pods get it that name none.", |class, _| {
        access::flag(class, &["globalDefault"]).into()
    }),
    AGE,
    text("PreemptionPolicy", "Whether it drives out others.", |class, _| text_at(class, &["preemptionPolicy"])),
];

const RUNTIME_CLASSES: &[Column] =
    &[NAME, text("Handler", "What runs the containers.", |class, _| text_at(class, &["handler"])), AGE];

const STORAGE_VERSIONS: &[Column] = &[
    NAME,
    text("CommonEncodingVersion", "The version that all servers write.", |version, _| {
        text_or(version, &["status", "commonEncodingVersion"], "<unset>")
    }),
    text("StorageVersions", "The version that each server writes.", |version, _| {
        first_few(
            objects(version, &["status", "storageVersions"]).map(|server| {
                let field = |name: &str| access::text(server, &[name]);
                format!("{}={}", field("apiServerID"), field("encodingVersion"))
            }),
            "<unset>",
        )
    }),
    AGE,
];

const MIGRATIONS: &[Column] = &[
    Column { format: "", ..NAME },
    text("Resource", "What is migrated.", |migration, _| {
        let field = |name: &str| access::text(migration, &["spec", "resource", name]);
        api::GroupResource { group: field("group"), resource: field("resource") }.to_string().into()
    }),
    text("Status", "How far it is.", |migration, _| {
        let mut conditions = objects(migration, &["status", "conditions"]).collect::<Vec<_>>().into_iter().rev();
        let known = conditions.find(|condition| {
            access::text(condition, &["status"]) == "True"
                && matches!(access::text(condition, &["type"]), "Running" | "Failed" | "Succeeded")
        });
        known.map_or_else(|| "Unknown".into(), |condition| text_at(condition, &["type"]))
    }),
];

const API_SERVICES: &[Column] = &[
    NAME,
    text("Service", "What serves it.", |service, _| {
        let Some(reference) = access::part(service, &["spec", "service"]) else { return "Local".into() };
        format!("{}/{}", access::text(reference, &["namespace"]), access::text(reference, &["name"])).into()
    }),
    text("Available", "Whether it answers.", |service, _| {
        let Some(condition) = condition(service, "Available") else { return "Unknown".into() };
        match (access::text(condition, &["status"]), access::text(condition, &["reason"])) {
            (status @ "True", _) | (status, "") => status.into(),
            (status, reason) => format!("{status} ({reason})").into(),
        }
    }),
    AGE,
];
