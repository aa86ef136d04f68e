//! The columns of pods; the status is that of the pod or of its first container with a problem.

use std::collections::HashSet;

use api::json::JsonObject;
use api::time::Time;
use jiff::Timestamp;
use object::table::cells::{
    AGE, NAME, count_at, is_condition_true, parse_instant, string_cell_or, string_column, wide_column,
};
use object::table::{Column, cells, human_duration};
use object::unstructured;
use object::unstructured::{get, integer, objects};
use serde_json::{Value, json};

pub(crate) const PODS: &[Column] = &[
    NAME,
    string_column("Ready", "How many containers are ready, of how many.", |pod, _| {
        let summary = PodSummary::from_pod(pod);
        format!("{}/{}", summary.ready, summary.containers).into()
    }),
    string_column("Status", "What the pod or its first troubled container is doing.", |pod, _| {
        PodSummary::from_pod(pod).status.into()
    }),
    string_column("Restarts", "How often containers were restarted, and when last.", restarts_cell),
    AGE,
    wide_column("IP", "The address of the pod.", |pod, _| {
        let first = objects(pod, &["status", "podIPs"]).next();
        let address = first.map_or("", |address| unstructured::text(address, &["ip"]));
        let address = if address.is_empty() { unstructured::text(pod, &["status", "podIP"]) } else { address };
        cells::or_placeholder(address.to_owned(), "<none>")
    }),
    wide_column("Node", "The node that runs it.", |pod, _| string_cell_or(pod, &["spec", "nodeName"], "<none>")),
    wide_column("Nominated Node", "The node on which others make room for it.", |pod, _| {
        string_cell_or(pod, &["status", "nominatedNodeName"], "<none>")
    }),
    wide_column("Readiness Gates", "How many of its readiness gates are open.", readiness_gates_cell),
];

/// The row condition of a completed pod.
pub(crate) fn completed_condition(pod: &JsonObject) -> Option<Value> {
    let (reason, message) = match unstructured::text(pod, &["status", "phase"]) {
        "Succeeded" => ("Succeeded", "The pod has completed successfully."),
        "Failed" => ("Failed", "The pod failed."),
        _ => return None,
    };
    Some(json!({"type": "Completed", "status": "True", "reason": reason, "message": message}))
}

fn restarts_cell(pod: &JsonObject, now: Time) -> Value {
    let summary = PodSummary::from_pod(pod);
    match summary.restarted_at {
        Some(then) if summary.restarts != 0 => {
            let ago = human_duration(now.timestamp().duration_since(then));
            format!("{} ({ago} ago)", summary.restarts).into()
        }
        Some(_) | None => summary.restarts.to_string().into(),
    }
}

fn readiness_gates_cell(pod: &JsonObject, _: Time) -> Value {
    let gates = objects(pod, &["spec", "readinessGates"]);
    let open = gates.filter(|gate| is_condition_true(pod, unstructured::text(gate, &["conditionType"]))).count();
    match count_at(pod, &["spec", "readinessGates"]) {
        0 => "<none>".into(),
        all => format!("{open}/{all}").into(),
    }
}

/// The status, readiness and restarts over all containers of a pod.
struct PodSummary {
    status: String,
    ready: usize,
    containers: usize,
    restarts: i64,
    restarted_at: Option<Timestamp>,
}

/// Restarts, and the end of the last terminated run.
#[derive(Clone, Copy, Default)]
struct RestartCount {
    count: i64,
    last_finished_at: Option<Timestamp>,
}

impl RestartCount {
    fn add(&mut self, container: &JsonObject) {
        self.count = self.count.saturating_add(integer(container, &["restartCount"]).unwrap_or_default());
        let ended = parse_instant(unstructured::text(container, &["lastState", "terminated", "finishedAt"]));
        self.last_finished_at = self.last_finished_at.max(ended);
    }
}

impl PodSummary {
    fn from_pod(pod: &JsonObject) -> Self {
        let phase = unstructured::text(pod, &["status", "phase"]);
        let reason = unstructured::text(pod, &["status", "reason"]);
        let is_gated = objects(pod, &["status", "conditions"]).any(|condition| {
            unstructured::text(condition, &["type"]) == "PodScheduled"
                && unstructured::text(condition, &["reason"]) == "SchedulingGated"
        });
        let own = if is_gated {
            "SchedulingGated"
        } else if reason.is_empty() {
            phase
        } else {
            reason
        };
        let sidecars = objects(pod, &["spec", "initContainers"]).filter(|container| is_sidecar(container)).count();
        let mut summary = Self {
            status: own.to_owned(),
            ready: 0,
            containers: count_at(pod, &["spec", "containers"]) + sidecars,
            restarts: 0,
            restarted_at: None,
        };
        summary.add_containers(pod);
        if get(pod, &["metadata", "deletionTimestamp"]).is_some_and(|time| !time.is_null()) {
            if reason == "NodeLost" {
                summary.status = "Unknown".to_owned();
            } else if !matches!(phase, "Succeeded" | "Failed") {
                summary.status = "Terminating".to_owned();
            }
        }
        summary
    }

    fn add_containers(&mut self, pod: &JsonObject) {
        let mut all = RestartCount::default();
        let mut of_sidecars = RestartCount::default();
        let mut trouble = None;
        let init_containers = count_at(pod, &["spec", "initContainers"]);
        let sidecars: HashSet<&str> = objects(pod, &["spec", "initContainers"])
            .filter(|container| is_sidecar(container))
            .map(|container| unstructured::text(container, &["name"]))
            .collect();
        for (at, container) in objects(pod, &["status", "initContainerStatuses"]).enumerate() {
            let is_sidecar = sidecars.contains(unstructured::text(container, &["name"]));
            all.add(container);
            if is_sidecar {
                of_sidecars.add(container);
            }
            match init_container_state(container, is_sidecar) {
                InitContainerState::Completed => {}
                InitContainerState::SidecarStarted => {
                    self.ready += usize::from(unstructured::flag(container, &["ready"]))
                }
                InitContainerState::Stuck(why) => trouble = Some(format!("Init:{why}")),
                InitContainerState::Running => trouble = Some(format!("Init:{at}/{init_containers}")),
            }
            if trouble.is_some() {
                break;
            }
        }
        if let Some(trouble) = trouble {
            self.status = trouble;
            if !is_condition_true(pod, "Initialized") {
                (self.restarts, self.restarted_at) = (all.count, all.last_finished_at);
                return;
            }
        }
        self.add_main_containers(pod, of_sidecars);
    }

    fn add_main_containers(&mut self, pod: &JsonObject, mut restarts: RestartCount) {
        let mut is_running = false;
        let mut failure = None;
        let statuses: Vec<&JsonObject> = objects(pod, &["status", "containerStatuses"]).collect();
        for container in statuses.into_iter().rev() {
            restarts.add(container);
            let waiting = unstructured::text(container, &["state", "waiting", "reason"]);
            if !waiting.is_empty() {
                waiting.clone_into(&mut self.status);
            } else if let Some(end) = unstructured::nested_object(container, &["state", "terminated"]) {
                self.status = termination_reason(end);
                if integer(end, &["exitCode"]).unwrap_or_default() != 0 {
                    failure = Some(self.status.clone());
                }
            } else if unstructured::flag(container, &["ready"])
                && unstructured::nested_object(container, &["state", "running"]).is_some()
            {
                is_running = true;
                self.ready += 1;
            }
        }
        (self.restarts, self.restarted_at) = (restarts.count, restarts.last_finished_at);
        if self.status != "Completed" {
            return;
        }
        // One container has ended, but others may run still.
        if is_running && is_condition_true(pod, "Ready") {
            self.status = "Running".to_owned();
        } else if let Some(failure) = failure {
            self.status = failure;
        } else if is_running {
            self.status = "NotReady".to_owned();
        }
    }
}

/// The progress of an init container.
enum InitContainerState {
    Completed,
    SidecarStarted,
    Stuck(String),
    Running,
}

fn init_container_state(container: &JsonObject, is_sidecar: bool) -> InitContainerState {
    let end = unstructured::nested_object(container, &["state", "terminated"]);
    let waiting = unstructured::text(container, &["state", "waiting", "reason"]);
    match end {
        Some(end) if integer(end, &["exitCode"]).unwrap_or_default() == 0 => InitContainerState::Completed,
        _ if is_sidecar && unstructured::flag(container, &["started"]) => InitContainerState::SidecarStarted,
        Some(end) => InitContainerState::Stuck(termination_reason(end)),
        None if !matches!(waiting, "" | "PodInitializing") => InitContainerState::Stuck(waiting.to_owned()),
        None => InitContainerState::Running,
    }
}

fn termination_reason(end: &JsonObject) -> String {
    let reason = unstructured::text(end, &["reason"]);
    match integer(end, &["signal"]).unwrap_or_default() {
        _ if !reason.is_empty() => reason.to_owned(),
        0 => format!("ExitCode:{}", integer(end, &["exitCode"]).unwrap_or_default()),
        signal => format!("Signal:{signal}"),
    }
}

/// An init container that keeps running beside the others.
fn is_sidecar(container: &JsonObject) -> bool {
    unstructured::text(container, &["restartPolicy"]) == "Always"
}
