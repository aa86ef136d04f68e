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

use api::json::JsonObject;
use schema::{SpecialType, StructField, StructType, TypeForm, ValueType, ZeroEncoding, quantity_in_thousandths};
use serde_json::{Map, Value};

use crate::feature_gates::FeatureGates;
use crate::fields::{set_if_absent, set_if_empty};
use crate::{
    csi, custom_resource_definition, daemon_set, deployment, devices, horizontal_pod_autoscaler, job, limit_range,
    namespace, network_policy, node, persistent_volume, pod, rbac, replication_controller, service, stateful_set,
};

/// Sets the defaults in an object of a kind. It must have passed [`schema::check_types`]; values of wrong types stay
/// unchanged.
pub fn apply_defaults(body: &mut Map<String, Value>, kind: StructType<'_>, gates: &FeatureGates) {
    for field in kind.fields().filter(|field| is_always_present(*field, kind)) {
        set_if_absent(body, field.name(), Map::new());
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

/// Adds what Go encodes although it is not set: scalars, and null for lists, maps, times and pointers.
fn add_written_zeros(body: &mut JsonObject, kind: StructType<'_>) {
    for field in kind.fields() {
        if let Some(zero) = written_zero(field).filter(|zero| !zero.is_object()) {
            set_if_absent(body, field.name(), zero);
        }
    }
}

/// What Go encodes for a field that is not set; `None` if the field is absent.
fn written_zero(field: StructField<'_>) -> Option<Value> {
    match field.zero_encoding() {
        ZeroEncoding::Omitted => None,
        ZeroEncoding::Null => Some(Value::Null),
        ZeroEncoding::Zero => Some(match field.value_type().form() {
            TypeForm::Text => "".into(),
            TypeForm::Int32 | TypeForm::Int64 | TypeForm::Double => 0.into(),
            TypeForm::Bool => false.into(),
            TypeForm::Struct(_) => Map::new().into(),
            TypeForm::Special(SpecialType::Quantity) => "0".into(),
            TypeForm::Special(SpecialType::IntOrString) => 0.into(),
            TypeForm::Special(_) | TypeForm::Bytes | TypeForm::List(_) | TypeForm::Map(_) => Value::Null,
        }),
    }
}

/// True for a struct, not a pointer to one. Go has no absent struct: an omitted one has defaults like any other, and is
/// encoded although it is empty. The status of a kind is left to the rules of the kind.
fn is_always_present(field: StructField<'_>, kind: StructType<'_>) -> bool {
    field.zero_encoding() == ZeroEncoding::Zero
        && matches!(field.value_type().form(), TypeForm::Struct(_))
        && !(field.name() == "status" && kind.kind().is_some())
}

/// The empty status: the fields that Go encodes although they are zero. `None` if the kind has no status, or a pointer to
/// one.
pub fn empty_status(kind: StructType<'_>) -> Option<Map<String, Value>> {
    let field = kind.field("status").filter(|field| field.zero_encoding() == ZeroEncoding::Zero)?;
    let TypeForm::Struct(status) = field.value_type().form() else { return None };
    Some(zero_object(status))
}

fn zero_object(kind: StructType<'_>) -> Map<String, Value> {
    let zero = |field: StructField<'_>| {
        let zero = written_zero(field)?;
        let zero = if let TypeForm::Struct(inner) = field.value_type().form()
            && zero.is_object()
        {
            zero_object(inner).into()
        } else {
            zero
        };
        Some((field.name().to_owned(), zero))
    };
    kind.fields().filter_map(zero).collect()
}

fn apply_defaults_to_value(value: &mut Value, shape: ValueType<'_>, gates: &FeatureGates) {
    match (shape.form(), value) {
        (TypeForm::Struct(inner), Value::Object(object)) => apply_defaults(object, inner, gates),
        (TypeForm::List(items), Value::Array(list)) => {
            list.iter_mut().for_each(|item| apply_defaults_to_value(item, items, gates));
        }
        (TypeForm::Map(_), Value::Object(map)) if shape.go_name() == Some("ResourceList") => {
            map.values_mut().for_each(round_up_to_thousandths);
        }
        (TypeForm::Map(values), Value::Object(map)) => {
            map.values_mut().for_each(|value| apply_defaults_to_value(value, values, gates));
        }
        _ => {}
    }
}

/// Amounts of resources are not finer than a thousandth.
fn round_up_to_thousandths(amount: &mut Value) {
    if let Some(rounded) = amount.as_str().and_then(quantity_in_thousandths) {
        *amount = rounded.into();
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
        ("storage.v1", "CSIDriverSpec") => csi::set_driver_defaults(object, gates),
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

/// Applies the defaults that Go's declarations state. Empty text counts as missing, so that it is no default either; nor is a zero
/// of a field that is no pointer.
fn apply_declared_defaults(object: &mut JsonObject, kind: StructType<'_>) {
    for field in kind.fields() {
        let Some(Ok(default)) = field.default().map(serde_json::from_str::<Value>) else { continue };
        let is_zero = default == 0 || default == false;
        if default == "" || is_zero && !field.is_pointer() {
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
