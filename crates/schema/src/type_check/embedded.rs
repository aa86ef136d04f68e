//! Fields that Go's types embed from another struct: messages name that struct too.

const RULE: [&str; 4] = ["apiGroups", "apiVersions", "resources", "scope"];

/// The embedded struct that a field of a type comes from.
pub(super) fn embedded_struct(kind: &str, field: &str) -> Option<&'static str> {
    match kind {
        "ConfigMapEnvSource"
        | "ConfigMapKeySelector"
        | "ConfigMapProjection"
        | "ConfigMapVolumeSource"
        | "SecretEnvSource"
        | "SecretKeySelector"
        | "SecretProjection" => (field == "name").then_some("LocalObjectReference"),
        "DeviceAllocationConfiguration" | "DeviceClaimConfiguration" | "DeviceClassConfiguration" => {
            (field == "opaque").then_some("DeviceConfiguration")
        }
        "EphemeralContainer" => (field != "targetContainerName").then_some("EphemeralContainerCommon"),
        "IngressRule" => (field == "http").then_some("IngressRuleValue"),
        "NamedRuleWithOperations" if RULE.contains(&field) => Some("RuleWithOperations.Rule"),
        "NamedRuleWithOperations" => (field == "operations").then_some("RuleWithOperations"),
        "PersistentVolumeSpec" => (!VOLUME_SPEC_FIELDS.contains(&field)).then_some("PersistentVolumeSource"),
        "Probe" => ["exec", "grpc", "httpGet", "tcpSocket"].contains(&field).then_some("ProbeHandler"),
        "RuleWithOperations" => RULE.contains(&field).then_some("Rule"),
        "Volume" => (field != "name").then_some("VolumeSource"),
        _ => None,
    }
}

/// Fields of a volume's spec that are not a source.
const VOLUME_SPEC_FIELDS: [&str; 9] = [
    "accessModes",
    "capacity",
    "claimRef",
    "mountOptions",
    "nodeAffinity",
    "persistentVolumeReclaimPolicy",
    "storageClassName",
    "volumeAttributesClassName",
    "volumeMode",
];
