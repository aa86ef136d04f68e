//! What Kubernetes fills in when a client leaves it out.
//!
//! As in Kubernetes, defaults belong to types: a type is completed wherever it is met, from the outside in. Most are one value
//! for one field and stand in a table (`rows`), or with the field in the table of types; the few that look at other fields
//! are functions. They apply to whatever is decoded: to bodies, and to what a patch has made.
//!
//! Not here: what a server adds for other reasons (addresses, selectors of jobs, the status of a new pod), what needs a clock
//! (when a device was tainted), sums over containers (the requests of a pod as a whole).

mod cluster;
mod pods;
mod rows;
mod workloads;

use serde_json::{Map, Value};

use crate::gates::Gates;
use crate::schema::{Form, Shape, Struct};

type Object = Map<String, Value>;

/// Completes a body of a kind. It must have passed [`crate::schema::check()`]: what has a wrong type stays as it is.
pub fn complete(body: &mut Map<String, Value>, kind: Struct, gates: &Gates) {
    complete_type(body, kind, gates);
    complete_declared(body, kind);
    for row in rows::of(kind) {
        row.apply(body);
    }
    for (name, value) in body {
        if let Some(field) = kind.field(name) {
            complete_within(value, field.shape(), gates);
        }
    }
}

/// The status that says nothing: what Go writes of it although it is zero. `None` if the kind has no status.
pub fn empty_status(kind: Struct) -> Option<Map<String, Value>> {
    let Form::Struct(status) = kind.field("status")?.shape().form() else { return None };
    Some(empty(status))
}

fn empty(kind: Struct) -> Map<String, Value> {
    let mut object = Map::new();
    for field in kind.fields() {
        let is_written = field.is_required() || WRITTEN_EMPTY.contains(&(kind.name(), field.name()));
        let zero = match field.shape().form() {
            Form::Text => Value::from(""),
            Form::Int32 | Form::Int64 | Form::Double => Value::from(0),
            Form::Bool => Value::from(false),
            Form::Struct(inner) => Value::from(empty(inner)),
            Form::Bytes | Form::Special(_) | Form::List(_) | Form::Map(_) => continue,
        };
        if is_written {
            object.insert(field.name().to_owned(), zero);
        }
    }
    object
}

/// Parts of a status that Go writes though nothing is in them: they are no pointers, or are not marked as omitted when zero.
const WRITTEN_EMPTY: [(&str, &str); 6] = [
    ("IngressStatus", "loadBalancer"),
    ("NodeDaemonEndpoints", "kubeletEndpoint"),
    ("NodeStatus", "daemonEndpoints"),
    ("NodeStatus", "nodeInfo"),
    ("ServiceStatus", "loadBalancer"),
    ("StatefulSetStatus", "availableReplicas"),
];

fn complete_within(value: &mut Value, shape: Shape, gates: &Gates) {
    match (shape.form(), value) {
        (Form::Struct(inner), Value::Object(object)) => complete(object, inner, gates),
        (Form::List(items), Value::Array(list)) => {
            list.iter_mut().for_each(|item| complete_within(item, items, gates));
        }
        (Form::Map(values), Value::Object(map)) => {
            map.values_mut().for_each(|value| complete_within(value, values, gates));
        }
        _ => {}
    }
}

/// The types whose defaults look at other fields.
fn complete_type(object: &mut Object, kind: Struct, gates: &Gates) {
    let package = kind.package().strip_prefix("io.k8s.api.").unwrap_or(kind.package());
    match (package, kind.name()) {
        ("core.v1", "Pod") => pods::pod(object, gates),
        ("core.v1", "PodSpec") => pods::pod_spec(object),
        ("core.v1", "PodStatus") => pods::pod_status(object),
        ("core.v1", "Container" | "EphemeralContainer") => pods::container(object),
        ("core.v1", "Volume") => pods::volume(object, gates),
        ("core.v1", "ReplicationController") => workloads::replication_controller(object),
        ("apps.v1", "DeploymentSpec") => workloads::deployment(object),
        ("apps.v1", "DaemonSetSpec") => workloads::daemon_set(object),
        ("apps.v1", "StatefulSetSpec") => workloads::stateful_set(object, gates),
        ("batch.v1", "Job") => workloads::job(object, gates),
        ("autoscaling.v2", "HorizontalPodAutoscalerSpec") => workloads::autoscaler(object),
        ("core.v1", "Service") => cluster::service(object),
        ("core.v1", "Namespace") => cluster::namespace(object),
        ("core.v1", "PersistentVolume" | "PersistentVolumeClaim") => cluster::volume(object),
        ("core.v1", "NodeStatus") => cluster::node_status(object),
        ("core.v1", "LimitRangeItem") => cluster::limit_range_item(object),
        ("networking.v1", "NetworkPolicySpec") => cluster::network_policy(object),
        ("rbac.v1", "Subject") => cluster::subject(object),
        ("resource.v1" | "resource.v1beta2", "ExactDeviceRequest")
        | ("resource.v1" | "resource.v1beta2" | "resource.v1beta1", "DeviceSubRequest")
        | ("resource.v1beta1" | "resource.v1alpha3", "DeviceRequest") => cluster::device_request(object, kind),
        ("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1", "CustomResourceDefinition") => {
            cluster::definition(object);
        }
        _ => {}
    }
}

/// The defaults that Go's declarations state. Text counts as missing when it is empty.
fn complete_declared(object: &mut Object, kind: Struct) {
    for field in kind.fields() {
        let Some(Ok(default)) = field.default().map(serde_json::from_str::<Value>) else { continue };
        if default.is_string() {
            set_empty(object, field.name(), default);
        } else {
            set_absent(object, field.name(), default);
        }
    }
}

/// Sets a field that is not there.
fn set_absent(object: &mut Object, name: &str, value: impl Into<Value>) {
    if object.get(name).is_none_or(Value::is_null) {
        object.insert(name.to_owned(), value.into());
    }
}

/// Sets a field that is not there, or holds the empty value of its type, which Go cannot tell apart.
fn set_empty(object: &mut Object, name: &str, value: impl Into<Value>) {
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
fn child<'a>(object: &'a mut Object, name: &str) -> Option<&'a mut Object> {
    set_absent(object, name, Map::new());
    object.get_mut(name)?.as_object_mut()
}

/// The objects in a list.
fn items<'a>(object: &'a mut Object, name: &str) -> impl Iterator<Item = &'a mut Object> {
    object.get_mut(name).and_then(Value::as_array_mut).into_iter().flatten().filter_map(Value::as_object_mut)
}

fn text<'a>(object: &'a Object, name: &str) -> &'a str {
    object.get(name).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests;
