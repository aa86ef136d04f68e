//! User identities through a gateway: passed on unchanged, and never forged.

use cluster_tests::client::ClientCredentials;
use transport::pki::{CertificateAuthority, CertificateUsage};

use super::*;
use crate::access::{CLUSTER_ROLES, certificate_credentials, issue_expiring_in, post_with_headers, whoami};

/// Sends enough requests to reach every upstream and joins the distinct results.
async fn whoami_on_all_upstreams(client: &Client, headers: &[(&str, &str)]) -> String {
    let mut answers = std::collections::BTreeSet::new();
    for _ in 0..4 {
        answers.insert(whoami(client, headers).await);
    }
    answers.into_iter().collect::<Vec<_>>().join(" and ")
}

#[test]
fn upstreams_see_the_authenticated_user() {
    let mut plane = ControlPlane::new(TestStore::Sqlite);
    let tokens = plane.folder().join("tokens.csv");
    std::fs::write(&tokens, "secret,alice,u1,devs\n").unwrap();
    let tokens = format!("--token-auth-file={}", tokens.display());
    plane.start("old", &[OLD_FLAGS[0], PEER_PROXY_OFF, &tokens]);
    plane.start("new", &[NEW_FLAGS[0], PEER_PROXY_OFF, &tokens]);
    let gateway = RunningGateway::start("gateway", &plane, &["old", "new"], &[]);
    let pki = plane.server("old").pki();
    let own = CertificateAuthority::open_or_create(&pki, "ca").unwrap();
    let jane = gateway.client_with(certificate_credentials(
        &own.open_or_issue("jane", "jane", Some("devs"), &CertificateUsage::Client).unwrap(),
    ));
    let (admin, anonymous) = (gateway.admin(), gateway.client_with(ClientCredentials::Anonymous));
    let alice = gateway.client_with(ClientCredentials::Token("secret".to_owned()));
    block_on(async {
        assert_eq!(whoami_on_all_upstreams(&jane, &[]).await, "jane [devs system:authenticated]");
        assert_eq!(whoami_on_all_upstreams(&alice, &[]).await, "alice [devs system:authenticated]");
        let users = whoami_on_all_upstreams(&anonymous, &[]).await;
        assert!(users.starts_with("403 ") && users.contains("system:anonymous"), "{users}");
        assert!(!users.contains(" and 4"), "{users}");
        let as_joe = [("impersonate-user", "joe"), ("impersonate-group", "cooks")];
        assert_eq!(whoami_on_all_upstreams(&admin, &as_joe).await, "joe [cooks system:authenticated]");
        let refused = whoami_on_all_upstreams(&jane, &as_joe).await;
        assert!(refused.starts_with("403 ") && refused.contains("cannot impersonate"), "{refused}");

        let accounts = "/api/v1/namespaces/default/serviceaccounts";
        admin.create(accounts, &serde_json::json!({"metadata": {"name": "builder"}})).await;
        let token = admin.create(&format!("{accounts}/builder/token"), &serde_json::json!({"spec": {}})).await.json();
        let token = token["status"]["token"].as_str().unwrap().to_owned();
        let builder = whoami_on_all_upstreams(&gateway.client_with(ClientCredentials::Token(token)), &[]).await;
        assert!(builder.starts_with("system:serviceaccount:default:builder ["), "{builder}");

        // A certificate takes precedence over a token.
        assert_eq!(whoami(&jane, &[("authorization", "Bearer secret")]).await, "jane [devs system:authenticated]");
    });
}

#[test]
fn forged_identities_are_rejected() {
    let mut plane = ControlPlane::new(TestStore::Sqlite);
    let tokens = plane.folder().join("tokens.csv");
    std::fs::write(&tokens, "secret,alice,u1\n").unwrap();
    plane.start("old", &[OLD_FLAGS[0], PEER_PROXY_OFF, &format!("--token-auth-file={}", tokens.display())]);
    let gateway = RunningGateway::start("gateway", &plane, &["old"], &[]);
    let pki = plane.server("old").pki();
    let foreign = CertificateAuthority::open_or_create(&plane.folder().join("foreign"), "ca").unwrap();
    let mallory =
        foreign.open_or_issue("m", "kubernetes-admin", Some("system:masters"), &CertificateUsage::Client).unwrap();
    let mallory = gateway.client_with(certificate_credentials(&mallory));
    let expired = gateway.client_with(issue_expiring_in(&pki, "jane", 2025));
    let anonymous = gateway.client_with(ClientCredentials::Anonymous);
    let front = CertificateAuthority::open_or_create(&pki, "front-proxy-ca").unwrap();
    let front =
        front.open_or_issue("front-proxy-client", "front-proxy-client", None, &CertificateUsage::Client).unwrap();
    let front = gateway.client_with(certificate_credentials(&front));
    block_on(async {
        let claims =
            [("x-remote-user", "root"), ("x-remote-group", "system:masters"), ("x-kubernetes-peer-proxied", "true")];
        let refused = whoami(&anonymous, &claims).await;
        assert!(refused.contains("system:anonymous"), "{refused}");
        let claimed = [("authorization", "Bearer secret"), claims[0], claims[1]];
        assert_eq!(whoami(&anonymous, &claimed).await, "alice [system:authenticated]");
        for client in [&mallory, &expired, &front] {
            assert_eq!(whoami(client, &[]).await, "401 Unauthorized");
            assert_eq!(whoami(client, &claims).await, "401 Unauthorized");
            // A valid token counts, and the claimed headers are ignored.
            assert_eq!(whoami(client, &claimed).await, "alice [system:authenticated]");
        }
        let wrong = whoami(&anonymous, &[("authorization", "Bearer wrong")]).await;
        assert_eq!(wrong, "401 Unauthorized");
    });
}

#[test]
fn gateway_works_with_one_ca_for_users_and_front_proxies() {
    let mut plane = ControlPlane::new(TestStore::Sqlite);
    plane.start("first", &[PEER_PROXY_OFF]);
    plane.stop("first");
    let pki = plane.folder().join("unskew-data/pki");
    let own = CertificateAuthority::open_or_create(&pki, "ca").unwrap();
    own.open_or_issue("proxy", "gateway-proxy", None, &CertificateUsage::Client).unwrap();
    let file = |flag: &str, name: &str| format!("--{flag}={}", pki.join(name).display());
    let flags = [
        file("requestheader-client-ca-file", "ca.crt"),
        "--requestheader-allowed-names=gateway-proxy".to_owned(),
        "--requestheader-username-headers=X-Person,X-Remote-User".to_owned(),
        "--requestheader-group-headers=X-Remote-Group".to_owned(),
        "--requestheader-extra-headers-prefix=X-Remote-Extra-".to_owned(),
        PEER_PROXY_OFF.to_owned(),
    ];
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    plane.start("first", &flags);
    let ours = [file("proxy-client-cert-file", "proxy.crt"), file("proxy-client-key-file", "proxy.key")];
    // The upstream reads one more header, which is configured at the gateway.
    let named = "--requestheader-username-headers=X-Person";
    let gateway = RunningGateway::start("gateway", &plane, &["first"], &[&ours[0], &ours[1], named]);
    let jane = certificate_credentials(&own.open_or_issue("jane", "jane", None, &CertificateUsage::Client).unwrap());
    block_on(async {
        let jane = gateway.client_with(jane);
        assert_eq!(whoami(&jane, &[]).await, "jane [system:authenticated]");
        assert_eq!(whoami(&jane, &[("x-person", "root")]).await, "jane [system:authenticated]");
        let admin = whoami(&gateway.admin(), &[]).await;
        assert_eq!(admin, "kubernetes-admin [system:masters system:authenticated]");
        let anonymous = whoami(&gateway.client_with(ClientCredentials::Anonymous), &[]).await;
        assert!(anonymous.contains("system:anonymous"), "{anonymous}");
    });
}

#[test]
fn gateway_pages_require_permission_of_the_upstream() {
    let plane = start_two_stock_servers(TestStore::Sqlite);
    let gateway = RunningGateway::start("gateway", &plane, &["old", "new"], &[]);
    let own = CertificateAuthority::open_or_create(&plane.server("old").pki(), "ca").unwrap();
    let [jane, joe] = ["jane", "joe"].map(|name| {
        gateway.client_with(certificate_credentials(
            &own.open_or_issue(name, name, None, &CertificateUsage::Client).unwrap(),
        ))
    });
    let (admin, anonymous) = (gateway.admin(), gateway.client_with(ClientCredentials::Anonymous));
    block_on(async {
        for page in ["/metrics", "/debug/peers"] {
            assert_eq!(admin.get(page).await.status, StatusCode::OK, "{page}");
            let refused = jane.get(page).await;
            assert_eq!(refused.summary(), format!("403 forbidden: User \"jane\" cannot get path \"{page}\""));
            assert_eq!(anonymous.get(page).await.status, StatusCode::FORBIDDEN, "{page}");
        }
        let metrics = String::from_utf8_lossy(&admin.get("/metrics").await.body).into_owned();
        let name = format!("unskew_upstream_ready{{upstream=\"apiserver-{}\"}} 1", plane.address("old"));
        assert!(metrics.contains(&name), "{metrics}");
        // Every authenticated user may read discovery.
        assert_eq!(
            get_accepting(&jane, "/apis", MERGED_DISCOVERY_ACCEPT).await.body,
            get_accepting(&admin, "/apis", MERGED_DISCOVERY_ACCEPT).await.body
        );
        assert_eq!(get_accepting(&anonymous, "/apis", MERGED_DISCOVERY_ACCEPT).await.status, StatusCode::FORBIDDEN);
        for page in ["/healthz", "/livez", "/readyz", "/version"] {
            assert_eq!(anonymous.get(page).await.status, StatusCode::OK, "{page}");
        }
        // The gateway asks the upstream again, so a new right takes effect.
        let role = serde_json::json!({
            "metadata": {"name": "joe"},
            "rules": [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}],
        });
        assert_eq!(admin.create(CLUSTER_ROLES, &role).await.status, StatusCode::CREATED);
        let binding = serde_json::json!({
            "metadata": {"name": "joe"}, "roleRef": {"kind": "ClusterRole", "name": "joe"},
            "subjects": [{"kind": "User", "name": "joe"}],
        });
        let bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
        assert_eq!(post_with_headers(&admin, bindings, &binding, &[]).await.status, StatusCode::CREATED);
        cluster_tests::wait::eventually("joe may read metrics", async || match joe.get("/metrics").await.status {
            StatusCode::OK => Ok(()),
            other => Err(other.to_string()),
        })
        .await;
    });
}

#[test]
fn readyz_shows_upstream_addresses_to_readers_of_debug_peers_only() {
    let mut plane = start_two_stock_servers(TestStore::Sqlite);
    let gateway = RunningGateway::start("gateway", &plane, &["old", "new"], &[]);
    let own = CertificateAuthority::open_or_create(&plane.server("old").pki(), "ca").unwrap();
    let jane = gateway.client_with(certificate_credentials(
        &own.open_or_issue("jane", "jane", None, &CertificateUsage::Client).unwrap(),
    ));
    let (admin, anonymous) = (gateway.admin(), gateway.client_with(ClientCredentials::Anonymous));
    let unknown_token = gateway.client_with(ClientCredentials::Token("unknown".to_owned()));
    let page = async |client: &Client, path: &str| {
        let answer = client.get(path).await;
        format!("{} {}", answer.status.as_u16(), String::from_utf8_lossy(&answer.body))
    };
    let public = "200 [+]ping ok\n[+]upstreams-heard ok\n[+]upstreams ok\n[+]shutdown ok\nreadyz check passed\n";
    plane.kill("new");
    let suspect = format!("apiserver-{} is suspect", plane.address("new"));
    block_on(async {
        cluster_tests::wait::eventually("the page names the upstream that is down", async || {
            let shown = page(&admin, "/readyz?verbose").await;
            if shown.contains("1 of 2 upstreams are ready") && shown.contains(&suspect) { Ok(()) } else { Err(shown) }
        })
        .await;
        for client in [&anonymous, &jane, &unknown_token] {
            assert_eq!(page(client, "/readyz?verbose").await, public);
            assert_eq!(page(client, "/readyz").await, "200 ok");
            assert_eq!(page(client, "/readyz/upstreams").await, "200 ok");
        }
    });
    plane.kill("old");
    block_on(async {
        let failing = "500 [+]ping ok\n[+]upstreams-heard ok\n[-]upstreams failed: reason withheld\n[+]shutdown ok\n\
                       readyz check failed\n";
        cluster_tests::wait::eventually("no upstream is ready", async || {
            let shown = page(&anonymous, "/readyz").await;
            if shown == failing { Ok(()) } else { Err(shown) }
        })
        .await;
        for client in [&anonymous, &jane, &unknown_token] {
            assert_eq!(page(client, "/readyz?verbose").await, failing);
            let single = page(client, "/readyz/upstreams").await;
            assert_eq!(single, "500 internal server error: reason withheld\n");
            assert_eq!(page(client, "/livez?verbose").await, "200 [+]ping ok\nlivez check passed\n");
        }
    });
}
