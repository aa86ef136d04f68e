//! Access reviews.

use super::*;

const AUTHORIZATION_PATH: &str = "/apis/authorization.k8s.io/v1";

#[test]
fn access_reviews_agree_with_authorization() {
    let folder = tempfile::tempdir().unwrap();
    let server = start_on_sqlite(folder.path(), &[]);
    let (admin, jane) = (server.admin(), server.client_with(issue_client_certificate(&server, "jane", None)));
    block_on(async {
        let rules = json!([{"verbs": ["get", "list"], "apiGroups": [""], "resources": ["configmaps"]}]);
        grant_cluster_role(&admin, &jane, "jane", &rules).await;
        let question = json!({"verb": "list", "resource": "configmaps", "namespace": "default"});
        let of_jane = json!({"spec": {"user": "jane", "resourceAttributes": question}});
        let asked = admin.create(&format!("{AUTHORIZATION_PATH}/subjectaccessreviews"), &of_jane).await.json();
        assert_eq!(asked["status"]["allowed"], true, "{asked}");
        let reason = "RBAC: allowed by ClusterRoleBinding \"jane\" of ClusterRole \"jane\" to User \"jane\"";
        assert_eq!(asked["status"]["reason"], reason);
        let local = format!("{AUTHORIZATION_PATH}/namespaces/default/localsubjectaccessreviews");
        assert_eq!(admin.create(&local, &of_jane).await.json()["status"]["allowed"], true);
        let elsewhere = format!("{AUTHORIZATION_PATH}/namespaces/kube-system/localsubjectaccessreviews");
        assert_eq!(admin.create(&elsewhere, &of_jane).await.status, 422, "the namespaces differ");

        let own = json!({"spec": {"nonResourceAttributes": {"verb": "get", "path": "/metrics"}}});
        let own = jane.create(&format!("{AUTHORIZATION_PATH}/selfsubjectaccessreviews"), &own).await.json();
        assert_eq!(own["status"]["allowed"], false);
        let rules = json!({"spec": {"namespace": "default"}});
        let rules = jane.create(&format!("{AUTHORIZATION_PATH}/selfsubjectrulesreviews"), &rules).await.json();
        let found = json!({"verbs": ["get", "list"], "apiGroups": [""], "resources": ["configmaps"]});
        assert!(rules["status"]["resourceRules"].as_array().unwrap().contains(&found), "{rules}");
        let refused = jane.create(&format!("{AUTHORIZATION_PATH}/subjectaccessreviews"), &of_jane).await;
        assert_eq!(refused.status, 403, "only self reviews are open to every user");
    });
}

#[test]
fn invalid_reviews_are_rejected_like_kubernetes() {
    let folder = tempfile::tempdir().unwrap();
    let server = start_on_sqlite(folder.path(), &[]);
    let admin = server.admin();
    block_on(async {
        let path = format!("{AUTHORIZATION_PATH}/subjectaccessreviews");
        assert_eq!(admin.create(&path, &json!({"spec": {}})).await.status, 422);
        assert_eq!(admin.create(&path, &json!({"kind": "Pod", "apiVersion": "v1"})).await.status, 400);
        assert_eq!(admin.create(&path, &json!({"spec": {"user": 7}})).await.status, 400);
        assert_eq!(admin.get(&path).await.status, 405);
        assert_eq!(admin.get(&format!("{path}/x")).await.status, 404);
        let tokens = "/apis/authentication.k8s.io/v1/tokenreviews";
        let empty = admin.create(tokens, &json!({})).await;
        assert_eq!(empty.summary(), "400 token is required for TokenReview in authentication");
        let yaml = "spec: {nonResourceAttributes: {verb: get, path: /healthz}}";
        let own = format!("{AUTHORIZATION_PATH}/selfsubjectaccessreviews");
        let answer = admin.send_body(Method::POST, &own, "application/yaml", yaml.into()).await;
        assert_eq!(answer.json()["status"]["allowed"], true, "{answer:?}");
    });
}
