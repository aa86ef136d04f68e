//! What is valid in flow schemas and priority levels.

use std::collections::HashSet;

use serde_json::json;

use crate::validation::Field;

const PRECEDENCE_MAX: i64 = 10_000;
const QUEUES_MAX: i64 = 10_000_000;
/// The hash of a flow chooses its queues.
const HASH_BITS: f64 = 60.0;
const VERBS: [&str; 9] = ["create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch"];
const SUBJECT_KINDS: [&str; 3] = ["Group", "ServiceAccount", "User"];
const SUBJECTS: [(&str, &str); 3] = [("ServiceAccount", "serviceAccount"), ("User", "user"), ("Group", "group")];

pub(super) fn check_flow_schema(schema: Field<'_>) {
    let spec = schema.at("spec");
    let precedence = spec.at("matchingPrecedence");
    let number = precedence.integer_or_zero();
    if number <= 0 {
        precedence.invalid_as(number, "must be a positive value");
    }
    if number > PRECEDENCE_MAX {
        precedence.invalid(format!("must not be greater than {PRECEDENCE_MAX}"));
    }
    if number == 1 && schema.path("metadata.name").text() != "exempt" {
        precedence.invalid("only the schema named 'exempt' may have matchingPrecedence 1");
    }
    let method = spec.at("distinguisherMethod");
    if method.is_present() && !["ByNamespace", "ByUser"].contains(&method.at("type").text()) {
        let shown = json!({"Type": method.at("type").text()});
        method.at("type").unsupported_as(shown, &["ByNamespace", "ByUser"]);
    }
    let level = spec.path("priorityLevelConfiguration.name");
    if level.text().is_empty() {
        level.required("must reference a priority level");
    } else {
        level.dns_subdomain();
    }
    spec.at("rules").each(check_rules);
    check_conditions(schema.at("status"));
}

fn check_rules(rules: Field<'_>) {
    let subjects = rules.at("subjects");
    if subjects.len() == 0 {
        subjects.required("subjects must contain at least one value");
    }
    subjects.each(check_subject);
    if rules.at("resourceRules").len() == 0 && rules.at("nonResourceRules").len() == 0 {
        rules.required("at least one of resourceRules and nonResourceRules has to be non-empty");
    }
    rules.at("resourceRules").each(check_resource_rule);
    rules.at("nonResourceRules").each(|rule| {
        check_verbs(rule.at("verbs"));
        let urls = rule.at("nonResourceURLs");
        if urls.len() == 0 {
            urls.required("nonResourceURLs must contain at least one value");
        } else if urls.texts().any(|url| url == "*") {
            if urls.len() > 1 {
                urls.invalid("if '*' is present, must not specify other non-resource URLs");
            }
        } else {
            urls.each(check_url);
        }
    });
}

fn check_subject(subject: Field<'_>) {
    let kind = subject.at("kind").text();
    let Some((_, own)) = SUBJECTS.iter().find(|(known, _)| *known == kind) else {
        return subject.at("kind").unsupported(&SUBJECT_KINDS);
    };
    let value = subject.at(own);
    if !value.is_present() {
        value.required(format!("{own} is required when subject kind is '{kind}'"));
    } else if value.at("name").require_text() && kind == "ServiceAccount" && value.at("name").text() != "*" {
        value.at("name").dns_subdomain();
    }
    if value.is_present() && kind == "ServiceAccount" {
        if value.at("namespace").text().is_empty() {
            value.at("namespace").required("must specify namespace for service account");
        } else {
            value.at("namespace").dns_label();
        }
    }
    for (other_kind, other) in SUBJECTS.iter().filter(|(other, _)| *other != kind) {
        subject.forbid(&[other], &format!("{other} is forbidden when subject kind is not '{other_kind}'"));
    }
}

fn check_verbs(verbs: Field<'_>) {
    if verbs.len() == 0 {
        verbs.required("verbs must contain at least one value");
    } else if verbs.texts().any(|verb| verb == "*") {
        if verbs.len() > 1 {
            verbs.invalid("if '*' is present, must not specify other verbs");
        }
    } else if !verbs.texts().all(|verb| VERBS.contains(&verb)) {
        verbs.unsupported_as(verbs.value().cloned().unwrap_or_default(), &VERBS);
    }
}

fn check_resource_rule(rule: Field<'_>) {
    check_verbs(rule.at("verbs"));
    for (list, one, others) in [
        ("apiGroups", "resource rules must supply at least one api group", "api groups"),
        ("resources", "resource rules must supply at least one resource", "resources"),
    ] {
        let list = rule.at(list);
        if list.len() == 0 {
            list.required(one);
        } else if list.len() > 1 && list.texts().any(|text| text == "*") {
            list.invalid(format!("if '*' is present, must not specify other {others}"));
        }
    }
    let namespaces = rule.at("namespaces");
    if namespaces.len() == 0 && !rule.at("clusterScope").flag() {
        namespaces.required("resource rules that are not cluster scoped must supply at least one namespace");
    } else if namespaces.texts().any(|text| text == "*") {
        if namespaces.len() > 1 {
            namespaces.invalid("if '*' is present, must not specify other namespaces");
        }
    } else {
        namespaces.each(|namespace| {
            for error in api::validation::validate_dns1123_label(namespace.text()) {
                let detail = format!("each member of this list must be '*' or a DNS-1123 label; {error}");
                namespace.invalid_text(detail);
            }
        });
    }
}

/// A path, possibly with a wildcard at its end.
fn check_url(url: Field<'_>) {
    let text = url.text();
    let detail = match text {
        "" => "must not be empty",
        "/" => return,
        _ if !text.starts_with('/') => "must start with slash",
        _ if text.contains(' ') => "must not contain white-space",
        _ if text.contains("//") => "must not contain double slash",
        _ => match text.matches('*').count() {
            0 => return,
            1 if text.ends_with("/*") => return,
            _ => "wildcard can only do suffix matching",
        },
    };
    url.invalid_text(detail);
}

/// Conditions of either kind: one of each type.
pub(super) fn check_conditions(status: Field<'_>) {
    let mut types = HashSet::new();
    for kind in status.at("conditions").items().map(|condition| condition.at("type")) {
        if !types.insert(kind.text()) {
            kind.duplicate_of(kind.text());
        }
        kind.require_text();
    }
}

pub(super) fn check_priority_level(level: Field<'_>) {
    let (name, spec) = (level.path("metadata.name").text(), level.at("spec"));
    let (kind, limited, exempt) = (spec.at("type"), spec.at("limited"), spec.at("exempt"));
    if (name == "exempt") != (kind.text() == "Exempt") {
        kind.invalid_text("must be 'Exempt' if and only if `name` is 'exempt'");
    }
    match kind.text() {
        "Exempt" => {
            spec.forbid(&["limited"], "must be nil if the type is not Limited");
            check_shares(exempt);
        }
        "Limited" => {
            spec.forbid(&["exempt"], "must be nil if the type is Limited");
            if limited.is_present() {
                check_limited(limited);
            } else {
                limited.required("must not be empty when type is Limited");
            }
        }
        _ => kind.require_one_of(&["Exempt", "Limited"]),
    }
    check_conditions(level.at("status"));
}

fn check_shares(level: Field<'_>) {
    let shares = level.at("nominalConcurrencyShares");
    if shares.integer_or_zero() < 0 {
        shares.invalid("must be a non-negative integer");
    }
    level.at("lendablePercent").in_range(0, 100);
}

fn check_limited(limited: Field<'_>) {
    let shares = limited.at("nominalConcurrencyShares");
    if shares.integer_or_zero() < 0 {
        shares.invalid("must be a non-negative integer");
    }
    let (response, queuing) = (limited.at("limitResponse"), limited.path("limitResponse.queuing"));
    match response.at("type").text() {
        "Reject" => response.forbid(&["queuing"], "must be nil if limited.limitResponse.type is not Limited"),
        "Queue" if !queuing.is_present() => {
            queuing.required("must not be empty if limited.limitResponse.type is Limited");
        }
        "Queue" => check_queuing(queuing),
        _ => response.at("type").require_one_of(&["Queue", "Reject"]),
    }
    limited.at("lendablePercent").in_range(0, 100);
    let borrowing = limited.at("borrowingLimitPercent");
    if borrowing.integer_or_zero() < 0 {
        borrowing.invalid("if specified, must be a non-negative integer");
    }
}

fn check_queuing(queuing: Field<'_>) {
    let [length, queues, hand] = ["queueLengthLimit", "queues", "handSize"].map(|name| queuing.at(name));
    for number in [length, queues, hand].into_iter().filter(|number| number.integer_or_zero() <= 0) {
        number.invalid_as(number.integer_or_zero(), "must be positive");
    }
    let (deck, size) = (queues.integer_or_zero(), hand.integer_or_zero());
    if deck > QUEUES_MAX {
        queues.invalid(format!("must not be greater than {QUEUES_MAX}"));
    }
    if size > deck && size > 0 {
        hand.invalid(format!("should not be greater than queues ({deck})"));
    } else if size > 0 && required_bits(deck, size) > HASH_BITS {
        hand.invalid(format!(
            "required entropy bits of deckSize {deck} and handSize {size} should not be greater than 60"
        ));
    }
}

/// The bits that choose a hand of queues, rounded up.
fn required_bits(deck: i64, hand: i64) -> f64 {
    ((deck as f64).log2() * hand as f64).ceil()
}
