//! Nodes, quotas, definitions, address ranges.

use std::collections::BTreeSet;

use api::FieldError;
use serde_json::Value;

use super::{FIELD_IS_IMMUTABLE, ObjectUpdate, list_items};
use crate::release::Release;
use crate::schema::TypeForm;
use crate::schema::semantic_equality::is_object_equal;

pub(super) fn check_node(update: ObjectUpdate<'_>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let (ranges, provider, external) = ("spec.podCIDRs", "spec.providerID", "spec.externalID");
    if !list_items(update.old_value(ranges)).is_empty() && !update.is_unchanged(ranges) {
        let detail = "node updates may not change podCIDR except from \"\" to valid";
        errors.push(FieldError::forbidden(ranges, detail));
    }
    let [was, is] = [update.old_string(provider), update.new_string(provider)];
    if !was.is_empty() && was != is {
        errors.push(match (update.gates.release() < Release::R37, is) {
            (true, _) => {
                let detail = "node updates may not change providerID except from \"\" to valid";
                FieldError::forbidden(provider, detail)
            }
            (false, "") => FieldError::invalid(provider, Value::Null, "field cannot be cleared once set"),
            (false, _) => FieldError::invalid(provider, Value::Null, "field cannot be modified once set"),
        });
    }
    if !update.is_unchanged(external) {
        errors.push(FieldError::forbidden(external, "may not be updated"));
    }
    errors
}

/// Scopes stay, in whichever order.
pub(super) fn check_resource_quota(update: ObjectUpdate<'_>) -> Vec<FieldError> {
    let path = "spec.scopes";
    let scopes = |value: Option<&Value>| -> BTreeSet<String> {
        list_items(value).iter().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    if scopes(update.old_value(path)) == scopes(update.new_value(path)) {
        return Vec::new();
    }
    vec![FieldError::invalid(path, update.displayed_value(path), FIELD_IS_IMMUTABLE)]
}

/// What others already go by: once a definition is established, its scope and kind stay.
pub(super) fn check_custom_resource_definition(update: ObjectUpdate<'_>) -> Vec<FieldError> {
    let is_established = list_items(update.old_value("status.conditions")).iter().any(|condition| {
        condition.get("type").is_some_and(|kind| kind == "Established")
            && condition.get("status").is_some_and(|status| status == "True")
    });
    let fixed =
        ["spec.scope", "spec.names.kind"].into_iter().filter(|path| is_established && !update.is_unchanged(path));
    fixed.map(|path| FieldError::invalid(path, update.displayed_value(path), FIELD_IS_IMMUTABLE)).collect()
}

/// From 1.33 on a range of a second family may be added.
pub(super) fn check_service_cidr(update: ObjectUpdate<'_>) -> Vec<FieldError> {
    let path = "spec.cidrs";
    if update.gates.release() < Release::R33 {
        return Vec::new();
    }
    let [old, new] = [update.old_value(path), update.new_value(path)].map(list_items);
    if old.len() != new.len() && (old.len(), new.len()) != (1, 2) {
        return vec![FieldError::invalid(path, update.displayed_value(path), FIELD_IS_IMMUTABLE)];
    }
    let changed = old.iter().zip(new).enumerate().filter(|(_, (old, new))| old != new);
    changed
        .map(|(at, (_, new))| FieldError::invalid(format!("{path}[{at}]"), new.clone(), FIELD_IS_IMMUTABLE))
        .collect()
}

/// A driver of a node stays as it is while it is there; how many volumes it takes may become another number.
pub(super) fn check_csi_node(update: ObjectUpdate<'_>) -> Vec<FieldError> {
    let path = "spec.drivers";
    let Some(TypeForm::List(drivers)) = update.field(path).map(|field| field.value_type().form()) else {
        return Vec::new();
    };
    let TypeForm::Struct(kind) = drivers.form() else { return Vec::new() };
    let is_counted_anew = update.gates.enabled("MutableCSINodeAllocatableCount");
    let comparable = |driver: &Value| {
        let mut driver = driver.as_object().cloned().unwrap_or_default();
        if is_counted_anew {
            driver.remove("allocatable");
        }
        driver
    };
    let olds: Vec<_> = list_items(update.old_value(path)).iter().map(comparable).collect();
    let mut errors = Vec::new();
    for new in list_items(update.new_value(path)).iter().map(comparable) {
        let old = olds.iter().find(|old| old.get("name") == new.get("name"));
        if old.is_some_and(|old| !is_object_equal(kind, old, &new)) {
            errors.push(FieldError::invalid(path, new, FIELD_IS_IMMUTABLE));
        }
    }
    errors
}
