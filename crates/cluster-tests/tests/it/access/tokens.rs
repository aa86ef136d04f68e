//! Tokens: from a token file, and of service accounts, which end with their account or bound object.

use super::*;

const SERVICE_ACCOUNTS_PATH: &str = "/api/v1/namespaces/default/serviceaccounts";

async fn create_service_account(admin: &Client, name: &str) {
    let created = admin.create(SERVICE_ACCOUNTS_PATH, &json!({"metadata": {"name": name}})).await;
    assert_eq!(created.status, 201, "{created:?}");
}

async fn create_token(admin: &Client, name: &str, spec: &Value) -> String {
    let made = admin.create(&format!("{SERVICE_ACCOUNTS_PATH}/{name}/token"), &json!({"spec": spec})).await;
    assert_eq!(made.status, 201, "{made:?}");
    made.json()["status"]["token"].as_str().unwrap().to_owned()
}

#[test]
fn service_account_token_is_valid_until_the_account_is_deleted() {
    for_each_store(|server| {
        let admin = server.admin();
        block_on(async {
            create_service_account(&admin, "builder").await;
            let token = create_token(&admin, "builder", &json!({})).await;
            let builder = server.client_with(ClientCredentials::Token(token));
            let expected = "system:serviceaccount:default:builder \
                            [system:serviceaccounts system:serviceaccounts:default system:authenticated]";
            assert_eq!(whoami(&builder, &[]).await, expected);
            assert_eq!(builder.get(CONFIG_MAPS_PATH).await.status, 403, "the account has no rights yet");
            admin.delete(&format!("{SERVICE_ACCOUNTS_PATH}/builder")).await;
            let took = wait_until(async || builder.get("/version").await.status == 401).await;
            println!("refused {took:?} after the account was deleted");
            create_service_account(&admin, "builder").await;
            assert_eq!(
                whoami(&builder, &[]).await,
                "401 Unauthorized",
                "a new account of the same name has another uid"
            );
        });
    });
}

#[test]
fn token_is_valid_and_revoked_on_all_servers() {
    let folder = tempfile::tempdir().unwrap();
    let servers: Vec<RunningServer> = (0..3).map(|_| start_on_sqlite(folder.path(), &[])).collect();
    let admin = servers[0].admin();
    block_on(async {
        for round in 0..20 {
            let name = format!("a{round}");
            create_service_account(&admin, &name).await;
            let token = create_token(&admin, &name, &json!({})).await;
            let clients: Vec<Client> =
                servers.iter().map(|server| server.client_with(ClientCredentials::Token(token.clone()))).collect();
            for client in &clients {
                assert_eq!(client.get("/version").await.status, 200, "round {round}");
            }
            admin.delete(&format!("{SERVICE_ACCOUNTS_PATH}/{name}")).await;
            let mut slowest = Duration::ZERO;
            for client in &clients {
                slowest = slowest.max(wait_until(async || client.get("/version").await.status == 401).await);
            }
            println!("refused by all {slowest:?} after the account was deleted");
        }
    });
}

#[test]
fn bound_token_is_revoked_with_its_bound_object() {
    let folder = tempfile::tempdir().unwrap();
    let server = start_on_sqlite(folder.path(), &[]);
    let admin = server.admin();
    block_on(async {
        create_service_account(&admin, "x").await;
        let secrets = "/api/v1/namespaces/default/secrets";
        let secret = admin.create(secrets, &json!({"metadata": {"name": "s"}})).await.json();
        let uid = secret["metadata"]["uid"].as_str().unwrap();
        let bound =
            |uid: &str| json!({"boundObjectRef": {"kind": "Secret", "apiVersion": "v1", "name": "s", "uid": uid}});
        let other = admin.create(&format!("{SERVICE_ACCOUNTS_PATH}/x/token"), &json!({"spec": bound("not-it")})).await;
        assert_eq!(other.status, 409, "{other:?}");
        let client = server.client_with(ClientCredentials::Token(create_token(&admin, "x", &bound(uid)).await));
        assert_eq!(client.get("/version").await.status, 200);
        admin.delete(&format!("{secrets}/s")).await;
        wait_until(async || client.get("/version").await.status == 401).await;
    });
}

#[test]
fn token_is_valid_for_its_audience_only() {
    let folder = tempfile::tempdir().unwrap();
    let server = start_on_sqlite(folder.path(), &[]);
    let admin = server.admin();
    block_on(async {
        create_service_account(&admin, "x").await;
        let token = create_token(&admin, "x", &json!({"audiences": ["vault"], "expirationSeconds": 600})).await;
        assert_eq!(whoami(&server.client_with(ClientCredentials::Token(token.clone())), &[]).await, "401 Unauthorized");
        let review = async |spec: Value| {
            let answer = admin.create("/apis/authentication.k8s.io/v1/tokenreviews", &json!({"spec": spec})).await;
            assert_eq!(answer.status, 201, "{answer:?}");
            answer.json()["status"].clone()
        };
        let good = review(json!({"token": token, "audiences": ["vault", "other"]})).await;
        assert_eq!((&good["authenticated"], &good["audiences"]), (&json!(true), &json!(["vault"])), "{good}");
        assert_eq!(good["user"]["username"], "system:serviceaccount:default:x");
        let bad = review(json!({"token": token})).await;
        assert!(bad["authenticated"].is_null() && bad["error"].as_str().unwrap().contains("audiences"), "{bad}");
        let unknown = review(json!({"token": "x.y.z"})).await;
        assert!(unknown["authenticated"].is_null(), "{unknown}");

        let missing = admin.create(&format!("{SERVICE_ACCOUNTS_PATH}/none/token"), &json!({})).await;
        assert_eq!(missing.summary(), "404 serviceaccounts \"none\" not found");
        let short =
            admin.create(&format!("{SERVICE_ACCOUNTS_PATH}/x/token"), &json!({"spec": {"expirationSeconds": 1}})).await;
        assert_eq!(short.status, 422, "{short:?}");
    });
}

#[test]
fn published_jwks_holds_the_token_signing_key() {
    let folder = tempfile::tempdir().unwrap();
    let server = start_on_sqlite(folder.path(), &[]);
    let admin = server.admin();
    block_on(async {
        let configuration = admin.get("/.well-known/openid-configuration").await.json();
        assert_eq!(configuration["issuer"], "https://kubernetes.default.svc.cluster.local");
        assert_eq!(configuration["jwks_uri"], format!("https://{}/openid/v1/jwks", server.address()));
        let keys = admin.get("/openid/v1/jwks").await;
        assert_eq!(keys.headers["content-type"], "application/jwk-set+json");
        let id = keys.json()["keys"][0]["kid"].as_str().unwrap().to_owned();
        create_service_account(&admin, "x").await;
        let token = create_token(&admin, "x", &json!({})).await;
        let python = "import base64, json, sys; head = sys.argv[1].split('.')[0]; \
                      print(json.loads(base64.urlsafe_b64decode(head + '=' * (-len(head) % 4)))['kid'])";
        if !cluster_tests::tools::is_skipped("python") {
            let named = cluster_tests::tools::python(python, &[&token]).expect_success();
            assert_eq!(named.trim(), id);
        }
    });
}

#[test]
fn configured_keys_sign_and_verify_tokens() {
    let folder = tempfile::tempdir().unwrap();
    let keys = ["old.key", "new.key"].map(|name| folder.path().join(name));
    for key in &keys {
        transport::pki::ensure_signing_key(key).unwrap();
    }
    let [old, new] = keys.map(|key| key.display().to_string());
    let start = |signing: &str| {
        start_on_sqlite(
            folder.path(),
            &[
                &format!("--service-account-signing-key-file={signing}"),
                &format!("--service-account-key-file={old},{new}"),
                "--service-account-issuer=https://issuer.example",
                "--api-audiences=here,there",
            ],
        )
    };
    let first = start(&old);
    let made = block_on(async {
        create_service_account(&first.admin(), "x").await;
        create_token(&first.admin(), "x", &json!({"audiences": ["there"]})).await
    });
    first.stop();
    let second = start(&new);
    block_on(async {
        let client = second.client_with(ClientCredentials::Token(made));
        assert_eq!(client.get("/version").await.status, 200, "the old key still verifies");
        let keys = second.admin().get("/openid/v1/jwks").await.json();
        assert_eq!(keys["keys"].as_array().unwrap().len(), 2);
    });
}

#[test]
fn token_file_is_reloaded_when_it_changes() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tokens.csv");
    std::fs::write(&file, "t1,alice,u1,\"devs,ops\"\n").unwrap();
    let server = start_on_sqlite(folder.path(), &[&format!("--token-auth-file={}", file.display())]);
    let [first, second] = ["t1", "t2"].map(|token| server.client_with(ClientCredentials::Token(token.to_owned())));
    block_on(async {
        assert_eq!(whoami(&first, &[]).await, "alice [devs ops system:authenticated]");
        assert_eq!(whoami(&second, &[]).await, "401 Unauthorized");
        std::fs::write(&file, "t2,bob,u2\n").unwrap();
        wait_until(async || second.get("/version").await.status == 200).await;
        assert_eq!(whoami(&second, &[]).await, "bob [system:authenticated]");
        assert_eq!(whoami(&first, &[]).await, "401 Unauthorized");
    });
}

#[test]
fn unreadable_token_or_key_file_is_named_in_the_error() {
    let folder = tempfile::tempdir().unwrap();
    for flag in ["--token-auth-file", "--service-account-key-file", "--service-account-signing-key-file"] {
        let mut command = std::process::Command::new(cluster_tests::tools::unskew_binary());
        command.current_dir(folder.path()).args(["serve", "--secure-port=0", &format!("{flag}=/nowhere/x")]);
        let refused = cluster_tests::process::run_command(command, Duration::from_secs(30));
        assert_eq!(refused.code, Some(69), "{refused:?}");
        let line = refused.stderr.lines().last().unwrap_or_default();
        assert!(line.contains(flag) && line.contains("/nowhere/x"), "{}", refused.stderr);
    }
}

#[test]
fn kubelet_gets_tokens_for_pods_of_its_node_only() {
    let folder = tempfile::tempdir().unwrap();
    let server = start_on_sqlite(folder.path(), &["--enable-admission-plugins=NodeRestriction"]);
    let kubelet = server.client_with(issue_client_certificate(&server, "system:node:one", Some("system:nodes")));
    let admin = server.admin();
    block_on(async {
        create_service_account(&admin, "builder").await;
        let rules = json!([{"verbs": ["create"], "apiGroups": [""], "resources": ["serviceaccounts/token"]}]);
        grant_cluster_role(&admin, &kubelet, "system:node:one", &rules).await;
        let path = format!("{SERVICE_ACCOUNTS_PATH}/builder/token");
        let refused = kubelet.create(&path, &json!({"spec": {}})).await;
        let forbidden = "403 serviceaccounts \"builder\" is forbidden: ";
        assert_eq!(refused.summary(), format!("{forbidden}node requested token not bound to a pod"));
        for (node, expected) in
            [("two", "node requested token bound to a pod scheduled on a different node"), ("one", "")]
        {
            let pod = json!({"metadata": {"name": node}, "spec": {"nodeName": node, "serviceAccountName": "builder",
                "containers": [{"name": "c", "image": "i"}]}});
            let pod = admin.create("/api/v1/namespaces/default/pods", &pod).await;
            assert_eq!(pod.status, 201, "{}", pod.summary());
            let bound = json!({"apiVersion": "v1", "kind": "Pod", "name": node, "uid": pod.json()["metadata"]["uid"]});
            let made = kubelet.create(&path, &json!({"spec": {"boundObjectRef": bound}})).await;
            let expected = if expected.is_empty() { "201".to_owned() } else { format!("{forbidden}{expected}") };
            assert!(made.summary().starts_with(&expected), "{}", made.summary());
        }
    });
}

#[test]
fn policies_decide_about_tokens_with_their_final_audiences() {
    let folder = tempfile::tempdir().unwrap();
    let server = start_on_sqlite(folder.path(), &[]);
    let admin = server.admin();
    let group = "/apis/admissionregistration.k8s.io/v1";
    block_on(async {
        create_service_account(&admin, "builder").await;
        let rule = json!({"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["serviceaccounts/token"]});
        let expression = "object.spec.audiences.all(name, name == 'vault') && object.metadata.name == 'builder'";
        let policy = json!({"metadata": {"name": "p"}, "spec": {"matchConstraints": {"resourceRules": [rule]},
            "validations": [{"expression": expression, "message": "tokens are for the vault"}]}});
        let binding = json!({"metadata": {"name": "p"}, "spec": {"policyName": "p", "validationActions": ["Deny"]}});
        for (resource, object) in
            [("validatingadmissionpolicies", policy), ("validatingadmissionpolicybindings", binding)]
        {
            let created = admin.create(&format!("{group}/{resource}"), &object).await;
            assert_eq!(created.status, 201, "{}", created.summary());
        }
        let path = format!("{SERVICE_ACCOUNTS_PATH}/builder/token");
        let refused = admin.create(&path, &json!({"spec": {}})).await.summary();
        assert!(
            refused.starts_with("422 ") && refused.ends_with("denied request: tokens are for the vault"),
            "{refused}"
        );
        let made = admin.create(&path, &json!({"spec": {"audiences": ["vault"]}})).await;
        assert_eq!(made.status, 201, "{}", made.summary());
    });
}
