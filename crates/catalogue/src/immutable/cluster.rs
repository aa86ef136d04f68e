//! Nodes, quotas, definitions, address ranges.

use std::collections::BTreeSet;

use api::FieldError;
use serde_json::Value;

use super::{FIXED, Update, items};
use crate::release::Release;
use crate::schema::Form;
use crate::schema::same::is_same_object;

pub(super) fn node(update: Update<'_>) -> Vec<FieldError> {
    let mut faults = Vec::new();
    let (ranges, provider, external) = ("spec.podCIDRs", "spec.providerID", "spec.externalID");
    if !items(update.before(ranges)).is_empty() && !update.keeps(ranges) {
        let detail = "node updates may not change podCIDR except from \"\" to valid";
        faults.push(FieldError::forbidden(ranges, detail));
    }
    let [was, is] = [update.text_before(provider), update.text_after(provider)];
    if !was.is_empty() && was != is {
        faults.push(match (update.gates.release() < Release::R37, is) {
            (true, _) => {
                let detail = "node updates may not change providerID except from \"\" to valid";
                FieldError::forbidden(provider, detail)
            }
            (false, "") => FieldError::invalid(provider, Value::Null, "field cannot be cleared once set"),
            (false, _) => FieldError::invalid(provider, Value::Null, "field cannot be modified once set"),
        });
    }
    if !update.keeps(external) {
        faults.push(FieldError::forbidden(external, "may not be updated"));
    }
    faults
}

/// Scopes stay, in whichever order.
pub(super) fn quota(update: Update<'_>) -> Vec<FieldError> {
    let path = "spec.scopes";
    let scopes = |value: Option<&Value>| -> BTreeSet<String> {
        items(value).iter().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    if scopes(update.before(path)) == scopes(update.after(path)) {
        return Vec::new();
    }
    vec![FieldError::invalid(path, update.shown(path), FIXED)]
}

/// What others already go by: once a definition is established, its scope and kind stay.
pub(super) fn definition(update: Update<'_>) -> Vec<FieldError> {
    let is_established = items(update.before("status.conditions")).iter().any(|condition| {
        condition.get("type").is_some_and(|kind| kind == "Established")
            && condition.get("status").is_some_and(|status| status == "True")
    });
    let fixed = ["spec.scope", "spec.names.kind"].into_iter().filter(|path| is_established && !update.keeps(path));
    fixed.map(|path| FieldError::invalid(path, update.shown(path), FIXED)).collect()
}

/// From 1.33 on a range of a second family may be added.
pub(super) fn address_range(update: Update<'_>) -> Vec<FieldError> {
    let path = "spec.cidrs";
    if update.gates.release() < Release::R33 {
        return Vec::new();
    }
    let [old, new] = [update.before(path), update.after(path)].map(items);
    if old.len() != new.len() && (old.len(), new.len()) != (1, 2) {
        return vec![FieldError::invalid(path, update.shown(path), FIXED)];
    }
    let changed = old.iter().zip(new).enumerate().filter(|(_, (old, new))| old != new);
    changed.map(|(at, (_, new))| FieldError::invalid(format!("{path}[{at}]"), new.clone(), FIXED)).collect()
}

/// A driver of a node stays as it is while it is there; how many volumes it takes may become another number.
pub(super) fn storage_node(update: Update<'_>) -> Vec<FieldError> {
    let path = "spec.drivers";
    let Some(Form::List(drivers)) = update.field(path).map(|field| field.shape().form()) else { return Vec::new() };
    let Form::Struct(kind) = drivers.form() else { return Vec::new() };
    let is_counted_anew = update.gates.enabled("MutableCSINodeAllocatableCount");
    let comparable = |driver: &Value| {
        let mut driver = driver.as_object().cloned().unwrap_or_default();
        if is_counted_anew {
            driver.remove("allocatable");
        }
        driver
    };
    let olds: Vec<_> = items(update.before(path)).iter().map(comparable).collect();
    let mut faults = Vec::new();
    for new in items(update.after(path)).iter().map(comparable) {
        let old = olds.iter().find(|old| old.get("name") == new.get("name"));
        if old.is_some_and(|old| !is_same_object(kind, old, &new)) {
            faults.push(FieldError::invalid(path, new, FIXED));
        }
    }
    faults
}
