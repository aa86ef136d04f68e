//! Default values of fields that a client omits.
//!
//! As in Kubernetes, defaults belong to types and apply wherever a type occurs, from the outermost object inwards. Most
//! are a constant for one field, in the table `field_defaults` or in the table of types; the few that depend on other
//! fields are functions of the kind. Defaults apply to everything that is decoded: request bodies and results of
//! patches.
//!
//! Not covered: values that a server adds for other reasons (addresses, selectors of jobs, the status of a new pod),
//! values that need a clock (when a device was tainted), and sums over containers (the requests of a pod as a whole).

mod field_defaults;
mod value_structs;

use api::json::JsonObject;
use schema::{StructField, StructType, TypeForm, ValueType};
use serde_json::{Map, Value};

use crate::feature_gates::FeatureGates;
use crate::fields::{set_if_absent, set_if_empty};
use crate::{
    custom_resource_definition, daemon_set, deployment, devices, horizontal_pod_autoscaler, job, limit_range,
    namespace, network_policy, node, persistent_volume, pod, rbac, replication_controller, service, stateful_set,
};

/// Sets the defaults in an object of a kind. It must have passed [`schema::check_types`]; values of wrong types stay
/// unchanged.
pub fn apply_defaults(body: &mut Map<String, Value>, kind: StructType<'_>, gates: &FeatureGates) {
    for name in value_structs::value_structs_of(kind.name()) {
        if kind.field(name).is_some() {
            set_if_absent(body, name, Map::new());
        }
    }
    apply_type_defaults(body, kind, gates);
    apply_declared_defaults(body, kind);
    for row in field_defaults::defaults_of_type(kind) {
        row.apply(body);
    }
    add_written_zeros(body, kind);
    for (name, value) in body {
        if let Some(field) = kind.field(name) {
            apply_defaults_to_value(value, field.value_type(), gates);
        }
    }
}

/// Adds scalars that Go encodes although they are zero: it has no absent scalar.
fn add_written_zeros(body: &mut JsonObject, kind: StructType<'_>) {
    for field in kind.fields().filter(|field| is_written_though_zero(kind, *field)) {
        if let Some(zero) = zero_scalar(field) {
            set_if_absent(body, field.name(), zero);
        }
    }
}

/// Required fields are written, as Go's declarations go with few exceptions.
fn is_written_though_zero(kind: StructType<'_>, field: StructField<'_>) -> bool {
    let row = (kind.name(), field.name());
    if field.is_required() {
        return !OMITTED_THOUGH_REQUIRED.contains(&row);
    }
    // Events of the other group have the second of these names too, and omit it.
    let is_event = kind.name() == "Event" && kind.field("reportingComponent").is_none();
    WRITTEN_THOUGH_EMPTY.contains(&row) && !is_event
}

fn zero_scalar(field: StructField<'_>) -> Option<Value> {
    match field.value_type().form() {
        TypeForm::Text => Some("".into()),
        TypeForm::Int32 | TypeForm::Int64 | TypeForm::Double => Some(0.into()),
        TypeForm::Bool => Some(false.into()),
        TypeForm::Struct(_) | TypeForm::Bytes | TypeForm::Special(_) | TypeForm::List(_) | TypeForm::Map(_) => None,
    }
}

/// The empty status: the fields that Go encodes although they are zero. `None` if the kind has no status.
pub fn empty_status(kind: StructType<'_>) -> Option<Map<String, Value>> {
    // A pointer in Go.
    if kind.name() == "ResourcePoolStatusRequest" {
        return None;
    }
    let TypeForm::Struct(status) = kind.field("status")?.value_type().form() else { return None };
    Some(zero_object(status))
}

fn zero_object(kind: StructType<'_>) -> Map<String, Value> {
    let mut object = Map::new();
    for field in kind.fields().filter(|field| is_written_though_zero(kind, *field)) {
        let zero = if let TypeForm::Struct(inner) = field.value_type().form() {
            Some(Value::from(zero_object(inner)))
        } else {
            zero_scalar(field)
        };
        object.extend(zero.map(|zero| (field.name().to_owned(), zero)));
    }
    object
}

/// Fields that Go encodes because they are neither pointers nor `omitempty`, although they are not required.
const WRITTEN_THOUGH_EMPTY: [(&str, &str); 15] = [
    ("Event", "reportingComponent"),
    ("Event", "reportingInstance"),
    ("IngressStatus", "loadBalancer"),
    ("NodeDaemonEndpoints", "kubeletEndpoint"),
    ("NodeRuntimeHandler", "name"),
    ("NodeStatus", "daemonEndpoints"),
    ("NodeStatus", "nodeInfo"),
    ("PodDisruptionBudgetStatus", "currentHealthy"),
    ("PodDisruptionBudgetStatus", "desiredHealthy"),
    ("PodDisruptionBudgetStatus", "disruptionsAllowed"),
    ("PodDisruptionBudgetStatus", "expectedPods"),
    ("ServiceStatus", "loadBalancer"),
    ("StatefulSetOrdinals", "start"),
    ("StatefulSetSpec", "serviceName"),
    ("StatefulSetStatus", "availableReplicas"),
];

/// Required fields that are pointers or `omitempty` in Go.
const OMITTED_THOUGH_REQUIRED: [(&str, &str); 18] = [
    ("ContainerRestartRule", "action"),
    ("ContainerRestartRuleOnExitCodes", "operator"),
    ("HTTPIngressPath", "pathType"),
    ("ImageVolumeStatus", "imageRef"),
    ("LeaseCandidateSpec", "strategy"),
    ("MutatingWebhook", "sideEffects"),
    ("ParentReference", "name"),
    ("ParentReference", "resource"),
    ("PodCertificateProjection", "keyType"),
    ("PodCertificateProjection", "signerName"),
    ("PoolStatus", "driver"),
    ("PoolStatus", "poolName"),
    ("ResourcePoolStatusRequestStatus", "poolCount"),
    ("ServerStorageVersion", "apiServerID"),
    ("ServerStorageVersion", "encodingVersion"),
    ("TokenReviewSpec", "token"),
    ("ValidatingAdmissionPolicyBindingSpec", "policyName"),
    ("ValidatingWebhook", "sideEffects"),
];

fn apply_defaults_to_value(value: &mut Value, shape: ValueType<'_>, gates: &FeatureGates) {
    match (shape.form(), value) {
        (TypeForm::Struct(inner), Value::Object(object)) => apply_defaults(object, inner, gates),
        (TypeForm::List(items), Value::Array(list)) => {
            list.iter_mut().for_each(|item| apply_defaults_to_value(item, items, gates));
        }
        (TypeForm::Map(values), Value::Object(map)) => {
            map.values_mut().for_each(|value| apply_defaults_to_value(value, values, gates));
        }
        _ => {}
    }
}

/// Applies the defaults of a type that depend on other fields.
fn apply_type_defaults(object: &mut JsonObject, kind: StructType<'_>, gates: &FeatureGates) {
    let package = kind.package().strip_prefix("io.k8s.api.").unwrap_or(kind.package());
    match (package, kind.name()) {
        ("core.v1", "Pod") => pod::defaults::set_pod_defaults(object, gates),
        ("core.v1", "PodSpec") => pod::defaults::set_pod_spec_defaults(object),
        ("core.v1", "PodStatus") => pod::defaults::set_pod_status_defaults(object),
        ("core.v1", "Container" | "EphemeralContainer") => pod::defaults::set_container_defaults(object),
        ("core.v1", "Volume") => pod::defaults::set_volume_defaults(object, gates),
        ("core.v1", "ReplicationController") => replication_controller::set_replication_controller_defaults(object),
        ("apps.v1", "DeploymentSpec") => deployment::set_deployment_defaults(object),
        ("apps.v1", "DaemonSetSpec") => daemon_set::set_daemon_set_defaults(object),
        ("apps.v1", "StatefulSetSpec") => stateful_set::set_stateful_set_defaults(object, gates),
        ("batch.v1", "Job") => job::set_job_defaults(object, gates),
        ("autoscaling.v2", "HorizontalPodAutoscalerSpec") => horizontal_pod_autoscaler::set_autoscaler_defaults(object),
        ("core.v1", "Service") => service::defaults::set_service_defaults(object),
        ("core.v1", "Namespace") => namespace::set_namespace_defaults(object),
        ("core.v1", "PersistentVolume") => persistent_volume::set_persistent_volume_defaults(object),
        ("core.v1", "PersistentVolumeClaim") => persistent_volume::set_phase_default(object),
        ("core.v1", "NodeStatus") => node::set_node_status_defaults(object),
        ("core.v1", "LimitRangeItem") => limit_range::set_limit_range_item_defaults(object),
        ("networking.v1", "NetworkPolicySpec") => network_policy::set_network_policy_defaults(object),
        ("rbac.v1", "Subject") => rbac::set_rbac_subject_defaults(object),
        ("resource.v1" | "resource.v1beta2", "ExactDeviceRequest")
        | ("resource.v1" | "resource.v1beta2" | "resource.v1beta1", "DeviceSubRequest")
        | ("resource.v1beta1" | "resource.v1alpha3", "DeviceRequest") => {
            devices::set_device_request_defaults(object, kind)
        }
        ("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1", "CustomResourceDefinition") => {
            custom_resource_definition::set_custom_resource_definition_defaults(object);
        }
        _ => {}
    }
}

/// Applies the defaults that Go's declarations state. Empty text counts as missing, so that it is no default either.
fn apply_declared_defaults(object: &mut JsonObject, kind: StructType<'_>) {
    for field in kind.fields() {
        let Some(Ok(default)) = field.default().map(serde_json::from_str::<Value>) else { continue };
        if default == "" {
            continue;
        }
        if default.is_string() {
            set_if_empty(object, field.name(), default);
        } else {
            set_if_absent(object, field.name(), default);
        }
    }
}

#[cfg(test)]
mod tests;
