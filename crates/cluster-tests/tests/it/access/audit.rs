//! Audit log contents.

use super::*;

const POLICY: &str = "
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: None
  nonResourceURLs: ['/readyz*', '/version']
- level: None
  users: [system:apiserver]
- level: Metadata
  resources:
  - group: ''
    resources: [secrets, serviceaccounts/token]
- level: Request
  verbs: [create, patch, delete]
- level: Metadata
";

fn read_audit_events(file: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn audit_log_records_requests_at_the_policy_level() {
    let folder = tempfile::tempdir().unwrap();
    let (policy, log) = (folder.path().join("policy.yaml"), folder.path().join("audit/log.json"));
    std::fs::write(&policy, POLICY).unwrap();
    let flags = [format!("--audit-policy-file={}", policy.display()), format!("--audit-log-path={}", log.display())];
    let server = start_on_sqlite(folder.path(), &[&flags[0], &flags[1]]);
    let admin = server.admin();
    block_on(async {
        admin.get("/version").await;
        let create = admin.request_builder(Method::POST, CONFIG_MAPS_PATH).header("content-type", "application/json");
        let created = admin.send(create.header("Audit-ID", "mine"), config_map("a").to_string().into()).await;
        assert_eq!(created.headers["audit-id"], "mine");
        admin
            .create("/api/v1/namespaces/default/secrets", &json!({"metadata": {"name": "s"}, "data": {"p": "eA=="}}))
            .await;
        let list = admin.request_builder(Method::GET, CONFIG_MAPS_PATH).header("Impersonate-User", "bob");
        let refused = admin.send(list, Bytes::new()).await;
        assert_eq!(refused.status, 403);
        server.client_with(ClientCredentials::Token("wrong".to_owned())).get(CONFIG_MAPS_PATH).await;
        let watch = admin.get(&format!("{CONFIG_MAPS_PATH}?watch=1&timeoutSeconds=1")).await;
        assert_eq!(watch.status, 200);
        let id = watch.headers["audit-id"].to_str().unwrap();
        wait_until(async || {
            read_audit_events(&log).iter().any(|event| event["auditID"] == id && event["stage"] == "ResponseComplete")
        })
        .await;
        assert!(admin.get("/nothing%zz").await.headers.contains_key("audit-id"), "every response has an id");
    });
    let events = read_audit_events(&log);
    let of = |verb: &str, resource: &str, stage: &str| -> &Value {
        let is_it = |event: &&Value| {
            event["verb"] == verb && event["objectRef"]["resource"] == resource && event["stage"] == stage
        };
        events.iter().find(is_it).unwrap_or_else(|| panic!("no {stage} of {verb} {resource}: {events:#?}"))
    };
    let created = of("create", "configmaps", "ResponseComplete");
    assert_eq!(created["auditID"], "mine");
    assert_eq!(created["user"]["username"], "kubernetes-admin");
    assert_eq!(created["requestObject"]["data"], json!({"a": "1"}));
    assert_eq!((&created["objectRef"]["name"], &created["responseStatus"]["code"]), (&json!("a"), &json!(201)));
    assert_eq!(created["annotations"]["authorization.k8s.io/decision"], "allow");
    let secret = of("create", "secrets", "ResponseComplete");
    assert!(secret["requestObject"].is_null() && secret["objectRef"]["name"] == "s", "{secret}");
    let refused = events.iter().find(|event| event["impersonatedUser"]["username"] == "bob").unwrap();
    assert_eq!(refused["user"]["username"], "kubernetes-admin");
    assert_eq!(refused["annotations"]["authorization.k8s.io/decision"], "forbid");
    assert_eq!(refused["responseStatus"]["reason"], "Forbidden");
    let anonymous = events.iter().find(|event| event["responseStatus"]["code"] == 401).unwrap();
    assert_eq!((&anonymous["stage"], &anonymous["user"]), (&json!("ResponseStarted"), &json!({})));
    assert_eq!(of("watch", "configmaps", "ResponseStarted")["responseStatus"]["code"], 200);
    assert!(!events.iter().any(|event| event["requestURI"] == "/version"), "the policy excludes /version");
}

#[test]
fn invalid_audit_policy_is_rejected_at_start() {
    let folder = tempfile::tempdir().unwrap();
    let policy = folder.path().join("policy.yaml");
    std::fs::write(&policy, "kind: Policy\napiVersion: audit.k8s.io/v1\nrules: [{level: Everything}]\n").unwrap();
    let mut command = std::process::Command::new(cluster_tests::tools::unskew_binary());
    command.current_dir(folder.path()).args(["serve", "--secure-port=0", "--audit-log-path=-"]);
    command.arg(format!("--audit-policy-file={}", policy.display()));
    let refused = cluster_tests::process::run_command(command, Duration::from_secs(30));
    assert_eq!(refused.code, Some(64), "{refused:?}");
    assert!(
        refused.stderr.contains("--audit-policy-file") && refused.stderr.contains("Everything"),
        "{}",
        refused.stderr
    );
}
