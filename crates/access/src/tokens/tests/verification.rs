//! Token verification: which tokens are accepted, and until when.

use expect_test::{Expect, expect};
use proptest::prelude::*;

use super::*;

fn describe_outcome(verifier: &TokenVerifier, token: &str, cluster: &FakeBoundObjects, now: i64) -> String {
    match verifier.authenticate(token, &[ISSUER.to_owned()], cluster, timestamp(now)) {
        Ok(Some(found)) => format!("{} {:?}", found.user.name, found.audit_annotations),
        Ok(None) => "none".to_owned(),
        Err(error) => format!("error: {error}"),
    }
}

#[track_caller]
fn check(token: &str, cluster: &FakeBoundObjects, now: i64, expected: &Expect) {
    expected.assert_eq(&describe_outcome(&verifier(), token, cluster, now));
}

#[test]
fn token_is_valid_for_an_hour_plus_leeway() {
    let cluster = FakeBoundObjects::new();
    let token = issue_token(&json!({}), &cluster);
    check(&token, &cluster, NOW, &expect!["system:serviceaccount:dev:builder []"]);
    check(&token, &cluster, NOW + 3660, &expect!["system:serviceaccount:dev:builder []"]);
    check(&token, &cluster, NOW + 3661, &expect!["error: service account token has expired"]);
    check(&token, &cluster, NOW - 60, &expect!["system:serviceaccount:dev:builder []"]);
    check(&token, &cluster, NOW - 61, &expect!["error: service account token is not valid yet"]);
    let mut claims = claims_of(&token);
    claims["nbf"] = json!(NOW - 1000);
    let signed = jwt::sign(&signing_key(), &claims).unwrap();
    check(&signed, &cluster, NOW - 61, &expect!["error: service account token is issued in the future"]);
}

#[test]
fn token_is_invalid_after_its_account_is_deleted() {
    let mut cluster = FakeBoundObjects::new();
    let verifier = verifier();
    let token = issue_token(&json!({}), &cluster);
    assert_eq!(describe_outcome(&verifier, &token, &cluster, NOW), "system:serviceaccount:dev:builder []");

    let gone = "2025-12-31T23:58:59Z"; // NOW minus 61 seconds.
    let soon = "2025-12-31T23:59:00Z";
    cluster.metadata_mut(BoundObjectKind::ServiceAccount, "dev", "builder")["deletionTimestamp"] = soon.into();
    assert_eq!(describe_outcome(&verifier, &token, &cluster, NOW), "system:serviceaccount:dev:builder []");
    cluster.metadata_mut(BoundObjectKind::ServiceAccount, "dev", "builder")["deletionTimestamp"] = gone.into();
    assert_eq!(
        describe_outcome(&verifier, &token, &cluster, NOW),
        "error: service account dev/builder has been deleted"
    );

    cluster.remove(BoundObjectKind::ServiceAccount, "dev", "builder");
    assert_eq!(describe_outcome(&verifier, &token, &cluster, NOW), r#"error: serviceaccounts "builder" not found"#);
    cluster.put(BoundObjectKind::ServiceAccount, "dev", "builder", json!({"metadata": {"uid": "new-uid"}}));
    assert_eq!(
        describe_outcome(&verifier, &token, &cluster, NOW),
        "error: service account UID (new-uid) does not match claim (sa-uid)"
    );
}

#[test]
fn token_is_invalid_after_its_bound_object_is_deleted() {
    for (kind, namespace, name, word) in [
        (BoundObjectKind::Pod, "dev", "p1", "Pod"),
        (BoundObjectKind::Secret, "dev", "s1", "Secret"),
        (BoundObjectKind::Node, "", "n1", "Node"),
    ] {
        let mut cluster = FakeBoundObjects::new();
        let token = issue_token(&json!({"boundObjectRef": {"kind": word, "apiVersion": "v1", "name": name}}), &cluster);
        let verifier = verifier();
        assert_eq!(describe_outcome(&verifier, &token, &cluster, NOW), "system:serviceaccount:dev:builder []");
        cluster.metadata_mut(kind, namespace, name)["deletionTimestamp"] = "2025-12-31T23:58:59Z".into();
        assert_eq!(
            describe_outcome(&verifier, &token, &cluster, NOW),
            "error: service account token has been invalidated"
        );
        let uid = cluster.metadata_mut(kind, namespace, name)["uid"].as_str().unwrap().to_owned();
        cluster.put(kind, namespace, name, json!({"metadata": {"uid": "new"}}));
        let lower = word.to_lowercase();
        assert_eq!(
            describe_outcome(&verifier, &token, &cluster, NOW),
            format!("error: {lower} UID (new) does not match service account {lower} ref claim ({uid})")
        );
        cluster.remove(kind, namespace, name);
        assert_eq!(
            describe_outcome(&verifier, &token, &cluster, NOW),
            "error: service account token has been invalidated"
        );
    }
}

#[test]
fn pod_token_is_valid_after_its_node_is_deleted() {
    let mut cluster = FakeBoundObjects::new();
    let token = issue_token(&json!({"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "p1"}}), &cluster);
    cluster.remove(BoundObjectKind::Node, "", "n1");
    check(&token, &cluster, NOW, &expect!["system:serviceaccount:dev:builder []"]);
}

#[test]
fn token_bound_to_webhook_is_rejected() {
    let cluster = FakeBoundObjects::new();
    let mut claims = claims_of(&issue_token(&json!({}), &cluster));
    claims["kubernetes.io"]["mutatingwebhookconfiguration"] = json!({"name": "w", "uid": "u"});
    check(
        &jwt::sign(&signing_key(), &claims).unwrap(),
        &cluster,
        NOW,
        &expect![[
            r#"error: feature gate "APIServerWebhookAuthenticationToken" is disabled, but token is webhook bound"#
        ]],
    );
}

#[test]
fn token_is_rejected_without_common_audience() {
    let cluster = FakeBoundObjects::new();
    let verifier = verifier();
    let token = issue_token(&json!({"audiences": ["vault", ISSUER, "ci"]}), &cluster);
    let ask = |audiences: &[&str]| {
        let audiences: Vec<String> = audiences.iter().map(ToString::to_string).collect();
        match verifier.authenticate(&token, &audiences, &cluster, timestamp(NOW)) {
            Ok(found) => format!("{:?}", found.unwrap().audiences),
            Err(error) => error.to_string(),
        }
    };
    assert_eq!(ask(&["ci", "vault", "x"]), r#"["vault", "ci"]"#);
    assert_eq!(
        ask(&["x", "y"]),
        r#"token audiences ["vault" "https://kubernetes.default.svc" "ci"] is invalid for the target audiences ["x" "y"]"#
    );
}

#[test]
fn token_without_audience_is_accepted_and_annotated() {
    let cluster = FakeBoundObjects::new();
    let mut claims = claims_of(&issue_token(&json!({}), &cluster));
    claims.as_object_mut().unwrap().remove("aud");
    check(
        &jwt::sign(&signing_key(), &claims).unwrap(),
        &cluster,
        NOW,
        &expect![[r#"system:serviceaccount:dev:builder [Legacy { subject: "system:serviceaccount:dev:builder" }]"#]],
    );
    claims["aud"] = ISSUER.into();
    check(
        &jwt::sign(&signing_key(), &claims).unwrap(),
        &cluster,
        NOW,
        &expect!["system:serviceaccount:dev:builder []"],
    );
}

#[test]
fn token_past_warn_after_is_annotated_as_stale() {
    let cluster = FakeBoundObjects::new();
    let spec = json!({"expirationSeconds": 3607, "boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "p1"}});
    let token = issue_token(&spec, &cluster);
    check(&token, &cluster, NOW + 3607, &expect!["system:serviceaccount:dev:builder []"]);
    check(
        &token,
        &cluster,
        NOW + 3617,
        &expect![[
            r#"system:serviceaccount:dev:builder [Stale { subject: "system:serviceaccount:dev:builder", seconds: 10 }]"#
        ]],
    );
    let note = TokenAuditAnnotation::Stale { subject: "s".to_owned(), seconds: 10 };
    assert_eq!(
        note.key_and_value(),
        ("authentication.k8s.io/stale-token", "subject: s, seconds after warning threshold: 10".to_owned())
    );
    assert_eq!(note.client_warning(), None);
    let note = TokenAuditAnnotation::Legacy { subject: "s".to_owned() };
    assert_eq!(note.key_and_value(), ("authentication.k8s.io/legacy-token", "s".to_owned()));
}

#[test]
fn verifier_returns_none_for_foreign_tokens() {
    let cluster = FakeBoundObjects::new();
    let good = issue_token(&json!({}), &cluster);
    let [header, payload, signature] = good.split('.').collect::<Vec<_>>()[..] else { panic!() };
    let mut foreign = claims_of(&good);
    foreign["iss"] = "https://elsewhere".into();
    for other in [
        "",
        "secret",
        "a.b.c",
        &format!("{header}.{payload}"),
        &format!("{header}.{payload}.{signature}.x"),
        &format!("{header}.{payload}.***"),
        &format!("{payload}.{header}.{signature}"),
        &jwt::sign(&signing_key(), &foreign).unwrap(),
        &jwt::sign(&signing_key(), &json!([])).unwrap(),
        &"a".repeat(20_000),
    ] {
        check(other, &cluster, NOW, &expect!["none"]);
    }
}

#[test]
fn tampered_token_is_rejected() {
    let cluster = FakeBoundObjects::new();
    let good = issue_token(&json!({}), &cluster);
    let [header, payload, signature] = good.split('.').collect::<Vec<_>>()[..] else { panic!() };
    let encode = |json: &Value| base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(json.to_string());
    let mut claims = claims_of(&good);
    claims["sub"] = "system:serviceaccount:kube-system:admin".into();
    check(&format!("{header}.{}.{signature}", encode(&claims)), &cluster, NOW, &expect!["error: invalid signature"]);
    for alg in ["none", "HS256", "RS256", "ES384", "es256", ""] {
        let header = encode(&json!({"alg": alg, "kid": signing_key().public().id()}));
        check(&format!("{header}.{payload}.{signature}"), &cluster, NOW, &expect!["error: invalid signature"]);
        check(&format!("{header}.{payload}."), &cluster, NOW, &expect!["error: invalid signature"]);
    }
    let header = encode(&json!({"alg": "ES256", "kid": "other"}));
    check(
        &format!("{header}.{payload}.{signature}"),
        &cluster,
        NOW,
        &expect!["error: invalid signature, no keys found"],
    );
    let header = encode(&json!({"alg": "ES256", "crit": ["exp"]}));
    check(&format!("{header}.{payload}.{signature}"), &cluster, NOW, &expect!["none"]);
}

#[test]
fn token_with_algorithm_of_another_key_is_rejected() {
    let cluster = FakeBoundObjects::new();
    let good = issue_token(&json!({}), &cluster);
    let payload = good.split('.').nth(1).unwrap();
    let encode = |bytes: &[u8]| base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(bytes);
    for alg in ["none", "HS256", "RS256", "ES512"] {
        let message = format!("{}.{payload}", encode(format!(r#"{{"alg":"{alg}"}}"#).as_bytes()));
        let token = format!("{message}.{}", encode(&signing_key().sign(message.as_bytes()).unwrap()));
        check(&token, &cluster, NOW, &expect!["error: invalid signature"]);
    }
}

#[test]
fn signed_token_with_invalid_claims_is_rejected() {
    let cluster = FakeBoundObjects::new();
    for claims in [
        json!({"iss": ISSUER, "kubernetes.io": []}),
        json!({"iss": ISSUER, "exp": "soon"}),
        json!({"iss": ISSUER, "aud": 7}),
    ] {
        check(
            &jwt::sign(&signing_key(), &claims).unwrap(),
            &cluster,
            NOW,
            &expect!["error: the claims cannot be read"],
        );
    }
}

#[test]
fn token_without_key_id_is_verified_with_each_key() {
    let cluster = FakeBoundObjects::new();
    let good = issue_token(&json!({}), &cluster);
    let payload = good.split('.').nth(1).unwrap();
    let encode = |bytes: &[u8]| base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(bytes);
    let message = format!("{}.{payload}", encode(br#"{"alg":"ES256"}"#));
    let token = format!("{message}.{}", encode(&signing_key().sign(message.as_bytes()).unwrap()));
    let mut keys = VerifyingKey::all_from_pem(rsa_pem()).unwrap();
    keys.extend(VerifyingKey::all_from_pem(key_pem()).unwrap());
    let verifier = TokenVerifier::new(vec![ISSUER.to_owned()], vec![ISSUER.to_owned()], keys);
    assert_eq!(describe_outcome(&verifier, &token, &cluster, NOW), "system:serviceaccount:dev:builder []");
}

proptest! {
    #[test]
    fn verifier_rejects_arbitrary_text(token in "[A-Za-z0-9_.-]{0,200}|\\PC{0,50}") {
        let found = verifier().authenticate(&token, &[ISSUER.to_owned()], &FakeBoundObjects::new(), timestamp(NOW));
        prop_assert!(!matches!(found, Ok(Some(_))));
    }

    #[test]
    fn verifier_rejects_token_with_one_changed_byte(position in 0..600_usize, byte in 0x21..0x7e_u8) {
        static TOKEN: OnceLock<String> = OnceLock::new();
        let good = TOKEN.get_or_init(|| issue_token(&json!({}), &FakeBoundObjects::new()));
        let mut bytes = good.clone().into_bytes();
        let position = position % bytes.len();
        prop_assume!(bytes[position] != byte);
        bytes[position] = byte;
        let changed = String::from_utf8(bytes).unwrap();
        let found = verifier().authenticate(&changed, &[ISSUER.to_owned()], &FakeBoundObjects::new(), timestamp(NOW));
        prop_assert!(!matches!(found, Ok(Some(_))), "{changed}");
    }
}
