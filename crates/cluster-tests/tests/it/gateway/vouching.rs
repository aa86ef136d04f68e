//! The gateway vouches for certificate users only to upstreams that trust exactly the headers that it sets and strips.

use cluster_tests::client::ClientCredentials;
use cluster_tests::gateway::create_gateway_rbac;
use cluster_tests::wait::eventually;
use transport::pki::{CertificateAuthority, CertificateUsage};

use super::*;
use crate::access::{certificate_credentials, whoami};

/// Makes an upstream trust one more user header than the gateway sets.
const EXTRA_HEADER_FLAG: &str = "--requestheader-username-headers=X-Other-User,X-Remote-User";
/// Lets kube-scheduler, and hence the gateway, read the request header settings.
const READER_BINDING: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/kube-system/rolebindings/\
                              system::extension-apiserver-authentication-reader";
/// Makes the gateway strip that header as well.
const MATCHING_HEADER_FLAG: &str = "--requestheader-username-headers=X-Remote-User,X-Other-User";

/// A server that also reads user names from `X-Other-User`, with the token `secret` of a `system:masters` user.
fn plane_with_extra_header() -> ControlPlane<'static> {
    let mut plane = ControlPlane::new(TestStore::Sqlite);
    plane.start("odd", &[PEER_PROXY_OFF]);
    plane.stop("odd");
    let pki = plane.folder().join("unskew-data/pki");
    let tokens = plane.folder().join("tokens.csv");
    std::fs::write(&tokens, "secret,root,u1,system:masters\n").unwrap();
    let flags = [
        format!("--requestheader-client-ca-file={}", pki.join("front-proxy-ca.crt").display()),
        format!("--token-auth-file={}", tokens.display()),
    ];
    let rest = [
        "--requestheader-allowed-names=front-proxy-client",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        EXTRA_HEADER_FLAG,
        PEER_PROXY_OFF,
    ];
    let flags: Vec<&str> = flags.iter().map(String::as_str).chain(rest).collect();
    plane.start("odd", &flags);
    plane
}

fn certificate_client(plane: &ControlPlane<'_>, gateway: &RunningGateway) -> Client {
    let own = CertificateAuthority::open_or_create(&plane.folder().join("unskew-data/pki"), "ca").unwrap();
    gateway.client_with(certificate_credentials(
        &own.open_or_issue("jane", "jane", None, &CertificateUsage::Client).unwrap(),
    ))
}

/// Waits until the gateway reports, to an operator with a token, that it does not vouch for users to the upstream.
async fn wait_until_not_vouched(gateway: &RunningGateway, operator: &Client, reason: &str, advice: &str) {
    eventually("the upstream is not vouched for", async || {
        let report = operator.get("/debug/peers").await;
        let text = String::from_utf8_lossy(&report.body).into_owned();
        if text.contains(advice) { Ok(()) } else { Err(text) }
    })
    .await;
    let report = operator.get("/debug/peers").await.json();
    assert_eq!(report["members"][0]["state"], "live", "{report}");
    let metrics = String::from_utf8_lossy(&operator.get("/metrics").await.body).into_owned();
    let figure = format!("unskew_upstream_not_vouched{{reason=\"{reason}\",upstream=\"apiserver-");
    assert!(metrics.contains(&figure), "{metrics}");
    let page = operator.get("/readyz?verbose").await;
    let text = String::from_utf8_lossy(&page.body).into_owned();
    assert!(page.status == 500 && text.contains("[-]upstreams failed: none of 1") && text.contains(advice), "{text}");
    let page = gateway.client_with(ClientCredentials::Anonymous).get("/readyz?verbose").await;
    let text = String::from_utf8_lossy(&page.body).into_owned();
    assert!(page.status == 500 && text.contains("[-]upstreams failed: reason withheld"), "{text}");
    let log = gateway.log();
    assert!(log.contains("not vouching for users to an upstream") && log.contains(advice), "{log}");
}

/// Checks that certificate users reach an upstream that trusts `X-Other-User` only through a gateway that strips it.
async fn check_upstream_with_extra_header(
    plane: &ControlPlane<'_>,
    unaware: &RunningGateway,
    aware: &RunningGateway,
    operator: ClientCredentials,
) {
    let claim = [("x-other-user", "kubernetes-admin"), ("x-other-group", "system:masters")];
    let operator_at = |gateway: &RunningGateway| gateway.client_with(operator.clone());
    let claimed = whoami(&certificate_client(plane, unaware), &claim).await;
    assert!(
        !claimed.contains("kubernetes-admin"),
        "the forged header was trusted before the settings were read: {claimed}"
    );
    wait_until_not_vouched(
        unaware,
        &operator_at(unaware),
        "headers_differ",
        "its --requestheader-username-headers has X-Other-User, which the gateway does not remove",
    )
    .await;
    for client in [certificate_client(plane, unaware), unaware.admin()] {
        for headers in [&claim[..], &[]] {
            let answer = whoami(&client, headers).await;
            assert!(answer.starts_with("503 the API servers that can serve the request cannot be asked"), "{answer}");
        }
        let answer = client.get("/api/v1/namespaces").await;
        assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE, "{}", answer.summary());
    }
    // Tokens are authenticated by the upstream itself.
    let answer = operator_at(unaware).get("/api/v1/namespaces").await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.summary());
    for headers in [&claim[..], &[]] {
        assert_eq!(whoami(&certificate_client(plane, aware), headers).await, "jane [system:authenticated]");
    }
}

#[test]
fn upstream_with_extra_header_gets_no_certificate_users() {
    let plane = plane_with_extra_header();
    let unaware = RunningGateway::launch("unaware", &plane, &["odd"], &[]);
    let aware = RunningGateway::start("aware", &plane, &["odd"], &[MATCHING_HEADER_FLAG]);
    block_on(check_upstream_with_extra_header(&plane, &unaware, &aware, ClientCredentials::Token("secret".to_owned())));
}

/// Runs with `cargo xtask real`.
mod real {
    use cluster_tests::kube_apiserver::{KubeApiserver, KubeApiserverRelease};

    use super::*;

    #[test]
    fn kube_apiserver_with_extra_header_gets_no_certificate_users() {
        let etcd = Etcd::start();
        let mut plane = ControlPlane::new(TestStore::Sqlite);
        // This server only creates the certificates.
        plane.start("maker", &[]);
        plane.stop("maker");
        let tokens = plane.folder().join("tokens.csv");
        std::fs::write(&tokens, "secret,root,u1,system:masters\n").unwrap();
        let tokens = format!("--token-auth-file={}", tokens.display());
        // The flag is a list; this adds an entry.
        let flags = [tokens.as_str(), "--requestheader-username-headers=X-Other-User"];
        let real = KubeApiserver::start_stock(KubeApiserverRelease::New, plane.folder(), &etcd, &flags);
        let upstream = format!("--upstream=https://{}", real.admin().address());
        let unaware = RunningGateway::launch("unaware", &plane, &[], &[&upstream]);
        let aware = RunningGateway::launch("aware", &plane, &[], &[&upstream, MATCHING_HEADER_FLAG]);
        aware.wait_ready();
        block_on(check_upstream_with_extra_header(
            &plane,
            &unaware,
            &aware,
            ClientCredentials::Token("secret".to_owned()),
        ));
    }
}

#[test]
fn certificate_users_wait_until_settings_of_an_upstream_can_be_read() {
    let mut plane = ControlPlane::new(TestStore::Sqlite);
    let tokens = plane.folder().join("tokens.csv");
    std::fs::write(&tokens, "secret,root,u1,system:masters\n").unwrap();
    plane.start("one", &[PEER_PROXY_OFF, &format!("--token-auth-file={}", tokens.display())]);
    let admin = plane.admin("one");
    let deleted = block_on(admin.delete(READER_BINDING));
    assert_eq!(deleted.status, StatusCode::OK, "{}", deleted.summary());
    let gateway = RunningGateway::launch("gateway", &plane, &["one"], &[]);
    let operator = gateway.client_with(ClientCredentials::Token("secret".to_owned()));
    let jane = certificate_client(&plane, &gateway);
    block_on(async {
        wait_until_not_vouched(&gateway, &operator, "forbidden", "kubectl apply -f docs/deploy/gateway-rbac.yaml")
            .await;
        let refused = whoami(&jane, &[]).await;
        assert!(refused.starts_with("503 "), "{refused}");
        assert_eq!(operator.get("/api/v1/namespaces").await.status, StatusCode::OK);
        create_gateway_rbac(&operator).await;
        eventually("users are vouched for", async || match whoami(&jane, &[]).await {
            named if named == "jane [system:authenticated]" => Ok(()),
            other => Err(other),
        })
        .await;
    });
    gateway.wait_ready();
}
