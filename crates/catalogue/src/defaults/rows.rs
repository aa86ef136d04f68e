//! Defaults that are one value for one field.

use serde_json::{Map, Value};

use super::{Object, set_absent, set_empty};
use crate::schema::Struct;

/// One field and its default.
pub(super) struct Row {
    pub(super) field: &'static str,
    when: When,
    value: Literal,
}

#[derive(Clone, Copy)]
enum When {
    /// Only if the field is not there: in Go it is a pointer.
    Absent,
    /// Also if it is empty or zero.
    Empty,
}

#[derive(Clone, Copy)]
enum Literal {
    Text(&'static str),
    Integer(i32),
    Bool(bool),
    Object,
    Texts(&'static [&'static str]),
}

impl Row {
    pub(super) fn apply(&self, object: &mut Object) {
        match self.when {
            When::Absent => set_absent(object, self.field, self.value()),
            When::Empty => set_empty(object, self.field, self.value()),
        }
    }

    pub(super) fn value(&self) -> Value {
        match self.value {
            Literal::Text(text) => text.into(),
            Literal::Integer(integer) => integer.into(),
            Literal::Bool(value) => value.into(),
            Literal::Object => Map::new().into(),
            Literal::Texts(texts) => texts.to_vec().into(),
        }
    }
}

/// The rows of a type.
pub(super) fn of(kind: Struct) -> &'static [Row] {
    let package = kind.package();
    let package =
        package.strip_prefix("io.k8s.api.").or_else(|| package.split_once(".pkg.apis.").map(|(_, rest)| rest));
    let Some(package) = package else { return &[] };
    let found = ROWS.binary_search_by(|(home, name, _)| (*home, *name).cmp(&(package, kind.name())));
    found.map_or(&[], |position| ROWS[position].2)
}

const fn absent(field: &'static str, value: Literal) -> Row {
    Row { field, when: When::Absent, value }
}

const fn empty(field: &'static str, value: Literal) -> Row {
    Row { field, when: When::Empty, value }
}

use Literal::{Bool, Integer, Text, Texts};

/// Readable by all, writable by the owner.
const MODE: &[Row] = &[absent("defaultMode", Integer(0o644))];
const HTTPS_PORT: &[Row] = &[absent("port", Integer(443))];
const ALL_SCOPES: &[Row] = &[absent("scope", Text("*"))];
const FAIL: &[Row] = &[absent("failurePolicy", Text("Fail"))];
const MATCH: &[Row] = &[
    absent("matchPolicy", Text("Equivalent")),
    absent("namespaceSelector", Literal::Object),
    absent("objectSelector", Literal::Object),
];
const CONTAINER: &[Row] =
    &[empty("terminationMessagePath", Text("/dev/termination-log")), empty("terminationMessagePolicy", Text("File"))];
const QUEUING: &[Row] =
    &[empty("handSize", Integer(8)), empty("queueLengthLimit", Integer(50)), empty("queues", Integer(64))];
const EXEMPT: &[Row] = &[absent("lendablePercent", Integer(0)), absent("nominalConcurrencyShares", Integer(0))];
const PRECEDENCE: &[Row] = &[empty("matchingPrecedence", Integer(1000))];
const PREEMPTION: &[Row] = &[absent("preemptionPolicy", Text("PreemptLowerPriority"))];
const ONE_REPLICA: &[Row] = &[absent("replicas", Integer(1))];

/// By package and type.
pub(super) static ROWS: &[(&str, &str, &[Row])] = &[
    ("admissionregistration.v1", "MatchResources", MATCH),
    ("admissionregistration.v1", "MutatingAdmissionPolicySpec", FAIL),
    (
        "admissionregistration.v1",
        "MutatingWebhook",
        &[
            absent("failurePolicy", Text("Fail")),
            absent("matchPolicy", Text("Equivalent")),
            absent("namespaceSelector", Literal::Object),
            absent("objectSelector", Literal::Object),
            absent("reinvocationPolicy", Text("Never")),
            absent("timeoutSeconds", Integer(10)),
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
            absent("failurePolicy", Text("Fail")),
            absent("matchPolicy", Text("Equivalent")),
            absent("namespaceSelector", Literal::Object),
            absent("objectSelector", Literal::Object),
            absent("timeoutSeconds", Integer(10)),
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
    ("apps.v1", "DaemonSetSpec", &[absent("revisionHistoryLimit", Integer(10))]),
    (
        "apps.v1",
        "DeploymentSpec",
        &[
            absent("progressDeadlineSeconds", Integer(600)),
            absent("replicas", Integer(1)),
            absent("revisionHistoryLimit", Integer(10)),
        ],
    ),
    ("apps.v1", "ReplicaSetSpec", ONE_REPLICA),
    (
        "apps.v1",
        "StatefulSetSpec",
        &[
            empty("podManagementPolicy", Text("OrderedReady")),
            absent("replicas", Integer(1)),
            absent("revisionHistoryLimit", Integer(10)),
        ],
    ),
    ("authentication.v1", "TokenRequestSpec", &[absent("expirationSeconds", Integer(3600))]),
    ("autoscaling.v1", "HorizontalPodAutoscalerSpec", &[absent("minReplicas", Integer(1))]),
    ("autoscaling.v2", "HorizontalPodAutoscalerSpec", &[absent("minReplicas", Integer(1))]),
    (
        "batch.v1",
        "CronJobSpec",
        &[
            empty("concurrencyPolicy", Text("Allow")),
            absent("failedJobsHistoryLimit", Integer(1)),
            absent("successfulJobsHistoryLimit", Integer(3)),
            absent("suspend", Bool(false)),
        ],
    ),
    ("batch.v1", "PodFailurePolicyOnPodConditionsPattern", &[empty("status", Text("True"))]),
    ("core.v1", "AzureDiskVolumeSource", &[absent("readOnly", Bool(false))]),
    ("core.v1", "ConfigMapVolumeSource", MODE),
    ("core.v1", "Container", CONTAINER),
    ("core.v1", "DownwardAPIVolumeSource", MODE),
    ("core.v1", "EndpointPort", &[empty("protocol", Text("TCP"))]),
    ("core.v1", "EphemeralContainer", CONTAINER),
    ("core.v1", "FileKeySelector", &[absent("optional", Bool(false))]),
    ("core.v1", "GRPCAction", &[absent("service", Text(""))]),
    ("core.v1", "HTTPGetAction", &[empty("path", Text("/")), empty("scheme", Text("HTTP"))]),
    ("core.v1", "HostPathVolumeSource", &[absent("type", Text(""))]),
    ("core.v1", "ObjectFieldSelector", &[empty("apiVersion", Text("v1"))]),
    ("core.v1", "PersistentVolumeClaimSpec", &[absent("volumeMode", Text("Filesystem"))]),
    (
        "core.v1",
        "PersistentVolumeSpec",
        &[empty("persistentVolumeReclaimPolicy", Text("Retain")), absent("volumeMode", Text("Filesystem"))],
    ),
    (
        "core.v1",
        "PodSpec",
        &[
            empty("dnsPolicy", Text("ClusterFirst")),
            empty("restartPolicy", Text("Always")),
            empty("schedulerName", Text("default-scheduler")),
            absent("securityContext", Literal::Object),
            absent("terminationGracePeriodSeconds", Integer(30)),
        ],
    ),
    (
        "core.v1",
        "Probe",
        &[
            empty("failureThreshold", Integer(3)),
            empty("periodSeconds", Integer(10)),
            empty("successThreshold", Integer(1)),
            empty("timeoutSeconds", Integer(1)),
        ],
    ),
    ("core.v1", "ProjectedVolumeSource", MODE),
    ("core.v1", "ReplicationControllerSpec", ONE_REPLICA),
    ("core.v1", "Secret", &[empty("type", Text("Opaque"))]),
    ("core.v1", "SecretVolumeSource", MODE),
    ("core.v1", "ServiceAccountTokenProjection", &[absent("expirationSeconds", Integer(3600))]),
    ("discovery.v1", "EndpointPort", &[absent("name", Text("")), absent("protocol", Text("TCP"))]),
    ("flowcontrol.v1", "ExemptPriorityLevelConfiguration", EXEMPT),
    ("flowcontrol.v1", "FlowSchemaSpec", PRECEDENCE),
    (
        "flowcontrol.v1",
        "LimitedPriorityLevelConfiguration",
        &[absent("lendablePercent", Integer(0)), absent("nominalConcurrencyShares", Integer(30))],
    ),
    ("flowcontrol.v1", "QueuingConfiguration", QUEUING),
    ("flowcontrol.v1beta3", "ExemptPriorityLevelConfiguration", EXEMPT),
    ("flowcontrol.v1beta3", "FlowSchemaSpec", PRECEDENCE),
    (
        "flowcontrol.v1beta3",
        "LimitedPriorityLevelConfiguration",
        &[absent("lendablePercent", Integer(0)), empty("nominalConcurrencyShares", Integer(30))],
    ),
    ("flowcontrol.v1beta3", "QueuingConfiguration", QUEUING),
    ("networking.v1", "IngressClassParametersReference", &[absent("scope", Text("Cluster"))]),
    ("networking.v1", "NetworkPolicyPort", &[absent("protocol", Text("TCP"))]),
    ("rbac.v1", "RoleRef", &[empty("apiGroup", Text("rbac.authorization.k8s.io"))]),
    ("scheduling.v1", "PriorityClass", PREEMPTION),
    (
        "storage.v1",
        "CSIDriverSpec",
        &[
            absent("attachRequired", Bool(true)),
            absent("fsGroupPolicy", Text("ReadWriteOnceWithFSType")),
            absent("podInfoOnMount", Bool(false)),
            absent("requiresRepublish", Bool(false)),
            absent("storageCapacity", Bool(false)),
            empty("volumeLifecycleModes", Texts(&["Persistent"])),
        ],
    ),
    (
        "storage.v1",
        "StorageClass",
        &[absent("reclaimPolicy", Text("Delete")), absent("volumeBindingMode", Text("Immediate"))],
    ),
];
