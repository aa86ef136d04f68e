//! What Kubernetes fills in when a client leaves it out.
//!
//! As in Kubernetes, defaults belong to types: a type is completed wherever it is met, from the outside in. Most are one value
//! for one field and stand in a table (`rows`), or with the field in the table of types; the few that look at other fields
//! are functions. They apply to whatever is decoded: to bodies, and to what a patch has made.
//!
//! Not here: what a server adds for other reasons (addresses, selectors of jobs, the status of a new pod), what needs a clock
//! (when a device was tainted), sums over containers (the requests of a pod as a whole).

mod cluster;
mod field_defaults;
mod pods;
mod workloads;

use api::json::JsonObject;
use serde_json::{Map, Value};

use crate::feature_gates::FeatureGates;
use crate::schema::{StructType, TypeForm, ValueType};

/// Completes a body of a kind. It must have passed [`crate::schema::check_types`]: what has a wrong type stays as it is.
pub fn apply_defaults(body: &mut Map<String, Value>, kind: StructType, gates: &FeatureGates) {
    apply_type_defaults(body, kind, gates);
    apply_declared_defaults(body, kind);
    for row in field_defaults::defaults_of_type(kind) {
        row.apply(body);
    }
    for (name, value) in body {
        if let Some(field) = kind.field(name) {
            apply_defaults_to_value(value, field.value_type(), gates);
        }
    }
}

/// The status that says nothing: what Go writes of it although it is zero. `None` if the kind has no status.
pub fn empty_status(kind: StructType) -> Option<Map<String, Value>> {
    let TypeForm::Struct(status) = kind.field("status")?.value_type().form() else { return None };
    Some(zero_object(status))
}

fn zero_object(kind: StructType) -> Map<String, Value> {
    let mut object = Map::new();
    for field in kind.fields() {
        let is_written = field.is_required() || WRITTEN_THOUGH_EMPTY.contains(&(kind.name(), field.name()));
        let zero = match field.value_type().form() {
            TypeForm::Text => Value::from(""),
            TypeForm::Int32 | TypeForm::Int64 | TypeForm::Double => Value::from(0),
            TypeForm::Bool => Value::from(false),
            TypeForm::Struct(inner) => Value::from(zero_object(inner)),
            TypeForm::Bytes | TypeForm::Special(_) | TypeForm::List(_) | TypeForm::Map(_) => continue,
        };
        if is_written {
            object.insert(field.name().to_owned(), zero);
        }
    }
    object
}

/// Parts of a status that Go writes though nothing is in them: they are no pointers, or are not marked as omitted when zero.
const WRITTEN_THOUGH_EMPTY: [(&str, &str); 6] = [
    ("IngressStatus", "loadBalancer"),
    ("NodeDaemonEndpoints", "kubeletEndpoint"),
    ("NodeStatus", "daemonEndpoints"),
    ("NodeStatus", "nodeInfo"),
    ("ServiceStatus", "loadBalancer"),
    ("StatefulSetStatus", "availableReplicas"),
];

fn apply_defaults_to_value(value: &mut Value, shape: ValueType, gates: &FeatureGates) {
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

/// The types whose defaults look at other fields.
fn apply_type_defaults(object: &mut JsonObject, kind: StructType, gates: &FeatureGates) {
    let package = kind.package().strip_prefix("io.k8s.api.").unwrap_or(kind.package());
    match (package, kind.name()) {
        ("core.v1", "Pod") => pods::set_pod_defaults(object, gates),
        ("core.v1", "PodSpec") => pods::set_pod_spec_defaults(object),
        ("core.v1", "PodStatus") => pods::set_pod_status_defaults(object),
        ("core.v1", "Container" | "EphemeralContainer") => pods::set_container_defaults(object),
        ("core.v1", "Volume") => pods::set_volume_defaults(object, gates),
        ("core.v1", "ReplicationController") => workloads::set_replication_controller_defaults(object),
        ("apps.v1", "DeploymentSpec") => workloads::set_deployment_defaults(object),
        ("apps.v1", "DaemonSetSpec") => workloads::set_daemon_set_defaults(object),
        ("apps.v1", "StatefulSetSpec") => workloads::set_stateful_set_defaults(object, gates),
        ("batch.v1", "Job") => workloads::set_job_defaults(object, gates),
        ("autoscaling.v2", "HorizontalPodAutoscalerSpec") => workloads::set_autoscaler_defaults(object),
        ("core.v1", "Service") => cluster::set_service_defaults(object),
        ("core.v1", "Namespace") => cluster::set_namespace_defaults(object),
        ("core.v1", "PersistentVolume" | "PersistentVolumeClaim") => cluster::set_persistent_volume_defaults(object),
        ("core.v1", "NodeStatus") => cluster::set_node_status_defaults(object),
        ("core.v1", "LimitRangeItem") => cluster::set_limit_range_item_defaults(object),
        ("networking.v1", "NetworkPolicySpec") => cluster::set_network_policy_defaults(object),
        ("rbac.v1", "Subject") => cluster::set_rbac_subject_defaults(object),
        ("resource.v1" | "resource.v1beta2", "ExactDeviceRequest")
        | ("resource.v1" | "resource.v1beta2" | "resource.v1beta1", "DeviceSubRequest")
        | ("resource.v1beta1" | "resource.v1alpha3", "DeviceRequest") => {
            cluster::set_device_request_defaults(object, kind)
        }
        ("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1", "CustomResourceDefinition") => {
            cluster::set_custom_resource_definition_defaults(object);
        }
        _ => {}
    }
}

/// The defaults that Go's declarations state. Text counts as missing when it is empty.
fn apply_declared_defaults(object: &mut JsonObject, kind: StructType) {
    for field in kind.fields() {
        let Some(Ok(default)) = field.default().map(serde_json::from_str::<Value>) else { continue };
        if default.is_string() {
            set_if_empty(object, field.name(), default);
        } else {
            set_if_absent(object, field.name(), default);
        }
    }
}

/// Sets a field that is not there.
fn set_if_absent(object: &mut JsonObject, name: &str, value: impl Into<Value>) {
    if object.get(name).is_none_or(Value::is_null) {
        object.insert(name.to_owned(), value.into());
    }
}

/// Sets a field that is not there, or holds the empty value of its type, which Go cannot tell apart.
fn set_if_empty(object: &mut JsonObject, name: &str, value: impl Into<Value>) {
    if object.get(name).is_none_or(is_empty) {
        object.insert(name.to_owned(), value.into());
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
    }
}

/// The object in a field, made if it is not there; `None` if something else is.
fn object_field_mut<'a>(object: &'a mut JsonObject, name: &str) -> Option<&'a mut JsonObject> {
    set_if_absent(object, name, Map::new());
    object.get_mut(name)?.as_object_mut()
}

/// The objects in a list.
fn objects_mut<'a>(object: &'a mut JsonObject, name: &str) -> impl Iterator<Item = &'a mut JsonObject> {
    object.get_mut(name).and_then(Value::as_array_mut).into_iter().flatten().filter_map(Value::as_object_mut)
}

fn string_field<'a>(object: &'a JsonObject, name: &str) -> &'a str {
    object.get(name).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests;
