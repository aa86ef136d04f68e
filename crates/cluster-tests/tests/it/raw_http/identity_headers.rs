//! Identity headers of clients in every form that a proxy could let through.

use super::site::Site;

/// Header lines of a request of jane, whose body is one chunk with these trailers.
const CASES: &[(&str, &str)] = &[
    ("X-Remote-User: root\r\nX-Remote-Group: system:masters", ""),
    // Hop-by-hop removal must not take away what the server itself adds.
    ("Connection: X-Remote-User, X-Remote-Group\r\nX-Remote-User: root", ""),
    ("Connection: close, x-remote-user\r\nConnection: X-REMOTE-GROUP, X-Remote-Uid", ""),
    ("Connection: Host, Content-Type, Transfer-Encoding, X-Forwarded-For, Audit-ID, X-Kubernetes-Peer-Proxied", ""),
    ("Proxy-Connection: X-Remote-User\r\nKeep-Alive: X-Remote-User\r\nX-Remote-User: root", ""),
    // Trailers are not headers.
    ("Trailer: X-Remote-User, X-Remote-Group", "X-Remote-User: root\r\nX-Remote-Group: system:masters\r\n"),
    ("TE: trailers", "X-Remote-User: root\r\nImpersonate-User: root\r\nAuthorization: Bearer x\r\n"),
    ("Trailer: Content-Length, Transfer-Encoding, Host", "Content-Length: 9\r\nTransfer-Encoding: gzip\r\nHost: y\r\n"),
    // Duplicates and names that some proxies treat as equal.
    ("X-Remote-User: jane\r\nx-remote-user: root\r\nX-REMOTE-USER: root", ""),
    ("X-Remote-Group: system:masters\r\nX-Remote-Group: system:masters", ""),
    ("X_Remote_User: root\r\nX_Remote_Group: system:masters", ""),
    ("X-Remote_User: root\r\nX_Remote-Group: system:masters", ""),
    ("X.Remote.User: root\r\nX-Remote-Users: root\r\nRemote-User: root", ""),
    ("X-Remote-Extra-Authentication.kubernetes.io%2Fcredential-id: root\r\nX-Remote-Uid: 0", ""),
    // Marks of forwarded requests, and a token beside the certificate.
    ("X-Forwarded-User: root\r\nX-Forwarded-For: 10.0.0.1\r\nForwarded: for=root", ""),
    ("Authorization: Bearer root\r\nProxy-Authorization: Bearer root", ""),
];

fn check_cases(mut site: Site) {
    let path = site.path;
    for (number, (headers, trailers)) in CASES.iter().enumerate() {
        // The second request shows that headers and trailers of the first one do not reach it.
        let first = format!(
            "POST {path}?as=jane&case={number} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n{headers}\r\n\
             Transfer-Encoding: chunked\r\n\r\n2\r\n{{}}\r\n0\r\n{trailers}\r\n"
        );
        let second = format!(
            "POST {path}?as=jane HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\
             Connection: close\r\n\r\n{{}}"
        );
        let responses = site.exchange(format!("{first}{second}").as_bytes());
        let expected = if headers.contains("close") { 1 } else { 2 };
        assert_eq!(responses.len(), expected, "{}: {headers}: {responses:?}", site.name);
        responses.iter().for_each(|response| site.check_names("jane", &response.body));
        site.check_joe_is_served();
    }
    site.check_users_of_executions();
    let executions = site.executions();
    for number in 0..CASES.len() {
        let tag = format!("case={number}");
        assert!(executions.iter().any(|execution| execution.target.contains(&tag)), "{tag} is executed");
    }
}

#[test]
fn identity_headers_of_clients_do_not_name_users_at_a_server() {
    check_cases(Site::server());
}

#[test]
fn identity_headers_of_clients_do_not_name_users_at_a_peer() {
    check_cases(Site::forwarding_server());
}

#[test]
fn identity_headers_of_clients_do_not_name_users_at_an_upstream() {
    check_cases(Site::gateway());
}

#[test]
fn user_with_a_thousand_groups_is_forwarded() {
    let site = Site::forwarding_server();
    let groups = (0..1_000).map(|number| format!("Impersonate-Group: group-{number}\r\n")).collect::<String>();
    // The forwarding server allows everything, and its peer refuses the impersonated user.
    let request =
        format!("GET {} HTTP/1.1\r\nHost: x\r\nImpersonate-User: joe\r\n{groups}Connection: close\r\n\r\n", site.path);
    let responses = site.exchange(request.as_bytes());
    assert_eq!(responses.len(), 1, "{responses:?}");
    assert_eq!(responses[0].status, 403, "{responses:?}");
    site.check_names("joe", &responses[0].body);
}
