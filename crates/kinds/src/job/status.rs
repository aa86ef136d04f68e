//! What is valid in the status of a job.
//!
//! Rules that compare with the old state do not apply where the old state breaks them already.

use std::collections::HashSet;

use super::validation::{count_indexes, find_overlap, has_condition};
use crate::validation::Field;

pub(super) fn check_status(job: Field<'_>, old: Field<'_>) {
    let status = job.at("status");
    for count in ["active", "succeeded", "failed", "ready", "terminating"] {
        status.at(count).not_negative();
    }
    check_uncounted(status.at("uncountedTerminatedPods"));
    check_conditions(job, old);
    check_counts(job);
    check_indexes(job);
    check_success(job);
    check_changes(job, old);
}

fn check_uncounted(pods: Field<'_>) {
    let mut seen = HashSet::new();
    for pod in ["succeeded", "failed"].into_iter().flat_map(|list| pods.at(list).items()) {
        if pod.text().is_empty() {
            pod.invalid_text("must not be empty");
        } else if !seen.insert(pod.text()) {
            pod.duplicate();
        }
    }
}

fn check_conditions(job: Field<'_>, old: Field<'_>) {
    let status = job.at("status");
    let conditions = status.at("conditions");
    let [complete, failed, target, met] =
        ["Complete", "Failed", "FailureTarget", "SuccessCriteriaMet"].map(|kind| has_condition(job, kind));
    if complete && failed {
        conditions.invalid_unshown("cannot set Complete=True and Failed=true conditions");
    }
    if complete && target {
        conditions.invalid_unshown("cannot set Complete=True and FailureTarget=true conditions");
    }
    let (start, completion) = (status.at("startTime"), status.at("completionTime"));
    if completion.is_present() && !complete {
        completion.invalid("cannot set completionTime when there is no Complete=True condition");
    }
    if !completion.is_present() && complete {
        completion.required("completionTime is required for Complete jobs");
    }
    // Times are in UTC and in one form, so that they sort as text.
    if start.is_present() && completion.is_present() && completion.text() < start.text() {
        completion.invalid("must be equal to or after `startTime`");
    }
    if failed && !target && !has_condition(old, "Failed") {
        conditions.invalid_unshown("cannot set Failed=True condition without the FailureTarget=true condition");
    }
    if complete && !met && !has_condition(old, "Complete") {
        let detail = "cannot set Complete=True condition without the SuccessCriteriaMet=true condition";
        conditions.invalid_unshown(detail);
    }
}

fn check_counts(job: Field<'_>) {
    let status = job.at("status");
    let is_finished = has_condition(job, "Complete") || has_condition(job, "Failed");
    let uncounted = status.at("uncountedTerminatedPods");
    if is_finished {
        if status.at("active").integer_or_zero() > 0 {
            status.at("active").invalid("active>0 is invalid for finished job");
        }
        if !status.at("startTime").is_present() {
            status.at("startTime").required("startTime is required for finished job");
        }
        if ["succeeded", "failed"].iter().any(|list| uncounted.at(list).len() > 0) {
            uncounted.invalid("must be empty for finished job");
        }
        if status.at("terminating").integer_or_zero() > 0 {
            status.at("terminating").invalid("terminating>0 is invalid for finished job");
        }
    }
    if status.at("ready").integer_or_zero() > status.at("active").integer_or_zero() {
        status.at("ready").invalid("cannot set more ready pods than active");
    }
}

fn check_indexes(job: Field<'_>) {
    let (spec, status) = (job.at("spec"), job.at("status"));
    let (completed, failed) = (status.at("completedIndexes"), status.at("failedIndexes"));
    let has_limit = spec.at("backoffLimitPerIndex").is_present();
    if let Some(completions) = spec.at("completions").integer() {
        if let Err(error) = count_indexes(completed.text(), completions) {
            completed.invalid(format!("error parsing completedIndexes: {error}"));
        }
        if has_limit
            && failed.is_present()
            && let Err(error) = count_indexes(failed.text(), completions)
        {
            failed.invalid(format!("error parsing failedIndexes: {error}"));
        }
    }
    if !completed.text().is_empty() && spec.at("completionMode").text() != "Indexed" {
        completed.invalid("cannot set non-empty completedIndexes when non-indexed completion mode");
    }
    if failed.is_present() && !has_limit {
        failed.invalid("cannot set non-null failedIndexes when backoffLimitPerIndex is null");
    }
    if let Some(completions) = spec.at("completions").integer()
        && !completed.text().is_empty()
        && !failed.text().is_empty()
        && let Some(index) = find_overlap(completed.text(), failed.text(), completions)
    {
        failed.invalid(format!("failedIndexes and completedIndexes overlap at index: {index}"));
    }
}

fn check_success(job: Field<'_>) {
    let conditions = job.path("status.conditions");
    let [complete, failed, target, met] =
        ["Complete", "Failed", "FailureTarget", "SuccessCriteriaMet"].map(|kind| has_condition(job, kind));
    if met && failed {
        conditions.invalid_unshown("cannot set SuccessCriteriaMet=True and Failed=true conditions");
    }
    if met && target {
        conditions.invalid_unshown("cannot set SuccessCriteriaMet=True and FailureTarget=true conditions");
    }
    if job.path("spec.successPolicy").is_present() && !met && complete {
        let detail = "cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True";
        conditions.invalid_unshown(detail);
    }
}

fn check_changes(job: Field<'_>, old: Field<'_>) {
    let (status, before) = (job.at("status"), old.at("status"));
    let conditions = status.at("conditions");
    for kind in ["Failed", "Complete", "FailureTarget"] {
        if has_condition(old, kind) && !has_condition(job, kind) {
            conditions.invalid_unshown(format!("cannot disable the terminal {kind}=True condition"));
        }
    }
    for count in ["failed", "succeeded"] {
        let number = status.at(count).integer_or_zero();
        if number < before.at(count).integer_or_zero() {
            status.at(count).invalid_as(number, format!("cannot decrease the {count} counter"));
        }
    }
    let (completion, old_completion) = (status.at("completionTime"), before.at("completionTime"));
    if completion.is_present() && old_completion.is_present() && completion.value() != old_completion.value() {
        completion.invalid("field is immutable");
    }
    let (start, old_start) = (status.at("startTime"), before.at("startTime"));
    if old_start.is_present() && start.value() != old_start.value() && !job.path("spec.suspend").flag() {
        start.invalid("field is immutable for unsuspended job once set");
    }
    let (met, was_met) = (has_condition(job, "SuccessCriteriaMet"), has_condition(old, "SuccessCriteriaMet"));
    if was_met && !met {
        conditions.invalid_unshown("cannot disable the SuccessCriteriaMet=True condition");
    }
    if has_condition(old, "Complete") && !was_met && met {
        let detail = "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions";
        conditions.invalid_unshown(detail);
    }
}
