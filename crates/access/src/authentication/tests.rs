use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use expect_test::{Expect, expect};

use super::*;
use crate::tokens::{BoundObjectKind, TokenFile};

struct NoObjects;

impl BoundObjects for NoObjects {
    fn get_json(&self, _: BoundObjectKind, _: &str, _: &str) -> Option<Cow<'_, [u8]>> {
        None
    }
}

const ABSENT: ClientCertificate<'_> = ClientCertificate::Absent;

fn certificate_subject(name: &str, groups: &[&str]) -> CertificateSubject {
    let organizations = groups.iter().map(ToString::to_string).collect();
    CertificateSubject { common_name: name.to_owned(), organizations, ..CertificateSubject::default() }
}

/// A server with all authenticators: front proxy `proxy`, a token for alice, and anonymous access.
fn authenticator() -> Authenticator {
    let front_proxy =
        FrontProxy { allowed_names: vec!["proxy".to_owned()], headers: FrontProxyHeaderNames::standard() };
    let file = TokenFile::parse("secret,alice,u1,\"dev,ops\"").unwrap();
    let tokens = TokenAuthenticator { token_file: file, token_verifier: None, audiences: vec!["api".to_owned()] };
    let certificates = CertificateFieldSet::ALL;
    Authenticator {
        front_proxy: Some(front_proxy),
        certificate_fields: certificates,
        token_authenticator: tokens,
        anonymous: AnonymousAccess::Enabled,
    }
}

fn describe_outcome(
    authenticator: &Authenticator,
    front_proxy: ClientCertificate<'_>,
    client: ClientCertificate<'_>,
    headers: &[(&str, &str)],
) -> String {
    let headers = headers.iter().map(|(name, value)| (*name, value.as_bytes()));
    let credentials = PresentedCredentials {
        client_certificate: client,
        front_proxy_certificate: front_proxy,
        headers,
        path: "/api",
    };
    match authenticator.authenticate(&credentials, &NoObjects, Timestamp::UNIX_EPOCH) {
        Ok(RequestIdentity { user, method, warnings, websocket_protocols, .. }) => {
            let mut text = format!("{method:?} {} groups={}", user.name, user.groups.join("+"));
            for (name, value) in [("uid", user.uid.clone()), ("warnings", warnings.join(" "))] {
                if !value.is_empty() {
                    text.push_str(&format!(" {name}={value}"));
                }
            }
            if !user.extra.is_empty() {
                text.push_str(&format!(" extra={:?}", user.extra));
            }
            text + &websocket_protocols.map_or(String::new(), |protocols| format!(" protocols={protocols}"))
        }
        Err(error) => format!("401 {error}"),
    }
}

#[track_caller]
fn check(
    front_proxy: ClientCertificate<'_>,
    client: ClientCertificate<'_>,
    headers: &[(&str, &str)],
    expected: &Expect,
) {
    expected.assert_eq(&describe_outcome(&authenticator(), front_proxy, client, headers));
}

#[test]
fn request_without_credentials_is_anonymous_or_401() {
    check(ABSENT, ABSENT, &[("accept", "*/*")], &expect!["Anonymous system:anonymous groups=system:unauthenticated"]);
    let without_anonymous = Authenticator { anonymous: AnonymousAccess::Disabled, ..authenticator() };
    expect!["401 no credentials were presented"].assert_eq(&describe_outcome(&without_anonymous, ABSENT, ABSENT, &[]));
    let on_this_path =
        Authenticator { anonymous: AnonymousAccess::OnlyPaths(vec!["/api".to_owned()]), ..authenticator() };
    assert!(describe_outcome(&on_this_path, ABSENT, ABSENT, &[]).starts_with("Anonymous"));
    let on_other_path =
        Authenticator { anonymous: AnonymousAccess::OnlyPaths(vec!["/healthz".to_owned()]), ..authenticator() };
    assert!(describe_outcome(&on_other_path, ABSENT, ABSENT, &[]).starts_with("401"));
}

#[test]
fn certificate_subject_becomes_user_and_groups() {
    let bob = certificate_subject("bob", &["dev", "ops"]);
    check(
        ABSENT,
        ClientCertificate::Verified(&bob),
        &[],
        &expect!["Certificate bob groups=dev+ops+system:authenticated"],
    );
    let named = CertificateSubject { uids: vec!["u7".to_owned()], digest: Some([0xab; 32]), ..bob };
    check(
        ABSENT,
        ClientCertificate::Verified(&named),
        &[],
        &expect![[
            r#"Certificate bob groups=dev+ops+system:authenticated uid=u7 extra={"authentication.kubernetes.io/credential-id": ["X509SHA256=abababababababababababababababababababababababababababababababab"]}"#
        ]],
    );
    let nameless = certificate_subject("", &["dev"]);
    check(
        ABSENT,
        ClientCertificate::Verified(&nameless),
        &[],
        &expect!["Anonymous system:anonymous groups=system:unauthenticated"],
    );
}

#[test]
fn certificate_user_has_only_fields_in_field_set() {
    let bob = CertificateSubject {
        uids: vec!["u7".to_owned(), "u8".to_owned()],
        digest: Some([0xab; 32]),
        ..certificate_subject("bob", &[])
    };
    let user = bob.user(CertificateFieldSet { uid: false, credential_id: false }).unwrap().unwrap();
    assert_eq!((user.uid.as_str(), user.extra.len()), ("", 0));
    let user = bob.user(CertificateFieldSet { uid: false, credential_id: true }).unwrap().unwrap();
    assert_eq!((user.uid.as_str(), user.extra.len()), ("", 1));
    assert!(bob.user(CertificateFieldSet { uid: true, credential_id: false }).is_err());
}

#[test]
fn certificate_with_invalid_uids_is_unauthorized() {
    let with = |uids: &[&str]| {
        let uids = uids.iter().map(ToString::to_string).collect();
        CertificateSubject { uids, ..certificate_subject("bob", &[]) }
    };
    check(
        ABSENT,
        ClientCertificate::Verified(&with(&["a", "b"])),
        &[],
        &expect![[r#"401 expected 1 UID, but found multiple: [a b]"#]],
    );
    check(ABSENT, ClientCertificate::Verified(&with(&[""])), &[], &expect!["401 UID cannot be an empty string"]);
}

#[test]
fn untrusted_certificate_is_unauthorized_without_valid_token() {
    let bad = ClientCertificate::Untrusted("x509: certificate has expired");
    check(ABSENT, bad, &[], &expect!["401 verifying certificate failed: x509: certificate has expired"]);
    check(
        bad,
        bad,
        &[("authorization", "Bearer secret")],
        &expect!["Token alice groups=dev+ops+system:authenticated uid=u1"],
    );
    check(
        ClientCertificate::Untrusted("x509: signed by unknown authority"),
        bad,
        &[("authorization", "Bearer wrong")],
        &expect![
            "401 [verifying certificate failed: x509: signed by unknown authority, verifying certificate failed: x509: certificate has expired, invalid bearer token]"
        ],
    );
}

#[test]
fn front_proxy_headers_become_user() {
    let proxy = certificate_subject("proxy", &[]);
    let proxy = ClientCertificate::Verified(&proxy);
    let untrusted = ClientCertificate::Untrusted("x509: not a client");
    check(
        proxy,
        untrusted,
        &[
            ("x-remote-user", "carol"),
            ("x-remote-uid", "u9"),
            ("X-Remote-Group", "a"),
            ("x-remote-group", ""),
            ("x-remote-group", "b"),
            ("x-remote-extra-example.com%2Ffoo", "1"),
            ("X-Remote-Extra-Scopes", "x"),
            ("x-remote-extra-scopes", "y"),
            ("x-remote-extra-a%25b", "2"),
            ("x-remote-extra-a%zz", "3"),
            ("x-remote-extra-%ff", "4"),
        ],
        &expect![[
            r#"FrontProxy carol groups=a+b+system:authenticated uid=u9 extra={"%ff": ["4"], "a%b": ["2"], "a%zz": ["3"], "example.com/foo": ["1"], "scopes": ["x", "y"]}"#
        ]],
    );
    check(
        proxy,
        untrusted,
        &[("x-remote-user", "system:anonymous"), ("x-remote-group", "system:unauthenticated")],
        &expect!["FrontProxy system:anonymous groups=system:unauthenticated"],
    );
    check(proxy, untrusted, &[("x-remote-user", "")], &expect!["401 verifying certificate failed: x509: not a client"]);
    check(
        proxy,
        ABSENT,
        &[("x-remote-user", "first"), ("x-remote-user", "second")],
        &expect!["FrontProxy first groups=system:authenticated"],
    );
}

#[test]
fn front_proxy_headers_without_allowed_certificate_are_ignored() {
    let claims = [("x-remote-user", "root"), ("x-remote-group", "system:masters")];
    check(ABSENT, ABSENT, &claims, &expect!["Anonymous system:anonymous groups=system:unauthenticated"]);
    let bob = certificate_subject("bob", &[]);
    check(
        ClientCertificate::Untrusted("x509: signed by unknown authority"),
        ClientCertificate::Verified(&bob),
        &claims,
        &expect!["Certificate bob groups=system:authenticated"],
    );
    let other = certificate_subject("other", &[]);
    check(
        ClientCertificate::Verified(&other),
        ABSENT,
        &claims,
        &expect!["401 x509: subject with cn=other is not in the allowed list"],
    );
    let without = Authenticator { front_proxy: None, ..authenticator() };
    assert!(describe_outcome(&without, ClientCertificate::Verified(&other), ABSENT, &claims).starts_with("Anonymous"));
}

#[test]
fn front_proxy_reads_configured_headers_and_allows_any_name_by_default() {
    let mut authenticator = authenticator();
    let headers = FrontProxyHeaderNames {
        user: vec!["X-One".to_owned(), "X-Two".to_owned()],
        ..FrontProxyHeaderNames::default()
    };
    authenticator.front_proxy = Some(FrontProxy { allowed_names: Vec::new(), headers });
    let other = certificate_subject("other", &[]);
    let shown = |headers: &[(&str, &str)]| {
        describe_outcome(&authenticator, ClientCertificate::Verified(&other), ABSENT, headers)
    };
    let two = [("x-two", "carol"), ("x-remote-group", "system:masters"), ("x-remote-uid", "u")];
    expect!["FrontProxy carol groups=system:authenticated"].assert_eq(&shown(&two));
    expect!["FrontProxy dave groups=system:authenticated"].assert_eq(&shown(&[("x-two", "carol"), ("x-one", "dave")]));
}

#[test]
fn non_utf8_identity_headers_are_unauthorized() {
    let proxy = certificate_subject("proxy", &[]);
    let headers: [(&str, &[u8]); 1] = [("x-remote-user", b"\xff")];
    let credentials = PresentedCredentials {
        client_certificate: ABSENT,
        front_proxy_certificate: ClientCertificate::Verified(&proxy),
        headers: headers.into_iter(),
        path: "/",
    };
    let error = authenticator().authenticate(&credentials, &NoObjects, Timestamp::UNIX_EPOCH).unwrap_err();
    assert_eq!(error.to_string(), "the header X-Remote-User is not UTF-8");
    let headers: [(&str, &[u8]); 1] = [("authorization", b"Bearer \xff")];
    let credentials = PresentedCredentials {
        client_certificate: ABSENT,
        front_proxy_certificate: ABSENT,
        headers: headers.into_iter(),
        path: "/",
    };
    let error = authenticator().authenticate(&credentials, &NoObjects, Timestamp::UNIX_EPOCH).unwrap_err();
    assert_eq!(error.to_string(), "the header Authorization is not UTF-8");
}

#[test]
fn authorization_header_is_parsed_as_in_kubernetes() {
    let alice = expect!["Token alice groups=dev+ops+system:authenticated uid=u1"];
    for value in ["Bearer secret", "bearer secret", "BEARER secret", "  Bearer secret  ", "Bearer secret more"] {
        check(ABSENT, ABSENT, &[("Authorization", value)], &alice);
    }
    let anonymous = expect!["Anonymous system:anonymous groups=system:unauthenticated"];
    for value in ["", "Basic c2VjcmV0", "Bearer", "Bearer ", "secret"] {
        check(ABSENT, ABSENT, &[("authorization", value)], &anonymous);
    }
    check(
        ABSENT,
        ABSENT,
        &[("authorization", "Bearer  secret")],
        &expect![
            "Anonymous system:anonymous groups=system:unauthenticated warnings=the provided Authorization header contains extra space before the bearer token, and is ignored"
        ],
    );
    check(ABSENT, ABSENT, &[("authorization", "Bearer guess")], &expect!["401 invalid bearer token"]);
}

#[test]
fn token_file_token_is_valid_for_server_audiences_only() {
    let tokens = authenticator().token_authenticator;
    let find = |audiences: &[&str]| {
        let audiences: Vec<String> = audiences.iter().map(ToString::to_string).collect();
        tokens
            .authenticate_token("secret", &audiences, &NoObjects, Timestamp::UNIX_EPOCH)
            .unwrap()
            .map(|found| found.audiences)
    };
    assert_eq!(find(&["api", "vault"]), Some(vec!["api".to_owned()]));
    assert_eq!(find(&["vault"]), None);
}

#[test]
fn websocket_subprotocol_may_carry_bearer_token() {
    let upgrade = [("connection", "keep-alive, Upgrade"), ("upgrade", "WebSocket")];
    let with = |protocols: &[&str]| {
        let mut headers = upgrade.to_vec();
        headers.extend(protocols.iter().map(|protocol| ("sec-websocket-protocol", *protocol)));
        describe_outcome(&authenticator(), ABSENT, ABSENT, &headers)
    };
    let token = |bytes: &[u8]| format!("base64url.bearer.authorization.k8s.io.{}", URL_SAFE_NO_PAD.encode(bytes));
    let good = token(b"secret");
    expect!["Token alice groups=dev+ops+system:authenticated uid=u1 protocols=v5.channel.k8s.io,v4.channel.k8s.io"]
        .assert_eq(&with(&[&format!("v5.channel.k8s.io, {good}"), "v4.channel.k8s.io"]));
    expect!["401 invalid bearer token"].assert_eq(&with(&[&token(b"guess"), "v4"]));
    expect!["401 multiple base64.bearer.authorization tokens specified"].assert_eq(&with(&[&good, &good, "v4"]));
    expect!["401 invalid base64.bearer.authorization token encoding"]
        .assert_eq(&with(&["base64url.bearer.authorization.k8s.io.***", "v4"]));
    expect!["401 invalid base64.bearer.authorization token"].assert_eq(&with(&[&token(b"\xff"), "v4"]));
    expect!["401 missing additional subprotocol"].assert_eq(&with(&[&good]));
    expect!["Anonymous system:anonymous groups=system:unauthenticated"].assert_eq(&with(&[&token(b""), "v4"]));
    expect!["Anonymous system:anonymous groups=system:unauthenticated"].assert_eq(&with(&["v4"]));
    check(
        ABSENT,
        ABSENT,
        &[("sec-websocket-protocol", &good)],
        &expect!["Anonymous system:anonymous groups=system:unauthenticated"],
    );
}

#[test]
fn credential_headers_are_recognized() {
    let mut authenticator = authenticator();
    for name in
        ["Authorization", "authorization", "X-Remote-User", "x-remote-uid", "x-remote-group", "x-remote-extra-a"]
    {
        assert!(authenticator.is_credential(name), "{name}");
    }
    assert!(!authenticator.is_credential("accept") && !authenticator.is_credential("x-user"));
    let headers = FrontProxyHeaderNames {
        user: vec!["X-User".to_owned()],
        extra_prefix: vec!["X-More-".to_owned()],
        ..FrontProxyHeaderNames::default()
    };
    authenticator.front_proxy = Some(FrontProxy { allowed_names: Vec::new(), headers });
    for name in ["x-user", "x-more-things", "x-remote-user"] {
        assert!(authenticator.is_credential(name), "{name}");
    }
}

#[test]
fn front_proxy_validate_rejects_blank_values_and_overlapping_bundles() {
    let error = |proxy: &FrontProxy, bundles: CaBundleOverlap| proxy.validate(bundles).unwrap_err().to_string();
    let blank = || vec![" ".to_owned()];
    let proxy = FrontProxy { allowed_names: blank(), ..FrontProxy::default() };
    assert_eq!(
        error(&proxy, CaBundleOverlap::Disjoint),
        r#"--requestheader-allowed-names: empty value in "requestheader-allowed-names""#
    );
    for (flag, headers) in [
        ("requestheader-username-headers", FrontProxyHeaderNames { user: blank(), ..FrontProxyHeaderNames::default() }),
        ("requestheader-uid-headers", FrontProxyHeaderNames { uid: blank(), ..FrontProxyHeaderNames::default() }),
        ("requestheader-group-headers", FrontProxyHeaderNames { group: blank(), ..FrontProxyHeaderNames::default() }),
        (
            "requestheader-extra-headers-prefix",
            FrontProxyHeaderNames { extra_prefix: blank(), ..FrontProxyHeaderNames::default() },
        ),
    ] {
        let proxy = FrontProxy { headers, ..FrontProxy::default() };
        assert_eq!(error(&proxy, CaBundleOverlap::Disjoint), format!("--{flag}: empty value in {flag:?}"));
    }
    let open = FrontProxy::default();
    assert!(open.validate(CaBundleOverlap::Disjoint).is_ok());
    expect!["--requestheader-client-ca-file and --client-ca-file contain overlapping certificates; --requestheader-allowed-names must be specified to ensure regular client certificates cannot set authenticating proxy headers for arbitrary users"]
        .assert_eq(&error(&open, CaBundleOverlap::Overlapping));
    assert!(
        FrontProxy { allowed_names: vec!["proxy".to_owned()], ..open }.validate(CaBundleOverlap::Overlapping).is_ok()
    );
}
