//! A service account token from issue to invalidation, through every part of a server that handles it.

use std::borrow::Cow;
use std::collections::BTreeMap;

use access::authentication::{
    AnonymousAccess, Authenticator, CertificateFieldSet, ClientCertificate, PresentedCredentials, TokenAuthenticator,
};
use access::reviews::{self, AuthorizerSnapshot};
use access::tokens::{BoundObjectKind, BoundObjects, SigningKey, TokenFile, TokenIssuer, TokenRequest, TokenVerifier};
use access::{Attributes, Authorizer};
use api::Target;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::rbac_notation;

#[derive(Default)]
struct StoredBoundObjects(BTreeMap<(BoundObjectKind, String, String), Vec<u8>>);

impl BoundObjects for StoredBoundObjects {
    fn get_json(&self, kind: BoundObjectKind, namespace: &str, name: &str) -> Option<Cow<'_, [u8]>> {
        self.0.get(&(kind, namespace.to_owned(), name.to_owned())).map(Cow::from)
    }
}

fn signing_key() -> SigningKey {
    let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap();
    let der = STANDARD.encode(pair.to_pkcs8v1().unwrap());
    SigningKey::from_pem(&format!("-----BEGIN PRIVATE KEY-----\n{der}\n-----END PRIVATE KEY-----\n")).unwrap()
}

#[test]
fn token_authenticates_until_its_account_is_deleted() {
    let key = signing_key();
    let audiences = vec!["https://kubernetes.default.svc".to_owned()];
    let verifier = TokenVerifier::new(audiences.clone(), audiences.clone(), vec![key.public().clone()]);
    let issuer = TokenIssuer {
        issuer: audiences[0].clone(),
        signing_key: key,
        audiences: audiences.clone(),
        max_expiration_seconds: None,
        extend_expiration: true,
    };
    let tokens = TokenAuthenticator { token_file: TokenFile::default(), token_verifier: Some(verifier), audiences };
    let certificates = CertificateFieldSet::ALL;
    let authenticator = Authenticator {
        front_proxy: None,
        certificate_fields: certificates,
        token_authenticator: tokens,
        anonymous: AnonymousAccess::Enabled,
    };
    let index = rbac_notation::parse_index("role dev/r: list core pods\nbind dev/b to role r: sa=builder");
    let authorizer = Authorizer::parse("Node,RBAC").unwrap();

    let mut stored = StoredBoundObjects::default();
    let account = (BoundObjectKind::ServiceAccount, "dev".to_owned(), "builder".to_owned());
    stored.0.insert(account.clone(), br#"{"metadata":{"uid":"u1"}}"#.to_vec());

    let now = Timestamp::from_second(1_767_225_600).unwrap();
    let request = TokenRequest { namespace: "dev", name: "builder", body: b"{}", now, random: [1; 16] };
    let issued: Value = serde_json::from_slice(&issuer.issue(&request, &stored).unwrap().body).unwrap();
    let token = issued["status"]["token"].as_str().unwrap().to_owned();

    let header = format!("Bearer {token}");
    let identify = |stored: &StoredBoundObjects, now: Timestamp| {
        let headers = [("authorization", header.as_bytes())].into_iter();
        let credentials = PresentedCredentials {
            client_certificate: ClientCertificate::Absent,
            front_proxy_certificate: ClientCertificate::Absent,
            headers,
            path: "/api",
        };
        authenticator.authenticate(&credentials, stored, now)
    };
    let identity = identify(&stored, now).unwrap();
    for (line, expected) in [("/api/v1/namespaces/dev/pods", true), ("/api/v1/namespaces/ops/pods", false)] {
        let target = Target::parse("GET", line).unwrap();
        assert_eq!(
            authorizer.decide(&index, &Attributes::from_target(&identity.user, &target)).is_allowed(),
            expected,
            "{line}"
        );
    }
    let review = json!({"spec": {"token": token}}).to_string();
    let review = |stored: &StoredBoundObjects| -> Value {
        let response =
            reviews::token_review(review.as_bytes(), &authenticator.token_authenticator, stored, now).unwrap();
        serde_json::from_slice::<Value>(&response).unwrap()["status"].clone()
    };
    assert_eq!(review(&stored)["user"]["username"], "system:serviceaccount:dev:builder");
    let snapshot = AuthorizerSnapshot { authorizer: &authorizer, index: &index };
    let rules =
        reviews::self_subject_rules_review(br#"{"spec":{"namespace":"dev"}}"#, snapshot, &identity.user).unwrap();
    assert!(String::from_utf8(rules).unwrap().contains(r#""resources":["pods"]"#));

    let late = Timestamp::from_second(1_767_225_600 + 3700).unwrap();
    let error = identify(&stored, late).unwrap_err();
    assert_eq!(error.to_string(), "service account token has expired");

    stored.0.remove(&account);
    let error = identify(&stored, now).unwrap_err();
    assert_eq!(error.to_string(), r#"serviceaccounts "builder" not found"#);
    assert_eq!(review(&stored), json!({"user": {}, "error": r#"serviceaccounts "builder" not found"#}));
}
