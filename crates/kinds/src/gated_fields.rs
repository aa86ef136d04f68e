//! Fields that belong to a feature gate: a server whose gate is disabled drops them from what clients send.
//!
//! Like defaults, they belong to types and apply wherever a type occurs. An object that has a field of a gate already,
//! since a server with the gate stored it, keeps what the gate adds.

mod pod_spec;

use std::collections::BTreeSet;

use api::json::JsonObject;
use object::unstructured;
use schema::{StructType, TypeForm, ValueType};
use serde_json::Value;

use crate::feature_gates::FeatureGates;

/// Drops the fields of disabled gates from an object, apart from those of gates that the stored object makes use of.
pub fn drop_disabled_fields(
    old: Option<&JsonObject>,
    new: &mut JsonObject,
    kind: StructType<'_>,
    gates: &FeatureGates,
) {
    let mut disabled = BTreeSet::new();
    visit_gated_fields(new, kind, &mut |_, gate| {
        if gates.is_disabled(gate) {
            disabled.insert(gate);
        }
    });
    if let Some(old) = old.filter(|_| !disabled.is_empty()) {
        visit_gated_fields(old, kind, &mut |_, gate| {
            disabled.remove(gate);
        });
        if unstructured::nested_object(old, &["spec", "dataSourceRef"]).is_some() {
            disabled.remove(CROSS_NAMESPACE_SOURCES);
        }
    }
    if !disabled.is_empty() {
        drop_fields(new, kind, &disabled);
    }
}

/// Calls `visit` with the name of every field that an object has and that belongs to a gate, and with the gate.
pub fn visit_gated_fields(
    object: &JsonObject,
    kind: StructType<'_>,
    visit: &mut dyn FnMut(&'static str, &'static str),
) {
    for (field, gate) in gated_fields_of(kind.name()) {
        if object.get(*field).is_some_and(|value| !value.is_null()) {
            visit(field, gate);
        }
    }
    if kind.name() == "PodSpec" && pod_spec::has_restart_policies(object) {
        visit("restartPolicy", pod_spec::RESTART_RULES);
    }
    if kind.name() == "PersistentVolumeClaimSpec" && refers_to_other_namespace(object) {
        visit("dataSourceRef", CROSS_NAMESPACE_SOURCES);
    }
    for (name, value) in object {
        if let Some(field) = kind.field(name).filter(|_| value.is_object() || value.is_array()) {
            visit_gated_fields_of_value(value, field.value_type(), visit);
        }
    }
}

fn visit_gated_fields_of_value(value: &Value, shape: ValueType<'_>, visit: &mut dyn FnMut(&'static str, &'static str)) {
    match (shape.form(), value) {
        (TypeForm::Struct(inner), Value::Object(object)) => visit_gated_fields(object, inner, visit),
        (TypeForm::List(items), Value::Array(list)) => {
            list.iter().for_each(|item| visit_gated_fields_of_value(item, items, visit));
        }
        (TypeForm::Map(values), Value::Object(map)) => {
            map.values().for_each(|value| visit_gated_fields_of_value(value, values, visit));
        }
        _ => {}
    }
}

fn drop_fields(object: &mut JsonObject, kind: StructType<'_>, disabled: &BTreeSet<&'static str>) {
    for (field, gate) in gated_fields_of(kind.name()) {
        if disabled.contains(gate) {
            object.remove(*field);
        }
    }
    if kind.name() == "PodSpec" {
        pod_spec::drop_fields(object, disabled);
    }
    if kind.name() == "PersistentVolumeClaimSpec"
        && disabled.contains(CROSS_NAMESPACE_SOURCES)
        && refers_to_other_namespace(object)
    {
        object.remove("dataSourceRef");
    }
    let mut emptied = Vec::new();
    for (name, value) in &mut *object {
        let Some(field) = kind.field(name) else { continue };
        let was_empty = value.as_object().is_none_or(JsonObject::is_empty);
        drop_fields_of_value(value, field.value_type(), disabled);
        if !was_empty && value.as_object().is_some_and(JsonObject::is_empty) && DROPPED_WHEN_EMPTIED.contains(&&**name)
        {
            emptied.push(name.clone());
        }
    }
    for name in emptied {
        object.remove(&name);
    }
}

/// True for a claim's spec whose data source names a namespace.
fn refers_to_other_namespace(spec: &JsonObject) -> bool {
    !unstructured::text(spec, &["dataSourceRef", "namespace"]).is_empty()
}

fn drop_fields_of_value(value: &mut Value, shape: ValueType<'_>, disabled: &BTreeSet<&'static str>) {
    match (shape.form(), value) {
        (TypeForm::Struct(inner), Value::Object(object)) => drop_fields(object, inner, disabled),
        (TypeForm::List(items), Value::Array(list)) => {
            list.iter_mut().for_each(|item| drop_fields_of_value(item, items, disabled));
        }
        (TypeForm::Map(values), Value::Object(map)) => {
            map.values_mut().for_each(|value| drop_fields_of_value(value, values, disabled));
        }
        _ => {}
    }
}

/// Fields of a type with their gates.
fn gated_fields_of(kind: &str) -> &'static [(&'static str, &'static str)] {
    let found = GATED_FIELDS.binary_search_by(|(name, _)| (*name).cmp(kind));
    found.map_or(&[], |position| GATED_FIELDS[position].1)
}

const CROSS_NAMESPACE_SOURCES: &str = "CrossNamespaceVolumeDataSource";

/// Structs that do not stay behind without fields.
const DROPPED_WHEN_EMPTIED: [&str; 3] = ["lifecycle", "postStart", "preStop"];

const CONTAINER: &[(&str, &str)] =
    &[("resizePolicy", "InPlacePodVerticalScaling"), ("restartPolicyRules", "ContainerRestartRules")];
const DEVICE: &[(&str, &str)] = &[
    ("allNodes", "DRAPartitionableDevices"),
    ("allowMultipleAllocations", "DRAConsumableCapacity"),
    ("bindingConditions", "DRADeviceBindingConditions"),
    ("bindingFailureConditions", "DRADeviceBindingConditions"),
    ("bindsToNode", "DRADeviceBindingConditions"),
    ("consumesCounters", "DRAPartitionableDevices"),
    ("nodeAllocatableResourceMappings", "DRANodeAllocatableResources"),
    ("nodeName", "DRAPartitionableDevices"),
    ("nodeSelector", "DRAPartitionableDevices"),
    ("taints", "DRADeviceTaints"),
];
const DEVICE_REQUEST: &[(&str, &str)] = &[
    ("adminAccess", "DRAAdminAccess"),
    ("capacity", "DRAConsumableCapacity"),
    ("firstAvailable", "DRAPrioritizedList"),
    ("tolerations", "DRADeviceTaints"),
];
const POD_GROUP: &[(&str, &str)] = &[
    ("disruptionMode", "WorkloadAwarePreemption"),
    ("priority", "WorkloadAwarePreemption"),
    ("priorityClassName", "WorkloadAwarePreemption"),
    ("resourceClaims", "DRAWorkloadResourceClaims"),
    ("schedulingConstraints", "TopologyAwareWorkloadScheduling"),
];
const ATTRIBUTES_CLASS: &[(&str, &str)] = &[("volumeAttributesClassName", "VolumeAttributesClass")];

/// By the name of the type: pairs of a field and its gate.
static GATED_FIELDS: &[(&str, &[(&str, &str)])] = &[
    ("AllocatedDeviceStatus", &[("shareID", "DRAConsumableCapacity")]),
    ("BasicDevice", DEVICE),
    (
        "CSIDriverSpec",
        &[
            ("nodeAllocatableUpdatePeriodSeconds", "MutableCSINodeAllocatableCount"),
            ("preventPodSchedulingIfMissing", "VolumeLimitScaling"),
            ("seLinuxMount", "SELinuxMountReadWriteOncePod"),
            ("serviceAccountTokenInSecrets", "CSIServiceAccountTokenSecrets"),
        ],
    ),
    ("Container", CONTAINER),
    (
        "ContainerStatus",
        &[
            ("allocatedResources", "InPlacePodVerticalScaling"),
            ("allocatedResourcesStatus", "ResourceHealthStatus"),
            ("resources", "InPlacePodVerticalScaling"),
            ("user", "SupplementalGroupsPolicy"),
            ("volumeMounts", "RecursiveReadOnlyMounts"),
        ],
    ),
    ("Device", DEVICE),
    (
        "DeviceAttribute",
        &[
            ("bools", "DRAListTypeAttributes"),
            ("ints", "DRAListTypeAttributes"),
            ("strings", "DRAListTypeAttributes"),
            ("versions", "DRAListTypeAttributes"),
        ],
    ),
    ("DeviceCapacity", &[("requestPolicy", "DRAConsumableCapacity")]),
    ("DeviceClassSpec", &[("extendedResourceName", "DRAExtendedResource")]),
    ("DeviceConstraint", &[("distinctAttribute", "DRAConsumableCapacity")]),
    ("DeviceRequest", DEVICE_REQUEST),
    (
        "DeviceRequestAllocationResult",
        &[
            ("adminAccess", "DRAAdminAccess"),
            ("bindingConditions", "DRADeviceBindingConditions"),
            ("bindingFailureConditions", "DRADeviceBindingConditions"),
            ("consumedCapacity", "DRAConsumableCapacity"),
            ("shareID", "DRAConsumableCapacity"),
        ],
    ),
    ("DeviceSubRequest", DEVICE_REQUEST),
    ("EndpointHints", &[("forNodes", "PreferSameTrafficDistribution")]),
    ("EnvVarSource", &[("fileKeyRef", "EnvFiles")]),
    ("EphemeralContainer", CONTAINER),
    ("ExactDeviceRequest", DEVICE_REQUEST),
    ("HPAScalingRules", &[("tolerance", "HPAConfigurableTolerance")]),
    (
        "JobSpec",
        &[
            ("backoffLimitPerIndex", "JobBackoffLimitPerIndex"),
            ("managedBy", "JobManagedBy"),
            ("maxFailedIndexes", "JobBackoffLimitPerIndex"),
            ("podReplacementPolicy", "JobPodReplacementPolicy"),
            ("successPolicy", "JobSuccessPolicy"),
        ],
    ),
    ("LeaseSpec", &[("preferredHolder", "CoordinatedLeaderElection"), ("strategy", "CoordinatedLeaderElection")]),
    ("Lifecycle", &[("stopSignal", "ContainerStopSignals")]),
    ("LifecycleHandler", &[("sleep", "PodLifecycleSleepAction")]),
    ("NodeStatus", &[("declaredFeatures", "NodeDeclaredFeatures"), ("features", "SupplementalGroupsPolicy")]),
    ("PersistentVolumeClaimSpec", ATTRIBUTES_CLASS),
    (
        "PersistentVolumeClaimStatus",
        &[
            ("allocatedResourceStatuses", "RecoverVolumeExpansionFailure"),
            ("allocatedResources", "RecoverVolumeExpansionFailure"),
            ("currentVolumeAttributesClassName", "VolumeAttributesClass"),
            ("modifyVolumeStatus", "VolumeAttributesClass"),
        ],
    ),
    ("PersistentVolumeSpec", ATTRIBUTES_CLASS),
    (
        "PodAffinityTerm",
        &[("matchLabelKeys", "MatchLabelKeysInPodAffinity"), ("mismatchLabelKeys", "MatchLabelKeysInPodAffinity")],
    ),
    ("PodGroupSpec", POD_GROUP),
    ("PodGroupTemplate", POD_GROUP),
    (
        "PodSecurityContext",
        &[("seLinuxChangePolicy", "SELinuxChangePolicy"), ("supplementalGroupsPolicy", "SupplementalGroupsPolicy")],
    ),
    (
        "PodSpec",
        &[
            ("hostUsers", "UserNamespacesSupport"),
            ("hostnameOverride", "HostnameOverride"),
            ("resourceClaims", "DynamicResourceAllocation"),
            ("resources", "PodLevelResources"),
            ("schedulingGroup", "GenericWorkload"),
            ("workloadRef", "GenericWorkload"),
        ],
    ),
    (
        "PodStatus",
        &[
            ("allocatedResources", "InPlacePodLevelResourcesVerticalScaling"),
            ("extendedResourceClaimStatus", "DRAExtendedResource"),
            ("nodeAllocatableResourceClaimStatuses", "DRANodeAllocatableResources"),
            ("resourceClaimStatuses", "DynamicResourceAllocation"),
            ("resources", "InPlacePodLevelResourcesVerticalScaling"),
        ],
    ),
    ("ResourceClaimStatus", &[("devices", "DRAResourceClaimDeviceStatus")]),
    ("ResourceHealth", &[("message", "ResourceHealthStatusMessage")]),
    ("ResourceRequirements", &[("claims", "DynamicResourceAllocation")]),
    (
        "ResourceSliceSpec",
        &[("perDeviceNodeSelection", "DRAPartitionableDevices"), ("sharedCounters", "DRAPartitionableDevices")],
    ),
    ("RollingUpdateStatefulSetStrategy", &[("maxUnavailable", "MaxUnavailableStatefulSet")]),
    ("SecurityContext", &[("procMount", "ProcMountType")]),
    (
        "TopologySpreadConstraint",
        &[
            ("matchLabelKeys", "MatchLabelKeysInPodTopologySpread"),
            ("nodeAffinityPolicy", "NodeInclusionPolicyInPodTopologySpread"),
            ("nodeTaintsPolicy", "NodeInclusionPolicyInPodTopologySpread"),
        ],
    ),
    ("Volume", &[("image", "ImageVolume")]),
    ("VolumeError", &[("errorCode", "MutableCSINodeAllocatableCount")]),
    ("VolumeMount", &[("recursiveReadOnly", "RecursiveReadOnlyMounts")]),
    ("VolumeMountStatus", &[("volumeStatus", "ImageVolumeWithDigest")]),
    (
        "VolumeProjection",
        &[("clusterTrustBundle", "ClusterTrustBundleProjection"), ("podCertificate", "PodCertificateRequest")],
    ),
];

#[cfg(test)]
mod tests;
