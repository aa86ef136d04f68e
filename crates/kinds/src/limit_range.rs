//! Limit ranges.

use std::collections::HashSet;

use api::json::JsonObject;
use object::KindRules;
use object::unstructured::nested_object_mut;
use schema::quantity_in_billionths;
use serde_json::Value;

use crate::fields::{drop_empty_list, object_field_mut, string_field};
use crate::strategy::{KindStrategy, RULES};
use crate::validation::Field;
use crate::validation::resources::ResourceScope;

pub(crate) static STRATEGY: KindStrategy = KindStrategy {
    rules: KindRules { allows_create_on_update: true, ..RULES },
    prepare_for_create: |_, range| {
        // A limit range without a name gets one that no other object has.
        let metadata = nested_object_mut(range, "metadata");
        if string_field(metadata, "name").is_empty() {
            let uid = metadata.get("uid").cloned().unwrap_or_default();
            metadata.insert("name".to_owned(), uid);
        }
        drop_empty_list(range, "spec", "limits");
        Ok(())
    },
    prepare_for_update: |_, range| {
        drop_empty_list(range, "spec", "limits");
        Ok(())
    },
    validate: check_limit_range,
    ..KindStrategy::DEFAULT
};

const TYPES: [&str; 3] = ["Pod", "Container", "PersistentVolumeClaim"];
const NOT_FOR_PODS: &str = "may not be specified when `type` is 'Pod'";

fn check_limit_range(range: Field<'_>) {
    let mut types = HashSet::new();
    for limit in range.path("spec.limits").items() {
        let kind = limit.at("type");
        let errors = kind.error_count();
        kind.qualified_name();
        if kind.error_count() == errors && !kind.text().contains('/') && !TYPES.contains(&kind.text()) {
            kind.invalid("must be a standard limit type or fully qualified");
        }
        if !types.insert(kind.text()) {
            kind.duplicate_of(kind.text());
        }
        check_item(limit);
    }
}

fn check_item(limit: Field<'_>) {
    let kind = limit.at("type").text();
    let scope = if matches!(kind, "Pod" | "Container") { ResourceScope::Container } else { ResourceScope::Any };
    let lists = ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"].map(|name| limit.at(name));
    let mut resources: Vec<&str> = Vec::new();
    for (index, list) in lists.into_iter().enumerate() {
        let is_default = index == 2 || index == 3;
        if kind == "Pod" && is_default {
            if list.len() > 0 {
                list.forbidden(NOT_FOR_PODS);
            }
            continue;
        }
        if index == 4 && kind == "PersistentVolumeClaim" {
            check_storage(limit);
        }
        for (name, amount) in list.entries() {
            amount.resource_name(name, scope);
            resources.push(name);
        }
    }
    resources.sort_unstable();
    resources.dedup();
    for resource in resources {
        check_order(limit, resource);
    }
}

fn check_storage(limit: Field<'_>) {
    if ["min", "max"].iter().all(|bound| !limit.at(bound).key("storage").is_present()) {
        let detail = "either minimum or maximum storage value is required, but neither was provided";
        limit.at("limits").required(detail);
    }
}

/// Minimum, default request, default limit and maximum of one resource are in this order.
fn check_order<'a>(limit: Field<'a>, resource: &'a str) {
    let [min, max, default, request, ratio] =
        ["min", "max", "default", "defaultRequest", "maxLimitRequestRatio"].map(|name| limit.at(name).key(resource));
    let is_greater = |one: Field<'_>, other: Field<'_>| {
        one.is_present() && other.is_present() && one.compare_quantity(other).is_gt()
    };
    let of_pod = limit.at("type").text() == "Pod";
    let rules = [
        (min, max, min, "min value {} is greater than max value {}"),
        (min, request, request, "min value {} is greater than default request value {}"),
        (request, max, request, "default request value {} is greater than max value {}"),
        (request, default, request, "default request value {} is greater than default limit value {}"),
        (min, default, default, "min value {} is greater than default value {}"),
        (default, max, default, "default value {} is greater than max value {}"),
    ];
    for (index, (one, other, shown, words)) in rules.into_iter().enumerate() {
        if is_greater(one, other) && !(of_pod && index > 0) {
            let detail = words.replacen("{}", &one.quantity_text(), 1).replacen("{}", &other.quantity_text(), 1);
            // For defaults, Kubernetes shows the bound.
            let value = match index {
                4 => one,
                5 => other,
                _ => shown,
            };
            shown.invalid_as(value.quantity_text(), detail);
        }
    }
    check_ratio(ratio, min, max);
    let is_native = !resource.contains('/') || resource.contains("kubernetes.io/");
    let is_fixed = !is_native || resource.starts_with("hugepages-");
    if is_fixed && default.is_present() && request.is_present() && default.compare_quantity(request).is_ne() && !of_pod
    {
        let (default, text) = (default.quantity_text(), request.quantity_text());
        let detail = format!("default value {default} must equal to defaultRequest value {text} in {resource}");
        request.invalid_as(text, detail);
    }
}

fn check_ratio(ratio: Field<'_>, min: Field<'_>, max: Field<'_>) {
    if !ratio.is_present() {
        return;
    }
    let amount = |field: Field<'_>| field.value().and_then(quantity_in_billionths).unwrap_or_default() as f64;
    let (text, value) = (ratio.quantity_text(), amount(ratio) / 1e9);
    if value < 1.0 {
        ratio.invalid_as(text.clone(), format!("ratio {text} is less than 1"));
    }
    let limit = amount(max) / amount(min);
    if min.is_present() && max.is_present() && value > limit {
        ratio.invalid_as(text.clone(), format!("ratio {text} is greater than max/min = {limit:.6}"));
    }
}

/// For containers the default limit is the maximum; the default request is the default limit, else the minimum.
pub(crate) fn set_limit_range_item_defaults(item: &mut JsonObject) {
    if string_field(item, "type") != "Container" {
        return;
    }
    for (from, to) in [("max", "default"), ("default", "defaultRequest"), ("min", "defaultRequest")] {
        let Some(Value::Object(source)) = item.get(from).cloned() else { continue };
        let Some(target) = object_field_mut(item, to) else { continue };
        for (name, quantity) in source {
            target.entry(name).or_insert(quantity);
        }
    }
}
