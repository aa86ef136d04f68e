//! kubectl commands about tokens and access.

use cluster_tests::tools::{is_skipped, kubectl};

use super::*;

#[test]
fn kubectl_creates_a_token_that_authenticates() {
    if is_skipped("kubectl") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let server = start_on_sqlite(folder.path(), &[]);
    let kubeconfig = server.kubeconfig();
    let run = |args: &[&str]| kubectl(&kubeconfig, args).expect_success();
    run(&["create", "serviceaccount", "builder"]);
    run(&["create", "clusterrolebinding", "builder", "--clusterrole=view", "--serviceaccount=default:builder"]);
    let token = run(&["create", "token", "builder", "--duration=20m"]);
    let token = format!("--token={}", token.trim());
    // The kubeconfig's client certificate would take precedence over the token.
    let bare = kubeconfig.with_file_name("bare.kubeconfig");
    let ca = server.pki().join("ca.crt");
    let cluster = json!({"server": format!("https://{}", server.address()), "certificate-authority": ca});
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": cluster}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": {}}],
    });
    std::fs::write(&bare, config.to_string()).unwrap();
    let who = kubectl(&bare, &[&token, "auth", "whoami", "-o", "json"]).expect_success();
    let who: Value = serde_json::from_str(&who).unwrap();
    assert_eq!(who["status"]["userInfo"]["username"], "system:serviceaccount:default:builder");
    assert_eq!(kubectl(&bare, &[&token, "auth", "can-i", "list", "pods"]).expect_success().trim(), "yes");
    assert_eq!(kubectl(&bare, &[&token, "auth", "can-i", "delete", "pods"]).stdout.trim(), "no");
    let list = kubectl(&bare, &[&token, "auth", "can-i", "--list"]).expect_success();
    assert!(list.contains("selfsubjectreviews.authentication.k8s.io"), "{list}");
    assert!(list.lines().any(|line| line.starts_with("configmaps ") && line.contains("[get list watch]")), "{list}");
    assert!(kubectl(&bare, &[&token, "get", "configmaps", "-A"]).code == Some(0));
    run(&["delete", "serviceaccount", "builder"]);
    let started = Instant::now();
    while kubectl(&bare, &[&token, "version"]).code == Some(0) {
        assert!(
            started.elapsed() < Duration::from_secs(30),
            "the token of a deleted service account is still accepted"
        );
    }
}

#[test]
fn kubectl_impersonates_a_user() {
    if is_skipped("kubectl") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let server = start_on_sqlite(folder.path(), &[]);
    let kubeconfig = server.kubeconfig();
    let as_bob =
        |args: &[&str]| kubectl(&kubeconfig, &[&["--as=bob", "--as-group=devs", "--as-uid=u1"], args].concat());
    let who = as_bob(&["auth", "whoami"]).expect_success();
    assert!(who.contains("bob") && who.contains("devs") && who.contains("u1"), "{who}");
    assert_eq!(as_bob(&["auth", "can-i", "create", "pods"]).stdout.trim(), "no");
    let refused = as_bob(&["get", "pods"]).expect_failure();
    assert!(refused.contains(r#"User "bob" cannot list resource "pods""#), "{refused}");
}
