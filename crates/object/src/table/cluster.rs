//! What holds the cluster together: leases, access, certificates, versions.

use api::GroupKind;
use api::json::JsonObject;
use serde_json::Value;

use super::cells::{
    AGE, NAME, boolean_column, find_condition, first_few_cell, integer_cell, integer_column, string_cell,
    string_cell_or, string_column, wide_column,
};
use super::{Column, human_duration};
use crate::unstructured::{self, objects};

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
    &[NAME, string_column("Holder", "Who holds it.", |lease, _| string_cell(lease, &["spec", "holderIdentity"])), AGE];

const LEASE_CANDIDATES: &[Column] = &[
    NAME,
    string_column("LeaseName", "The lease it wants.", |candidate, _| string_cell(candidate, &["spec", "leaseName"])),
    string_column("BinaryVersion", "Its version.", |candidate, _| string_cell(candidate, &["spec", "binaryVersion"])),
    string_column("EmulationVersion", "The version it behaves like.", |candidate, _| {
        string_cell(candidate, &["spec", "emulationVersion"])
    }),
    AGE,
];

const ROLE_BINDINGS: &[Column] = &[
    NAME,
    string_column("Role", "The role it grants.", |binding, _| {
        let field = |name: &str| unstructured::text(binding, &["roleRef", name]);
        format!("{}/{}", field("kind"), field("name")).into()
    }),
    AGE,
    wide_column("Users", "The users it is granted to.", |binding, _| subjects_cell(binding, "User")),
    wide_column("Groups", "The groups it is granted to.", |binding, _| subjects_cell(binding, "Group")),
    wide_column("ServiceAccounts", "The service accounts it is granted to.", |binding, _| {
        subjects_cell(binding, "ServiceAccount")
    }),
];

fn subjects_cell(binding: &JsonObject, kind: &str) -> Value {
    let of_kind = objects(binding, &["subjects"]).filter(|subject| unstructured::text(subject, &["kind"]) == kind);
    let names = of_kind.map(|subject| {
        let name = unstructured::text(subject, &["name"]);
        match kind {
            "ServiceAccount" => format!("{}/{name}", unstructured::text(subject, &["namespace"])),
            _ => name.to_owned(),
        }
    });
    names.collect::<Vec<_>>().join(", ").into()
}

const SIGNING_REQUESTS: &[Column] = &[
    NAME,
    AGE,
    string_column("SignerName", "Who is to sign it.", |request, _| {
        string_cell_or(request, &["spec", "signerName"], "<none>")
    }),
    string_column("Requestor", "Who made it.", |request, _| string_cell(request, &["spec", "username"])),
    string_column("RequestedDuration", "How long the certificate is to be valid.", |request, _| {
        let seconds = unstructured::integer(request, &["spec", "expirationSeconds"]);
        seconds
            .map_or_else(|| "<none>".into(), |seconds| human_duration(jiff::SignedDuration::from_secs(seconds)).into())
    }),
    string_column("Condition", "How far it is.", |request, _| signing_request_state(request).into()),
];

fn signing_request_state(request: &JsonObject) -> String {
    let has = |kind: &str| find_condition(request, kind).is_some();
    let mut state = match (has("Denied"), has("Approved")) {
        (true, _) => "Denied",
        (false, true) => "Approved",
        (false, false) => "Pending",
    }
    .to_owned();
    if has("Failed") {
        state.push_str(",Failed");
    }
    if !unstructured::text(request, &["status", "certificate"]).is_empty() {
        state.push_str(",Issued");
    }
    state
}

const TRUST_BUNDLES: &[Column] = &[
    NAME,
    string_column("SignerName", "Whose it is.", |bundle, _| string_cell_or(bundle, &["spec", "signerName"], "<none>")),
];

const PRIORITY_CLASSES: &[Column] = &[
    NAME,
    integer_column("Value", "Higher comes first.", |class, _| integer_cell(class, &["value"])),
    boolean_column("Global-Default", "Whether pods get it that name none.", |class, _| {
        unstructured::flag(class, &["globalDefault"]).into()
    }),
    AGE,
    string_column("PreemptionPolicy", "Whether it drives out others.", |class, _| {
        string_cell(class, &["preemptionPolicy"])
    }),
];

const RUNTIME_CLASSES: &[Column] =
    &[NAME, string_column("Handler", "What runs the containers.", |class, _| string_cell(class, &["handler"])), AGE];

const STORAGE_VERSIONS: &[Column] = &[
    NAME,
    string_column("CommonEncodingVersion", "The version that all servers write.", |version, _| {
        string_cell_or(version, &["status", "commonEncodingVersion"], "<unset>")
    }),
    string_column("StorageVersions", "The version that each server writes.", |version, _| {
        first_few_cell(
            objects(version, &["status", "storageVersions"]).map(|server| {
                let field = |name: &str| unstructured::text(server, &[name]);
                format!("{}={}", field("apiServerID"), field("encodingVersion"))
            }),
            "<unset>",
        )
    }),
    AGE,
];

const MIGRATIONS: &[Column] = &[
    Column { format: "", ..NAME },
    string_column("Resource", "What is migrated.", |migration, _| {
        let field = |name: &str| unstructured::text(migration, &["spec", "resource", name]);
        api::GroupResource { group: field("group"), resource: field("resource") }.to_string().into()
    }),
    string_column("Status", "How far it is.", |migration, _| {
        let mut conditions = objects(migration, &["status", "conditions"]).collect::<Vec<_>>().into_iter().rev();
        let known = conditions.find(|condition| {
            unstructured::text(condition, &["status"]) == "True"
                && matches!(unstructured::text(condition, &["type"]), "Running" | "Failed" | "Succeeded")
        });
        known.map_or_else(|| "Unknown".into(), |condition| string_cell(condition, &["type"]))
    }),
];

const API_SERVICES: &[Column] = &[
    NAME,
    string_column("Service", "What serves it.", |service, _| {
        let Some(reference) = unstructured::nested_object(service, &["spec", "service"]) else { return "Local".into() };
        format!("{}/{}", unstructured::text(reference, &["namespace"]), unstructured::text(reference, &["name"])).into()
    }),
    string_column("Available", "Whether it answers.", |service, _| {
        let Some(condition) = find_condition(service, "Available") else { return "Unknown".into() };
        match (unstructured::text(condition, &["status"]), unstructured::text(condition, &["reason"])) {
            (status @ "True", _) | (status, "") => status.into(),
            (status, reason) => format!("{status} ({reason})").into(),
        }
    }),
    AGE,
];
