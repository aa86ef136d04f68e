//! Cron jobs.

mod schedule;

use object::KindRules;
use object::rules::GenerationRule;
use object::table::cells::{
    AGE, NAME, boolean_column, count_at, integer_column, string_cell, string_cell_or, string_column, wide_column,
};
use object::table::{Column, cells};
use object::unstructured;
use object::unstructured::get;
use serde_json::Value;

use crate::job::validation::check_job_spec;
use crate::strategy::{KindStrategy, LENIENT_RULES};
use crate::validation::Field;
use crate::workload::{CONTAINERS, IMAGES};

pub(crate) static STRATEGY: KindStrategy = KindStrategy {
    rules: KindRules { generation: GenerationRule::Counted, ..LENIENT_RULES },
    validate: |cron| check_spec(cron.at("spec")),
    validate_create: |cron| {
        let name = cron.path("metadata.name");
        if name.text().len() > NAME_LENGTH_MAX {
            name.invalid("must be no more than 52 characters");
        }
    },
    columns: CRON_JOBS,
    ..KindStrategy::DEFAULT
};

/// A job's name is that of the cron job and the time in minutes.
const NAME_LENGTH_MAX: usize = 52;

fn check_spec(spec: Field<'_>) {
    let (schedule, zone) = (spec.at("schedule"), spec.at("timeZone"));
    if schedule.require_text() {
        if let Some(error) = schedule::schedule_error(schedule.text()) {
            schedule.invalid(error);
        }
        if schedule.text().contains("TZ") {
            schedule.invalid("cannot use TZ or CRON_TZ in schedule, use timeZone field instead");
        }
    }
    spec.at("startingDeadlineSeconds").not_negative();
    if zone.is_present() {
        check_time_zone(zone);
    }
    spec.at("concurrencyPolicy").require_one_of(&["Allow", "Forbid", "Replace"]);
    let job = spec.path("jobTemplate.spec");
    check_job_spec(job);
    if job.at("selector").is_present() {
        job.at("selector").invalid("`selector` will be auto-generated");
    }
    if job.at("manualSelector").flag() {
        job.at("manualSelector").unsupported_as(true, &["nil", "false"]);
    }
    spec.at("successfulJobsHistoryLimit").not_negative();
    spec.at("failedJobsHistoryLimit").not_negative();
}

/// Areas of the database of time zones.
const AREAS: [&str; 17] = [
    "Africa",
    "America",
    "Antarctica",
    "Arctic",
    "Asia",
    "Atlantic",
    "Australia",
    "Brazil",
    "Canada",
    "Chile",
    "Etc",
    "Europe",
    "Indian",
    "Mexico",
    "Pacific",
    "US",
    "posix",
];
/// Time zones without an area.
const ZONES: [&str; 41] = [
    "CET",
    "CST6CDT",
    "Cuba",
    "EET",
    "EST",
    "EST5EDT",
    "Egypt",
    "Eire",
    "Factory",
    "GB",
    "GB-Eire",
    "GMT",
    "GMT+0",
    "GMT-0",
    "GMT0",
    "Greenwich",
    "HST",
    "Hongkong",
    "Iceland",
    "Iran",
    "Israel",
    "Jamaica",
    "Japan",
    "Kwajalein",
    "Libya",
    "MET",
    "MST",
    "MST7MDT",
    "NZ",
    "NZ-CHAT",
    "Navajo",
    "PRC",
    "PST8PDT",
    "Poland",
    "Portugal",
    "ROC",
    "ROK",
    "Turkey",
    "UCT",
    "UTC",
    "Zulu",
];

/// A name in the database of time zones. The database itself is not part of the server: within an area, any name passes.
fn check_time_zone(zone: Field<'_>) {
    let text = zone.text();
    if text.is_empty() {
        return zone.invalid("timeZone must be nil or non-empty string");
    }
    let is_part = |part: &str| {
        (1..=14).contains(&part.len())
            && !matches!(part, "." | "..")
            && !part.starts_with('-')
            && part.bytes().all(|byte| matches!(byte, b'.' | b'-' | b'_' | b'+') || byte.is_ascii_alphanumeric())
    };
    if !text.split('/').all(is_part) {
        return zone.invalid(format!("unknown time zone {text}"));
    }
    if text.eq_ignore_ascii_case("local") {
        zone.invalid("timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones");
    }
    let area = text.split_once('/').map_or(text, |(area, _)| area);
    let is_known = ZONES.contains(&text) || text.contains('/') && AREAS.contains(&area);
    if !is_known {
        zone.invalid(format!("unknown time zone {text}"));
    }
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
