//! Defaults that are one value for one field.

use api::json::JsonObject;
use serde_json::{Map, Value};

use crate::fields::{set_if_absent, set_if_empty};
use schema::StructType;

/// One field and its default.
pub(super) struct FieldDefault {
    pub(super) field: &'static str,
    condition: DefaultCondition,
    value: DefaultValue,
}

#[derive(Clone, Copy)]
enum DefaultCondition {
    /// Set only if the field is absent: in Go it is a pointer.
    Absent,
    /// Set also if the field is empty or zero.
    Empty,
}

#[derive(Clone, Copy)]
enum DefaultValue {
    Text(&'static str),
    Integer(i32),
    Bool(bool),
    Object,
    Texts(&'static [&'static str]),
}

impl FieldDefault {
    pub(super) fn apply(&self, object: &mut JsonObject) {
        match self.condition {
            DefaultCondition::Absent => set_if_absent(object, self.field, self.value()),
            DefaultCondition::Empty => set_if_empty(object, self.field, self.value()),
        }
    }

    pub(super) fn value(&self) -> Value {
        match self.value {
            DefaultValue::Text(text) => text.into(),
            DefaultValue::Integer(integer) => integer.into(),
            DefaultValue::Bool(value) => value.into(),
            DefaultValue::Object => Map::new().into(),
            DefaultValue::Texts(texts) => texts.to_vec().into(),
        }
    }
}

/// The rows of a type.
pub(super) fn defaults_of_type(kind: StructType<'_>) -> &'static [FieldDefault] {
    let package = kind.package();
    let package =
        package.strip_prefix("io.k8s.api.").or_else(|| package.split_once(".pkg.apis.").map(|(_, rest)| rest));
    let Some(package) = package else { return &[] };
    let found = FIELD_DEFAULTS.binary_search_by(|(home, name, _)| (*home, *name).cmp(&(package, kind.name())));
    found.map_or(&[], |position| FIELD_DEFAULTS[position].2)
}

const fn default_if_absent(field: &'static str, value: DefaultValue) -> FieldDefault {
    FieldDefault { field, condition: DefaultCondition::Absent, value }
}

const fn default_if_empty(field: &'static str, value: DefaultValue) -> FieldDefault {
    FieldDefault { field, condition: DefaultCondition::Empty, value }
}

use DefaultValue::{Bool, Integer, Text, Texts};

const FILE_MODE: &[FieldDefault] = &[default_if_absent("defaultMode", Integer(0o644))];
const HTTPS_PORT: &[FieldDefault] = &[default_if_absent("port", Integer(443))];
const ALL_SCOPES: &[FieldDefault] = &[default_if_absent("scope", Text("*"))];
const FAIL: &[FieldDefault] = &[default_if_absent("failurePolicy", Text("Fail"))];
const MATCH: &[FieldDefault] = &[
    default_if_absent("matchPolicy", Text("Equivalent")),
    default_if_absent("namespaceSelector", DefaultValue::Object),
    default_if_absent("objectSelector", DefaultValue::Object),
];
const CONTAINER: &[FieldDefault] = &[
    default_if_empty("terminationMessagePath", Text("/dev/termination-log")),
    default_if_empty("terminationMessagePolicy", Text("File")),
];
const QUEUING: &[FieldDefault] = &[
    default_if_empty("handSize", Integer(8)),
    default_if_empty("queueLengthLimit", Integer(50)),
    default_if_empty("queues", Integer(64)),
];
const EXEMPT: &[FieldDefault] =
    &[default_if_absent("lendablePercent", Integer(0)), default_if_absent("nominalConcurrencyShares", Integer(0))];
const PRECEDENCE: &[FieldDefault] = &[default_if_empty("matchingPrecedence", Integer(1000))];
const PREEMPTION: &[FieldDefault] = &[default_if_absent("preemptionPolicy", Text("PreemptLowerPriority"))];
const ONE_REPLICA: &[FieldDefault] = &[default_if_absent("replicas", Integer(1))];

/// By package and type.
pub(super) static FIELD_DEFAULTS: &[(&str, &str, &[FieldDefault])] = &[
    ("admissionregistration.v1", "MatchResources", MATCH),
    ("admissionregistration.v1", "MutatingAdmissionPolicySpec", FAIL),
    (
        "admissionregistration.v1",
        "MutatingWebhook",
        &[
            default_if_absent("failurePolicy", Text("Fail")),
            default_if_absent("matchPolicy", Text("Equivalent")),
            default_if_absent("namespaceSelector", DefaultValue::Object),
            default_if_absent("objectSelector", DefaultValue::Object),
            default_if_absent("reinvocationPolicy", Text("Never")),
            default_if_absent("timeoutSeconds", Integer(10)),
        ],
    ),
    ("admissionregistration.v1", "NamedRuleWithOperations", ALL_SCOPES),
    ("admissionregistration.v1", "RuleWithOperations", ALL_SCOPES),
    ("admissionregistration.v1", "ServiceReference", HTTPS_PORT),
    ("admissionregistration.v1", "ValidatingAdmissionPolicySpec", FAIL),
    (
        "admissionregistration.v1",
        "ValidatingWebhook",
        &[
            default_if_absent("failurePolicy", Text("Fail")),
            default_if_absent("matchPolicy", Text("Equivalent")),
            default_if_absent("namespaceSelector", DefaultValue::Object),
            default_if_absent("objectSelector", DefaultValue::Object),
            default_if_absent("timeoutSeconds", Integer(10)),
        ],
    ),
    ("admissionregistration.v1alpha1", "MatchResources", MATCH),
    ("admissionregistration.v1alpha1", "MutatingAdmissionPolicySpec", FAIL),
    ("admissionregistration.v1alpha1", "NamedRuleWithOperations", ALL_SCOPES),
    ("admissionregistration.v1alpha1", "ValidatingAdmissionPolicySpec", FAIL),
    ("admissionregistration.v1beta1", "MatchResources", MATCH),
    ("admissionregistration.v1beta1", "MutatingAdmissionPolicySpec", FAIL),
    ("admissionregistration.v1beta1", "NamedRuleWithOperations", ALL_SCOPES),
    ("admissionregistration.v1beta1", "ValidatingAdmissionPolicySpec", FAIL),
    ("apiextensions.v1", "ServiceReference", HTTPS_PORT),
    ("apiregistration.v1", "ServiceReference", HTTPS_PORT),
    ("apps.v1", "DaemonSetSpec", &[default_if_absent("revisionHistoryLimit", Integer(10))]),
    (
        "apps.v1",
        "DeploymentSpec",
        &[
            default_if_absent("progressDeadlineSeconds", Integer(600)),
            default_if_absent("replicas", Integer(1)),
            default_if_absent("revisionHistoryLimit", Integer(10)),
        ],
    ),
    ("apps.v1", "ReplicaSetSpec", ONE_REPLICA),
    (
        "apps.v1",
        "StatefulSetSpec",
        &[
            default_if_empty("podManagementPolicy", Text("OrderedReady")),
            default_if_absent("replicas", Integer(1)),
            default_if_absent("revisionHistoryLimit", Integer(10)),
        ],
    ),
    ("authentication.v1", "TokenRequestSpec", &[default_if_absent("expirationSeconds", Integer(3600))]),
    ("autoscaling.v1", "HorizontalPodAutoscalerSpec", &[default_if_absent("minReplicas", Integer(1))]),
    ("autoscaling.v2", "HorizontalPodAutoscalerSpec", &[default_if_absent("minReplicas", Integer(1))]),
    (
        "batch.v1",
        "CronJobSpec",
        &[
            default_if_empty("concurrencyPolicy", Text("Allow")),
            default_if_absent("failedJobsHistoryLimit", Integer(1)),
            default_if_absent("successfulJobsHistoryLimit", Integer(3)),
            default_if_absent("suspend", Bool(false)),
        ],
    ),
    ("batch.v1", "PodFailurePolicyOnPodConditionsPattern", &[default_if_empty("status", Text("True"))]),
    ("core.v1", "AzureDiskVolumeSource", &[default_if_absent("readOnly", Bool(false))]),
    ("core.v1", "ConfigMapVolumeSource", FILE_MODE),
    ("core.v1", "Container", CONTAINER),
    ("core.v1", "DownwardAPIVolumeSource", FILE_MODE),
    ("core.v1", "EndpointPort", &[default_if_empty("protocol", Text("TCP"))]),
    ("core.v1", "EphemeralContainer", CONTAINER),
    ("core.v1", "FileKeySelector", &[default_if_absent("optional", Bool(false))]),
    ("core.v1", "GRPCAction", &[default_if_absent("service", Text(""))]),
    ("core.v1", "HTTPGetAction", &[default_if_empty("path", Text("/")), default_if_empty("scheme", Text("HTTP"))]),
    ("core.v1", "HostPathVolumeSource", &[default_if_absent("type", Text(""))]),
    ("core.v1", "ObjectFieldSelector", &[default_if_empty("apiVersion", Text("v1"))]),
    ("core.v1", "PersistentVolumeClaimSpec", &[default_if_absent("volumeMode", Text("Filesystem"))]),
    (
        "core.v1",
        "PodSpec",
        &[
            default_if_empty("dnsPolicy", Text("ClusterFirst")),
            default_if_empty("restartPolicy", Text("Always")),
            default_if_empty("schedulerName", Text("default-scheduler")),
            default_if_absent("securityContext", DefaultValue::Object),
            default_if_absent("terminationGracePeriodSeconds", Integer(30)),
        ],
    ),
    (
        "core.v1",
        "Probe",
        &[
            default_if_empty("failureThreshold", Integer(3)),
            default_if_empty("periodSeconds", Integer(10)),
            default_if_empty("successThreshold", Integer(1)),
            default_if_empty("timeoutSeconds", Integer(1)),
        ],
    ),
    ("core.v1", "ProjectedVolumeSource", FILE_MODE),
    ("core.v1", "ReplicationControllerSpec", ONE_REPLICA),
    ("core.v1", "Secret", &[default_if_empty("type", Text("Opaque"))]),
    ("core.v1", "SecretVolumeSource", FILE_MODE),
    ("core.v1", "ServiceAccountTokenProjection", &[default_if_absent("expirationSeconds", Integer(3600))]),
    (
        "discovery.v1",
        "EndpointPort",
        &[default_if_absent("name", Text("")), default_if_absent("protocol", Text("TCP"))],
    ),
    ("flowcontrol.v1", "ExemptPriorityLevelConfiguration", EXEMPT),
    ("flowcontrol.v1", "FlowSchemaSpec", PRECEDENCE),
    (
        "flowcontrol.v1",
        "LimitedPriorityLevelConfiguration",
        &[default_if_absent("lendablePercent", Integer(0)), default_if_absent("nominalConcurrencyShares", Integer(30))],
    ),
    ("flowcontrol.v1", "QueuingConfiguration", QUEUING),
    ("flowcontrol.v1beta3", "ExemptPriorityLevelConfiguration", EXEMPT),
    ("flowcontrol.v1beta3", "FlowSchemaSpec", PRECEDENCE),
    (
        "flowcontrol.v1beta3",
        "LimitedPriorityLevelConfiguration",
        &[default_if_absent("lendablePercent", Integer(0)), default_if_empty("nominalConcurrencyShares", Integer(30))],
    ),
    ("flowcontrol.v1beta3", "QueuingConfiguration", QUEUING),
    ("networking.v1", "IngressClassParametersReference", &[default_if_absent("scope", Text("Cluster"))]),
    ("networking.v1", "NetworkPolicyPort", &[default_if_absent("protocol", Text("TCP"))]),
    ("rbac.v1", "RoleRef", &[default_if_empty("apiGroup", Text("rbac.authorization.k8s.io"))]),
    ("scheduling.v1", "PriorityClass", PREEMPTION),
    (
        "storage.v1",
        "CSIDriverSpec",
        &[
            default_if_absent("attachRequired", Bool(true)),
            default_if_absent("fsGroupPolicy", Text("ReadWriteOnceWithFSType")),
            default_if_absent("podInfoOnMount", Bool(false)),
            default_if_absent("requiresRepublish", Bool(false)),
            default_if_absent("storageCapacity", Bool(false)),
            default_if_empty("volumeLifecycleModes", Texts(&["Persistent"])),
        ],
    ),
    (
        "storage.v1",
        "StorageClass",
        &[
            default_if_absent("reclaimPolicy", Text("Delete")),
            default_if_absent("volumeBindingMode", Text("Immediate")),
        ],
    ),
];
