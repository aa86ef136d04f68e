//! Workloads that keep pods running, what scales them and what protects them.

use api::json::JsonObject;
use serde_json::Value;

use super::Column;
use super::cells::{
    self, AGE, CONTAINERS, IMAGES, NAME, integer_cell, integer_column, string_cell, string_column, wide_column,
};
use crate::unstructured::{self, objects};

pub(super) fn columns(kind: &str) -> Option<&'static [Column]> {
    Some(match kind {
        "Deployment" => DEPLOYMENTS,
        "ReplicaSet" => REPLICA_SETS,
        "StatefulSet" => STATEFUL_SETS,
        "DaemonSet" => DAEMON_SETS,
        "ControllerRevision" => REVISIONS,
        "HorizontalPodAutoscaler" => AUTOSCALERS,
        "Scale" => SCALES,
        "PodDisruptionBudget" => BUDGETS,
        _ => return None,
    })
}

const READY: Column = string_column("Ready", "How many pods are ready, of how many.", |workload, _| {
    let ready = unstructured::integer(workload, &["status", "readyReplicas"]).unwrap_or_default();
    format!("{ready}/{}", cells::desired_replicas(workload)).into()
});

const SELECTOR: Column = wide_column("Selector", "Which pods are its own.", |workload, _| {
    cells::or_placeholder(cells::selector_text(workload, &["spec", "selector"]), "<none>")
});

const DEPLOYMENTS: &[Column] = &[
    NAME,
    READY,
    string_column("Up-to-date", "How many pods follow the present template.", |deployment, _| {
        integer_cell(deployment, &["status", "updatedReplicas"])
    }),
    string_column("Available", "How many pods have been ready for long enough.", |deployment, _| {
        integer_cell(deployment, &["status", "availableReplicas"])
    }),
    AGE,
    CONTAINERS,
    IMAGES,
    wide_column("Selector", "Which pods are its own.", |deployment, _| {
        cells::selector_text(deployment, &["spec", "selector"]).replace("<error>", "<invalid>").into()
    }),
];

const REPLICA_SETS: &[Column] = &[
    NAME,
    integer_column("Desired", "How many pods it wants.", |set, _| cells::desired_replicas(set).into()),
    integer_column("Current", "How many pods there are.", |set, _| integer_cell(set, &["status", "replicas"])),
    integer_column("Ready", "How many pods are ready.", |set, _| integer_cell(set, &["status", "readyReplicas"])),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];

const STATEFUL_SETS: &[Column] = &[NAME, READY, AGE, CONTAINERS, IMAGES];

const DAEMON_SETS: &[Column] = &[
    NAME,
    integer_column("Desired", "On how many nodes it should run.", |set, _| {
        integer_cell(set, &["status", "desiredNumberScheduled"])
    }),
    integer_column("Current", "On how many of those it runs.", |set, _| {
        integer_cell(set, &["status", "currentNumberScheduled"])
    }),
    integer_column("Ready", "How many pods are ready.", |set, _| integer_cell(set, &["status", "numberReady"])),
    integer_column("Up-to-date", "How many pods follow the present template.", |set, _| {
        integer_cell(set, &["status", "updatedNumberScheduled"])
    }),
    integer_column("Available", "How many pods have been ready for long enough.", |set, _| {
        integer_cell(set, &["status", "numberAvailable"])
    }),
    string_column("Node Selector", "On which nodes it runs.", |set, _| {
        cells::labels_cell(set, &["spec", "template", "spec", "nodeSelector"])
    }),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];

const REVISIONS: &[Column] = &[
    NAME,
    string_column("Controller", "What it is a revision of.", |revision, _| {
        let mut owners = objects(revision, &["metadata", "ownerReferences"]);
        let controller = owners.find(|owner| unstructured::flag(owner, &["controller"]));
        controller.map_or_else(|| "<none>".into(), |owner| owner_name(owner).into())
    }),
    string_column("Revision", "Its number.", |revision, _| integer_cell(revision, &["revision"])),
    AGE,
];

/// Such as `deployment.apps/web`.
fn owner_name(owner: &JsonObject) -> String {
    let group = unstructured::text(owner, &["apiVersion"]).rsplit_once('/').map_or("", |(group, _)| group);
    let kind = unstructured::text(owner, &["kind"]);
    let kind = api::GroupKind { group, kind }.to_string().to_lowercase();
    format!("{kind}/{}", unstructured::text(owner, &["name"]))
}

const SCALES: &[Column] = &[
    Column { format: "", ..NAME },
    integer_column("Desired", "How many pods are wanted.", |scale, _| integer_cell(scale, &["spec", "replicas"])),
    integer_column("Available", "How many pods there are.", |scale, _| integer_cell(scale, &["status", "replicas"])),
    AGE,
];

const BUDGETS: &[Column] = &[
    NAME,
    string_column("Min Available", "How many pods must stay.", |budget, _| {
        int_or_string_cell(budget, &["spec", "minAvailable"])
    }),
    string_column("Max Unavailable", "How many pods may be missing.", |budget, _| {
        int_or_string_cell(budget, &["spec", "maxUnavailable"])
    }),
    integer_column("Allowed Disruptions", "How many pods may go now.", |budget, _| {
        integer_cell(budget, &["status", "disruptionsAllowed"])
    }),
    AGE,
];

fn int_or_string_cell(object: &JsonObject, path: &[&str]) -> Value {
    match unstructured::get(object, path) {
        Some(Value::String(text)) => text.as_str().into(),
        Some(Value::Number(number)) => number.to_string().into(),
        Some(Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_)) | None => "N/A".into(),
    }
}

const AUTOSCALERS: &[Column] = &[
    NAME,
    string_column("Reference", "What it scales.", |scaler, _| {
        let field = |name: &str| unstructured::text(scaler, &["spec", "scaleTargetRef", name]);
        format!("{}/{}", field("kind"), field("name")).into()
    }),
    string_column("Targets", "The metrics it watches: present and wanted.", |scaler, _| targets_cell(scaler)),
    string_column("MinPods", "The least pods it leaves.", |scaler, _| {
        let least = unstructured::integer(scaler, &["spec", "minReplicas"]);
        least.map_or_else(|| "<unset>".into(), |least| least.to_string().into())
    }),
    string_column("MaxPods", "The most pods it makes.", |scaler, _| integer_cell(scaler, &["spec", "maxReplicas"])),
    string_column("Replicas", "How many pods there are.", |scaler, _| {
        integer_cell(scaler, &["status", "currentReplicas"])
    }),
    AGE,
];

/// How many metrics of an autoscaler are shown.
const METRICS_SHOWN_MAX: usize = 2;

fn targets_cell(scaler: &JsonObject) -> Value {
    let current_metrics: Vec<&JsonObject> = objects(scaler, &["status", "currentMetrics"]).collect();
    let metrics = objects(scaler, &["spec", "metrics"]).enumerate();
    let mut shown: Vec<String> =
        metrics.map(|(at, metric)| target_text(metric, current_metrics.get(at).copied())).collect();
    // The first version knows but one metric.
    if let Some(wanted) = unstructured::integer(scaler, &["spec", "targetCPUUtilizationPercentage"]) {
        let present = unstructured::integer(scaler, &["status", "currentCPUUtilizationPercentage"]);
        let present = present.map_or_else(|| "<unknown>".to_owned(), |percent| format!("{percent}%"));
        shown.push(format!("cpu: {present}/{wanted}%"));
    }
    match shown.len().checked_sub(METRICS_SHOWN_MAX) {
        Some(rest @ 1..) => format!("{} + {rest} more...", shown[..METRICS_SHOWN_MAX].join(", ")).into(),
        _ => cells::or_placeholder(shown.join(", "), "<none>"),
    }
}

fn target_text(metric: &JsonObject, current: Option<&JsonObject>) -> String {
    let source = match unstructured::text(metric, &["type"]) {
        "External" => "external",
        "Pods" => "pods",
        "Object" => "object",
        "Resource" => "resource",
        "ContainerResource" => "containerResource",
        _ => return "<unknown type>".to_owned(),
    };
    let wanted = |field: &str| quantity_text(metric, &[source, "target", field]);
    let present = |field: &str| current.and_then(|now| quantity_text(now, &[source, "current", field]));
    let unknown = || "<unknown>".to_owned();
    let average = wanted("averageValue");
    match source {
        "pods" => format!("{}/{}", present("averageValue").unwrap_or_else(unknown), average.unwrap_or_default()),
        "external" | "object" => match average {
            Some(average) => format!("{}/{average} (avg)", present("averageValue").unwrap_or_else(unknown)),
            None => format!("{}/{}", present("value").unwrap_or_else(unknown), wanted("value").unwrap_or_default()),
        },
        _ => {
            let name = string_cell(metric, &[source, "name"]);
            let name = name.as_str().unwrap_or_default();
            let percent =
                |value: Option<String>, none: &str| value.map_or_else(|| none.to_owned(), |value| format!("{value}%"));
            match average {
                Some(average) => format!("{name}: {}/{average}", present("averageValue").unwrap_or_else(unknown)),
                None => format!(
                    "{name}: {}/{}",
                    percent(present("averageUtilization"), "<unknown>"),
                    percent(wanted("averageUtilization"), "<auto>")
                ),
            }
        }
    }
}

/// A quantity or a number, as text.
fn quantity_text(object: &JsonObject, path: &[&str]) -> Option<String> {
    match unstructured::get(object, path)? {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}
