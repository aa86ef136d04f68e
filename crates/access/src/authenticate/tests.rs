use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use expect_test::{Expect, expect};

use super::*;
use crate::tokens::{Kind, TokenFile};

struct NoObjects;

impl Objects for NoObjects {
    fn read(&self, _: Kind, _: &str, _: &str) -> Option<Cow<'_, [u8]>> {
        None
    }
}

const ABSENT: Certificate<'_> = Certificate::Absent;

fn subject(name: &str, groups: &[&str]) -> CertificateSubject {
    let organizations = groups.iter().map(ToString::to_string).collect();
    CertificateSubject { common_name: name.to_owned(), organizations, ..CertificateSubject::default() }
}

/// A server with everything: a front proxy named `proxy`, a token for alice, and anonymous requests.
fn authenticator() -> Authenticator {
    let front_proxy = FrontProxy { allowed_names: vec!["proxy".to_owned()], headers: HeaderNames::standard() };
    let file = TokenFile::parse("secret,alice,u1,\"dev,ops\"").unwrap();
    let tokens = BearerTokens { file, accounts: None, audiences: vec!["api".to_owned()] };
    let certificates = CertificateParts::ALL;
    Authenticator { front_proxy: Some(front_proxy), certificates, tokens, anonymous: Anonymous::Yes }
}

fn outcome(
    authenticator: &Authenticator,
    front_proxy: Certificate<'_>,
    client: Certificate<'_>,
    headers: &[(&str, &str)],
) -> String {
    let headers = headers.iter().map(|(name, value)| (*name, value.as_bytes()));
    let shown = Shown { client, front_proxy, headers, path: "/api" };
    match authenticator.authenticate(&shown, &NoObjects, Timestamp::UNIX_EPOCH) {
        Ok(Identity { user, method, warnings, websocket_protocols, .. }) => {
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
        Err(error) => format!("{} {error}", error.to_status().code),
    }
}

#[track_caller]
fn check(front_proxy: Certificate<'_>, client: Certificate<'_>, headers: &[(&str, &str)], expected: &Expect) {
    expected.assert_eq(&outcome(&authenticator(), front_proxy, client, headers));
}

#[test]
fn who_shows_nothing_is_anonymous() {
    check(ABSENT, ABSENT, &[("accept", "*/*")], &expect!["Anonymous system:anonymous groups=system:unauthenticated"]);
    let closed = Authenticator { anonymous: Anonymous::No, ..authenticator() };
    expect!["401 no credentials were shown"].assert_eq(&outcome(&closed, ABSENT, ABSENT, &[]));
    let here = Authenticator { anonymous: Anonymous::OnPaths(vec!["/api".to_owned()]), ..authenticator() };
    assert!(outcome(&here, ABSENT, ABSENT, &[]).starts_with("Anonymous"));
    let elsewhere = Authenticator { anonymous: Anonymous::OnPaths(vec!["/healthz".to_owned()]), ..authenticator() };
    assert!(outcome(&elsewhere, ABSENT, ABSENT, &[]).starts_with("401"));
}

#[test]
fn a_certificate_names_user_and_groups() {
    let bob = subject("bob", &["dev", "ops"]);
    check(ABSENT, Certificate::Verified(&bob), &[], &expect!["Certificate bob groups=dev+ops+system:authenticated"]);
    let named = CertificateSubject { uids: vec!["u7".to_owned()], digest: Some([0xab; 32]), ..bob };
    check(
        ABSENT,
        Certificate::Verified(&named),
        &[],
        &expect![[
            r#"Certificate bob groups=dev+ops+system:authenticated uid=u7 extra={"authentication.kubernetes.io/credential-id": ["X509SHA256=abababababababababababababababababababababababababababababababab"]}"#
        ]],
    );
    let nameless = subject("", &["dev"]);
    check(
        ABSENT,
        Certificate::Verified(&nameless),
        &[],
        &expect!["Anonymous system:anonymous groups=system:unauthenticated"],
    );
}

#[test]
fn older_releases_read_less_from_a_certificate() {
    let bob = CertificateSubject {
        uids: vec!["u7".to_owned(), "u8".to_owned()],
        digest: Some([0xab; 32]),
        ..subject("bob", &[])
    };
    let user = bob.user(CertificateParts { uid: false, credential_id: false }).unwrap().unwrap();
    assert_eq!((user.uid.as_str(), user.extra.len()), ("", 0));
    let user = bob.user(CertificateParts { uid: false, credential_id: true }).unwrap().unwrap();
    assert_eq!((user.uid.as_str(), user.extra.len()), ("", 1));
    assert!(bob.user(CertificateParts { uid: true, credential_id: false }).is_err());
}

#[test]
fn a_certificate_with_odd_uids_is_refused() {
    let with = |uids: &[&str]| {
        let uids = uids.iter().map(ToString::to_string).collect();
        CertificateSubject { uids, ..subject("bob", &[]) }
    };
    check(
        ABSENT,
        Certificate::Verified(&with(&["a", "b"])),
        &[],
        &expect![[r#"401 expected 1 UID, but found multiple: [a b]"#]],
    );
    check(ABSENT, Certificate::Verified(&with(&[""])), &[], &expect!["401 UID cannot be an empty string"]);
}

#[test]
fn a_bad_certificate_is_refused_unless_a_token_is_good() {
    let bad = Certificate::Untrusted("x509: certificate has expired");
    check(ABSENT, bad, &[], &expect!["401 verifying certificate failed: x509: certificate has expired"]);
    check(
        bad,
        bad,
        &[("authorization", "Bearer secret")],
        &expect!["Token alice groups=dev+ops+system:authenticated uid=u1"],
    );
    check(
        Certificate::Untrusted("x509: signed by unknown authority"),
        bad,
        &[("authorization", "Bearer wrong")],
        &expect![
            "401 [verifying certificate failed: x509: signed by unknown authority, verifying certificate failed: x509: certificate has expired, invalid bearer token]"
        ],
    );
}

#[test]
fn a_front_proxy_names_its_users() {
    let proxy = subject("proxy", &[]);
    let proxy = Certificate::Verified(&proxy);
    let untrusted = Certificate::Untrusted("x509: not a client");
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
fn claims_without_the_right_certificate_change_nothing() {
    let claims = [("x-remote-user", "root"), ("x-remote-group", "system:masters")];
    check(ABSENT, ABSENT, &claims, &expect!["Anonymous system:anonymous groups=system:unauthenticated"]);
    let bob = subject("bob", &[]);
    check(
        Certificate::Untrusted("x509: signed by unknown authority"),
        Certificate::Verified(&bob),
        &claims,
        &expect!["Certificate bob groups=system:authenticated"],
    );
    let other = subject("other", &[]);
    check(
        Certificate::Verified(&other),
        ABSENT,
        &claims,
        &expect!["401 x509: subject with cn=other is not in the allowed list"],
    );
    let without = Authenticator { front_proxy: None, ..authenticator() };
    assert!(outcome(&without, Certificate::Verified(&other), ABSENT, &claims).starts_with("Anonymous"));
}

#[test]
fn any_name_is_allowed_if_none_is_listed_and_only_configured_headers_are_read() {
    let mut authenticator = authenticator();
    let headers = HeaderNames { user: vec!["X-One".to_owned(), "X-Two".to_owned()], ..HeaderNames::default() };
    authenticator.front_proxy = Some(FrontProxy { allowed_names: Vec::new(), headers });
    let other = subject("other", &[]);
    let shown = |headers: &[(&str, &str)]| outcome(&authenticator, Certificate::Verified(&other), ABSENT, headers);
    let two = [("x-two", "carol"), ("x-remote-group", "system:masters"), ("x-remote-uid", "u")];
    expect!["FrontProxy carol groups=system:authenticated"].assert_eq(&shown(&two));
    expect!["FrontProxy dave groups=system:authenticated"].assert_eq(&shown(&[("x-two", "carol"), ("x-one", "dave")]));
}

#[test]
fn a_name_that_is_not_text_is_refused() {
    let proxy = subject("proxy", &[]);
    let headers: [(&str, &[u8]); 1] = [("x-remote-user", b"\xff")];
    let shown =
        Shown { client: ABSENT, front_proxy: Certificate::Verified(&proxy), headers: headers.into_iter(), path: "/" };
    let error = authenticator().authenticate(&shown, &NoObjects, Timestamp::UNIX_EPOCH).unwrap_err();
    assert_eq!(error.to_string(), "the header X-Remote-User is not UTF-8");
    let headers: [(&str, &[u8]); 1] = [("authorization", b"Bearer \xff")];
    let shown = Shown { client: ABSENT, front_proxy: ABSENT, headers: headers.into_iter(), path: "/" };
    let error = authenticator().authenticate(&shown, &NoObjects, Timestamp::UNIX_EPOCH).unwrap_err();
    assert_eq!(error.to_string(), "the header Authorization is not UTF-8");
}

#[test]
fn the_authorization_header_is_read_as_in_kubernetes() {
    let alice = expect!["Token alice groups=dev+ops+system:authenticated uid=u1"];
    for value in ["Bearer secret", "bearer secret", "BEARER secret", "  Bearer secret  ", "Bearer secret more"] {
        check(ABSENT, ABSENT, &[("Authorization", value)], &alice);
    }
    let nobody = expect!["Anonymous system:anonymous groups=system:unauthenticated"];
    for value in ["", "Basic c2VjcmV0", "Bearer", "Bearer ", "secret"] {
        check(ABSENT, ABSENT, &[("authorization", value)], &nobody);
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
fn a_token_of_the_file_is_for_this_server_only() {
    let tokens = authenticator().tokens;
    let find = |audiences: &[&str]| {
        let audiences: Vec<String> = audiences.iter().map(ToString::to_string).collect();
        tokens.find("secret", &audiences, &NoObjects, Timestamp::UNIX_EPOCH).unwrap().map(|found| found.audiences)
    };
    assert_eq!(find(&["api", "vault"]), Some(vec!["api".to_owned()]));
    assert_eq!(find(&["vault"]), None);
}

#[test]
fn a_websocket_may_carry_its_token_as_a_protocol() {
    let upgrade = [("connection", "keep-alive, Upgrade"), ("upgrade", "WebSocket")];
    let with = |protocols: &[&str]| {
        let mut headers = upgrade.to_vec();
        headers.extend(protocols.iter().map(|protocol| ("sec-websocket-protocol", *protocol)));
        outcome(&authenticator(), ABSENT, ABSENT, &headers)
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
fn credentials_do_not_travel_on() {
    let mut authenticator = authenticator();
    for name in
        ["Authorization", "authorization", "X-Remote-User", "x-remote-uid", "x-remote-group", "x-remote-extra-a"]
    {
        assert!(authenticator.is_credential(name), "{name}");
    }
    assert!(!authenticator.is_credential("accept") && !authenticator.is_credential("x-user"));
    let headers = HeaderNames {
        user: vec!["X-User".to_owned()],
        extra_prefix: vec!["X-More-".to_owned()],
        ..HeaderNames::default()
    };
    authenticator.front_proxy = Some(FrontProxy { allowed_names: Vec::new(), headers });
    for name in ["x-user", "x-more-things", "x-remote-user"] {
        assert!(authenticator.is_credential(name), "{name}");
    }
}

#[test]
fn settings_that_are_mistakes_are_refused() {
    let error = |proxy: &FrontProxy, bundles: Bundles| proxy.check(bundles).unwrap_err().to_string();
    let blank = || vec![" ".to_owned()];
    let proxy = FrontProxy { allowed_names: blank(), ..FrontProxy::default() };
    assert_eq!(
        error(&proxy, Bundles::Apart),
        r#"--requestheader-allowed-names: empty value in "requestheader-allowed-names""#
    );
    for (flag, headers) in [
        ("requestheader-username-headers", HeaderNames { user: blank(), ..HeaderNames::default() }),
        ("requestheader-uid-headers", HeaderNames { uid: blank(), ..HeaderNames::default() }),
        ("requestheader-group-headers", HeaderNames { group: blank(), ..HeaderNames::default() }),
        ("requestheader-extra-headers-prefix", HeaderNames { extra_prefix: blank(), ..HeaderNames::default() }),
    ] {
        let proxy = FrontProxy { headers, ..FrontProxy::default() };
        assert_eq!(error(&proxy, Bundles::Apart), format!("--{flag}: empty value in {flag:?}"));
    }
    let open = FrontProxy::default();
    assert!(open.check(Bundles::Apart).is_ok());
    expect!["--requestheader-client-ca-file and --client-ca-file contain overlapping certificates; --requestheader-allowed-names must be specified to ensure regular client certificates cannot set authenticating proxy headers for arbitrary users"]
        .assert_eq(&error(&open, Bundles::Overlap));
    assert!(FrontProxy { allowed_names: vec!["proxy".to_owned()], ..open }.check(Bundles::Overlap).is_ok());
}
