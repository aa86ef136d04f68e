//! Requests for certificates: who asks is the server's word, and approval is written apart from all else.

use std::cmp::Ordering;

use access::User;
use api::FieldError;
use api::time::Time;
use object::Refusal;
use serde_json::{Value, json};

use crate::forms::Object;

/// The conditions that only a write to `approval` may add.
const VERDICTS: [&str; 2] = ["Approved", "Denied"];
/// The conditions that stay once they are there.
const LASTING: [&str; 3] = ["Approved", "Denied", "Failed"];

/// Whoever creates it is who asks, whatever the body says; signers go by it.
pub(super) fn complete(user: &User, object: &mut Object) {
    let spec = object.entry("spec").or_insert_with(|| json!({}));
    let Some(spec) = spec.as_object_mut() else { return };
    for field in ["username", "uid", "groups", "extra"] {
        spec.remove(field);
    }
    spec.insert("username".to_owned(), user.name.clone().into());
    if !user.uid.is_empty() {
        spec.insert("uid".to_owned(), user.uid.clone().into());
    }
    if !user.groups.is_empty() {
        spec.insert("groups".to_owned(), user.groups.clone().into());
    }
    if !user.extra.is_empty() {
        spec.insert("extra".to_owned(), json!(user.extra));
    }
}

/// An update changes nothing of what was asked for, and says nothing about it.
pub(super) fn keep(old: &Object, new: &mut Object) {
    match old.get("spec") {
        Some(spec) => new.insert("spec".to_owned(), spec.clone()),
        None => new.remove("spec"),
    };
}

/// Gives conditions the times that a client left out.
pub(super) fn stamp_conditions(old: &Object, next: &mut Object, now: Time) {
    let conditions = next.get_mut("status").and_then(|status| status.get_mut("conditions"));
    for condition in conditions.and_then(Value::as_array_mut).into_iter().flatten() {
        let since = conditions_of(old)
            .iter()
            .find(|known| known.get("type") == condition.get("type") && known.get("status") == condition.get("status"));
        let since = since.and_then(|known| known.get("lastTransitionTime")).cloned();
        let Some(fields) = condition.as_object_mut() else { continue };
        fields.entry("lastUpdateTime").or_insert_with(|| now.to_string().into());
        fields.entry("lastTransitionTime").or_insert_with(|| since.unwrap_or_else(|| now.to_string().into()));
    }
}

/// A write to `status` is no verdict. One that was given is repeated as it was.
pub(super) fn keep_verdicts(old: &Object, new: &mut Object) -> Result<(), Refusal> {
    let mut errors = Vec::new();
    for kind in VERDICTS {
        let given = of_kind(old, kind);
        match given.len().cmp(&of_kind(new, kind).len()) {
            Ordering::Equal => restore(new, kind, given),
            Ordering::Less => errors.push(verdict_error("add", kind)),
            Ordering::Greater => {}
        }
    }
    errors.splice(0..0, faults(old, new));
    Refusal::invalid_unless_empty(errors)
}

/// What no write may do, be it a verdict or not.
pub(super) fn check(old: &Object, new: &Object) -> Result<(), Refusal> {
    Refusal::invalid_unless_empty(faults(old, new))
}

fn faults(old: &Object, new: &Object) -> Vec<FieldError> {
    let path = "status.conditions";
    let has_both = |object: &Object| VERDICTS.iter().all(|kind| !of_kind(object, kind).is_empty());
    let mut errors = Vec::new();
    if has_both(new) && !has_both(old) {
        let last = conditions_of(new).iter().rev().find(|condition| VERDICTS.iter().any(|kind| is_of(condition, kind)));
        let kind = last.and_then(|condition| condition.get("type")).cloned().unwrap_or_default();
        errors.push(FieldError::invalid(path, kind, "Approved and Denied conditions are mutually exclusive"));
    }
    let has_twice = |object: &Object, at: usize| {
        let all = conditions_of(object);
        all[..at].iter().any(|condition| condition.get("type") == all[at].get("type"))
    };
    let twice =
        |object: &Object| (0..conditions_of(object).len()).filter(|at| has_twice(object, *at)).collect::<Vec<_>>();
    if twice(old).is_empty() {
        errors.extend(twice(new).into_iter().map(|at| {
            let kind = conditions_of(new)[at].get("type").cloned().unwrap_or_default();
            FieldError::duplicate(format!("{path}[{at}].type"), kind)
        }));
    }
    let removed = LASTING.iter().filter(|kind| of_kind(new, kind).len() < of_kind(old, kind).len());
    errors.extend(removed.map(|kind| verdict_error("remove", kind)));
    let certificate = |object: &Object| {
        let certificate = object.get("status").and_then(|status| status.get("certificate")?.as_str());
        certificate.unwrap_or_default().to_owned()
    };
    if !certificate(old).is_empty() && certificate(old) != certificate(new) {
        let detail = "updates may not modify existing certificate content";
        errors.push(FieldError::forbidden("status.certificate", detail));
    }
    errors
}

fn of_kind(object: &Object, kind: &str) -> Vec<Value> {
    conditions_of(object).iter().filter(|condition| is_of(condition, kind)).cloned().collect()
}

fn verdict_error(what: &str, kind: &str) -> FieldError {
    FieldError::forbidden("status.conditions", format!("updates may not {what} a condition of type \"{kind}\""))
}

fn restore(object: &mut Object, kind: &str, given: Vec<Value>) {
    let conditions = object.get_mut("status").and_then(|status| status.get_mut("conditions"));
    let conditions = conditions.and_then(Value::as_array_mut).into_iter().flatten();
    conditions.filter(|condition| is_of(condition, kind)).zip(given).for_each(|(new, old)| *new = old);
}

fn is_of(condition: &Value, kind: &str) -> bool {
    condition.get("type").is_some_and(|named| named == kind)
}

fn conditions_of(object: &Object) -> &[Value] {
    let conditions = object.get("status").and_then(|status| status.get("conditions")).and_then(Value::as_array);
    conditions.map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    fn with(conditions: &[(&str, &str)]) -> Object {
        let conditions: Vec<_> =
            conditions.iter().map(|(kind, reason)| json!({"type": kind, "reason": reason})).collect();
        let Value::Object(object) = json!({"spec": {"request": "a"}, "status": {"conditions": conditions}}) else {
            unreachable!("it is written as an object")
        };
        object
    }

    #[test]
    fn whoever_creates_a_request_is_who_asks() {
        let mut user = User { groups: vec!["devs".to_owned()], ..User::named("jane") };
        let mut object = Object::new();
        object
            .insert("spec".to_owned(), json!({"username": "root", "uid": "0", "extra": {"a": ["b"]}, "request": "c"}));
        complete(&user, &mut object);
        assert_eq!(object["spec"], json!({"request": "c", "username": "jane", "groups": ["devs"]}));
        user.uid = "u".to_owned();
        user.extra.insert("team".to_owned(), vec!["red".to_owned()]);
        complete(&user, &mut object);
        assert_eq!(object["spec"]["uid"], "u");
        assert_eq!(object["spec"]["extra"], json!({"team": ["red"]}));
    }

    #[test]
    fn conditions_get_times() {
        let now: Time = "2026-01-01T00:00:00Z".parse().unwrap();
        let mut approved = with(&[("Approved", "r")]);
        stamp_conditions(&with(&[]), &mut approved, now);
        expect![[r#"{"conditions":[{"lastTransitionTime":"2026-01-01T00:00:00Z","lastUpdateTime":"2026-01-01T00:00:00Z","reason":"r","type":"Approved"}]}"#]]
            .assert_eq(&approved["status"].to_string());
    }

    #[test]
    fn verdicts_and_certificates_stay() {
        let said =
            |old: &Object, new: &Object| -> Vec<String> { faults(old, new).iter().map(ToString::to_string).collect() };
        assert_eq!(said(&with(&[("Approved", "a")]), &with(&[("Approved", "b"), ("Failed", "f")])), [""; 0]);
        assert_eq!(
            said(&with(&[("Approved", "a"), ("Failed", "f")]), &with(&[("Denied", "d")])),
            [
                "status.conditions: Forbidden: updates may not remove a condition of type \"Approved\"",
                "status.conditions: Forbidden: updates may not remove a condition of type \"Failed\"",
            ]
        );
        assert_eq!(
            said(&with(&[("Approved", "a")]), &with(&[("Approved", "a"), ("Denied", "d")])),
            ["status.conditions: Invalid value: \"Denied\": Approved and Denied conditions are mutually exclusive"]
        );
        assert_eq!(
            said(&with(&[]), &with(&[("Failed", "a"), ("Failed", "b")])),
            ["status.conditions[1].type: Duplicate value: \"Failed\""]
        );
        let signed = |certificate: &str| {
            let mut request = with(&[]);
            request["status"]["certificate"] = json!(certificate);
            request
        };
        assert_eq!(said(&signed(""), &signed("YQ==")), [""; 0]);
        assert_eq!(
            said(&signed("YQ=="), &signed("Yg==")),
            ["status.certificate: Forbidden: updates may not modify existing certificate content"]
        );
    }

    #[track_caller]
    fn check(old: &[(&str, &str)], new: &[(&str, &str)], expected: &Expect) {
        let mut new = with(new);
        let text = match keep_verdicts(&with(old), &mut new) {
            Ok(()) => new["status"]["conditions"].to_string(),
            Err(refusal) => format!("{refusal:?}"),
        };
        expected.assert_eq(&text);
    }

    #[test]
    fn a_write_to_the_status_is_no_verdict() {
        check(
            &[("Approved", "a")],
            &[("Failed", "f"), ("Approved", "b")],
            &expect![[r#"[{"reason":"f","type":"Failed"},{"reason":"a","type":"Approved"}]"#]],
        );
        check(
            &[],
            &[("Approved", "a")],
            &expect![[
                r#"Invalid { subject: Kind, errors: [FieldError { kind: Forbidden, field: "status.conditions", value: None, detail: "updates may not add a condition of type \"Approved\"" }] }"#
            ]],
        );
        check(
            &[("Denied", "a")],
            &[],
            &expect![[
                r#"Invalid { subject: Kind, errors: [FieldError { kind: Forbidden, field: "status.conditions", value: None, detail: "updates may not remove a condition of type \"Denied\"" }] }"#
            ]],
        );
    }
}
