//! The columns of jobs.

use api::json::JsonObject;
use api::time::Time;
use object::table::cells::{AGE, NAME, parse_instant, string_column, wide_column};
use object::table::{Column, cells, human_duration};
use object::unstructured;
use object::unstructured::{get, integer};
use serde_json::Value;

use crate::workload::{CONTAINERS, IMAGES};

pub(crate) const JOBS: &[Column] = &[
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
