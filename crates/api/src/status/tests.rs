use expect_test::{Expect, expect};

use super::*;
use crate::field_error::FieldError;
use crate::names::{GroupKind, GroupResource};

const PODS: GroupResource<&str> = GroupResource { group: "", resource: "pods" };
const DEPLOYMENTS: GroupResource<&str> = GroupResource { group: "apps", resource: "deployments" };
const DEPLOYMENT: GroupKind<&str> = GroupKind { group: "apps", kind: "Deployment" };
const NO_RESOURCE: GroupResource<&str> = GroupResource { group: "", resource: "" };

/// Compares the encoded body and checks that it decodes to the same status.
#[track_caller]
fn check(status: &Status, body: &Expect) {
    let bytes = status.to_json();
    body.assert_eq(std::str::from_utf8(&bytes).unwrap());
    assert_eq!(Status::from_json(&bytes).as_ref(), Some(status));
}

#[test]
fn not_found_and_already_exists_bodies_match_kubernetes() {
    check(
        &Status::not_found(DEPLOYMENTS, "web"),
        &expect![[r#"
        {"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"deployments.apps \"web\" not found","reason":"NotFound","details":{"name":"web","group":"apps","kind":"deployments"},"code":404}
    "#]],
    );
    check(
        &Status::path_not_found(),
        &expect![[r#"
        {"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"the server could not find the requested resource","reason":"NotFound","details":{},"code":404}
    "#]],
    );
    check(
        &Status::already_exists(PODS, "a"),
        &expect![[r#"
        {"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"pods \"a\" already exists","reason":"AlreadyExists","details":{"name":"a","kind":"pods"},"code":409}
    "#]],
    );
    check(
        &Status::generate_name_conflict(PODS, "a-x", 1),
        &expect![[r#"
        {"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"pods \"a-x\" already exists, the server was not able to generate a unique name for the object","reason":"AlreadyExists","details":{"name":"a-x","kind":"pods","retryAfterSeconds":1},"code":409}
    "#]],
    );
}

#[test]
fn unauthorized_and_forbidden_bodies_match_kubernetes() {
    check(
        &Status::unauthorized(""),
        &expect![[r#"
        {"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"not authorized","reason":"Unauthorized","code":401}
    "#]],
    );
    check(
        &Status::unauthorized("Unauthorized"),
        &expect![[r#"
        {"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"Unauthorized","reason":"Unauthorized","code":401}
    "#]],
    );
    check(
        &Status::forbidden(PODS, "a", "no"),
        &expect![[r#"
        {"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"pods \"a\" is forbidden: no","reason":"Forbidden","details":{"name":"a","kind":"pods"},"code":403}
    "#]],
    );
    check(
        &Status::forbidden(DEPLOYMENTS, "", "no"),
        &expect![[r#"
        {"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"deployments.apps is forbidden: no","reason":"Forbidden","details":{"group":"apps","kind":"deployments"},"code":403}
    "#]],
    );
    check(
        &Status::forbidden(NO_RESOURCE, "", "User \"u\" cannot get path \"/metrics\""),
        &expect![[r#"
        {"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"forbidden: User \"u\" cannot get path \"/metrics\"","reason":"Forbidden","details":{},"code":403}
    "#]],
    );
}

#[test]
fn conflict_bodies_match_kubernetes() {
    check(
        &Status::conflict(
            DEPLOYMENTS,
            "web",
            "the object has been modified; please apply your changes to the latest version and try again",
        ),
        &expect![[r#"
        {"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"Operation cannot be fulfilled on deployments.apps \"web\": the object has been modified; please apply your changes to the latest version and try again","reason":"Conflict","details":{"name":"web","group":"apps","kind":"deployments"},"code":409}
    "#]],
    );
}

#[test]
fn invalid_bodies_list_causes() {
    check(
        &Status::invalid(DEPLOYMENT, "web", &[]),
        &expect![[r#"
        {"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"Deployment.apps \"web\" is invalid","reason":"Invalid","details":{"name":"web","group":"apps","kind":"Deployment"},"code":422}
    "#]],
    );
    let name = FieldError::invalid("metadata.name", "A", "must be <lower> case");
    check(
        &Status::invalid(DEPLOYMENT, "A", std::slice::from_ref(&name)),
        &expect![[r#"
        {"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"Deployment.apps \"A\" is invalid: metadata.name: Invalid value: \"A\": must be \u003clower\u003e case","reason":"Invalid","details":{"name":"A","group":"apps","kind":"Deployment","causes":[{"reason":"FieldValueInvalid","message":"Invalid value: \"A\": must be \u003clower\u003e case","field":"metadata.name"}]},"code":422}
    "#]],
    );
    check(
        &Status::invalid(DEPLOYMENT, "A", &[name, FieldError::required("spec.selector", "")]),
        &expect![[r#"
        {"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"Deployment.apps \"A\" is invalid: [metadata.name: Invalid value: \"A\": must be \u003clower\u003e case, spec.selector: Required value]","reason":"Invalid","details":{"name":"A","group":"apps","kind":"Deployment","causes":[{"reason":"FieldValueInvalid","message":"Invalid value: \"A\": must be \u003clower\u003e case","field":"metadata.name"},{"reason":"FieldValueRequired","message":"Required value","field":"spec.selector"}]},"code":422}
    "#]],
    );
}

#[test]
fn client_error_bodies_match_kubernetes() {
    check(
        &Status::bad_request("no"),
        &expect![[r#"
        {"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"no","reason":"BadRequest","code":400}
    "#]],
    );
    check(
        &Status::method_not_supported(DEPLOYMENTS, "delete"),
        &expect![[r#"
        {"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"delete is not supported on resources of kind \"deployments.apps\"","reason":"MethodNotAllowed","details":{"group":"apps","kind":"deployments"},"code":405}
    "#]],
    );
    check(
        &Status::not_acceptable(&["application/json", "application/yaml"]),
        &expect![[r#"
        {"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"only the following media types are accepted: application/json, application/yaml","reason":"NotAcceptable","code":406}
    "#]],
    );
    check(
        &Status::request_entity_too_large("limit is 3145728"),
        &expect![[r#"
        {"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"Request entity too large: limit is 3145728","reason":"RequestEntityTooLarge","code":413}
    "#]],
    );
    check(
        &Status::unsupported_media_type(&["application/json"]),
        &expect![[r#"
        {"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"the body of the request was in an unknown format - accepted media types include: application/json","reason":"UnsupportedMediaType","code":415}
    "#]],
    );
}

#[test]
fn transient_error_bodies_match_kubernetes() {
    check(
        &Status::too_many_requests("later", 5),
        &expect![[r#"
        {"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"later","reason":"TooManyRequests","details":{"retryAfterSeconds":5},"code":429}
    "#]],
    );
    check(
        &Status::service_unavailable("not now").with_retry_after(1).with_cause("PeerNotReady", ""),
        &expect![[r#"
        {"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"not now","reason":"ServiceUnavailable","details":{"causes":[{"reason":"PeerNotReady"}],"retryAfterSeconds":1},"code":503}
    "#]],
    );
    check(
        &Status::timeout("request did not complete within 60s", 0),
        &expect![[r#"
        {"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"Timeout: request did not complete within 60s","reason":"Timeout","details":{},"code":504}
    "#]],
    );
    check(
        &Status::too_large_resource_version(9, 7, 1),
        &expect![[r#"
        {"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"Timeout: Too large resource version: 9, current: 7","reason":"Timeout","details":{"causes":[{"reason":"ResourceVersionTooLarge","message":"Too large resource version"}],"retryAfterSeconds":1},"code":504}
    "#]],
    );
}

#[test]
fn internal_error_bodies_match_kubernetes() {
    check(
        &Status::internal_error("boom"),
        &expect![[r#"
        {"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"Internal error occurred: boom","reason":"InternalError","details":{"causes":[{"message":"boom"}]},"code":500}
    "#]],
    );
    check(
        &Status::storage_read_error("key /registry/x"),
        &expect![[r#"
        {"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"key /registry/x","reason":"StorageReadError","code":500}
    "#]],
    );
}

#[test]
fn expired_status_carries_new_continue_token() {
    let mut status = Status::expired("The provided continue parameter is too old");
    status.metadata.continue_token = "abc".to_owned();
    check(
        &status,
        &expect![[r#"
        {"kind":"Status","apiVersion":"v1","metadata":{"continue":"abc"},"status":"Failure","message":"The provided continue parameter is too old","reason":"Expired","code":410}
    "#]],
    );
}

#[test]
fn success_status_omits_code_and_reason() {
    let status = Status::deleted(DEPLOYMENTS, "web", "u-1");
    check(
        &status,
        &expect![[r#"
        {"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success","details":{"name":"web","group":"apps","kind":"deployments","uid":"u-1"}}
    "#]],
    );
    assert_eq!(status.http_code(), 200);
    assert_eq!(Status::default().http_code(), 500);
    assert_eq!(Status::not_found(PODS, "a").http_code(), 404);
}

#[test]
fn retry_after_is_none_when_zero() {
    assert_eq!(Status::service_unavailable("").retry_after(), None);
    assert_eq!(Status::timeout("", 0).retry_after(), None);
    assert_eq!(Status::timeout("", 3).retry_after(), Some(3));
    assert!(Status::too_large_resource_version(2, 1, 1).has_cause("ResourceVersionTooLarge"));
    assert!(!Status::timeout("", 3).has_cause("ResourceVersionTooLarge"));
}

#[test]
fn from_json_rejects_other_kinds() {
    for body in [
        "",
        "404 page not found\n",
        "{}",
        "[]",
        r#"{"kind":"Pod","apiVersion":"v1"}"#,
        r#"{"kind":"Status","apiVersion":"v2"}"#,
    ] {
        assert_eq!(Status::from_json(body.as_bytes()), None, "{body}");
    }
    let other = br#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","reason":"NewReason","code":418,"details":null}"#;
    let status = Status::from_json(other).unwrap();
    assert_eq!((status.reason, status.code, status.details), (StatusReason::Other("NewReason".into()), 418, None));
}
