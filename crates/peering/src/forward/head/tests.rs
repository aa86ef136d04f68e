use expect_test::{Expect, expect};

use super::super::Identity;
use super::super::tests::long_read;
use super::*;

fn head_of(target: &str, lines: &[(&'static str, &'static str)], is_upgrade: bool) -> Head {
    let mut request = Request::new(());
    *request.uri_mut() = target.parse().unwrap();
    for (name, value) in lines {
        request.headers_mut().append(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    let user = Identity::new("jane", "", ["developers"], []).unwrap();
    let audit_id = HeaderValue::from_static("audit-1");
    let call = Call { audit_id: Some(&audit_id), ..long_read(&[], &user) };
    Head::new(request.into_parts().0, &call, is_upgrade)
}

#[track_caller]
fn check(head: &Head, expected: &Expect) {
    let request = head.request(&HeaderValue::from_static("peer:6443"), RequestBody::empty());
    expected.assert_eq(&format!("{} {}\n{}", request.method(), request.uri(), lines_of(request.headers())));
}

fn lines_of(headers: &HeaderMap) -> String {
    let mut lines: Vec<_> =
        headers.iter().map(|(name, value)| format!("{name}: {}\n", value.to_str().unwrap())).collect();
    lines.sort();
    lines.concat()
}

#[test]
fn whatever_says_who_is_asking_is_replaced_by_who_it_is() {
    check(
        &head_of(
            "/api/v1/pods",
            &[
                ("authorization", "Bearer secret"),
                ("x-remote-user", "admin"),
                ("x-remote-uid", "0"),
                ("x-remote-group", "system:masters"),
                ("x-remote-extra-scopes", "all"),
                ("x-remote-anything", "at all"),
                ("impersonate-user", "admin"),
                ("impersonate-extra-scopes", "all"),
                ("x-kubernetes-peer-proxied", "false"),
                ("audit-id", "audit-of-the-client"),
                ("user-agent", "kubectl"),
                ("accept", "application/json"),
            ],
            false,
        ),
        &expect![[r#"
            GET /api/v1/pods
            accept: application/json
            audit-id: audit-1
            host: peer:6443
            user-agent: kubectl
            x-forwarded-for: 192.0.2.1
            x-forwarded-proto: https
            x-kubernetes-apiserver-rerouted: true
            x-kubernetes-peer-proxied: true
            x-remote-group: developers
            x-remote-user: jane
        "#]],
    );
}

#[test]
fn what_concerns_one_connection_stays_behind() {
    check(
        &head_of(
            "https://here:6443/api/v1/pods",
            &[
                ("connection", "keep-alive, X-Private"),
                ("connection", "x-remote-user"),
                ("keep-alive", "timeout=5"),
                ("x-private", "1"),
                ("proxy-connection", "keep-alive"),
                ("proxy-authorization", "Basic x"),
                ("te", "trailers"),
                ("trailer", "x"),
                ("transfer-encoding", "chunked"),
                ("upgrade", "h2c"),
                ("expect", "100-continue"),
                ("x-forwarded-for", "10.0.0.1"),
                ("x-forwarded-for", "10.0.0.2, 10.0.0.3"),
                ("x-forwarded-host", "elsewhere"),
                ("x-forwarded-proto", "http"),
            ],
            false,
        ),
        &expect![[r#"
            GET /api/v1/pods
            audit-id: audit-1
            host: peer:6443
            x-forwarded-for: 10.0.0.1, 10.0.0.2, 10.0.0.3, 192.0.2.1
            x-forwarded-host: here:6443
            x-forwarded-proto: https
            x-kubernetes-apiserver-rerouted: true
            x-kubernetes-peer-proxied: true
            x-remote-group: developers
            x-remote-user: jane
        "#]],
    );
}

#[test]
fn an_upgrade_names_its_protocol_and_no_token() {
    let lines = [
        ("host", "here"),
        ("connection", "Upgrade"),
        ("upgrade", "websocket"),
        ("sec-websocket-protocol", "v5.channel.k8s.io, base64url.bearer.authorization.k8s.io.c2VjcmV0"),
        ("sec-websocket-protocol", "v4.channel.k8s.io"),
    ];
    check(
        &head_of("/api/v1/namespaces/a/pods/b/exec?command=ls", &lines, true),
        &expect![[r#"
        GET /api/v1/namespaces/a/pods/b/exec?command=ls
        audit-id: audit-1
        connection: upgrade
        host: peer:6443
        sec-websocket-protocol: v5.channel.k8s.io, v4.channel.k8s.io
        upgrade: websocket
        x-forwarded-for: 192.0.2.1
        x-forwarded-host: here
        x-forwarded-proto: https
        x-kubernetes-apiserver-rerouted: true
        x-kubernetes-peer-proxied: true
        x-remote-group: developers
        x-remote-user: jane
    "#]],
    );
}

#[test]
fn path_and_query_are_not_touched() {
    for target in ["/a%2Fb/./c//d%zz?x=%2F&&y;z=1&x=+%20&=", "/?", "/%E4%BD%A0?q=\u{e4}%", "/a?b?c=/d"] {
        let head = head_of(target, &[], false);
        assert_eq!(head.uri.to_string(), target);
        let absolute = head_of(&format!("https://here:1{target}"), &[], false);
        assert_eq!(absolute.uri.to_string(), target);
    }
}

#[track_caller]
fn check_answer(status: u16, lines: &[(&'static str, &'static str)], expected: &Expect) {
    check_answer_of(CrossOrigin::Ours, status, lines, expected);
}

#[track_caller]
fn check_answer_of(cross_origin: CrossOrigin, status: u16, lines: &[(&'static str, &'static str)], expected: &Expect) {
    let mut response = http::Response::builder().status(status).version(http::Version::HTTP_10);
    for (name, value) in lines {
        response = response.header(*name, *value);
    }
    let mut parts = response.body(()).unwrap().into_parts().0;
    clean_answer(&mut parts, cross_origin);
    expected.assert_eq(&format!("{:?} {}\n{}", parts.version, parts.status, lines_of(&parts.headers)));
}

#[test]
fn an_answer_loses_what_concerns_one_connection_or_other_pages() {
    check_answer(
        200,
        &[
            ("connection", "x-private, keep-alive"),
            ("x-private", "1"),
            ("keep-alive", "timeout=5"),
            ("transfer-encoding", "chunked"),
            ("access-control-allow-origin", "*"),
            ("access-control-expose-headers", "Date"),
            ("audit-id", "audit-1"),
            ("cache-control", "no-cache, private"),
            ("set-cookie", "a"),
            ("set-cookie", "b"),
            ("upgrade", "h2c"),
        ],
        &expect![[r#"
            HTTP/1.1 200 OK
            access-control-expose-headers: Date
            audit-id: audit-1
            cache-control: no-cache, private
            set-cookie: a
            set-cookie: b
        "#]],
    );
    check_answer(
        101,
        &[("connection", "Upgrade"), ("upgrade", "SPDY/3.1"), ("x-stream-protocol-version", "v4.channel.k8s.io")],
        &expect![[r#"
            HTTP/1.1 101 Switching Protocols
            connection: upgrade
            upgrade: SPDY/3.1
            x-stream-protocol-version: v4.channel.k8s.io
        "#]],
    );
}

#[test]
fn which_pages_may_read_an_answer_is_left_to_who_says_it() {
    let lines = [
        ("access-control-allow-origin", "https://shop.example"),
        ("access-control-allow-methods", "GET"),
        ("access-control-allow-headers", "Authorization"),
        ("access-control-allow-credentials", "true"),
        ("access-control-max-age", "60"),
    ];
    check_answer_of(
        CrossOrigin::Ours,
        204,
        &lines,
        &expect![[r#"
            HTTP/1.1 204 No Content
            access-control-max-age: 60
        "#]],
    );
    check_answer_of(
        CrossOrigin::Theirs,
        204,
        &lines,
        &expect![[r#"
            HTTP/1.1 204 No Content
            access-control-allow-credentials: true
            access-control-allow-headers: Authorization
            access-control-allow-methods: GET
            access-control-allow-origin: https://shop.example
            access-control-max-age: 60
        "#]],
    );
}
