//! Cron jobs.

mod schedule;

use api::FieldError;
use api::json::JsonObject;
use object::KindRules;
use object::rules::GenerationRule;
use object::table::cells::{
    AGE, NAME, boolean_column, count_at, integer_column, string_cell, string_cell_or, string_column, wide_column,
};
use object::table::{Column, cells};
use object::unstructured;
use object::unstructured::get;
use serde_json::Value;

use crate::job::check_job_spec;
use crate::strategy::{KindStrategy, RULES};
use crate::workload::{CONTAINERS, IMAGES};

pub(crate) static STRATEGY: KindStrategy = KindStrategy {
    rules: KindRules { generation: GenerationRule::Counted, ..RULES },
    validate,
    columns: CRON_JOBS,
    ..KindStrategy::DEFAULT
};

fn validate(errors: &mut Vec<FieldError>, object: &JsonObject) {
    let Some(spec) = object.get("spec") else { return };
    let schedule = spec.get("schedule").and_then(Value::as_str).unwrap_or_default();
    if let Some(error) = schedule::schedule_error(schedule).filter(|_| !schedule.is_empty()) {
        errors.push(FieldError::invalid("spec.schedule", schedule, error));
    }
    check_job_spec(errors, spec.get("jobTemplate").and_then(|template| template.get("spec")), "spec.jobTemplate.spec");
}

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
