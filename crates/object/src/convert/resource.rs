//! `resource.k8s.io`: what the first beta had at the top of a request, later versions have under `exactly`; what it had under
//! `basic`, they have at the top of a device.

use serde_json::{Map, Value};

use super::Conversion;
use crate::unstructured::nested_object_mut;

/// The fields of a request that later versions have under `exactly`.
const EXACTLY_FIELDS: [&str; 7] =
    ["deviceClassName", "selectors", "allocationMode", "count", "adminAccess", "tolerations", "capacity"];

/// The conversion of a kind between the first beta and any other version.
pub(super) fn conversion_from(kind: &str, from: &str) -> Option<Conversion> {
    Some(match (kind, from) {
        ("ResourceClaim", "v1beta1") => |claim| convert_requests(claim, &["spec", "devices"], nest_exactly),
        ("ResourceClaim", _) => |claim| convert_requests(claim, &["spec", "devices"], flatten_exactly),
        ("ResourceClaimTemplate", "v1beta1") => {
            |template| convert_requests(template, &["spec", "spec", "devices"], nest_exactly)
        }
        ("ResourceClaimTemplate", _) => {
            |template| convert_requests(template, &["spec", "spec", "devices"], flatten_exactly)
        }
        ("ResourceSlice", "v1beta1") => |slice| convert_items(slice, &["spec"], "devices", lift_basic),
        ("ResourceSlice", _) => |slice| convert_items(slice, &["spec"], "devices", wrap_basic),
        _ => return None,
    })
}

fn convert_requests(object: &mut Map<String, Value>, path: &[&str], change: fn(&mut Map<String, Value>)) {
    convert_items(object, path, "requests", change);
}

/// Changes each object of a list, if there is one.
fn convert_items(object: &mut Map<String, Value>, path: &[&str], list: &str, change: fn(&mut Map<String, Value>)) {
    let holder = path.iter().try_fold(object, |object, name| object.get_mut(*name)?.as_object_mut());
    let items = holder.and_then(|holder| holder.get_mut(list)).and_then(Value::as_array_mut);
    for item in items.into_iter().flatten().filter_map(Value::as_object_mut) {
        change(item);
    }
}

fn nest_exactly(request: &mut Map<String, Value>) {
    let moved: Vec<(&str, Value)> =
        EXACTLY_FIELDS.iter().filter_map(|name| Some((*name, request.remove(*name)?))).collect();
    if moved.is_empty() {
        return;
    }
    nested_object_mut(request, "exactly").extend(moved.into_iter().map(|(name, value)| (name.to_owned(), value)));
}

fn flatten_exactly(request: &mut Map<String, Value>) {
    if let Some(Value::Object(exactly)) = request.remove("exactly") {
        request.extend(exactly);
    }
}

fn lift_basic(device: &mut Map<String, Value>) {
    if let Some(Value::Object(basic)) = device.remove("basic") {
        device.extend(basic);
    }
}

fn wrap_basic(device: &mut Map<String, Value>) {
    let name = device.remove("name");
    let basic = std::mem::take(device);
    device.insert("basic".to_owned(), Value::Object(basic));
    device.extend(name.map(|name| ("name".to_owned(), name)));
}
