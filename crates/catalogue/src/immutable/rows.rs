//! Fields that stay as they were created.

use api::FieldError;

use super::{FIXED, Update};
use crate::release::Release::{self, *};
use crate::release::Span;
use crate::schema::same::{is_nothing, is_same};

/// One field, and what is said to those who change it.
pub(super) struct Row {
    /// Names with dots.
    path: &'static str,
    /// The field as refusals name it, which is not always its path.
    shown: &'static str,
    from: From,
    refusal: Refusal,
    pub(super) span: Span,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum From {
    Creation,
    /// It may be given a value later, once.
    FirstValue,
}

#[derive(Clone, Copy)]
enum Refusal {
    /// Shows the value, and says this.
    Invalid(&'static str),
    /// Says this.
    Forbidden(&'static str),
    /// The same; these fields in it may change.
    ForbiddenExcept(&'static [&'static str], &'static str),
}

impl Row {
    pub(super) fn fault(&self, update: Update<'_>) -> Option<FieldError> {
        let field = update.field(self.path)?;
        let [old, new] = [update.before(self.path), update.after(self.path)];
        if is_same(field, old, new) {
            return None;
        }
        if self.from == From::FirstValue && old.is_none_or(|old| is_nothing(field, old)) {
            return None;
        }
        match self.refusal {
            Refusal::Invalid(detail) => Some(FieldError::invalid(self.shown, update.shown(self.path), detail)),
            Refusal::Forbidden(detail) => Some(FieldError::forbidden(self.shown, detail)),
            Refusal::ForbiddenExcept(free, detail) => {
                let names =
                    [old, new].into_iter().flatten().filter_map(|part| part.as_object()).flat_map(|part| part.keys());
                let is_kept = |name: &String| update.keeps(&format!("{}.{name}", self.path));
                let is_broken = names.into_iter().any(|name| !free.contains(&name.as_str()) && !is_kept(name));
                is_broken.then(|| FieldError::forbidden(self.shown, detail))
            }
        }
    }

    #[cfg(test)]
    pub(super) fn path(&self) -> &'static str {
        self.path
    }

    const fn shown(self, shown: &'static str) -> Self {
        Self { shown, ..self }
    }

    const fn once_set(self) -> Self {
        Self { from: From::FirstValue, ..self }
    }

    const fn since(self, since: Release) -> Self {
        Self { span: Span { since, ..self.span }, ..self }
    }

    /// Not in this release any more, nor later.
    const fn until(self, removed: Release) -> Self {
        Self { span: Span { removed: Some(removed), ..self.span }, ..self }
    }
}

/// The rows of a kind.
pub(super) fn of(group: &str, kind: &str) -> &'static [Row] {
    let found = ROWS.binary_search_by(|(home, name, _)| (*home, *name).cmp(&(group, kind)));
    found.map_or(&[], |position| ROWS[position].2)
}

const fn row(path: &'static str, refusal: Refusal) -> Row {
    Row { path, shown: path, from: From::Creation, refusal, span: Span::ALWAYS }
}

const fn fixed(path: &'static str) -> Row {
    row(path, Refusal::Invalid(FIXED))
}

const fn forbidden(path: &'static str, detail: &'static str) -> Row {
    row(path, Refusal::Forbidden(detail))
}

const SELECTOR: &[Row] = &[fixed("spec.selector")];
const SPEC: &[Row] = &[fixed("spec")];
const ROLE: &[Row] =
    &[row("roleRef", Refusal::Invalid("cannot change roleRef")).until(R37), fixed("roleRef").since(R37)];
const VOLUME_MODE: Row = fixed("spec.volumeMode").shown("volumeMode");

/// By group and kind.
pub(super) static ROWS: &[(&str, &str, &[Row])] = &[
    ("", "PersistentVolume", &[VOLUME_MODE]),
    ("", "PersistentVolumeClaim", &[VOLUME_MODE]),
    ("", "Secret", &[fixed("type")]),
    ("apiextensions.k8s.io", "CustomResourceDefinition", &[fixed("spec.group"), fixed("spec.names.plural")]),
    ("apps", "ControllerRevision", &[fixed("data")]),
    ("apps", "DaemonSet", SELECTOR),
    ("apps", "Deployment", SELECTOR),
    ("apps", "ReplicaSet", SELECTOR),
    (
        "apps",
        "StatefulSet",
        &[
            row(
                "spec",
                Refusal::ForbiddenExcept(
                    &[
                        "minReadySeconds",
                        "ordinals",
                        "persistentVolumeClaimRetentionPolicy",
                        "replicas",
                        "template",
                        "updateStrategy",
                    ],
                    "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', \
                     'updateStrategy', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden",
                ),
            )
            .until(R33),
            row(
                "spec",
                Refusal::ForbiddenExcept(
                    &[
                        "minReadySeconds",
                        "ordinals",
                        "persistentVolumeClaimRetentionPolicy",
                        "replicas",
                        "revisionHistoryLimit",
                        "template",
                        "updateStrategy",
                    ],
                    "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', \
                     'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and \
                     'minReadySeconds' are forbidden",
                ),
            )
            .since(R33)
            .until(R37),
            fixed("spec.selector").since(R37),
            fixed("spec.volumeClaimTemplates").since(R37),
            fixed("spec.serviceName").since(R37),
            fixed("spec.podManagementPolicy").since(R37),
        ],
    ),
    (
        "batch",
        "Job",
        &[
            fixed("spec.selector"),
            fixed("spec.completionMode"),
            fixed("spec.podFailurePolicy"),
            fixed("spec.backoffLimitPerIndex"),
            fixed("spec.managedBy"),
            fixed("spec.successPolicy"),
        ],
    ),
    ("certificates.k8s.io", "ClusterTrustBundle", &[fixed("spec.signerName")]),
    ("certificates.k8s.io", "PodCertificateRequest", SPEC),
    ("coordination.k8s.io", "LeaseCandidate", &[fixed("spec.leaseName")]),
    ("discovery.k8s.io", "EndpointSlice", &[fixed("addressType")]),
    (
        "events.k8s.io",
        "Event",
        // Refusals name the fields as the other group does.
        &[
            fixed("regarding").shown("involvedObject"),
            fixed("reason"),
            fixed("note").shown("message"),
            fixed("deprecatedSource").shown("source"),
            fixed("deprecatedFirstTimestamp").shown("firstTimestamp"),
            fixed("deprecatedLastTimestamp").shown("lastTimestamp"),
            fixed("deprecatedCount").shown("count"),
            fixed("type"),
            fixed("eventTime"),
            fixed("action"),
            fixed("related"),
            fixed("reportingController"),
            fixed("reportingInstance"),
        ],
    ),
    ("lifecycle.k8s.io", "Eviction", &[fixed("spec.target")]),
    ("lifecycle.k8s.io", "EvictionRequest", &[fixed("spec.target"), fixed("spec.requester")]),
    ("networking.k8s.io", "IPAddress", &[fixed("spec.parentRef")]),
    ("networking.k8s.io", "IngressClass", &[fixed("spec.controller")]),
    ("networking.k8s.io", "ServiceCIDR", &[fixed("spec.cidrs").until(R33)]),
    ("node.k8s.io", "RuntimeClass", &[fixed("handler")]),
    ("rbac.authorization.k8s.io", "ClusterRoleBinding", ROLE),
    ("rbac.authorization.k8s.io", "RoleBinding", ROLE),
    ("resource.k8s.io", "ResourceClaim", SPEC),
    ("resource.k8s.io", "ResourceClaimTemplate", SPEC),
    ("resource.k8s.io", "ResourcePoolStatusRequest", SPEC),
    ("resource.k8s.io", "ResourceSlice", &[fixed("spec.pool.name"), fixed("spec.driver"), fixed("spec.nodeName")]),
    (
        "scheduling.k8s.io",
        "PodGroup",
        &[
            fixed("spec.podGroupTemplateRef"),
            fixed("spec.parentCompositePodGroupName"),
            fixed("spec.workloadRef"),
            fixed("spec.schedulingPolicy").until(R37),
            fixed("spec.schedulingConstraints"),
            fixed("spec.resourceClaims"),
            fixed("spec.disruptionMode"),
            fixed("spec.priorityClassName"),
            fixed("spec.priority"),
            fixed("spec.preemptionPolicy"),
        ],
    ),
    (
        "scheduling.k8s.io",
        "PriorityClass",
        &[forbidden("value", "may not be changed in an update."), fixed("preemptionPolicy")],
    ),
    (
        "scheduling.k8s.io",
        "Workload",
        &[
            fixed("spec.controllerRef").shown("controllerRef").once_set().until(R36),
            fixed("spec.podGroups").shown("podGroups").until(R36),
            fixed("spec.controllerRef").since(R36),
            fixed("spec.podGroupTemplates").since(R36).until(R37),
        ],
    ),
    (
        "storage.k8s.io",
        "CSIDriver",
        &[fixed("spec.attachRequired").shown("spec.attachedRequired"), fixed("spec.volumeLifecycleModes")],
    ),
    ("storage.k8s.io", "CSIStorageCapacity", &[fixed("nodeTopology"), fixed("storageClassName")]),
    (
        "storage.k8s.io",
        "StorageClass",
        &[
            forbidden("parameters", "updates to parameters are forbidden.").until(R36),
            forbidden("provisioner", "updates to provisioner are forbidden.").until(R36),
            forbidden("reclaimPolicy", "updates to reclaimPolicy are forbidden.").until(R36),
            fixed("parameters").since(R36),
            fixed("provisioner").since(R36),
            fixed("reclaimPolicy").since(R36),
            fixed("volumeBindingMode"),
        ],
    ),
    ("storage.k8s.io", "VolumeAttachment", SPEC),
    (
        "storage.k8s.io",
        "VolumeAttributesClass",
        &[
            forbidden("driverName", "updates to driverName are forbidden."),
            forbidden("parameters", "updates to parameters are forbidden."),
        ],
    ),
    (
        "storagemigration.k8s.io",
        "StorageVersionMigration",
        &[
            fixed("spec.resource.group").shown("group").until(R35),
            fixed("spec.resource.version").shown("version").until(R35),
            fixed("spec.resource.resource").shown("resource").until(R35),
            fixed("spec").since(R35),
        ],
    ),
];
