//! Device classes, resource claims and resource slices: dynamic resource allocation.
//!
//! Fields at the top of a request in v1beta1 are under `exactly` in later versions; fields under `basic` in v1beta1 are
//! at the top of a device in later versions.

mod capacity;
mod claim_status;
mod names;
pub(crate) mod requirements;
mod slices;
mod validation;

use api::json::JsonObject;
use object::KindRules;
use object::rules::{GenerateNameRule, GenerationRule, StatusSubresource};
use object::selectable_fields::SelectableFields;
use object::table::Column;
use object::table::cells::{AGE, NAME, string_cell, string_column};
use object::unstructured;
use object::unstructured::{get, metadata_string, nested_object_mut};
use schema::StructType;
use serde_json::Value;

use self::requirements::DeviceRequirements;
use crate::fields::{set_if_empty, string_field};
use crate::reset_fields;
use crate::strategy::{KindStrategy, LENIENT_RULES, RULES, SubresourceStrategy};
use crate::update_validation::immutable_fields::{SPEC_IS_FIXED, fixed_field};

pub(crate) static DEVICE_CLASS_STRATEGY: KindStrategy = KindStrategy {
    rules: KindRules { generation: GenerationRule::Counted, generate_name: GenerateNameRule::Never, ..RULES },
    returns_deleted_object: true,
    validate: validation::check_device_class,
    columns: &[NAME, AGE],
    ..KindStrategy::DEFAULT
};

pub(crate) static DEVICE_TAINT_RULE_STRATEGY: KindStrategy = KindStrategy {
    reset_fields: reset_fields::STATUS_WITHOUT_METADATA,
    rules: KindRules { generation: GenerationRule::Counted, status: StatusSubresource::StatusOnly, ..LENIENT_RULES },
    returns_deleted_object: true,
    prepare_for_create: |_, rule| {
        let now = metadata_string(rule, "creationTimestamp").to_owned();
        if let Some(taint) = nested_object_mut(rule, "spec").get_mut("taint") {
            set_taint_time(taint, &now);
        }
        Ok(())
    },
    validate: validation::check_taint_rule,
    validate_status: |rule, _| validation::check_taint_rule_status(rule),
    ..KindStrategy::DEFAULT
};

/// A taint without a time was added now.
fn set_taint_time(taint: &mut Value, now: &str) {
    if let Some(taint) = taint.as_object_mut() {
        taint.entry("timeAdded").or_insert_with(|| now.into());
    }
}

pub(crate) static RESOURCE_CLAIM_STRATEGY: KindStrategy = KindStrategy {
    reset_fields: reset_fields::STATUS_WITHOUT_METADATA,
    rules: KindRules { status: StatusSubresource::StatusOnly, ..RULES },
    returns_deleted_object: true,
    validate_create: |claim| validation::check_claim_spec(claim.at("spec")),
    validate_status: claim_status::check_claim_status,
    subresources: &[SubresourceStrategy::status(|old, new, _| {
        requirements::drop_states_of_deallocated_devices(old, new);
        Ok(())
    })],
    device_requirements: |gates, subresource, old, new| match (subresource, old) {
        ("", None) => requirements::of_new(gates, new, &["spec", "devices"]),
        ("status", Some(old)) => requirements::of_status(gates, old, new),
        // The spec is immutable.
        _ => DeviceRequirements::default(),
    },
    immutable_fields: SPEC_IS_FIXED,
    columns: RESOURCE_CLAIMS,
    conversion: |from, to| match (from.version == "v1beta1", to.version == "v1beta1") {
        (true, false) => Some(|claim| convert_requests(claim, &["spec", "devices"], nest_exactly)),
        (false, true) => Some(|claim| convert_requests(claim, &["spec", "devices"], flatten_exactly)),
        (true, true) | (false, false) => None,
    },
    ..KindStrategy::DEFAULT
};

pub(crate) static RESOURCE_CLAIM_TEMPLATE_STRATEGY: KindStrategy = KindStrategy {
    returns_deleted_object: true,
    validate: validation::check_claim_template,
    device_requirements: |gates, _, old, new| match old {
        None => requirements::of_new(gates, new, &["spec", "spec", "devices"]),
        // The spec is immutable.
        Some(_) => DeviceRequirements::default(),
    },
    immutable_fields: SPEC_IS_FIXED,
    columns: &[NAME, AGE],
    conversion: |from, to| match (from.version == "v1beta1", to.version == "v1beta1") {
        (true, false) => Some(|template| convert_requests(template, &["spec", "spec", "devices"], nest_exactly)),
        (false, true) => Some(|template| convert_requests(template, &["spec", "spec", "devices"], flatten_exactly)),
        (true, true) | (false, false) => None,
    },
    ..KindStrategy::DEFAULT
};

pub(crate) static RESOURCE_POOL_STATUS_REQUEST_STRATEGY: KindStrategy = KindStrategy {
    reset_fields: reset_fields::STATUS_WITHOUT_METADATA,
    rules: KindRules { status: StatusSubresource::StatusOnly, allows_unconditional_update: false, ..LENIENT_RULES },
    returns_deleted_object: true,
    validate_create: validation::check_pool_status_request,
    immutable_fields: SPEC_IS_FIXED,
    ..KindStrategy::DEFAULT
};

pub(crate) static RESOURCE_SLICE_STRATEGY: KindStrategy = KindStrategy {
    rules: KindRules { generation: GenerationRule::Counted, ..LENIENT_RULES },
    returns_deleted_object: true,
    prepare_for_create: |_, slice| {
        let now = metadata_string(slice, "creationTimestamp").to_owned();
        let devices = nested_object_mut(slice, "spec").get_mut("devices").and_then(Value::as_array_mut);
        for device in devices.into_iter().flatten() {
            let taints = device.get_mut("taints").and_then(Value::as_array_mut).into_iter().flatten();
            taints.for_each(|taint| set_taint_time(taint, &now));
        }
        Ok(())
    },
    validate: slices::check_slice,
    immutable_fields: &[fixed_field("spec.pool.name"), fixed_field("spec.driver"), fixed_field("spec.nodeName")],
    columns: RESOURCE_SLICES,
    selectable_fields: &SelectableFields {
        names: &["metadata.name", "spec.nodeName", "spec.driver"],
        unsupported: |field| format!("field label not supported for ResourceSlice: {field}"),
        ..SelectableFields::LISTED
    },
    conversion: |from, to| match (from.version == "v1beta1", to.version == "v1beta1") {
        (true, false) => Some(|slice| convert_items(slice, &["spec"], "devices", lift_basic)),
        (false, true) => Some(|slice| convert_items(slice, &["spec"], "devices", wrap_basic)),
        (true, true) | (false, false) => None,
    },
    ..KindStrategy::DEFAULT
};

/// The fields of a request that later versions have under `exactly`.
const EXACTLY_FIELDS: [&str; 7] =
    ["deviceClassName", "selectors", "allocationMode", "count", "adminAccess", "tolerations", "capacity"];

fn convert_requests(object: &mut JsonObject, path: &[&str], change: fn(&mut JsonObject)) {
    convert_items(object, path, "requests", change);
}

/// Converts each object of the list at a path, if there is one.
fn convert_items(object: &mut JsonObject, path: &[&str], list: &str, change: fn(&mut JsonObject)) {
    let holder = path.iter().try_fold(object, |object, name| object.get_mut(*name)?.as_object_mut());
    let items = holder.and_then(|holder| holder.get_mut(list)).and_then(Value::as_array_mut);
    for item in items.into_iter().flatten().filter_map(Value::as_object_mut) {
        change(item);
    }
}

fn nest_exactly(request: &mut JsonObject) {
    let moved: Vec<(&str, Value)> =
        EXACTLY_FIELDS.iter().filter_map(|name| Some((*name, request.remove(*name)?))).collect();
    if moved.is_empty() {
        return;
    }
    nested_object_mut(request, "exactly").extend(moved.into_iter().map(|(name, value)| (name.to_owned(), value)));
}

fn flatten_exactly(request: &mut JsonObject) {
    if let Some(Value::Object(exactly)) = request.remove("exactly") {
        request.extend(exactly);
    }
}

fn lift_basic(device: &mut JsonObject) {
    if let Some(Value::Object(basic)) = device.remove("basic") {
        device.extend(basic);
    }
}

fn wrap_basic(device: &mut JsonObject) {
    let name = device.remove("name");
    let basic = std::mem::take(device);
    device.insert("basic".to_owned(), Value::Object(basic));
    device.extend(name.map(|name| ("name".to_owned(), name)));
}

/// A request defaults to exactly one device, unless it is a choice among subrequests.
pub(crate) fn set_device_request_defaults(request: &mut JsonObject, kind: StructType<'_>) {
    let may_choose = kind.name() == "DeviceRequest" && kind.field("firstAvailable").is_some();
    if may_choose && string_field(request, "deviceClassName").is_empty() {
        return;
    }
    set_if_empty(request, "allocationMode", "ExactCount");
    if string_field(request, "allocationMode") == "ExactCount" {
        set_if_empty(request, "count", 1);
    }
}

const RESOURCE_CLAIMS: &[Column] = &[
    NAME,
    string_column("State", "Whether it is allocated and reserved.", |claim, _| claim_state(claim).join(",").into()),
    AGE,
];

fn claim_state(claim: &JsonObject) -> Vec<&'static str> {
    let is_deleted = get(claim, &["metadata", "deletionTimestamp"]).is_some_and(|time| !time.is_null());
    let is_allocated = unstructured::nested_object(claim, &["status", "allocation"]).is_some();
    let is_reserved = !unstructured::list(claim, &["status", "reservedFor"]).is_empty();
    let mut states = Vec::new();
    if is_deleted {
        states.push("deleted");
    }
    match (is_allocated, is_reserved) {
        (false, _) if is_deleted => {}
        (false, _) => states.push("pending"),
        (true, false) => states.push("allocated"),
        (true, true) => states.extend(["allocated", "reserved"]),
    }
    states
}

const RESOURCE_SLICES: &[Column] = &[
    NAME,
    string_column("Node", "The node that has the devices.", |slice, _| string_cell(slice, &["spec", "nodeName"])),
    string_column("Driver", "The driver of the devices.", |slice, _| string_cell(slice, &["spec", "driver"])),
    string_column("Pool", "The pool they belong to.", |slice, _| string_cell(slice, &["spec", "pool", "name"])),
    AGE,
];
