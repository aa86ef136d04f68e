use expect_test::{Expect, expect};

use super::super::ForwardedUser;
use super::super::tests::long_read;
use super::*;

fn forwarded_head(target: &str, lines: &[(&'static str, &'static str)], is_upgrade: bool) -> ForwardedHead {
    forwarded_head_of(target, lines, &SizeHint::with_exact(0), is_upgrade)
}

fn forwarded_head_of(
    target: &str,
    lines: &[(&'static str, &'static str)],
    body_size: &SizeHint,
    is_upgrade: bool,
) -> ForwardedHead {
    let mut request = Request::new(());
    *request.uri_mut() = target.parse().unwrap();
    for (name, value) in lines {
        request.headers_mut().append(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    let user = ForwardedUser::new("jane", "", ["developers"], []).unwrap();
    request.headers_mut().insert(AUDIT_ID, HeaderValue::from_static("audit-1"));
    let forward_request = long_read(&[], &user);
    ForwardedHead::new(request.into_parts().0, body_size, &forward_request, is_upgrade)
}

#[track_caller]
fn check(head: &ForwardedHead, expected: &Expect) {
    let request = head.build_request(&HeaderValue::from_static("peer:6443"), RequestBody::empty());
    expected.assert_eq(&format!("{} {}\n{}", request.method(), request.uri(), sorted_header_lines(request.headers())));
}

fn sorted_header_lines(headers: &HeaderMap) -> String {
    let mut lines: Vec<_> =
        headers.iter().map(|(name, value)| format!("{name}: {}\n", value.to_str().unwrap())).collect();
    lines.sort();
    lines.concat()
}

#[test]
fn forwarded_head_replaces_client_identity_headers() {
    check(
        &forwarded_head(
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
fn forwarded_head_drops_hop_by_hop_headers() {
    check(
        &forwarded_head(
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
fn forwarded_upgrade_keeps_protocol_and_drops_token() {
    let lines = [
        ("host", "here"),
        ("connection", "Upgrade"),
        ("upgrade", "websocket"),
        ("sec-websocket-protocol", "v5.channel.k8s.io, base64url.bearer.authorization.k8s.io.c2VjcmV0"),
        ("sec-websocket-protocol", "v4.channel.k8s.io"),
    ];
    check(
        &forwarded_head("/api/v1/namespaces/a/pods/b/exec?command=ls", &lines, true),
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
fn forwarded_path_and_query_are_unchanged() {
    for target in ["/a%2Fb/./c//d%zz?x=%2F&&y;z=1&x=+%20&=", "/?", "/%E4%BD%A0?q=\u{e4}%", "/a?b?c=/d"] {
        let head = forwarded_head(target, &[], false);
        assert_eq!(head.uri.to_string(), target);
        let absolute = forwarded_head(&format!("https://here:1{target}"), &[], false);
        assert_eq!(absolute.uri.to_string(), target);
    }
}

#[track_caller]
fn check_response(status: u16, lines: &[(&'static str, &'static str)], expected: &Expect) {
    check_response_with_cors(CorsHeaders::Strip, status, lines, expected);
}

#[track_caller]
fn check_response_with_cors(
    cross_origin: CorsHeaders,
    status: u16,
    lines: &[(&'static str, &'static str)],
    expected: &Expect,
) {
    let mut response = http::Response::builder().status(status).version(http::Version::HTTP_10);
    for (name, value) in lines {
        response = response.header(*name, *value);
    }
    let mut parts = response.body(()).unwrap().into_parts().0;
    clean_response_head(&mut parts, cross_origin);
    expected.assert_eq(&format!("{:?} {}\n{}", parts.version, parts.status, sorted_header_lines(&parts.headers)));
}

#[test]
fn response_head_drops_hop_by_hop_and_cors_headers() {
    check_response(
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
    check_response(
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
fn cors_headers_are_stripped_or_passed_by_config() {
    let lines = [
        ("access-control-allow-origin", "https://shop.example"),
        ("access-control-allow-methods", "GET"),
        ("access-control-allow-headers", "Authorization"),
        ("access-control-allow-credentials", "true"),
        ("access-control-max-age", "60"),
    ];
    check_response_with_cors(
        CorsHeaders::Strip,
        204,
        &lines,
        &expect![[r#"
            HTTP/1.1 204 No Content
            access-control-max-age: 60
        "#]],
    );
    check_response_with_cors(
        CorsHeaders::PassThrough,
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

#[test]
fn mark_forwarded_replaces_existing_marks() {
    let mut headers = HeaderMap::new();
    headers.append(PEER_PROXIED, HeaderValue::from_static("false"));
    mark_forwarded(&mut headers);
    assert_eq!(
        headers,
        HeaderMap::from_iter(
            [PEER_PROXIED, REROUTED].map(|name| (HeaderName::from_static(name), HeaderValue::from_static("true")))
        )
    );
}

#[test]
fn content_length_is_the_size_of_the_body() {
    let lengths = |lines: &[(&'static str, &'static str)], size: SizeHint| {
        let head = forwarded_head_of("/api/v1/pods", lines, &size, false);
        let lengths = head.headers().get_all(CONTENT_LENGTH).into_iter();
        lengths.map(|length| length.to_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let [five, zero] = [5, 0].map(SizeHint::with_exact);
    assert_eq!(lengths(&[("content-length", "5"), ("content-length", "5")], five), ["5"]);
    assert_eq!(lengths(&[("content-length", "0"), ("content-length", "60")], zero), ["0"]);
    assert_eq!(lengths(&[("content-length", "60")], zero), ["0"]);
    // Chunked: the peer gets chunks as well.
    assert_eq!(lengths(&[("content-length", "60")], SizeHint::default()), [""; 0]);
    assert_eq!(lengths(&[], five), [""; 0]);
}

#[test]
fn forwarded_host_is_that_of_the_target() {
    let head = forwarded_head("https://target:1/api/v1/pods", &[("host", "header:2")], false);
    assert_eq!(head.headers().get(FORWARDED_HOST).unwrap(), "target:1");
    assert_eq!(head.build_request(&HeaderValue::from_static("peer:6443"), RequestBody::empty()).uri(), "/api/v1/pods");
}
