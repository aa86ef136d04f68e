//! Jobs and what starts them.

use api::json::JsonObject;
use api::time::Time;
use serde_json::Value;

use super::cells::{
    self, AGE, CONTAINERS, IMAGES, NAME, boolean_column, count_at, integer_column, parse_instant, string_cell,
    string_cell_or, string_column, wide_column,
};
use super::{Column, human_duration};
use crate::unstructured::{self, get, integer};

pub(super) fn columns(kind: &str) -> Option<&'static [Column]> {
    match kind {
        "Job" => Some(JOBS),
        "CronJob" => Some(CRON_JOBS),
        _ => None,
    }
}

const JOBS: &[Column] = &[
    NAME,
    string_column("Status", "How far it is.", |job, _| job_status(job).into()),
    string_column("Completions", "How many pods have succeeded, of how many.", |job, _| job_completions(job).into()),
    string_column("Duration", "How long it took, or takes so far.", job_duration_cell),
    AGE,
    CONTAINERS,
    IMAGES,
    wide_column("Selector", "Which pods are its own.", |job, _| {
        cells::or_placeholder(cells::selector_text(job, &["spec", "selector"]), "<none>")
    }),
];

const CRON_JOBS: &[Column] = &[
    NAME,
    string_column("Schedule", "When it starts a job.", |cron, _| string_cell(cron, &["spec", "schedule"])),
    string_column("Timezone", "The time zone of the schedule.", |cron, _| {
        string_cell_or(cron, &["spec", "timeZone"], "<none>")
    }),
    boolean_column("Suspend", "Whether it pauses.", |cron, _| {
        let suspended = get(cron, &["spec", "suspend"]).and_then(Value::as_bool);
        suspended.map_or("<unset>", |suspended| if suspended { "True" } else { "False" }).into()
    }),
    integer_column("Active", "How many of its jobs run.", |cron, _| count_at(cron, &["status", "active"]).into()),
    string_column("Last Schedule", "When it started a job last.", |cron, now| {
        match unstructured::text(cron, &["status", "lastScheduleTime"]) {
            "" => "<none>".into(),
            time => cells::time_since(time, now).into(),
        }
    }),
    AGE,
    CONTAINERS,
    IMAGES,
    wide_column("Selector", "Which pods are its jobs' own.", |cron, _| {
        cells::or_placeholder(cells::selector_text(cron, &["spec", "jobTemplate", "spec", "selector"]), "<none>")
    }),
];

fn job_status(job: &JsonObject) -> &'static str {
    let is_true = |condition: &str| cells::is_condition_true(job, condition);
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

fn job_completions(job: &JsonObject) -> String {
    let succeeded = integer(job, &["status", "succeeded"]).unwrap_or_default();
    let parallelism = integer(job, &["spec", "parallelism"]).unwrap_or_default();
    match integer(job, &["spec", "completions"]) {
        Some(wanted) => format!("{succeeded}/{wanted}"),
        None if parallelism > 1 => format!("{succeeded}/1 of {parallelism}"),
        None => format!("{succeeded}/1"),
    }
}

fn job_duration_cell(job: &JsonObject, now: Time) -> Value {
    let time = |field: &str| parse_instant(unstructured::text(job, &["status", field]));
    let Some(start) = time("startTime") else { return "".into() };
    human_duration(time("completionTime").unwrap_or(now.timestamp()).duration_since(start)).into()
}
