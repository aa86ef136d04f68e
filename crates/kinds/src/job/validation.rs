//! What is valid in jobs and job templates.

use api::validation::validate_dns1123_label;
use serde_json::Value;

use super::{NAME_LABELS, UID_LABELS};
use crate::pod::validation::check_pod_template;
use crate::validation::Field;
use crate::validation::labels::selector_matches;

/// Failed or parallel pods of a job whose pods have indexes.
const INDEXED_MAX: i64 = 100_000;
/// From this number of completions on, lower limits apply.
const MANY_COMPLETIONS: i64 = 100_000;
const MANY_COMPLETIONS_MAX: i64 = 10_000;
const RULES_MAX: usize = 20;
const EXIT_CODES_MAX: usize = 255;
const MANAGED_BY_LENGTH_MAX: usize = 63;
const INDEXES_LENGTH_MAX: usize = 64 * 1024;
const NEEDS_INDEXES: &str = "requires indexed completion mode";
const ACTIONS: [&str; 4] = ["Count", "FailIndex", "FailJob", "Ignore"];
const STATUSES: [&str; 3] = ["False", "True", "Unknown"];

pub(super) fn check_job(job: Field<'_>) {
    let spec = job.at("spec");
    if !spec.at("manualSelector").flag() && spec.at("selector").is_present() {
        check_generated_labels(job);
    }
    check_job_spec(spec);
    let selector = spec.at("selector");
    if !selector.is_present() {
        selector.required("");
    }
    let errors = selector.error_count();
    selector.label_selector();
    let labels = spec.path("template.metadata.labels");
    let is_usable = selector.error_count() == errors;
    if is_usable && (!selector.is_present() || !selector_matches(selector, labels)) {
        labels.invalid("`selector` does not match template `labels`");
    }
}

pub(super) fn check_new_job(job: Field<'_>) {
    let (spec, name) = (job.at("spec"), job.path("metadata.name"));
    let completions = spec.at("completions").integer_or_zero();
    if spec.at("completionMode").text() == "Indexed" && completions > 0 {
        let hostname = format!("{}-{}", name.text(), completions - 1);
        if !validate_dns1123_label(&hostname).is_empty() {
            name.invalid_text(format!("will not able to create pod with invalid DNS label: {hostname}"));
        }
    }
}

/// The labels and the selector that the server sets must not have other values.
fn check_generated_labels(job: Field<'_>) {
    let metadata = job.path("spec.template.metadata");
    let (name, uid) = (job.path("metadata.name"), job.path("metadata.uid"));
    let expected = [(UID_LABELS[0], uid), (NAME_LABELS[0], name), (UID_LABELS[1], uid), (NAME_LABELS[1], name)];
    let labels = metadata.at("labels");
    for (key, expected) in expected {
        let label = labels.key(key);
        if !label.is_present() {
            label.required(format!("must be '{}'", expected.text()));
        } else if label.text() != expected.text() {
            let all = labels.value().cloned().unwrap_or_default();
            label.invalid_as(all, format!("must be '{}'", expected.text()));
        }
    }
    let selector = job.path("spec.selector");
    let wanted = selector.at("matchLabels");
    let is_own = |(key, value): (&str, Field<'_>)| {
        expected.iter().any(|(known, expected)| *known == key && expected.text() == value.text())
    };
    if !wanted.entries().all(is_own) {
        selector.invalid("`selector` not auto-generated");
    }
}

/// The spec of a job, or of the job template of a cron job.
pub(crate) fn check_job_spec(spec: Field<'_>) {
    for number in [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
    ] {
        spec.at(number).not_negative();
    }
    if spec.at("maxFailedIndexes").is_present() {
        spec.at("maxFailedIndexes").not_negative();
        if !spec.at("backoffLimitPerIndex").is_present() {
            spec.at("backoffLimitPerIndex").required("when maxFailedIndexes is specified");
        }
    }
    if spec.at("managedBy").is_present() {
        spec.at("managedBy").domain_prefixed_path();
        if spec.at("managedBy").text().len() > MANAGED_BY_LENGTH_MAX {
            spec.at("managedBy").too_long(MANAGED_BY_LENGTH_MAX);
        }
    }
    check_completion_mode(spec);
    if spec.at("podFailurePolicy").is_present() {
        check_failure_policy(spec);
    }
    if spec.at("successPolicy").is_present() {
        if spec.at("completionMode").text() == "Indexed" {
            check_success_policy(spec);
        } else {
            spec.at("successPolicy").invalid(NEEDS_INDEXES);
        }
    }
    let replacement: &[&str] =
        if spec.at("podFailurePolicy").is_present() { &["Failed"] } else { &["Failed", "TerminatingOrFailed"] };
    spec.at("podReplacementPolicy").one_of_if_present(replacement);
    check_pod_template(spec.at("template"));
    let policy = spec.path("template.spec.restartPolicy");
    match policy.text() {
        "" | "Always" => policy.required(r#"valid values: "OnFailure", "Never""#),
        "OnFailure" if spec.at("podFailurePolicy").is_present() => {
            policy.invalid(r#"only "Never" is supported when podFailurePolicy is specified"#);
        }
        _ => policy.one_of(&["OnFailure", "Never"]),
    }
}

fn check_completion_mode(spec: Field<'_>) {
    let (completions, parallelism) = (spec.at("completions"), spec.at("parallelism"));
    let (failed, backoff) = (spec.at("maxFailedIndexes"), spec.at("backoffLimitPerIndex"));
    spec.at("completionMode").one_of_if_present(&["NonIndexed", "Indexed"]);
    match spec.at("completionMode").text() {
        "Indexed" => {
            if !completions.is_present() {
                completions.required("when completion mode is Indexed");
            }
            let at_most = |field: Field<'_>, max: i64, condition: &str| {
                if field.integer_or_zero() > max {
                    field.invalid(format!("must be less than or equal to {max}{condition}"));
                }
            };
            at_most(parallelism, INDEXED_MAX, " when completion mode is Indexed");
            if completions.is_present() && failed.integer_or_zero() > completions.integer_or_zero() {
                failed.invalid("must be less than or equal to completions");
            }
            at_most(failed, INDEXED_MAX, "");
            if completions.integer_or_zero() > MANY_COMPLETIONS && backoff.is_present() {
                if !failed.is_present() {
                    failed.required(format!("must be specified when completions is above {MANY_COMPLETIONS}"));
                }
                let condition =
                    format!(" when completions are above {MANY_COMPLETIONS} and used with backoff limit per index");
                at_most(parallelism, MANY_COMPLETIONS_MAX, &condition);
                at_most(failed, MANY_COMPLETIONS_MAX, &condition);
            }
        }
        "NonIndexed" | "" => {
            for field in [backoff, failed].into_iter().filter(|field| field.is_present()) {
                field.invalid(NEEDS_INDEXES);
            }
        }
        _ => {}
    }
}

fn check_failure_policy(spec: Field<'_>) {
    let rules = spec.path("podFailurePolicy.rules");
    rules.at_most(RULES_MAX);
    for rule in rules.items() {
        let action = rule.at("action");
        match action.text() {
            "" => action.required(r#"valid values: ["Count" "FailIndex" "FailJob" "Ignore"]"#),
            "FailIndex" if !spec.at("backoffLimitPerIndex").is_present() => {
                action.invalid("requires the backoffLimitPerIndex to be set");
            }
            _ => action.one_of(&ACTIONS),
        }
        let (codes, conditions) = (rule.at("onExitCodes"), rule.at("onPodConditions"));
        if codes.is_present() {
            check_exit_codes(codes, spec);
        }
        conditions.at_most(RULES_MAX);
        conditions.each(|pattern| {
            pattern.at("type").qualified_name();
            match pattern.at("status").text() {
                "" => pattern.at("status").required(r#"valid values: ["False" "True" "Unknown"]"#),
                _ => pattern.at("status").one_of(&STATUSES),
            }
        });
        match (codes.is_present(), conditions.len() > 0) {
            (true, true) => {
                rule.invalid_unshown("specifying both OnExitCodes and OnPodConditions is not supported");
            }
            (false, false) => rule.invalid_unshown("specifying one of OnExitCodes and OnPodConditions is required"),
            _ => {}
        }
    }
}

fn check_exit_codes(codes: Field<'_>, spec: Field<'_>) {
    let (operator, container, values) = (codes.at("operator"), codes.at("containerName"), codes.at("values"));
    match operator.text() {
        "" => operator.required(r#"valid values: ["In" "NotIn"]"#),
        _ => operator.one_of(&["In", "NotIn"]),
    }
    let pod = spec.path("template.spec");
    let mut containers = ["containers", "initContainers"].into_iter().flat_map(|list| pod.at(list).items());
    if container.is_present() && !containers.any(|known| known.at("name").text() == container.text()) {
        container.invalid("must be one of the container or initContainer names in the pod template");
    }
    if values.len() == 0 {
        values.invalid("at least one value is required");
    }
    values.at_most(EXIT_CODES_MAX);
    let numbers: Vec<i64> = values.list().iter().map(|value| value.as_i64().unwrap_or_default()).collect();
    for (index, value) in values.items().enumerate() {
        if operator.text() == "In" && numbers[index] == 0 {
            value.invalid("must not be 0 for the In operator");
        }
        if numbers[..index].contains(&numbers[index]) {
            value.duplicate();
        }
    }
    if !numbers.is_sorted() {
        values.invalid("must be ordered");
    }
}

fn check_success_policy(spec: Field<'_>) {
    let rules = spec.path("successPolicy.rules");
    let completions = spec.at("completions").integer_or_zero();
    if rules.len() == 0 {
        rules.required("at least one rules must be specified when the successPolicy is specified");
    }
    rules.at_most(RULES_MAX);
    for rule in rules.items() {
        let (count, indexes) = (rule.at("succeededCount"), rule.at("succeededIndexes"));
        if !count.is_present() && !indexes.is_present() {
            rule.required("at least one of succeededCount or succeededIndexes must be specified");
        }
        let mut total = 0;
        if indexes.is_present() {
            if indexes.text().len() > INDEXES_LENGTH_MAX {
                indexes.too_long(INDEXES_LENGTH_MAX);
            }
            match count_indexes(indexes.text(), completions) {
                Ok(number) => total = number,
                Err(error) => indexes.invalid(format!("error parsing succeededIndexes: {error}")),
            }
        }
        count.not_negative();
        let number = count.integer_or_zero();
        if number > completions {
            count.invalid(format!("must be less than or equal to {completions} (the number of specified completions)"));
        }
        if count.is_present() && indexes.is_present() && number > total {
            count.invalid(format!(
                "must be less than or equal to {total} (the number of indexes in the specified succeededIndexes field)"
            ));
        }
    }
}

/// The number of indexes in `0,2-4`.
pub(super) fn count_indexes(text: &str, completions: i64) -> Result<i64, String> {
    let mut last: Option<i64> = None;
    let mut total = 0;
    for interval in text.split(',').filter(|_| !text.is_empty()) {
        let (first, end) = parse_interval(interval, completions)?;
        if let Some(last) = last.filter(|last| *last >= first) {
            return Err(format!("non-increasing order, previous: {last}, current: {first}"));
        }
        total += end - first + 1;
        last = Some(end);
    }
    Ok(total)
}

fn parse_interval(interval: &str, completions: i64) -> Result<(i64, i64), String> {
    let mut parts = interval.split('-');
    let (first, second) = (parts.next().unwrap_or_default(), parts.next());
    if parts.next().is_some() {
        return Err(format!(
            "the fragment {interval:?} violates the requirement that an index interval can have at most two parts separated by '-'"
        ));
    }
    let parse = |text: &str| {
        let number: i64 = text.parse().map_err(|_| format!("cannot convert string to integer for index: {text:?}"))?;
        if number >= completions { Err(format!("too large index: {text:?}")) } else { Ok(number) }
    };
    let first = parse(first)?;
    let Some(second) = second else { return Ok((first, first)) };
    let second = parse(second)?;
    if first >= second {
        return Err(format!("non-increasing order, previous: {first}, current: {second}"));
    }
    Ok((first, second))
}

/// True if an interval of one list overlaps with one of another; the first common index.
pub(super) fn find_overlap(one: &str, other: &str, completions: i64) -> Option<i64> {
    let intervals = |text: &str| -> Vec<(i64, i64)> {
        text.split(',').filter_map(|interval| parse_interval(interval, completions).ok()).collect()
    };
    let (one, other) = (intervals(one), intervals(other));
    let (mut at, mut position) = (0, 0);
    while let (Some((first, end)), Some((start, last))) = (one.get(at), other.get(position)) {
        if first <= last && start <= end {
            return Some(*first.max(start));
        }
        if first <= start { at += 1 } else { position += 1 }
    }
    None
}

/// True if a job has a condition whose status is true.
pub(super) fn has_condition(job: Field<'_>, kind: &str) -> bool {
    let is = |condition: &Value, name: &str, text: &str| condition.get(name).and_then(Value::as_str) == Some(text);
    let conditions = job.path("status.conditions");
    conditions.list().iter().any(|condition| is(condition, "type", kind) && is(condition, "status", "True"))
}
