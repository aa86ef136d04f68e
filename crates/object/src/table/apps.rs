//! Workloads that keep pods running, what scales them and what protects them.

use serde_json::Value;

use super::Column;
use super::cells::{self, AGE, CONTAINERS, IMAGES, NAME, number, number_at, text, text_at, wide};
use crate::access::{self, Object, objects};

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

const READY: Column = text("Ready", "How many pods are ready, of how many.", |workload, _| {
    let ready = access::integer(workload, &["status", "readyReplicas"]).unwrap_or_default();
    format!("{ready}/{}", cells::desired(workload)).into()
});

const SELECTOR: Column = wide("Selector", "Which pods are its own.", |workload, _| {
    cells::or(cells::selector(workload, &["spec", "selector"]), "<none>")
});

const DEPLOYMENTS: &[Column] = &[
    NAME,
    READY,
    text("Up-to-date", "How many pods follow the present template.", |deployment, _| {
        number_at(deployment, &["status", "updatedReplicas"])
    }),
    text("Available", "How many pods have been ready for long enough.", |deployment, _| {
        number_at(deployment, &["status", "availableReplicas"])
    }),
    AGE,
    CONTAINERS,
    IMAGES,
    wide("Selector", "Which pods are its own.", |deployment, _| {
        cells::selector(deployment, &["spec", "selector"]).replace("<error>", "<invalid>").into()
    }),
];

const REPLICA_SETS: &[Column] = &[
    NAME,
    number("Desired", "How many pods it wants.", |set, _| cells::desired(set).into()),
    number("Current", "How many pods there are.", |set, _| number_at(set, &["status", "replicas"])),
    number("Ready", "How many pods are ready.", |set, _| number_at(set, &["status", "readyReplicas"])),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];

const STATEFUL_SETS: &[Column] = &[NAME, READY, AGE, CONTAINERS, IMAGES];

const DAEMON_SETS: &[Column] = &[
    NAME,
    number("Desired", "On how many nodes it should run.", |set, _| {
        number_at(set, &["status", "desiredNumberScheduled"])
    }),
    number("Current", "On how many of those it runs.", |set, _| number_at(set, &["status", "currentNumberScheduled"])),
    number("Ready", "How many pods are ready.", |set, _| number_at(set, &["status", "numberReady"])),
    number("Up-to-date", "How many pods follow the present template.", |set, _| {
        number_at(set, &["status", "updatedNumberScheduled"])
    }),
    number("Available", "How many pods have been ready for long enough.", |set, _| {
        number_at(set, &["status", "numberAvailable"])
    }),
    text("Node Selector", "On which nodes it runs.", |set, _| {
        cells::labels(set, &["spec", "template", "spec", "nodeSelector"])
    }),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];

const REVISIONS: &[Column] = &[
    NAME,
    text("Controller", "What it is a revision of.", |revision, _| {
        let mut owners = objects(revision, &["metadata", "ownerReferences"]);
        let controller = owners.find(|owner| access::flag(owner, &["controller"]));
        controller.map_or_else(|| "<none>".into(), |owner| owner_name(owner).into())
    }),
    text("Revision", "Its number.", |revision, _| number_at(revision, &["revision"])),
    AGE,
];

/// Such as `deployment.apps/web`.
fn owner_name(owner: &Object) -> String {
    let group = access::text(owner, &["apiVersion"]).rsplit_once('/').map_or("", |(group, _)| group);
    let kind = access::text(owner, &["kind"]);
    let kind = api::GroupKind { group, kind }.to_string().to_lowercase();
    format!("{kind}/{}", access::text(owner, &["name"]))
}

const SCALES: &[Column] = &[
    Column { format: "", ..NAME },
    number("Desired", "How many pods are wanted.", |scale, _| number_at(scale, &["spec", "replicas"])),
    number("Available", "How many pods there are.", |scale, _| number_at(scale, &["status", "replicas"])),
    AGE,
];

const BUDGETS: &[Column] = &[
    NAME,
    text("Min Available", "How many pods must stay.", |budget, _| int_or_string(budget, &["spec", "minAvailable"])),
    text("Max Unavailable", "How many pods may be missing.", |budget, _| {
        int_or_string(budget, &["spec", "maxUnavailable"])
    }),
    number("Allowed Disruptions", "How many pods may go now.", |budget, _| {
        number_at(budget, &["status", "disruptionsAllowed"])
    }),
    AGE,
];

fn int_or_string(object: &Object, path: &[&str]) -> Value {
    match access::get(object, path) {
        Some(Value::String(text)) => text.as_str().into(),
        Some(Value::Number(number)) => number.to_string().into(),
        Some(Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_)) | None => "N/A".into(),
    }
}

const AUTOSCALERS: &[Column] = &[
    NAME,
    text("Reference", "What it scales.", |scaler, _| {
        let field = |name: &str| access::text(scaler, &["spec", "scaleTargetRef", name]);
        format!("{}/{}", field("kind"), field("name")).into()
    }),
    text("Targets", "The metrics it watches: present and wanted.", |scaler, _| targets(scaler)),
    text("MinPods", "The least pods it leaves.", |scaler, _| {
        let least = access::integer(scaler, &["spec", "minReplicas"]);
        least.map_or_else(|| "<unset>".into(), |least| least.to_string().into())
    }),
    text("MaxPods", "The most pods it makes.", |scaler, _| number_at(scaler, &["spec", "maxReplicas"])),
    text("Replicas", "How many pods there are.", |scaler, _| number_at(scaler, &["status", "currentReplicas"])),
    AGE,
];

/// How many metrics of an autoscaler are shown.
const METRICS_SHOWN_MAX: usize = 2;

fn targets(scaler: &Object) -> Value {
    let now: Vec<&Object> = objects(scaler, &["status", "currentMetrics"]).collect();
    let metrics = objects(scaler, &["spec", "metrics"]).enumerate();
    let mut shown: Vec<String> = metrics.map(|(at, metric)| target(metric, now.get(at).copied())).collect();
    // The first version knows but one metric.
    if let Some(wanted) = access::integer(scaler, &["spec", "targetCPUUtilizationPercentage"]) {
        let present = access::integer(scaler, &["status", "currentCPUUtilizationPercentage"]);
        let present = present.map_or_else(|| "<unknown>".to_owned(), |percent| format!("{percent}%"));
        shown.push(format!("cpu: {present}/{wanted}%"));
    }
    match shown.len().checked_sub(METRICS_SHOWN_MAX) {
        Some(rest @ 1..) => format!("{} + {rest} more...", shown[..METRICS_SHOWN_MAX].join(", ")).into(),
        _ => cells::or(shown.join(", "), "<none>"),
    }
}

fn target(metric: &Object, now: Option<&Object>) -> String {
    let source = match access::text(metric, &["type"]) {
        "External" => "external",
        "Pods" => "pods",
        "Object" => "object",
        "Resource" => "resource",
        "ContainerResource" => "containerResource",
        _ => return "<unknown type>".to_owned(),
    };
    let wanted = |field: &str| quantity(metric, &[source, "target", field]);
    let present = |field: &str| now.and_then(|now| quantity(now, &[source, "current", field]));
    let unknown = || "<unknown>".to_owned();
    let average = wanted("averageValue");
    match source {
        "pods" => format!("{}/{}", present("averageValue").unwrap_or_else(unknown), average.unwrap_or_default()),
        "external" | "object" => match average {
            Some(average) => format!("{}/{average} (avg)", present("averageValue").unwrap_or_else(unknown)),
            None => format!("{}/{}", present("value").unwrap_or_else(unknown), wanted("value").unwrap_or_default()),
        },
        _ => {
            let name = text_at(metric, &[source, "name"]);
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
fn quantity(object: &Object, path: &[&str]) -> Option<String> {
    match access::get(object, path)? {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}
