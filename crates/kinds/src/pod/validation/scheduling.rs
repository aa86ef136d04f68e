//! What is valid in affinity, tolerations and topology spread constraints.

use std::collections::HashMap;

use api::validation::validate_label_value;

use crate::validation::Field;
use crate::validation::labels::SelectorValues;
use crate::validation::numbers::POSITIVE;

pub(crate) const TAINT_EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
const WEIGHT: &str = "must be in the range 1-100";

pub(super) fn check_affinity(affinity: Field<'_>) {
    let nodes = affinity.at("nodeAffinity");
    if nodes.at(REQUIRED).is_present() {
        nodes.at(REQUIRED).node_selector(SelectorValues::Checked);
    }
    nodes.at(PREFERRED).each(|term| {
        check_weight(term);
        term.at("preference").node_selector_term(SelectorValues::Unchecked);
    });
    for pods in ["podAffinity", "podAntiAffinity"].map(|name| affinity.at(name)) {
        pods.at(REQUIRED).each(check_pod_affinity_term);
        pods.at(PREFERRED).each(|term| {
            check_weight(term);
            check_pod_affinity_term(term.at("podAffinityTerm"));
        });
    }
}

fn check_weight(term: Field<'_>) {
    let weight = term.at("weight").integer_or_zero();
    if !(1..=100).contains(&weight) {
        term.at("weight").invalid_as(weight, WEIGHT);
    }
}

fn check_pod_affinity_term(term: Field<'_>) {
    term.at("labelSelector").label_selector();
    term.at("namespaceSelector").label_selector();
    let namespace = term.at("namespace");
    term.at("namespaces").items().for_each(|name| {
        name.reported_at(namespace).dns_label();
    });
    check_label_keys(term, term.at("mismatchLabelKeys"));
    let key = term.at("topologyKey");
    if key.text().is_empty() {
        key.required("can not be empty");
    }
    key.qualified_name();
}

/// Keys whose values in the new pod become part of the selector. A spread constraint has no mismatched keys.
fn check_label_keys<'a>(term: Field<'a>, mismatched: Field<'a>) {
    let (selector, matched) = (term.at("labelSelector"), term.at("matchLabelKeys"));
    for keys in [matched, mismatched].into_iter().filter(|keys| keys.len() > 0) {
        if selector.is_present() {
            keys.each(|key| {
                key.qualified_name();
            });
        } else {
            keys.forbidden("must not be specified when labelSelector is not set");
        }
    }
    let mut known: Vec<&str> = selector.at("matchLabels").entries().map(|(key, _)| key).collect();
    for expression in selector.at("matchExpressions").items() {
        let key = expression.at("key").text();
        let position = matched.texts().enumerate().filter(|(_, matched)| *matched == key).last();
        if let Some((index, _)) = position.filter(|_| known.contains(&key)) {
            // Kubernetes counts in the term instead of in the keys.
            term.index(index).invalid_as(key, "exists in both matchLabelKeys and labelSelector");
        }
        known.push(key);
    }
    for key in matched.items().filter(|key| mismatched.texts().any(|other| other == key.text())) {
        key.invalid("exists in both matchLabelKeys and mismatchLabelKeys");
    }
}

pub(super) fn check_topology_spread(constraints: Field<'_>) {
    let pair_of = |constraint: Field<'_>| {
        (constraint.at("topologyKey").text().to_owned(), constraint.at("whenUnsatisfiable").text().to_owned())
    };
    let last_positions: HashMap<_, usize> = constraints.items().map(pair_of).zip(0..).collect();
    for (index, constraint) in constraints.items().enumerate() {
        let (key, action) = (constraint.at("topologyKey"), constraint.at("whenUnsatisfiable"));
        constraint.at("maxSkew").positive();
        if key.text().is_empty() {
            key.required("can not be empty");
        }
        action.one_of(&["DoNotSchedule", "ScheduleAnyway"]);
        if last_positions.get(&pair_of(constraint)).is_some_and(|last| index < *last) {
            let pair = constraint.at("{topologyKey, whenUnsatisfiable}");
            pair.duplicate_of(format!("{{{}, {}}}", key.text(), action.text()));
        }
        let domains = constraint.at("minDomains");
        if let Some(number) = domains.integer() {
            if number <= 0 {
                domains.invalid(POSITIVE);
            }
            if action.text() != "DoNotSchedule" {
                let action = action.text();
                domains.invalid(format!("can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}"));
            }
        }
        for policy in ["nodeAffinityPolicy", "nodeTaintsPolicy"].map(|name| constraint.at(name)) {
            policy.one_of_if_present(&["Honor", "Ignore"]);
        }
        if constraint.is_enabled("MatchLabelKeysInPodTopologySpreadSelectorMerge") {
            check_label_keys(constraint, constraint.at("mismatchLabelKeys"));
        } else {
            check_spread_keys(constraint);
        }
        constraint.at("labelSelector").label_selector();
    }
}

/// Keys of a spread constraint before they became part of the selector.
fn check_spread_keys(constraint: Field<'_>) {
    let (selector, keys) = (constraint.at("labelSelector"), constraint.at("matchLabelKeys"));
    if keys.len() == 0 {
        return;
    }
    if !selector.is_present() {
        keys.forbidden("must not be specified when labelSelector is not set");
    }
    let expressions = selector.at("matchExpressions").items().map(|expression| expression.at("key").text());
    let known: Vec<&str> = selector.at("matchLabels").entries().map(|(key, _)| key).chain(expressions).collect();
    for key in keys.items() {
        key.qualified_name();
        if known.contains(&key.text()) {
            key.invalid("exists in both matchLabelKeys and labelSelector");
        }
    }
}

pub(crate) fn check_tolerations(tolerations: Field<'_>) {
    tolerations.each(|toleration| {
        let (key, operator) = (toleration.at("key"), toleration.at("operator"));
        let (value, effect) = (toleration.at("value"), toleration.at("effect"));
        if !key.text().is_empty() {
            key.qualified_name();
        } else if operator.text() != "Exists" {
            let detail = "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
            operator.invalid_text(detail);
        }
        if toleration.at("tolerationSeconds").is_present() && effect.text() != "NoExecute" {
            effect.invalid_text("effect must be 'NoExecute' when `tolerationSeconds` is set");
        }
        match operator.text() {
            "Equal" | "" => {
                let errors = validate_label_value(value.text());
                if !errors.is_empty() {
                    operator.invalid_as(value.text(), errors.join(";"));
                }
            }
            "Exists" if !value.text().is_empty() => {
                operator.invalid_as(value.text(), "value must be empty when `operator` is 'Exists'");
            }
            "Exists" => {}
            "Lt" | "Gt" if operator.is_enabled("TaintTolerationComparisonOperators") => check_integer(value),
            "Lt" | "Gt" => operator.unsupported(&["Equal", "Exists", "Lt", "Gt"]),
            _ => operator.unsupported(&["Equal", "Exists"]),
        }
        effect.one_of_if_set(&TAINT_EFFECTS);
    });
}

/// A decimal integer of 64 bits, in its shortest form.
fn check_integer(value: Field<'_>) {
    let text = value.text();
    let digits = text.strip_prefix('-').unwrap_or(text);
    let is_canonical = !digits.is_empty()
        && digits.bytes().all(|byte| byte.is_ascii_digit())
        && (digits == "0" && !text.starts_with('-') || !digits.starts_with('0'));
    if !is_canonical {
        value.invalid_text(
            "must be a valid decimal integer in canonical form, without leading zeros or a plus sign (e.g. '0', '42', '-7')",
        );
    }
    if text.parse::<i64>().is_err() {
        value.invalid_text(format!("strconv.ParseInt: parsing {text:?}: invalid syntax"));
    }
}
