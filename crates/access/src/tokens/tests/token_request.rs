//! Responses of `serviceaccounts/token`.

use expect_test::{Expect, expect};

use super::*;

fn issue(
    issuer: &TokenIssuer,
    name: &str,
    body: &Value,
    cluster: &FakeBoundObjects,
) -> Result<IssuedToken, TokenRequestError> {
    let body = body.to_string();
    let request =
        TokenRequest { namespace: "dev", name, body: body.as_bytes(), now: timestamp(NOW), random: [0x5a; 16] };
    issuer.issue(&request, cluster)
}

#[track_caller]
fn check_claims(spec: &Value, expected: &Expect) {
    let issued = issue(&issuer(), "builder", &json!({"spec": spec}), &FakeBoundObjects::new()).unwrap();
    let response: Value = serde_json::from_slice(&issued.body).unwrap();
    expected.assert_eq(&claims_of(response["status"]["token"].as_str().unwrap()).to_string());
}

#[track_caller]
fn check_error(body: &Value, expected: &Expect) {
    let error = issue(&issuer(), "builder", body, &FakeBoundObjects::new()).unwrap_err();
    let mut text = error.to_string();
    if let TokenRequestError::Invalid { errors, .. } = &error {
        let errors: Vec<_> = errors.iter().map(ToString::to_string).collect();
        text = format!("{text}: {}", errors.join(", "));
    }
    expected.assert_eq(&text);
}

#[test]
fn token_request_response_contains_token() {
    let issued = issue(&issuer(), "builder", &json!({}), &FakeBoundObjects::new()).unwrap();
    let mut text = String::from_utf8(issued.body).unwrap();
    let from = text.find(r#""token":""#).unwrap() + 9;
    let to = from + text[from..].find('"').unwrap();
    assert_eq!(text[from..to].split('.').count(), 3);
    text.replace_range(from..to, "TOKEN");
    expect![[r#"{"kind":"TokenRequest","apiVersion":"authentication.k8s.io/v1","metadata":{"name":"builder","namespace":"dev","uid":"sa-uid","creationTimestamp":"2026-01-01T00:00:00Z"},"spec":{"audiences":["https://kubernetes.default.svc"],"expirationSeconds":3600,"boundObjectRef":null},"status":{"token":"TOKEN","expirationTimestamp":"2026-01-01T01:00:00Z"}}"#]]
        .assert_eq(&text);
    assert_eq!(issued.credential_id, "JTI=5a5a5a5a-5a5a-4a5a-9a5a-5a5a5a5a5a5a");
    assert!(issued.warnings.is_empty());
}

#[test]
fn token_claims_name_bound_objects() {
    check_claims(
        &json!({}),
        &expect![[
            r#"{"aud":["https://kubernetes.default.svc"],"exp":1767229200,"iat":1767225600,"iss":"https://kubernetes.default.svc","jti":"5a5a5a5a-5a5a-4a5a-9a5a-5a5a5a5a5a5a","kubernetes.io":{"namespace":"dev","serviceaccount":{"name":"builder","uid":"sa-uid"}},"nbf":1767225600,"sub":"system:serviceaccount:dev:builder"}"#
        ]],
    );
    check_claims(
        &json!({"audiences": ["vault"], "expirationSeconds": 600, "boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "p1", "uid": "pod-uid"}}),
        &expect![[
            r#"{"aud":["vault"],"exp":1767226200,"iat":1767225600,"iss":"https://kubernetes.default.svc","jti":"5a5a5a5a-5a5a-4a5a-9a5a-5a5a5a5a5a5a","kubernetes.io":{"namespace":"dev","node":{"name":"n1","uid":"node-uid"},"pod":{"name":"p1","uid":"pod-uid"},"serviceaccount":{"name":"builder","uid":"sa-uid"}},"nbf":1767225600,"sub":"system:serviceaccount:dev:builder"}"#
        ]],
    );
    check_claims(
        &json!({"boundObjectRef": {"kind": "Node", "apiVersion": "v1", "name": "n1"}}),
        &expect![[
            r#"{"aud":["https://kubernetes.default.svc"],"exp":1767229200,"iat":1767225600,"iss":"https://kubernetes.default.svc","jti":"5a5a5a5a-5a5a-4a5a-9a5a-5a5a5a5a5a5a","kubernetes.io":{"namespace":"dev","node":{"name":"n1","uid":"node-uid"},"serviceaccount":{"name":"builder","uid":"sa-uid"}},"nbf":1767225600,"sub":"system:serviceaccount:dev:builder"}"#
        ]],
    );
}

#[test]
fn projected_pod_token_is_extended_to_a_year() {
    let spec = json!({"expirationSeconds": 3607, "boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "p1"}});
    let claims = |issuer: &TokenIssuer, spec: &Value| {
        let issued = issue(issuer, "builder", &json!({"spec": spec}), &FakeBoundObjects::new()).unwrap();
        let response: Value = serde_json::from_slice(&issued.body).unwrap();
        assert_eq!(response["status"]["expirationTimestamp"], "2026-01-01T01:00:07Z");
        let claims = claims_of(response["status"]["token"].as_str().unwrap());
        (claims["exp"].as_i64().unwrap() - NOW, claims["kubernetes.io"]["warnafter"].as_i64().map(|after| after - NOW))
    };
    assert_eq!(claims(&issuer(), &spec), (31_536_000, Some(3607)));
    assert_eq!(claims(&TokenIssuer { extend_expiration: false, ..issuer() }, &spec), (3607, None));
    let mut elsewhere = spec;
    elsewhere["audiences"] = json!(["vault"]);
    assert_eq!(claims(&issuer(), &elsewhere), (3607, None));
}

#[test]
fn token_claim_of_missing_node_has_no_uid() {
    let mut cluster = FakeBoundObjects::new();
    cluster.remove(BoundObjectKind::Node, "", "n1");
    let body = json!({"spec": {"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "p1"}}});
    let issued = issue(&issuer(), "builder", &body, &cluster).unwrap();
    let response: Value = serde_json::from_slice(&issued.body).unwrap();
    let claims = claims_of(response["status"]["token"].as_str().unwrap());
    assert_eq!(claims["kubernetes.io"]["node"], json!({"name": "n1"}));
}

#[test]
fn expiration_above_maximum_is_shortened_with_warning() {
    let issuer = TokenIssuer { max_expiration_seconds: Some(7200), ..issuer() };
    let issued =
        issue(&issuer, "builder", &json!({"spec": {"expirationSeconds": 86400}}), &FakeBoundObjects::new()).unwrap();
    assert_eq!(issued.warnings, ["requested expiration of 86400 seconds shortened to 7200 seconds"]);
    let response: Value = serde_json::from_slice(&issued.body).unwrap();
    assert_eq!(response["spec"]["expirationSeconds"], 7200);
    assert_eq!(response["status"]["expirationTimestamp"], "2026-01-01T02:00:00Z");
}

#[test]
fn token_that_no_server_accepts_is_not_issued() {
    let audiences: Vec<String> = (0..2_000).map(|number| format!("audience-{number}")).collect();
    check_error(
        &json!({"spec": {"audiences": audiences}}),
        &expect![
            "the token request is invalid: spec.audiences: Forbidden: a token with these audiences is longer than 16384 bytes"
        ],
    );
}

#[test]
fn invalid_token_request_returns_kubernetes_status() {
    check_error(
        &json!({"spec": {"expirationSeconds": 599}}),
        &expect![
            "the token request is invalid: spec.expirationSeconds: Invalid value: 599: may not specify a duration less than 10 minutes"
        ],
    );
    check_error(
        &json!({"spec": {"expirationSeconds": 4294967297_i64}}),
        &expect![
            "the token request is invalid: spec.expirationSeconds: Invalid value: 4294967297: may not specify a duration larger than 2^32 seconds"
        ],
    );
    check_error(
        &json!({"metadata": {"name": "other"}}),
        &expect![[
            r#"the token request is invalid: metadata.name: Invalid value: "other": must match the service account name if specified"#
        ]],
    );
    check_error(
        &json!({"metadata": {"namespace": "ops"}}),
        &expect![[
            r#"the token request is invalid: metadata.namespace: Invalid value: "ops": must match the service account namespace if specified"#
        ]],
    );
    check_error(
        &json!({"metadata": {"uid": "old"}}),
        &expect!["the UID in the token request (old) does not match the UID of the service account (sa-uid)"],
    );
    check_error(
        &json!([]),
        &expect!["the token request cannot be read: invalid type: sequence, expected an object at line 1 column 0"],
    );
}

#[test]
fn token_request_rejects_missing_or_mismatched_bound_object() {
    let bound = |kind: &str, version: &str, name: &str, uid: &str| json!({"spec": {"boundObjectRef": {"kind": kind, "apiVersion": version, "name": name, "uid": uid}}});
    check_error(&bound("Pod", "v1", "p2", ""), &expect![[r#"pods "p2" not found"#]]);
    check_error(&bound("Secret", "v1", "s2", ""), &expect![[r#"secrets "s2" not found"#]]);
    check_error(&bound("Node", "v1", "n2", ""), &expect![[r#"nodes "n2" not found"#]]);
    check_error(
        &bound("Pod", "v1", "p1", "old"),
        &expect![
            "the UID in the bound object reference (old) does not match the UID in record. The object might have been deleted and then recreated"
        ],
    );
    check_error(
        &bound("Deployment", "apps/v1", "d", ""),
        &expect!["cannot bind token to object of type apps/v1, Kind=Deployment"],
    );
    let mut cluster = FakeBoundObjects::new();
    cluster.put(
        BoundObjectKind::Pod,
        "dev",
        "p1",
        json!({"metadata": {"uid": "u"}, "spec": {"serviceAccountName": "other"}}),
    );
    let error = issue(&issuer(), "builder", &bound("Pod", "v1", "p1", ""), &cluster).unwrap_err();
    assert_eq!(
        error.to_string(),
        r#"cannot bind token for serviceaccount "builder" to pod running with different serviceaccount name."#
    );
}

#[test]
fn token_request_for_missing_account_is_not_found() {
    let error = issue(&issuer(), "ghost", &json!({}), &FakeBoundObjects::new()).unwrap_err();
    let kind = BoundObjectKind::ServiceAccount;
    assert_eq!(error, TokenRequestError::NotFound { kind, name: "ghost".to_owned() });
}
