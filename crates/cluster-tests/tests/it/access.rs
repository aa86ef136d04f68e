//! Authentication and authorization.

mod access_matrix;
mod audit;
mod bootstrap;
mod certificates;
mod device_claims;
mod front_proxy;
mod impersonation;
mod kubectl;
mod rbac;
mod request_cancellation;
mod reviews;
mod scope;
mod signing_requests;
mod tokens;

use std::time::{Duration, Instant};

use bytes::Bytes;
use cluster_tests::client::{ClientCredentials, FullResponse};
use http::Method;
use transport::pki::{CertificateAuthority, CertificateFiles, CertificateUsage};

use super::*;

pub(crate) fn certificate_credentials(pair: &CertificateFiles) -> ClientCredentials {
    ClientCredentials::Certificate { certificate: pair.certificate.clone(), key: pair.key.clone() }
}

#[test]
fn anonymous_reads_only_health_and_version() {
    let folder = tempfile::tempdir().unwrap();
    let server = start_on_sqlite(folder.path(), &[]);
    let anonymous = server.client_with(ClientCredentials::Anonymous);
    block_on(async {
        for page in ["/healthz", "/livez", "/readyz", "/version"] {
            assert_eq!(anonymous.get(page).await.status, 200, "{page}");
        }
        let refused = anonymous.get("/api/v1/namespaces").await;
        assert_eq!(
            refused.summary(),
            "403 namespaces is forbidden: User \"system:anonymous\" cannot list resource \"namespaces\" in API group \
             \"\" at the cluster scope"
        );
        assert_eq!(anonymous.get("/metrics").await.status, 403);
    });
}

#[test]
fn certificate_of_foreign_ca_is_unauthorized() {
    let folder = tempfile::tempdir().unwrap();
    let server = start_on_sqlite(folder.path(), &[]);
    let foreign = CertificateAuthority::open_or_create(&folder.path().join("foreign"), "ca").unwrap();
    let pair = foreign
        .open_or_issue("mallory", "kubernetes-admin", Some("system:masters"), &CertificateUsage::Client)
        .unwrap();
    block_on(async {
        let refused = server.client_with(certificate_credentials(&pair)).get("/api/v1/namespaces").await;
        assert_eq!(refused.summary(), "401 Unauthorized");
    });
}

#[test]
fn role_binding_takes_effect_and_ends_without_restart() {
    let folder = tempfile::tempdir().unwrap();
    let server = start_on_sqlite(folder.path(), &[]);
    let jane = server.client_with(issue_client_certificate(&server, "jane", Some("devs")));
    let admin = server.admin();
    block_on(async {
        assert_eq!(jane.get(CONFIG_MAPS_PATH).await.status, 403);
        let bindings = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings";
        let binding = json!({
            "metadata": {"name": "devs"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
            "subjects": [{"kind": "Group", "name": "devs", "apiGroup": "rbac.authorization.k8s.io"}],
        });
        assert_eq!(admin.create(bindings, &binding).await.status, 201);
        wait_until(async || jane.get(CONFIG_MAPS_PATH).await.status == 200).await;
        assert_eq!(jane.get("/api/v1/namespaces/kube-system/configmaps").await.status, 403);
        assert_eq!(jane.create(CONFIG_MAPS_PATH, &config_map("a")).await.status, 403);
        admin.delete(&format!("{bindings}/devs")).await;
        wait_until(async || jane.get(CONFIG_MAPS_PATH).await.status == 403).await;
    });
}

#[test]
fn expired_certificate_is_unauthorized() {
    let folder = tempfile::tempdir().unwrap();
    let server = start_on_sqlite(folder.path(), &[]);
    let [current, expired] = [2100, 2025].map(|year| issue_expiring_in(&server.pki(), "jane", year));
    block_on(async {
        assert_eq!(server.client_with(current).get("/version").await.status, 200);
        assert_eq!(server.client_with(expired).get("/version").await.summary(), "401 Unauthorized");
    });
}

/// Issues a client certificate of the server's CA that expires at the end of `year`.
pub(crate) fn issue_expiring_in(pki: &Path, name: &str, year: i32) -> ClientCredentials {
    let authority = std::fs::read_to_string(pki.join("ca.key")).unwrap();
    let mut parameters = rcgen::CertificateParams::default();
    parameters.distinguished_name = rcgen::DistinguishedName::new();
    parameters.distinguished_name.push(rcgen::DnType::CommonName, "unskew-ca");
    let issuer = rcgen::Issuer::new(parameters.clone(), rcgen::KeyPair::from_pem(&authority).unwrap());
    parameters.distinguished_name.push(rcgen::DnType::CommonName, name);
    parameters.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
    parameters.not_before = rcgen::date_time_ymd(2024, 1, 1);
    parameters.not_after = rcgen::date_time_ymd(year, 12, 31);
    let key = rcgen::KeyPair::generate().unwrap();
    let signed = parameters.signed_by(&key, &issuer).unwrap();
    let [certificate, key_file] = ["crt", "key"].map(|ending| pki.join(format!("{name}-{year}.{ending}")));
    std::fs::write(&certificate, signed.pem()).unwrap();
    std::fs::write(&key_file, key.serialize_pem()).unwrap();
    ClientCredentials::Certificate { certificate, key: key_file }
}

/// Polls a condition for up to 30 s and returns how long it took.
async fn wait_until(mut condition: impl AsyncFnMut() -> bool) -> Duration {
    let started = Instant::now();
    let waiting = async {
        while !condition().await {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), waiting).await.expect("the condition holds in time");
    started.elapsed()
}

/// User name and groups of a client according to a SelfSubjectReview, or the error.
pub(crate) async fn whoami(client: &Client, headers: &[(&str, &str)]) -> String {
    let answer =
        post_with_headers(client, "/apis/authentication.k8s.io/v1/selfsubjectreviews", &json!({}), headers).await;
    if answer.status != 201 {
        return answer.summary();
    }
    let user = &answer.json()["status"]["userInfo"];
    let groups: Vec<&str> = user["groups"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    format!("{} [{}]", user["username"].as_str().unwrap_or_default(), groups.join(" "))
}

pub(crate) async fn post_with_headers(
    client: &Client,
    path: &str,
    body: &Value,
    headers: &[(&str, &str)],
) -> FullResponse {
    let mut request = client.request_builder(Method::POST, path).header("content-type", "application/json");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    client.send(request, Bytes::from(body.to_string())).await
}

/// Issues a client certificate of the server's CA.
fn issue_client_certificate(server: &RunningServer, name: &str, group: Option<&str>) -> ClientCredentials {
    let own = CertificateAuthority::open_or_create(&server.pki(), "ca").unwrap();
    certificate_credentials(&own.open_or_issue(name, name, group, &CertificateUsage::Client).unwrap())
}

pub(crate) const CLUSTER_ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
const CLUSTER_ROLE_BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";

/// Grants a user these rules by a ClusterRole and binding of the same name, and waits until they are in effect.
pub(crate) async fn grant_cluster_role(admin: &Client, user: &Client, name: &str, rules: &Value) {
    let role = json!({"metadata": {"name": name}, "rules": rules});
    assert_eq!(admin.create(CLUSTER_ROLES, &role).await.status, 201);
    let binding = json!({
        "metadata": {"name": name},
        "roleRef": {"kind": "ClusterRole", "name": name},
        "subjects": [{"kind": "User", "name": name}],
    });
    assert_eq!(admin.create(CLUSTER_ROLE_BINDINGS, &binding).await.status, 201);
    let rule = &rules[0];
    let question = json!({"spec": {"resourceAttributes": {
        "verb": rule["verbs"][0], "group": rule["apiGroups"][0], "resource": rule["resources"][0],
        "name": rule["resourceNames"][0].as_str().unwrap_or_default(),
    }}});
    let reviews = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    wait_until(async || user.create(reviews, &question).await.json()["status"]["allowed"] == true).await;
}
