//! Fields that stay as they were created.

use api::FieldError;

use super::{FIELD_IS_IMMUTABLE, ObjectUpdate};
use crate::release::Release::{self, *};
use crate::release::ReleaseRange;
use crate::schema::semantic_equality::{is_field_equal, is_semantically_empty};

/// One field, and what is said to those who change it.
pub(super) struct ImmutableField {
    /// Names with dots.
    path: &'static str,
    /// The field as refusals name it, which is not always its path.
    displayed_path: &'static str,
    fixed_from: FixedFrom,
    violation: ViolationMessage,
    pub(super) releases: ReleaseRange,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum FixedFrom {
    Creation,
    /// It may be given a value later, once.
    FirstValue,
}

#[derive(Clone, Copy)]
enum ViolationMessage {
    /// Shows the value, and says this.
    Invalid(&'static str),
    /// Says this.
    Forbidden(&'static str),
    /// The same; these fields in it may change.
    ForbiddenExcept(&'static [&'static str], &'static str),
}

impl ImmutableField {
    pub(super) fn check(&self, update: ObjectUpdate<'_>) -> Option<FieldError> {
        let field = update.field(self.path)?;
        let [old, new] = [update.old_value(self.path), update.new_value(self.path)];
        if is_field_equal(field, old, new) {
            return None;
        }
        if self.fixed_from == FixedFrom::FirstValue && old.is_none_or(|old| is_semantically_empty(field, old)) {
            return None;
        }
        match self.violation {
            ViolationMessage::Invalid(detail) => {
                Some(FieldError::invalid(self.displayed_path, update.displayed_value(self.path), detail))
            }
            ViolationMessage::Forbidden(detail) => Some(FieldError::forbidden(self.displayed_path, detail)),
            ViolationMessage::ForbiddenExcept(free, detail) => {
                let names =
                    [old, new].into_iter().flatten().filter_map(|part| part.as_object()).flat_map(|part| part.keys());
                let is_kept = |name: &String| update.is_unchanged(&format!("{}.{name}", self.path));
                let is_broken = names.into_iter().any(|name| !free.contains(&name.as_str()) && !is_kept(name));
                is_broken.then(|| FieldError::forbidden(self.displayed_path, detail))
            }
        }
    }

    #[cfg(test)]
    pub(super) fn path(&self) -> &'static str {
        self.path
    }

    const fn displayed_as(self, shown: &'static str) -> Self {
        Self { displayed_path: shown, ..self }
    }

    const fn immutable_once_set(self) -> Self {
        Self { fixed_from: FixedFrom::FirstValue, ..self }
    }

    const fn since(self, since: Release) -> Self {
        Self { releases: ReleaseRange { since, ..self.releases }, ..self }
    }

    /// Not in this release any more, nor later.
    const fn until(self, removed: Release) -> Self {
        Self { releases: ReleaseRange { removed: Some(removed), ..self.releases }, ..self }
    }
}

/// The rows of a kind.
pub(super) fn immutable_fields_of(group: &str, kind: &str) -> &'static [ImmutableField] {
    let found = IMMUTABLE_FIELDS.binary_search_by(|(home, name, _)| (*home, *name).cmp(&(group, kind)));
    found.map_or(&[], |position| IMMUTABLE_FIELDS[position].2)
}

const fn immutable_field(path: &'static str, refusal: ViolationMessage) -> ImmutableField {
    ImmutableField {
        path,
        displayed_path: path,
        fixed_from: FixedFrom::Creation,
        violation: refusal,
        releases: ReleaseRange::ALL,
    }
}

const fn fixed_field(path: &'static str) -> ImmutableField {
    immutable_field(path, ViolationMessage::Invalid(FIELD_IS_IMMUTABLE))
}

const fn forbidden_change(path: &'static str, detail: &'static str) -> ImmutableField {
    immutable_field(path, ViolationMessage::Forbidden(detail))
}

const SELECTOR: &[ImmutableField] = &[fixed_field("spec.selector")];
const SPEC: &[ImmutableField] = &[fixed_field("spec")];
const ROLE_REF: &[ImmutableField] = &[
    immutable_field("roleRef", ViolationMessage::Invalid("cannot change roleRef")).until(R37),
    fixed_field("roleRef").since(R37),
];
const VOLUME_MODE: ImmutableField = fixed_field("spec.volumeMode").displayed_as("volumeMode");

/// By group and kind.
pub(super) static IMMUTABLE_FIELDS: &[(&str, &str, &[ImmutableField])] = &[
    ("", "PersistentVolume", &[VOLUME_MODE]),
    ("", "PersistentVolumeClaim", &[VOLUME_MODE]),
    ("", "Secret", &[fixed_field("type")]),
    (
        "apiextensions.k8s.io",
        "CustomResourceDefinition",
        &[fixed_field("spec.group"), fixed_field("spec.names.plural")],
    ),
    ("apps", "ControllerRevision", &[fixed_field("data")]),
    ("apps", "DaemonSet", SELECTOR),
    ("apps", "Deployment", SELECTOR),
    ("apps", "ReplicaSet", SELECTOR),
    (
        "apps",
        "StatefulSet",
        &[
            immutable_field(
                "spec",
                ViolationMessage::ForbiddenExcept(
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
            immutable_field(
                "spec",
                ViolationMessage::ForbiddenExcept(
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
            fixed_field("spec.selector").since(R37),
            fixed_field("spec.volumeClaimTemplates").since(R37),
            fixed_field("spec.serviceName").since(R37),
            fixed_field("spec.podManagementPolicy").since(R37),
        ],
    ),
    (
        "batch",
        "Job",
        &[
            fixed_field("spec.selector"),
            fixed_field("spec.completionMode"),
            fixed_field("spec.podFailurePolicy"),
            fixed_field("spec.backoffLimitPerIndex"),
            fixed_field("spec.managedBy"),
            fixed_field("spec.successPolicy"),
        ],
    ),
    ("certificates.k8s.io", "ClusterTrustBundle", &[fixed_field("spec.signerName")]),
    ("certificates.k8s.io", "PodCertificateRequest", SPEC),
    ("coordination.k8s.io", "LeaseCandidate", &[fixed_field("spec.leaseName")]),
    ("discovery.k8s.io", "EndpointSlice", &[fixed_field("addressType")]),
    (
        "events.k8s.io",
        "Event",
        // Refusals name the fields as the other group does.
        &[
            fixed_field("regarding").displayed_as("involvedObject"),
            fixed_field("reason"),
            fixed_field("note").displayed_as("message"),
            fixed_field("deprecatedSource").displayed_as("source"),
            fixed_field("deprecatedFirstTimestamp").displayed_as("firstTimestamp"),
            fixed_field("deprecatedLastTimestamp").displayed_as("lastTimestamp"),
            fixed_field("deprecatedCount").displayed_as("count"),
            fixed_field("type"),
            fixed_field("eventTime"),
            fixed_field("action"),
            fixed_field("related"),
            fixed_field("reportingController"),
            fixed_field("reportingInstance"),
        ],
    ),
    ("lifecycle.k8s.io", "Eviction", &[fixed_field("spec.target")]),
    ("lifecycle.k8s.io", "EvictionRequest", &[fixed_field("spec.target"), fixed_field("spec.requester")]),
    ("networking.k8s.io", "IPAddress", &[fixed_field("spec.parentRef")]),
    ("networking.k8s.io", "IngressClass", &[fixed_field("spec.controller")]),
    ("networking.k8s.io", "ServiceCIDR", &[fixed_field("spec.cidrs").until(R33)]),
    ("node.k8s.io", "RuntimeClass", &[fixed_field("handler")]),
    ("rbac.authorization.k8s.io", "ClusterRoleBinding", ROLE_REF),
    ("rbac.authorization.k8s.io", "RoleBinding", ROLE_REF),
    ("resource.k8s.io", "ResourceClaim", SPEC),
    ("resource.k8s.io", "ResourceClaimTemplate", SPEC),
    ("resource.k8s.io", "ResourcePoolStatusRequest", SPEC),
    (
        "resource.k8s.io",
        "ResourceSlice",
        &[fixed_field("spec.pool.name"), fixed_field("spec.driver"), fixed_field("spec.nodeName")],
    ),
    (
        "scheduling.k8s.io",
        "PodGroup",
        &[
            fixed_field("spec.podGroupTemplateRef"),
            fixed_field("spec.parentCompositePodGroupName"),
            fixed_field("spec.workloadRef"),
            fixed_field("spec.schedulingPolicy").until(R37),
            fixed_field("spec.schedulingConstraints"),
            fixed_field("spec.resourceClaims"),
            fixed_field("spec.disruptionMode"),
            fixed_field("spec.priorityClassName"),
            fixed_field("spec.priority"),
            fixed_field("spec.preemptionPolicy"),
        ],
    ),
    (
        "scheduling.k8s.io",
        "PriorityClass",
        &[forbidden_change("value", "may not be changed in an update."), fixed_field("preemptionPolicy")],
    ),
    (
        "scheduling.k8s.io",
        "Workload",
        &[
            fixed_field("spec.controllerRef").displayed_as("controllerRef").immutable_once_set().until(R36),
            fixed_field("spec.podGroups").displayed_as("podGroups").until(R36),
            fixed_field("spec.controllerRef").since(R36),
            fixed_field("spec.podGroupTemplates").since(R36).until(R37),
        ],
    ),
    (
        "storage.k8s.io",
        "CSIDriver",
        &[
            fixed_field("spec.attachRequired").displayed_as("spec.attachedRequired"),
            fixed_field("spec.volumeLifecycleModes"),
        ],
    ),
    ("storage.k8s.io", "CSIStorageCapacity", &[fixed_field("nodeTopology"), fixed_field("storageClassName")]),
    (
        "storage.k8s.io",
        "StorageClass",
        &[
            forbidden_change("parameters", "updates to parameters are forbidden.").until(R36),
            forbidden_change("provisioner", "updates to provisioner are forbidden.").until(R36),
            forbidden_change("reclaimPolicy", "updates to reclaimPolicy are forbidden.").until(R36),
            fixed_field("parameters").since(R36),
            fixed_field("provisioner").since(R36),
            fixed_field("reclaimPolicy").since(R36),
            fixed_field("volumeBindingMode"),
        ],
    ),
    ("storage.k8s.io", "VolumeAttachment", SPEC),
    (
        "storage.k8s.io",
        "VolumeAttributesClass",
        &[
            forbidden_change("driverName", "updates to driverName are forbidden."),
            forbidden_change("parameters", "updates to parameters are forbidden."),
        ],
    ),
    (
        "storagemigration.k8s.io",
        "StorageVersionMigration",
        &[
            fixed_field("spec.resource.group").displayed_as("group").until(R35),
            fixed_field("spec.resource.version").displayed_as("version").until(R35),
            fixed_field("spec.resource.resource").displayed_as("resource").until(R35),
            fixed_field("spec").since(R35),
        ],
    ),
];
