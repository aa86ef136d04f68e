//! Nodes.

use std::collections::BTreeSet;

use api::FieldError;
use api::json::JsonObject;
use api::validation::validate_label_value;
use object::selectable_fields::SelectableFields;
use object::table::cells::{AGE, NAME, string_cell, string_cell_or, string_column, wide_column};
use object::table::{Column, cells};
use object::unstructured;
use object::unstructured::objects;
use serde_json::Value;

use crate::fields::{list_items, set_if_absent};
use crate::pod::validation::TAINT_EFFECTS;
use crate::release::Release;
use crate::strategy::KindStrategy;
use crate::update_validation::ObjectUpdate;
use crate::validation::addresses::parse_cidr;
use crate::validation::{Field, go_object};

const FEATURE_LENGTH_MAX: usize = 253;
const NOT_A_FEATURE: &str = "must start with an UpperCamelCase segment, with subsequent segments separated by '/' (e.g., \
     MyFeature or MyFeature/mySubFeature), and contain only alphanumeric characters and slashes";

pub(crate) static STRATEGY: KindStrategy = KindStrategy {
    keeps_status_on_create: true,
    prepare_for_create: |_, node| {
        sync_pod_ranges(node);
        Ok(())
    },
    prepare_for_update: |_, node| {
        sync_pod_ranges(node);
        Ok(())
    },
    validate_create: check_resources,
    validate: |node| {
        check_taints(node.path("spec.taints"), node.path("metadata.taints"));
        check_pod_ranges(node.path("spec.podCIDRs"));
    },
    validate_status: |node, _| check_resources(node),
    validate_update: |node, _| check_update(node),
    columns: NODES,
    selectable_fields: &SelectableFields {
        names: &["metadata.name", "spec.unschedulable"],
        value: |node, field| {
            let is_unschedulable = || unstructured::flag(node, &["spec", "unschedulable"]).to_string().into();
            (field == "spec.unschedulable").then(is_unschedulable)
        },
        ..SelectableFields::LISTED
    },
    ..KindStrategy::DEFAULT
};

/// The older field is the first of the list; where they differ, the older one counts.
fn sync_pod_ranges(node: &mut JsonObject) {
    let Some(spec) = node.get_mut("spec").and_then(Value::as_object_mut) else { return };
    let first = spec.get("podCIDRs").and_then(|ranges| ranges.get(0)).cloned();
    match (spec.get("podCIDR").cloned().filter(|range| range != ""), first) {
        (Some(range), first) if first.as_ref() != Some(&range) => {
            spec.insert("podCIDRs".to_owned(), Value::Array(vec![range]));
        }
        (None, Some(first)) => drop(spec.insert("podCIDR".to_owned(), first)),
        _ => {}
    }
}

fn check_pod_ranges(ranges: Field<'_>) {
    let parsed: Vec<_> = ranges.items().filter_map(Field::legacy_cidr).collect();
    let unreadable = ranges.texts().enumerate().find(|(_, range)| parse_cidr(range).is_none());
    if let Some((at, range)) = unreadable.filter(|_| ranges.len() > 1) {
        let detail = format!(
            "invalid PodCIDRs. failed to check with dual stack with error:invalid CIDR[{at}]: <nil> (invalid CIDR address: \
             {range})"
        );
        ranges.add_error(FieldError::internal(ranges.path_text(), detail));
    }
    let is_dual = parsed.iter().any(|(first, _)| first.is_ipv4()) && parsed.iter().any(|(first, _)| first.is_ipv6());
    if ranges.len() > 1 && (!is_dual || ranges.len() > 2) {
        ranges.invalid("may specify no more than one CIDR for each IP family");
    }
}

/// `shown` is the path of the list in errors of a new node, which is not its own.
fn check_taints<'a>(taints: Field<'a>, shown: Field<'a>) {
    let mut seen = BTreeSet::new();
    for (index, taint) in taints.items().enumerate() {
        let taint = taint.reported_at(shown.index(index));
        let (key, value, effect) = (taint.at("key"), taint.at("value"), taint.at("effect"));
        key.qualified_name();
        let errors = validate_label_value(value.text());
        if !errors.is_empty() {
            value.invalid_text(errors.join(";"));
        }
        effect.require_one_of(&TAINT_EFFECTS);
        if !seen.insert((effect.text(), key.text())) {
            let shown = go_object(&[
                ("Key", key.text().into()),
                ("Value", value.text().into()),
                ("Effect", effect.text().into()),
                ("TimeAdded", taint.at("timeAdded").value().cloned().unwrap_or_default()),
            ]);
            let error = FieldError::duplicate(taint.path_text(), "").showing(shown);
            taint.add_error(error.with_detail("taints must be unique by key and effect pair"));
        }
    }
}

/// Names of features, sorted: segments of letters and digits, the first one in upper camel case.
fn check_declared_features(features: Field<'_>) {
    let mut last: Option<&str> = None;
    for feature in features.items() {
        let name = feature.text();
        match last {
            Some(last) if last == name => feature.duplicate(),
            Some(last) if last > name => feature.invalid("list must be sorted alphabetically"),
            _ => {}
        }
        last = Some(name);
        if name.len() > FEATURE_LENGTH_MAX {
            feature.invalid(format!(
                "invalid feature name {name:?}: must be no more than {FEATURE_LENGTH_MAX} characters"
            ));
        } else if !is_feature_name(name) {
            feature.invalid(format!("invalid feature name {name:?}: {NOT_A_FEATURE}"));
        }
    }
}

fn is_feature_name(name: &str) -> bool {
    let is_segment = |part: &str| {
        part.starts_with(|first: char| first.is_ascii_alphabetic())
            && part.bytes().all(|byte| byte.is_ascii_alphanumeric())
    };
    name.starts_with(|first: char| first.is_ascii_uppercase()) && name.split('/').all(is_segment)
}

fn check_resources(node: Field<'_>) {
    check_declared_features(node.path("status.declaredFeatures"));
    for list in ["capacity", "allocatable"].map(|name| node.at("status").at(name)) {
        for (name, amount) in list.entries() {
            amount.reported_at(list.at(name)).resource_amount(name);
        }
    }
}

fn check_update(update: ObjectUpdate<'_>) -> Vec<FieldError> {
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

/// The allocatable resources default to the capacity.
pub(crate) fn set_node_status_defaults(status: &mut JsonObject) {
    if let Some(capacity) = status.get("capacity").cloned() {
        set_if_absent(status, "allocatable", capacity);
    }
}

const NODES: &[Column] = &[
    NAME,
    string_column("Status", "Whether it can run pods.", |node, _| node_status(node).into()),
    string_column("Roles", "Its roles.", |node, _| cells::or_placeholder(node_roles(node), "<none>")),
    AGE,
    string_column("Version", "The version of its kubelet.", |node, _| {
        string_cell(node, &["status", "nodeInfo", "kubeletVersion"])
    }),
    wide_column("Internal-IP", "Its address in the cluster.", |node, _| node_address_cell(node, "InternalIP")),
    wide_column("External-IP", "Its address outside of the cluster.", |node, _| node_address_cell(node, "ExternalIP")),
    wide_column("OS-Image", "Its operating system.", |node, _| {
        string_cell_or(node, &["status", "nodeInfo", "osImage"], "<unknown>")
    }),
    wide_column("Kernel-Version", "Its kernel.", |node, _| {
        let kernel = string_cell_or(node, &["status", "nodeInfo", "kernelVersion"], "<unknown>");
        match unstructured::text(node, &["status", "nodeInfo", "architecture"]) {
            "" => kernel,
            architecture => format!("{} ({architecture})", kernel.as_str().unwrap_or_default()).into(),
        }
    }),
    wide_column("Container-Runtime", "What runs its containers.", |node, _| {
        string_cell_or(node, &["status", "nodeInfo", "containerRuntimeVersion"], "<unknown>")
    }),
];

fn node_status(node: &JsonObject) -> String {
    let ready = match cells::find_condition(node, "Ready") {
        None => "Unknown",
        Some(condition) if unstructured::text(condition, &["status"]) == "True" => "Ready",
        Some(_) => "NotReady",
    };
    if unstructured::flag(node, &["spec", "unschedulable"]) {
        format!("{ready},SchedulingDisabled")
    } else {
        ready.to_owned()
    }
}

fn node_roles(node: &JsonObject) -> String {
    let labels = unstructured::nested_object(node, &["metadata", "labels"]).into_iter().flatten();
    let roles: BTreeSet<&str> = labels
        .filter_map(|(key, value)| match key.strip_prefix("node-role.kubernetes.io/") {
            Some(role) => Some(role),
            None => value.as_str().filter(|_| key == "kubernetes.io/role"),
        })
        .filter(|role| !role.is_empty())
        .collect();
    roles.into_iter().collect::<Vec<_>>().join(",")
}

fn node_address_cell(node: &JsonObject, kind: &str) -> Value {
    let mut of_kind =
        objects(node, &["status", "addresses"]).filter(|address| unstructured::text(address, &["type"]) == kind);
    of_kind.next().map_or_else(|| "<none>".into(), |address| string_cell(address, &["address"]))
}
