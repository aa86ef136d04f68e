//! Identity headers are accepted from a front proxy only.

use super::*;

const REMOTE_HEADERS: [(&str, &str); 6] = [
    ("X-Remote-User", "alice"),
    ("X-Remote-Uid", "u-1"),
    ("X-Remote-Group", "devs"),
    ("X-Remote-Group", "system:masters"),
    ("X-Remote-Extra-Example.com%2Fteam", "red"),
    ("X-Kubernetes-Peer-Proxied", "true"),
];

/// Flags of a server that trusts front proxies of this CA.
fn front_proxy_flags(authority: &CertificateAuthority, more: &[&str]) -> Vec<String> {
    let ca = authority.certificate().display();
    let standard = [
        format!("--requestheader-client-ca-file={ca}"),
        "--requestheader-username-headers=X-Remote-User".to_owned(),
        "--requestheader-uid-headers=X-Remote-Uid".to_owned(),
        "--requestheader-group-headers=X-Remote-Group".to_owned(),
        "--requestheader-extra-headers-prefix=X-Remote-Extra-".to_owned(),
    ];
    standard.into_iter().chain(more.iter().map(ToString::to_string)).collect()
}

fn start_server(folder: &Path, flags: &[String]) -> RunningServer {
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    start_on_sqlite(folder, &flags)
}

#[test]
fn remote_headers_are_trusted_from_front_proxies_only() {
    let folder = tempfile::tempdir().unwrap();
    let authority = CertificateAuthority::open_or_create(&folder.path().join("front"), "front-proxy-ca").unwrap();
    let server = start_server(
        folder.path(),
        &front_proxy_flags(&authority, &["--requestheader-allowed-names=front-proxy-client"]),
    );
    let proxy = |name: &str| {
        server.client_with(certificate_credentials(
            &authority.open_or_issue(name, name, None, &CertificateUsage::Client).unwrap(),
        ))
    };
    let (front, other) = (proxy("front-proxy-client"), proxy("another-name"));
    let (jane, anonymous) = (
        server.client_with(issue_client_certificate(&server, "jane", None)),
        server.client_with(ClientCredentials::Anonymous),
    );
    block_on(async {
        assert_eq!(whoami(&front, &REMOTE_HEADERS).await, "alice [devs system:masters system:authenticated]");
        let full =
            post_with_headers(&front, "/apis/authentication.k8s.io/v1/selfsubjectreviews", &json!({}), &REMOTE_HEADERS)
                .await
                .json();
        let user = &full["status"]["userInfo"];
        assert_eq!((&user["uid"], &user["extra"]), (&json!("u-1"), &json!({"example.com/team": ["red"]})));
        let anonymous_user = [("X-Remote-User", "system:anonymous"), ("X-Remote-Group", "system:unauthenticated")];
        assert!(whoami(&front, &anonymous_user).await.starts_with("403 "), "anonymous stays anonymous");

        assert_eq!(whoami(&jane, &REMOTE_HEADERS).await, "jane [system:authenticated]");
        assert!(
            whoami(&anonymous, &REMOTE_HEADERS).await.contains("system:anonymous"),
            "anonymous may not create the review"
        );
        assert_eq!(
            whoami(&other, &REMOTE_HEADERS).await,
            "401 Unauthorized",
            "the name is not in --requestheader-allowed-names"
        );
        assert_eq!(
            whoami(&front, &[]).await,
            "401 Unauthorized",
            "a front proxy without identity headers is not a user"
        );
    });
}

#[test]
fn valid_token_authenticates_despite_invalid_certificate() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tokens.csv");
    std::fs::write(&file, "secret,alice,u1\n").unwrap();
    let server = start_on_sqlite(folder.path(), &[&format!("--token-auth-file={}", file.display())]);
    let foreign = CertificateAuthority::open_or_create(&folder.path().join("foreign"), "ca").unwrap();
    let mallory = server.client_with(certificate_credentials(
        &foreign.open_or_issue("m", "m", None, &CertificateUsage::Client).unwrap(),
    ));
    block_on(async {
        assert_eq!(whoami(&mallory, &[("authorization", "Bearer secret")]).await, "alice [system:authenticated]");
        assert_eq!(whoami(&mallory, &[("authorization", "Bearer wrong")]).await, "401 Unauthorized");
        assert_eq!(whoami(&mallory, &[]).await, "401 Unauthorized");
        let anonymous = server.client_with(ClientCredentials::Anonymous);
        assert_eq!(whoami(&anonymous, &[("authorization", "Bearer wrong")]).await, "401 Unauthorized");
    });
}

#[test]
fn overlapping_ca_bundles_require_allowed_names() {
    let folder = tempfile::tempdir().unwrap();
    start_on_sqlite(folder.path(), &[]).stop();
    let own = CertificateAuthority::open_or_create(&folder.path().join("unskew-data/pki"), "ca").unwrap();
    let mut command = std::process::Command::new(cluster_tests::tools::unskew_binary());
    command.current_dir(folder.path()).args(["serve", "--secure-port=0"]).args(front_proxy_flags(&own, &[]));
    let refused = cluster_tests::process::run_command(command, Duration::from_secs(30));
    assert_eq!(refused.code, Some(64), "{refused:?}");
    assert!(
        refused.stderr.contains(
            "--requestheader-client-ca-file and --client-ca-file contain overlapping certificates; \
             --requestheader-allowed-names must be specified to ensure regular client certificates cannot set \
             authenticating proxy headers for arbitrary users"
        ),
        "{}",
        refused.stderr
    );
}
