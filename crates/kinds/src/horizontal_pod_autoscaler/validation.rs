//! What is valid in horizontal pod autoscalers.

use crate::validation::Field;
use crate::validation::resources::ResourceScope;

const METRIC_TYPES: [&str; 5] = ["ContainerResource", "External", "Object", "Pods", "Resource"];
/// The field of each type of metric, in Kubernetes' order.
const SOURCES: [(&str, &str); 5] = [
    ("object", "Object"),
    ("external", "External"),
    ("pods", "Pods"),
    ("resource", "Resource"),
    ("containerResource", "ContainerResource"),
];
/// An hour.
const STABILIZATION_SECONDS_MAX: i64 = 3600;
/// Half an hour.
const PERIOD_SECONDS_MAX: i64 = 1800;
const RAW_OR_UTILIZATION: &str = "must set either a target raw value or a target utilization";

pub(super) fn check_autoscaler(autoscaler: Field<'_>) {
    let spec = autoscaler.at("spec");
    let (min, max) = (spec.at("minReplicas"), spec.at("maxReplicas"));
    let lowest = i64::from(!spec.is_enabled("HPAScaleToZero"));
    if min.is_present() && min.integer_or_zero() < lowest {
        min.invalid(format!("must be greater than or equal to {lowest}"));
    }
    if max.integer_or_zero() == 0 {
        max.required("must be set and greater than 0");
    } else if max.integer_or_zero() < 0 {
        max.invalid("must be greater than or equal to 1");
    }
    if min.is_present() && max.integer_or_zero() < min.integer_or_zero() {
        max.invalid_as(max.integer_or_zero(), "must be greater than or equal to `minReplicas`");
    }
    let target = spec.at("scaleTargetRef");
    check_reference(target);
    let version = target.at("apiVersion");
    if !version.text().contains('/') && target.at("kind").text() != "ReplicationController" {
        version.invalid_text("apiVersion must specify API group");
    }
    // The only metric of version 1.
    let utilization = spec.at("targetCPUUtilizationPercentage");
    if utilization.integer().is_some_and(|percentage| percentage < 1) {
        let shown = spec.at("metrics").index(0).path("resource.target.averageUtilization");
        utilization.reported_at(shown).invalid("must be greater than 0");
    }
    let metrics = spec.at("metrics");
    metrics.each(check_metric);
    let scales_to_zero =
        ["Object", "External"].iter().any(|kind| metrics.items().any(|one| one.at("type").text() == *kind));
    if min.integer() == Some(0) && !scales_to_zero {
        metrics.forbidden("must specify at least one Object or External metric to support scaling to zero replicas");
    }
    for rules in ["scaleUp", "scaleDown"].map(|name| spec.at("behavior").at(name)) {
        if rules.is_present() {
            check_scaling_rules(rules);
        }
    }
}

fn check_reference(reference: Field<'_>) {
    for name in ["kind", "name"].map(|name| reference.at(name)) {
        if name.require_text() {
            name.path_segment();
        }
    }
    let version = reference.at("apiVersion");
    if version.text().matches('/').count() > 1 {
        version.invalid(format!("unexpected GroupVersion string: {}", version.text()));
    }
}

fn check_scaling_rules(rules: Field<'_>) {
    let window = rules.at("stabilizationWindowSeconds");
    if window.integer_or_zero() < 0 {
        window.invalid("must be greater than or equal to zero");
    }
    if window.integer_or_zero() > STABILIZATION_SECONDS_MAX {
        window.invalid(format!("must be less than or equal to {STABILIZATION_SECONDS_MAX}"));
    }
    rules.at("selectPolicy").one_of_if_present(&["Disabled", "Max", "Min"]);
    if rules.at("policies").len() == 0 {
        rules.at("policies").required("must specify at least one Policy");
    }
    rules.at("policies").each(|policy| {
        policy.at("type").one_of(&["Percent", "Pods"]);
        for number in ["value", "periodSeconds"].map(|name| policy.at(name)) {
            if number.integer_or_zero() <= 0 {
                number.invalid_as(number.integer_or_zero(), "must be greater than zero");
            }
        }
        if policy.at("periodSeconds").integer_or_zero() > PERIOD_SECONDS_MAX {
            policy.at("periodSeconds").invalid(format!("must be less than or equal to {PERIOD_SECONDS_MAX}"));
        }
    });
    if rules.at("tolerance").is_present() {
        rules.at("tolerance").quantity_not_negative();
    }
}

fn check_metric(metric: Field<'_>) {
    let kind = metric.at("type");
    if kind.text().is_empty() {
        kind.required("must specify a metric source type");
    }
    kind.one_of(&METRIC_TYPES);
    let present: Vec<_> = SOURCES.iter().filter(|(name, _)| metric.at(name).is_present()).collect();
    if let Some((name, _)) = present.first() {
        check_source(name, metric.at(name));
    }
    let expected = SOURCES.iter().find(|(_, expected)| *expected == kind.text()).map(|(name, _)| *name);
    if let Some(field) = expected.map(|name| metric.at(name)).filter(|field| !field.is_present()) {
        field.required("must populate information for the given metric source");
    }
    if present.len() != 1 {
        for (name, _) in present.into_iter().filter(|(name, _)| Some(*name) != expected) {
            metric.at(name).forbidden("must populate the given metric source only");
        }
    }
}

fn check_source(name: &str, source: Field<'_>) {
    let target = source.at("target");
    let (value, average, utilization) =
        (target.at("value"), target.at("averageValue"), target.at("averageUtilization"));
    match name {
        "object" => {
            check_reference(source.at("describedObject"));
            check_metric_name(source);
            check_target(target);
            if !value.is_present() && !average.is_present() {
                average.required("must set either a target value or averageValue");
            }
        }
        "external" => {
            check_metric_name(source);
            check_target(target);
            match (value.is_present(), average.is_present()) {
                (false, false) => average.required("must set either a target value for metric or a per-pod target"),
                (true, true) => value.forbidden("may not set both a target value for metric and a per-pod target"),
                _ => {}
            }
        }
        "pods" => {
            check_metric_name(source);
            check_target(target);
            if !average.is_present() {
                average.required("must specify a positive target averageValue");
            }
        }
        _ => {
            let resource = source.at("name");
            if resource.text().is_empty() {
                resource.required("must specify a resource name");
            } else if name == "containerResource" {
                resource.resource_name(resource.text(), ResourceScope::Container);
            }
            if name == "containerResource" {
                let container = source.at("container");
                if container.text().is_empty() {
                    container.required("must specify a container");
                } else {
                    container.dns_label();
                }
            }
            check_target(target);
            match (utilization.is_present(), average.is_present()) {
                (false, false) => utilization.required(RAW_OR_UTILIZATION),
                (true, true) => average.forbidden("may not set both a target raw value and a target utilization"),
                _ => {}
            }
        }
    }
}

fn check_metric_name(source: Field<'_>) {
    let name = source.path("metric.name");
    if name.text().is_empty() {
        name.required("must specify a metric name");
    } else {
        name.path_segment();
    }
}

fn check_target(target: Field<'_>) {
    let kind = target.at("type");
    if kind.text().is_empty() {
        kind.required("must specify a metric target type");
    }
    if !["Utilization", "Value", "AverageValue"].contains(&kind.text()) {
        kind.invalid_text("must be either Utilization, Value, or AverageValue");
    }
    for amount in ["value", "averageValue"].map(|name| target.at(name)) {
        if amount.is_present() && !amount.quantity_sign().is_gt() {
            amount.invalid("must be positive");
        }
    }
    let utilization = target.at("averageUtilization");
    if utilization.integer().is_some_and(|percentage| percentage < 1) {
        utilization.invalid("must be greater than 0");
    }
}

pub(super) fn check_status(autoscaler: Field<'_>) {
    for count in ["currentReplicas", "desiredReplicas"] {
        autoscaler.at("status").at(count).not_negative();
    }
}
