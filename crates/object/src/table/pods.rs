//! Pods: the one kind whose row says what is wrong with it.

use std::collections::HashSet;

use api::time::Time;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::Column;
use super::cells::{self, AGE, NAME, count_at, instant, is_true, text, text_or, wide};
use crate::access::{self, Object, get, integer, objects};

pub(super) const PODS: &[Column] = &[
    NAME,
    text("Ready", "How many containers are ready, of how many.", |pod, _| {
        let summary = Summary::of(pod);
        format!("{}/{}", summary.ready, summary.containers).into()
    }),
    text("Status", "What the pod or its first troubled container is doing.", |pod, _| Summary::of(pod).status.into()),
    text("Restarts", "How often containers were restarted, and when last.", restarts),
    AGE,
    wide("IP", "The address of the pod.", |pod, _| {
        let first = objects(pod, &["status", "podIPs"]).next();
        let address = first.map_or("", |address| access::text(address, &["ip"]));
        let address = if address.is_empty() { access::text(pod, &["status", "podIP"]) } else { address };
        cells::or(address.to_owned(), "<none>")
    }),
    wide("Node", "The node that runs it.", |pod, _| text_or(pod, &["spec", "nodeName"], "<none>")),
    wide("Nominated Node", "The node on which others make room for it.", |pod, _| {
        text_or(pod, &["status", "nominatedNodeName"], "<none>")
    }),
    wide("Readiness Gates", "How many of its readiness gates are open.", readiness_gates),
];

/// The row condition of a pod that has come to its end.
pub(super) fn completed(pod: &Object) -> Option<Value> {
    let (reason, message) = match access::text(pod, &["status", "phase"]) {
        "Succeeded" => ("Succeeded", "The pod has completed successfully."),
        "Failed" => ("Failed", "The pod failed."),
        _ => return None,
    };
    Some(json!({"type": "Completed", "status": "True", "reason": reason, "message": message}))
}

fn restarts(pod: &Object, now: Time) -> Value {
    let summary = Summary::of(pod);
    match summary.restarted_at {
        Some(then) if summary.restarts != 0 => {
            let ago = super::human_duration(now.timestamp().duration_since(then));
            format!("{} ({ago} ago)", summary.restarts).into()
        }
        Some(_) | None => summary.restarts.to_string().into(),
    }
}

fn readiness_gates(pod: &Object, _: Time) -> Value {
    let gates = objects(pod, &["spec", "readinessGates"]);
    let open = gates.filter(|gate| is_true(pod, access::text(gate, &["conditionType"]))).count();
    match count_at(pod, &["spec", "readinessGates"]) {
        0 => "<none>".into(),
        all => format!("{open}/{all}").into(),
    }
}

/// What the containers of a pod add up to.
struct Summary {
    status: String,
    ready: usize,
    containers: usize,
    restarts: i64,
    restarted_at: Option<Timestamp>,
}

/// Restarts, and the end of the last run before one.
#[derive(Clone, Copy, Default)]
struct Restarts {
    count: i64,
    last: Option<Timestamp>,
}

impl Restarts {
    fn add(&mut self, container: &Object) {
        self.count = self.count.saturating_add(integer(container, &["restartCount"]).unwrap_or_default());
        let ended = instant(access::text(container, &["lastState", "terminated", "finishedAt"]));
        self.last = self.last.max(ended);
    }
}

impl Summary {
    fn of(pod: &Object) -> Self {
        let phase = access::text(pod, &["status", "phase"]);
        let reason = access::text(pod, &["status", "reason"]);
        let is_gated = objects(pod, &["status", "conditions"]).any(|condition| {
            access::text(condition, &["type"]) == "PodScheduled"
                && access::text(condition, &["reason"]) == "SchedulingGated"
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

    fn add_containers(&mut self, pod: &Object) {
        let mut all = Restarts::default();
        let mut of_sidecars = Restarts::default();
        let mut trouble = None;
        let init_containers = count_at(pod, &["spec", "initContainers"]);
        let sidecars: HashSet<&str> = objects(pod, &["spec", "initContainers"])
            .filter(|container| is_sidecar(container))
            .map(|container| access::text(container, &["name"]))
            .collect();
        for (at, container) in objects(pod, &["status", "initContainerStatuses"]).enumerate() {
            let is_sidecar = sidecars.contains(access::text(container, &["name"]));
            all.add(container);
            if is_sidecar {
                of_sidecars.add(container);
            }
            match initialization(container, is_sidecar) {
                Initialization::Over => {}
                Initialization::SidecarRuns => self.ready += usize::from(access::flag(container, &["ready"])),
                Initialization::Stuck(why) => trouble = Some(format!("Init:{why}")),
                Initialization::Runs => trouble = Some(format!("Init:{at}/{init_containers}")),
            }
            if trouble.is_some() {
                break;
            }
        }
        if let Some(trouble) = trouble {
            self.status = trouble;
            if !is_true(pod, "Initialized") {
                (self.restarts, self.restarted_at) = (all.count, all.last);
                return;
            }
        }
        self.add_main_containers(pod, of_sidecars);
    }

    fn add_main_containers(&mut self, pod: &Object, mut restarts: Restarts) {
        let mut is_running = false;
        let mut failure = None;
        let statuses: Vec<&Object> = objects(pod, &["status", "containerStatuses"]).collect();
        for container in statuses.into_iter().rev() {
            restarts.add(container);
            let waiting = access::text(container, &["state", "waiting", "reason"]);
            if !waiting.is_empty() {
                waiting.clone_into(&mut self.status);
            } else if let Some(end) = access::part(container, &["state", "terminated"]) {
                self.status = end_reason(end);
                if integer(end, &["exitCode"]).unwrap_or_default() != 0 {
                    failure = Some(self.status.clone());
                }
            } else if access::flag(container, &["ready"]) && access::part(container, &["state", "running"]).is_some() {
                is_running = true;
                self.ready += 1;
            }
        }
        (self.restarts, self.restarted_at) = (restarts.count, restarts.last);
        if self.status != "Completed" {
            return;
        }
        // One container has ended, but others may run still.
        if is_running && is_true(pod, "Ready") {
            self.status = "Running".to_owned();
        } else if let Some(failure) = failure {
            self.status = failure;
        } else if is_running {
            self.status = "NotReady".to_owned();
        }
    }
}

/// How far an init container has come.
enum Initialization {
    Over,
    SidecarRuns,
    Stuck(String),
    Runs,
}

fn initialization(container: &Object, is_sidecar: bool) -> Initialization {
    let end = access::part(container, &["state", "terminated"]);
    let waiting = access::text(container, &["state", "waiting", "reason"]);
    match end {
        Some(end) if integer(end, &["exitCode"]).unwrap_or_default() == 0 => Initialization::Over,
        _ if is_sidecar && access::flag(container, &["started"]) => Initialization::SidecarRuns,
        Some(end) => Initialization::Stuck(end_reason(end)),
        None if !matches!(waiting, "" | "PodInitializing") => Initialization::Stuck(waiting.to_owned()),
        None => Initialization::Runs,
    }
}

fn end_reason(end: &Object) -> String {
    let reason = access::text(end, &["reason"]);
    match integer(end, &["signal"]).unwrap_or_default() {
        _ if !reason.is_empty() => reason.to_owned(),
        0 => format!("ExitCode:{}", integer(end, &["exitCode"]).unwrap_or_default()),
        signal => format!("Signal:{signal}"),
    }
}

/// An init container that keeps running beside the others.
fn is_sidecar(container: &Object) -> bool {
    access::text(container, &["restartPolicy"]) == "Always"
}
