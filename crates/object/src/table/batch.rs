//! Jobs and what starts them.

use api::time::Time;
use serde_json::Value;

use super::cells::{
    self, AGE, CONTAINERS, IMAGES, NAME, boolean, count_at, instant, number, text, text_at, text_or, wide,
};
use super::{Column, human_duration};
use crate::access::{self, Object, get, integer};

pub(super) fn columns(kind: &str) -> Option<&'static [Column]> {
    match kind {
        "Job" => Some(JOBS),
        "CronJob" => Some(CRON_JOBS),
        _ => None,
    }
}

const JOBS: &[Column] = &[
    NAME,
    text("Status", "How far it is.", |job, _| status(job).into()),
    text("Completions", "How many pods have succeeded, of how many.", |job, _| completions(job).into()),
    text("Duration", "How long it took, or takes so far.", duration),
    AGE,
    CONTAINERS,
    IMAGES,
    wide("Selector", "Which pods are its own.", |job, _| {
        cells::or(cells::selector(job, &["spec", "selector"]), "<none>")
    }),
];

const CRON_JOBS: &[Column] = &[
    NAME,
    text("Schedule", "When it starts a job.", |cron, _| text_at(cron, &["spec", "schedule"])),
    text("Timezone", "The time zone of the schedule.", |cron, _| text_or(cron, &["spec", "timeZone"], "<none>")),
    boolean("Suspend", "Whether it pauses.", |cron, _| {
        let suspended = get(cron, &["spec", "suspend"]).and_then(Value::as_bool);
        suspended.map_or("<unset>", |suspended| if suspended { "True" } else { "False" }).into()
    }),
    number("Active", "How many of its jobs run.", |cron, _| count_at(cron, &["status", "active"]).into()),
    text("Last Schedule", "When it started a job last.", |cron, now| {
        match access::text(cron, &["status", "lastScheduleTime"]) {
            "" => "<none>".into(),
            time => cells::since(time, now).into(),
        }
    }),
    AGE,
    CONTAINERS,
    IMAGES,
    wide("Selector", "Which pods are its jobs' own.", |cron, _| {
        cells::or(cells::selector(cron, &["spec", "jobTemplate", "spec", "selector"]), "<none>")
    }),
];

fn status(job: &Object) -> &'static str {
    let is_true = |condition: &str| cells::is_true(job, condition);
    if is_true("Complete") {
        "Complete"
    } else if is_true("Failed") {
        "Failed"
    } else if get(job, &["metadata", "deletionTimestamp"]).is_some_and(|time| !time.is_null()) {
        "Terminating"
    } else {
        let others = ["Suspended", "FailureTarget", "SuccessCriteriaMet"];
        others.into_iter().find(|condition| is_true(condition)).unwrap_or("Running")
    }
}

fn completions(job: &Object) -> String {
    let succeeded = integer(job, &["status", "succeeded"]).unwrap_or_default();
    let parallelism = integer(job, &["spec", "parallelism"]).unwrap_or_default();
    match integer(job, &["spec", "completions"]) {
        Some(wanted) => format!("{succeeded}/{wanted}"),
        None if parallelism > 1 => format!("{succeeded}/1 of {parallelism}"),
        None => format!("{succeeded}/1"),
    }
}

fn duration(job: &Object, now: Time) -> Value {
    let time = |field: &str| instant(access::text(job, &["status", field]));
    let Some(start) = time("startTime") else { return "".into() };
    human_duration(time("completionTime").unwrap_or(now.timestamp()).duration_since(start)).into()
}
