//! Who is let in, and as whom.

use cluster_tests::client::Identity;
use http::Method;
use transport::pki::{Authority, Pair, Purpose};

use super::*;

fn certificate(pair: &Pair) -> Identity {
    Identity::Certificate { certificate: pair.certificate.clone(), key: pair.key.clone() }
}

#[test]
fn strangers_see_health_and_version_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let server = on_sqlite(folder.path(), &[]);
    let nobody = server.client(Identity::Nobody);
    block_on(async {
        for page in ["/healthz", "/livez", "/readyz", "/version"] {
            assert_eq!(nobody.get(page).await.status, 200, "{page}");
        }
        let refused = nobody.get("/api/v1/namespaces").await;
        assert_eq!(
            refused.brief(),
            "403 namespaces is forbidden: User \"system:anonymous\" cannot list resource \"namespaces\" in API group \
             \"\" at the cluster scope"
        );
        assert_eq!(nobody.get("/metrics").await.status, 403);
    });
}

#[test]
fn a_foreign_certificate_is_a_401_and_not_a_broken_connection() {
    let folder = tempfile::tempdir().unwrap();
    let server = on_sqlite(folder.path(), &[]);
    let foreign = Authority::open(&folder.path().join("foreign"), "ca").unwrap();
    let pair = foreign.issue("mallory", "kubernetes-admin", Some("system:masters"), &Purpose::Client).unwrap();
    block_on(async {
        let refused = server.client(certificate(&pair)).get("/api/v1/namespaces").await;
        assert_eq!(refused.brief(), "401 Unauthorized");
    });
}

#[test]
fn a_user_may_do_what_bindings_grant_as_soon_as_they_do_and_no_longer() {
    let folder = tempfile::tempdir().unwrap();
    let server = on_sqlite(folder.path(), &[]);
    let own = Authority::open(&server.pki(), "ca").unwrap();
    let jane = server.client(certificate(&own.issue("jane", "jane", Some("devs"), &Purpose::Client).unwrap()));
    let admin = server.admin();
    block_on(async {
        assert_eq!(jane.get(CONFIG_MAPS).await.status, 403);
        let bindings = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings";
        let binding = json!({
            "metadata": {"name": "devs"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
            "subjects": [{"kind": "Group", "name": "devs", "apiGroup": "rbac.authorization.k8s.io"}],
        });
        assert_eq!(admin.create(bindings, &binding).await.status, 201);
        wait_for(async || jane.get(CONFIG_MAPS).await.status == 200).await;
        assert_eq!(jane.get("/api/v1/namespaces/kube-system/configmaps").await.status, 403);
        assert_eq!(jane.create(CONFIG_MAPS, &config_map("a")).await.status, 403);
        admin.delete(&format!("{bindings}/devs")).await;
        wait_for(async || jane.get(CONFIG_MAPS).await.status == 403).await;
    });
}

#[test]
fn what_only_a_front_proxy_may_say_is_not_believed_from_anybody_else() {
    let folder = tempfile::tempdir().unwrap();
    let server = on_sqlite(folder.path(), &[]);
    let own = Authority::open(&server.pki(), "ca").unwrap();
    let jane = server.client(certificate(&own.issue("jane", "jane", None, &Purpose::Client).unwrap()));
    for client in [jane, server.client(Identity::Nobody)] {
        block_on(async {
            let spoofed = client
                .request(Method::GET, CONFIG_MAPS)
                .header("x-remote-user", "kubernetes-admin")
                .header("x-remote-group", "system:masters")
                .header("x-kubernetes-peer-proxied", "true");
            assert_eq!(client.send(spoofed, bytes::Bytes::new()).await.status, 403);
        });
    }
}

/// What another task does soon is waited for, not slept for.
async fn wait_for(mut condition: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !condition().await {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(30), waiting).await.expect("it comes about in time");
}
