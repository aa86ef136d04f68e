//! Certificate signing requests: the server records the requesting user, and only the `approval` subresource writes
//! approvals.

use std::cmp::Ordering;

use access::User;
use api::FieldError;
use api::json::JsonObject;
use api::time::Time;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use object::rules::NameRule;
use object::selectable_fields::SelectableFields;
use object::table::cells::{AGE, NAME, find_condition, string_cell, string_cell_or, string_column};
use object::table::{Column, human_duration};
use object::{KindRules, Rejection, unstructured};
use serde_json::{Value, json};

use crate::reset_fields;
use crate::strategy::{KindStrategy, RULES, SubresourceStrategy, WritableFields};
use crate::validation::Field;

pub(crate) static STRATEGY: KindStrategy = KindStrategy {
    reset_fields: reset_fields::CERTIFICATE_SIGNING_REQUEST,
    rules: KindRules { name_rule: NameRule::PathSegment, ..RULES },
    validate_create: |request| check_spec(request.at("spec")),
    validate_status: |request, old| {
        check_condition_statuses(request.path("status.conditions"));
        let (certificate, before) = (request.path("status.certificate"), old.path("status.certificate"));
        if !certificate.text().is_empty() && certificate.text() != before.text() {
            check_certificate(certificate);
        }
    },
    prepare_for_create,
    prepare_for_update,
    subresources: &[
        SubresourceStrategy {
            writes_status: true,
            complete: |old, request, _, now| set_condition_times(old, request, now),
            prepare: |old, request, _| check(old, request),
            ..SubresourceStrategy::new("approval", WritableFields::Fields(&["metadata", "status.conditions"]))
        },
        SubresourceStrategy::status(|old, request, now| {
            set_condition_times(old, request, now);
            preserve_approval_conditions(old, request)
        }),
    ],
    signer_verb: |subresource, old, new| match subresource {
        "approval" => Some("approve"),
        "status" if old.get("status") != new.get("status") => Some("sign"),
        _ => None,
    },
    columns: SIGNING_REQUESTS,
    selectable_fields: &BY_SIGNER,
    ..KindStrategy::DEFAULT
};

/// Field selectors of requests and trust bundles support the signer.
pub(crate) static BY_SIGNER: SelectableFields =
    SelectableFields { names: &["metadata.name", "spec.signerName"], ..SelectableFields::LISTED };

/// The conditions that only a write to `approval` may add.
const APPROVAL_CONDITIONS: [&str; 2] = ["Approved", "Denied"];

/// The conditions that cannot be removed.
const PERMANENT_CONDITIONS: [&str; 3] = ["Approved", "Denied", "Failed"];

/// Records the creating user as the requester and ignores the body's values; signers rely on it.
fn prepare_for_create(user: &User, object: &mut JsonObject) -> Result<(), Rejection> {
    let spec = object.entry("spec").or_insert_with(|| json!({}));
    let Some(spec) = spec.as_object_mut() else { return Ok(()) };
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
    Ok(())
}

const USAGES: [&str; 23] = [
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];
/// Ten minutes.
const EXPIRATION_SECONDS_MIN: i64 = 600;

/// The request itself is checked for its form alone: PEM of the right type.
fn check_spec(spec: Field<'_>) {
    let request = spec.at("request");
    let text = STANDARD.decode(request.text()).unwrap_or_default();
    if !String::from_utf8_lossy(&text).contains("-----BEGIN CERTIFICATE REQUEST-----") {
        request.invalid_text("PEM block type must be CERTIFICATE REQUEST");
    }
    let (usages, signer, seconds) = (spec.at("usages"), spec.at("signerName"), spec.at("expirationSeconds"));
    if usages.len() == 0 {
        usages.required("");
    }
    usages.each(|usage| usage.one_of(&USAGES));
    usages.unique_items();
    if signer.text() == "kubernetes.io/legacy-unknown" {
        signer.invalid("the legacy signerName is not allowed via this API version");
    } else {
        signer.signer_name();
    }
    if seconds.integer().is_some_and(|seconds| seconds < EXPIRATION_SECONDS_MIN) {
        seconds.invalid("may not specify a duration less than 600 seconds (10 minutes)");
    }
}

fn check_condition_statuses(conditions: Field<'_>) {
    conditions.each(|condition| {
        let (kind, status) = (condition.at("type"), condition.at("status"));
        kind.require_text();
        let is_final = matches!(kind.text(), "Approved" | "Denied" | "Failed");
        status.require_one_of(if is_final { &["True"] } else { &["False", "True", "Unknown"] });
    });
}

/// A certificate is text in PEM.
fn check_certificate(certificate: Field<'_>) {
    let pem = STANDARD.decode(certificate.text()).unwrap_or_default();
    let text = String::from_utf8_lossy(&pem);
    if !text.contains("-----BEGIN CERTIFICATE-----") {
        certificate.invalid_as("<certificate data>", "must contain at least one CERTIFICATE PEM block");
    }
}

/// Keeps the stored spec; an update that changes it is not rejected.
fn prepare_for_update(old: &JsonObject, new: &mut JsonObject) -> Result<(), Rejection> {
    match old.get("spec") {
        Some(spec) => new.insert("spec".to_owned(), spec.clone()),
        None => new.remove("spec"),
    };
    Ok(())
}

/// Fills in the times of conditions that the client left out.
fn set_condition_times(old: &JsonObject, next: &mut JsonObject, now: Time) {
    let conditions = next.get_mut("status").and_then(|status| status.get_mut("conditions"));
    for condition in conditions.and_then(Value::as_array_mut).into_iter().flatten() {
        let since = status_conditions(old)
            .iter()
            .find(|known| known.get("type") == condition.get("type") && known.get("status") == condition.get("status"));
        let since = since.and_then(|known| known.get("lastTransitionTime")).filter(|time| !time.is_null()).cloned();
        let Some(fields) = condition.as_object_mut() else { continue };
        let since = since.unwrap_or_else(|| now.to_string().into());
        for (field, time) in [("lastUpdateTime", now.to_string().into()), ("lastTransitionTime", since)] {
            // A time that the client left out is null in the typed object.
            if fields.get(field).is_none_or(Value::is_null) {
                fields.insert(field.to_owned(), time);
            }
        }
    }
}

/// Rejects a write to `status` that adds an approval or a denial, and restores existing ones.
fn preserve_approval_conditions(old: &JsonObject, new: &mut JsonObject) -> Result<(), Rejection> {
    let mut errors = Vec::new();
    for kind in APPROVAL_CONDITIONS {
        let old_conditions = conditions_of_type(old, kind);
        match old_conditions.len().cmp(&conditions_of_type(new, kind).len()) {
            Ordering::Equal => restore_conditions(new, kind, old_conditions),
            Ordering::Less => errors.push(approval_condition_error("add", kind)),
            Ordering::Greater => {}
        }
    }
    errors.splice(0..0, validate_conditions(old, new));
    Rejection::ensure_no_errors(errors)
}

/// Rejects conditions and certificates that no write may change.
fn check(old: &JsonObject, new: &JsonObject) -> Result<(), Rejection> {
    Rejection::ensure_no_errors(validate_conditions(old, new))
}

fn validate_conditions(old: &JsonObject, new: &JsonObject) -> Vec<FieldError> {
    let path = "status.conditions";
    let has_both =
        |object: &JsonObject| APPROVAL_CONDITIONS.iter().all(|kind| !conditions_of_type(object, kind).is_empty());
    let mut errors = Vec::new();
    if has_both(new) && !has_both(old) {
        let last = status_conditions(new)
            .iter()
            .rev()
            .find(|condition| APPROVAL_CONDITIONS.iter().any(|kind| has_condition_type(condition, kind)));
        let kind = last.and_then(|condition| condition.get("type")).cloned().unwrap_or_default();
        errors.push(FieldError::invalid(path, kind, "Approved and Denied conditions are mutually exclusive"));
    }
    let has_twice = |object: &JsonObject, at: usize| {
        let all = status_conditions(object);
        all[..at].iter().any(|condition| condition.get("type") == all[at].get("type"))
    };
    let twice = |object: &JsonObject| {
        (0..status_conditions(object).len()).filter(|at| has_twice(object, *at)).collect::<Vec<_>>()
    };
    if twice(old).is_empty() {
        errors.extend(twice(new).into_iter().map(|at| {
            let kind = status_conditions(new)[at].get("type").cloned().unwrap_or_default();
            FieldError::duplicate(format!("{path}[{at}].type"), kind)
        }));
    }
    let removed = PERMANENT_CONDITIONS
        .iter()
        .filter(|kind| conditions_of_type(new, kind).len() < conditions_of_type(old, kind).len());
    errors.extend(removed.map(|kind| approval_condition_error("remove", kind)));
    let certificate = |object: &JsonObject| {
        let certificate = object.get("status").and_then(|status| status.get("certificate")?.as_str());
        certificate.unwrap_or_default().to_owned()
    };
    if !certificate(old).is_empty() && certificate(old) != certificate(new) {
        let detail = "updates may not modify existing certificate content";
        errors.push(FieldError::forbidden("status.certificate", detail));
    }
    errors
}

fn conditions_of_type(object: &JsonObject, kind: &str) -> Vec<Value> {
    status_conditions(object).iter().filter(|condition| has_condition_type(condition, kind)).cloned().collect()
}

fn approval_condition_error(change: &str, kind: &str) -> FieldError {
    FieldError::forbidden("status.conditions", format!("updates may not {change} a condition of type \"{kind}\""))
}

fn restore_conditions(object: &mut JsonObject, kind: &str, old_conditions: Vec<Value>) {
    let conditions = object.get_mut("status").and_then(|status| status.get_mut("conditions"));
    let conditions = conditions.and_then(Value::as_array_mut).into_iter().flatten();
    conditions
        .filter(|condition| has_condition_type(condition, kind))
        .zip(old_conditions)
        .for_each(|(new, old)| *new = old);
}

fn has_condition_type(condition: &Value, kind: &str) -> bool {
    condition.get("type").is_some_and(|named| named == kind)
}

fn status_conditions(object: &JsonObject) -> &[Value] {
    unstructured::list(object, &["status", "conditions"])
}

const SIGNING_REQUESTS: &[Column] = &[
    NAME,
    AGE,
    string_column("SignerName", "Who is to sign it.", |request, _| {
        string_cell_or(request, &["spec", "signerName"], "<none>")
    }),
    string_column("Requestor", "Who made it.", |request, _| string_cell(request, &["spec", "username"])),
    string_column("RequestedDuration", "How long the certificate is to be valid.", |request, _| {
        let seconds = unstructured::integer(request, &["spec", "expirationSeconds"]);
        seconds
            .map_or_else(|| "<none>".into(), |seconds| human_duration(jiff::SignedDuration::from_secs(seconds)).into())
    }),
    string_column("Condition", "How far it is.", |request, _| signing_request_state(request).into()),
];

fn signing_request_state(request: &JsonObject) -> String {
    let has = |kind: &str| find_condition(request, kind).is_some();
    let mut state = match (has("Denied"), has("Approved")) {
        (true, _) => "Denied",
        (false, true) => "Approved",
        (false, false) => "Pending",
    }
    .to_owned();
    if has("Failed") {
        state.push_str(",Failed");
    }
    if !unstructured::text(request, &["status", "certificate"]).is_empty() {
        state.push_str(",Issued");
    }
    state
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    fn object_with_conditions(conditions: &[(&str, &str)]) -> JsonObject {
        let conditions: Vec<_> =
            conditions.iter().map(|(kind, reason)| json!({"type": kind, "reason": reason})).collect();
        let Value::Object(object) = json!({"spec": {"request": "a"}, "status": {"conditions": conditions}}) else {
            unreachable!("it is written as an object")
        };
        object
    }

    #[test]
    fn signing_request_records_the_creating_user() {
        let mut user = User { groups: vec!["devs".to_owned()], ..User::named("jane") };
        let mut object = JsonObject::new();
        object
            .insert("spec".to_owned(), json!({"username": "root", "uid": "0", "extra": {"a": ["b"]}, "request": "c"}));
        prepare_for_create(&user, &mut object).unwrap();
        assert_eq!(object["spec"], json!({"request": "c", "username": "jane", "groups": ["devs"]}));
        user.uid = "u".to_owned();
        user.extra.insert("team".to_owned(), vec!["red".to_owned()]);
        prepare_for_create(&user, &mut object).unwrap();
        assert_eq!(object["spec"]["uid"], "u");
        assert_eq!(object["spec"]["extra"], json!({"team": ["red"]}));
    }

    #[test]
    fn set_condition_times_fills_in_missing_times() {
        let now: Time = "2026-01-01T00:00:00Z".parse().unwrap();
        let mut approved = object_with_conditions(&[("Approved", "r")]);
        approved["status"]["conditions"][0]["lastUpdateTime"] = Value::Null;
        set_condition_times(&object_with_conditions(&[]), &mut approved, now);
        expect![[r#"{"conditions":[{"lastTransitionTime":"2026-01-01T00:00:00Z","lastUpdateTime":"2026-01-01T00:00:00Z","reason":"r","type":"Approved"}]}"#]]
            .assert_eq(&approved["status"].to_string());
    }

    #[test]
    fn approval_conditions_and_certificate_cannot_be_removed() {
        let said = |old: &JsonObject, new: &JsonObject| -> Vec<String> {
            validate_conditions(old, new).iter().map(ToString::to_string).collect()
        };
        assert_eq!(
            said(
                &object_with_conditions(&[("Approved", "a")]),
                &object_with_conditions(&[("Approved", "b"), ("Failed", "f")])
            ),
            [""; 0]
        );
        assert_eq!(
            said(
                &object_with_conditions(&[("Approved", "a"), ("Failed", "f")]),
                &object_with_conditions(&[("Denied", "d")])
            ),
            [
                "status.conditions: Forbidden: updates may not remove a condition of type \"Approved\"",
                "status.conditions: Forbidden: updates may not remove a condition of type \"Failed\"",
            ]
        );
        assert_eq!(
            said(
                &object_with_conditions(&[("Approved", "a")]),
                &object_with_conditions(&[("Approved", "a"), ("Denied", "d")])
            ),
            ["status.conditions: Invalid value: \"Denied\": Approved and Denied conditions are mutually exclusive"]
        );
        assert_eq!(
            said(&object_with_conditions(&[]), &object_with_conditions(&[("Failed", "a"), ("Failed", "b")])),
            ["status.conditions[1].type: Duplicate value: \"Failed\""]
        );
        let signed = |certificate: &str| {
            let mut request = object_with_conditions(&[]);
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
        let mut new = object_with_conditions(new);
        let text = match preserve_approval_conditions(&object_with_conditions(old), &mut new) {
            Ok(()) => new["status"]["conditions"].to_string(),
            Err(rejection) => format!("{rejection:?}"),
        };
        expected.assert_eq(&text);
    }

    #[test]
    fn status_write_cannot_change_approval_conditions() {
        check(
            &[("Approved", "a")],
            &[("Failed", "f"), ("Approved", "b")],
            &expect![[r#"[{"reason":"f","type":"Failed"},{"reason":"a","type":"Approved"}]"#]],
        );
        check(
            &[],
            &[("Approved", "a")],
            &expect![[
                r#"Invalid { subject: Kind, errors: [FieldError { kind: Forbidden, field: "status.conditions", value: None, shown: None, detail: "updates may not add a condition of type \"Approved\"" }] }"#
            ]],
        );
        check(
            &[("Denied", "a")],
            &[],
            &expect![[
                r#"Invalid { subject: Kind, errors: [FieldError { kind: Forbidden, field: "status.conditions", value: None, shown: None, detail: "updates may not remove a condition of type \"Denied\"" }] }"#
            ]],
        );
    }
}
