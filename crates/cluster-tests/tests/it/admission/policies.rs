//! Policies in running servers.

use cluster_tests::tools::{is_skipped, kubectl};
use cluster_tests::wait::eventually;
use cluster_tests::{Client, ControlPlane};
use http::Method;
use serde_json::{Map, Value, json};

use super::policy_cases::{load_cases, perform_all, recorded_file};
use crate::custom_resource::{CARTS_PATH, CRD_PATH, carts_crd};
use crate::{CONFIG_MAPS_PATH, block_on, config_map, for_each_store, for_each_store_async, start_on_sqlite};

const GROUP: &str = "/apis/admissionregistration.k8s.io";

fn policy(kind: &str, version: &str, name: &str, spec: &Value) -> Value {
    let api_version = format!("admissionregistration.k8s.io/{version}");
    json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "spec": spec})
}

fn rules(resources: &str) -> Value {
    json!({"resourceRules": [{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": [resources]}]})
}

async fn create(client: &Client, path: &str, object: &Value) {
    let created = client.create(path, object).await;
    assert_eq!(created.status, 201, "{path}: {}", created.summary());
}

/// Creates a validating policy for a resource with its binding.
async fn validate(client: &Client, name: &str, resources: &str, mut spec: Value, binding: &Value) {
    spec["matchConstraints"] = rules(resources);
    let mut bound = json!({"policyName": name, "validationActions": ["Deny"]});
    bound.as_object_mut().unwrap().extend(binding.as_object().unwrap().clone());
    let policy_object = policy("ValidatingAdmissionPolicy", "v1", name, &spec);
    create(client, &format!("{GROUP}/v1/validatingadmissionpolicies"), &policy_object).await;
    let binding = policy("ValidatingAdmissionPolicyBinding", "v1", name, &bound);
    create(client, &format!("{GROUP}/v1/validatingadmissionpolicybindings"), &binding).await;
}

/// Creates a mutating policy that adds a label to config maps, with its binding.
async fn label_config_maps(client: &Client, version: &str) {
    let mut constraints = rules("configmaps");
    constraints["resourceRules"][0]["operations"] = json!(["CREATE"]);
    let expression = "Object{metadata: Object.metadata{labels: {'added': 'yes'}}}";
    let mutation = json!({"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}});
    let spec = json!({"matchConstraints": constraints, "reinvocationPolicy": "Never", "mutations": [mutation]});
    let object = policy("MutatingAdmissionPolicy", version, "label", &spec);
    create(client, &format!("{GROUP}/{version}/mutatingadmissionpolicies"), &object).await;
    let binding = policy("MutatingAdmissionPolicyBinding", version, "label", &json!({"policyName": "label"}));
    create(client, &format!("{GROUP}/{version}/mutatingadmissionpolicybindings"), &binding).await;
}

#[test]
fn writes_are_judged_as_by_kube_apiserver() {
    let recorded: Map<String, Value> =
        serde_json::from_str(&std::fs::read_to_string(recorded_file()).unwrap()).unwrap();
    for_each_store_async(async |client| {
        let outcomes = perform_all(&client, &load_cases()).await;
        assert_eq!(outcomes.len(), recorded.len(), "cases were added without being recorded");
        let differs = |(name, ours): &(&String, &Value)| recorded.get(*name) != Some(*ours);
        let different: Vec<String> = outcomes
            .iter()
            .filter(differs)
            .map(|(name, ours)| format!("{name}:\n  real {}\n  ours {ours}", recorded[name]))
            .collect();
        assert!(different.is_empty(), "{}", different.join("\n"));
    });
}

#[test]
fn policy_of_one_server_is_in_force_for_the_next_write_through_another() {
    ControlPlane::for_each_store(|mut plane| {
        plane.start("a", &[]);
        plane.start("b", &[]);
        block_on(async {
            let (here, there) = (plane.admin("a"), plane.admin("b"));
            create(&here, CRD_PATH, &carts_crd()).await;
            for round in 0..10 {
                let (writer, other) = if round % 2 == 0 { (&here, &there) } else { (&there, &here) };
                let name = format!("p{round}");
                let spec = json!({"validations": [{"expression": "false", "message": format!("round {round}")}]});
                validate(writer, &name, "carts", spec, &json!({})).await;
                let cart = json!({"apiVersion": "shop.example.com/v1", "kind": "Cart", "metadata": {"name": name}});
                let refused = other.create(CARTS_PATH, &cart).await;
                assert_eq!(
                    refused.summary(),
                    format!(
                        "422 carts.shop.example.com \"{name}\" is forbidden: ValidatingAdmissionPolicy '{name}' with binding \
                         '{name}' denied request: round {round}"
                    )
                );
                let binding = format!("{GROUP}/v1/validatingadmissionpolicybindings/{name}");
                assert_eq!(writer.delete(&binding).await.status, 200);
                create(other, CARTS_PATH, &cart).await;
            }
        });
    });
}

#[test]
fn params_of_one_server_count_for_the_next_write_through_another() {
    ControlPlane::for_each_store(|mut plane| {
        plane.start("a", &[]);
        plane.start("b", &[]);
        block_on(async {
            let (here, there) = (plane.admin("a"), plane.admin("b"));
            create(&here, CRD_PATH, &carts_crd()).await;
            let spec = json!({"paramKind": {"apiVersion": "shop.example.com/v1", "kind": "Cart"},
                "validations": [{"expression": "object.data.a == params.spec.wanted"}]});
            let reference = json!({"paramRef": {"name": "param", "parameterNotFoundAction": "Deny"}});
            validate(&here, "params", "configmaps", spec, &reference).await;
            let path = format!("{CARTS_PATH}/param");
            for round in 0..10 {
                let (writer, other) = if round % 2 == 0 { (&here, &there) } else { (&there, &here) };
                let param = json!({"apiVersion": "shop.example.com/v1", "kind": "Cart", "metadata": {"name": "param"},
                    "spec": {"wanted": "2"}});
                create(writer, CARTS_PATH, &param).await;
                let refused = other.create(CONFIG_MAPS_PATH, &config_map(&format!("c{round}"))).await;
                assert!(refused.summary().contains("failed expression: "), "{}", refused.summary());
                let wanted = json!({"spec": {"wanted": "1"}}).to_string();
                let merge = "application/merge-patch+json";
                assert_eq!(writer.send_body(Method::PATCH, &path, merge, wanted.into()).await.status, 200);
                create(other, CONFIG_MAPS_PATH, &config_map(&format!("c{round}"))).await;
                assert_eq!(writer.delete(&path).await.status, 200);
                let refused = other.create(CONFIG_MAPS_PATH, &config_map("none")).await;
                assert!(refused.summary().contains("no params found for policy binding"), "{}", refused.summary());
            }
        });
    });
}

#[test]
fn policy_cannot_block_its_own_repair() {
    for_each_store_async(async |client| {
        let spec = json!({"validations": [{"expression": "false", "message": "nothing is allowed"}]});
        validate(&client, "all", "*", spec, &json!({})).await;
        let refused = client.create(CONFIG_MAPS_PATH, &config_map("c")).await;
        assert_eq!(refused.status, 422, "{}", refused.summary());
        let webhooks = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": "w"}, "webhooks": []});
        let refused = client.create(&format!("{GROUP}/v1/validatingwebhookconfigurations"), &webhooks).await;
        assert_eq!(refused.status, 422, "webhook configurations pass policies: {}", refused.summary());
        let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}});
        create(&client, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", &review).await;
        let path = format!("{GROUP}/v1/validatingadmissionpolicies/all");
        let change = json!({"spec": {"failurePolicy": "Ignore"}}).to_string();
        let changed = client.send_body(Method::PATCH, &path, "application/merge-patch+json", change.into()).await;
        assert_eq!(changed.status, 200, "{}", changed.summary());
        assert_eq!(client.delete(&path).await.status, 200);
        create(&client, CONFIG_MAPS_PATH, &config_map("c")).await;
    });
}

#[test]
fn forwarded_write_is_judged_where_it_is_executed() {
    const CLASSES: &str = "/apis/storage.k8s.io/v1/volumeattributesclasses";
    ControlPlane::for_each_store(|mut plane| {
        plane.start("old", &["--emulated-version=1.33"]);
        plane.start("new", &["--emulated-version=1.36"]);
        block_on(async {
            let (old, new) = (plane.admin("old"), plane.admin("new"));
            let spec = json!({"validations": [{"expression": "object.driverName != 'bad'", "message": "bad driver"}],
                "auditAnnotations": []});
            validate(&old, "drivers", "volumeattributesclasses", spec, &json!({})).await;
            let class = |name: &str, driver: &str| {
                json!({"apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttributesClass",
                "metadata": {"name": name}, "driverName": driver, "parameters": {"a": "b"}})
            };
            for (index, client) in [&old, &new].into_iter().enumerate() {
                let refused = client.create(CLASSES, &class("c", "bad")).await;
                assert!(refused.summary().ends_with("denied request: bad driver"), "{}", refused.summary());
                create(client, CLASSES, &class(&format!("c{index}"), "good")).await;
            }
            // Only the server of 1.36 has mutating policies; it judges what reaches it.
            label_config_maps(&new, "v1").await;
            let created = new.create(CONFIG_MAPS_PATH, &config_map("new")).await.json();
            assert_eq!(created["metadata"]["labels"]["added"], "yes");
            let created = old.create(CONFIG_MAPS_PATH, &config_map("old")).await.json();
            assert_eq!(created["metadata"]["labels"], Value::Null);
        });
    });
}

#[test]
fn mutating_policies_are_served_and_run_as_release_and_gate_say() {
    let collection = |version: &str| format!("{GROUP}/{version}/mutatingadmissionpolicies");
    for (release, flags, version) in [
        ("1.31", &[][..], None),
        ("1.33", &["--runtime-config=admissionregistration.k8s.io/v1alpha1=true"][..], None),
        (
            "1.34",
            &[
                "--feature-gates=MutatingAdmissionPolicy=true",
                "--runtime-config=admissionregistration.k8s.io/v1beta1=true",
            ][..],
            Some("v1beta1"),
        ),
        ("1.36", &[][..], Some("v1")),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let release_flag = format!("--emulated-version={release}");
        let server = start_on_sqlite(folder.path(), &[&[release_flag.as_str()], flags].concat());
        let client = server.admin();
        block_on(async {
            let spec =
                json!({"validations": [{"expression": "!has(object.metadata.labels)", "message": "has labels"}]});
            match version {
                None => assert_eq!(client.get(&collection("v1")).await.status, 404, "{release}"),
                Some(version) => {
                    label_config_maps(&client, version).await;
                    let created = client.create(CONFIG_MAPS_PATH, &config_map("one")).await.json();
                    assert_eq!(created["metadata"]["labels"]["added"], "yes", "{release}");
                    validate(&client, "labels", "configmaps", spec, &json!({})).await;
                    let refused = client.create(CONFIG_MAPS_PATH, &config_map("two")).await;
                    assert!(refused.summary().ends_with("has labels"), "{release}: {}", refused.summary());
                }
            }
        });
    }
}

#[test]
fn disabled_plugins_leave_policies_without_effect() {
    let folder = tempfile::tempdir().unwrap();
    let flag = "--disable-admission-plugins=ValidatingAdmissionPolicy,MutatingAdmissionPolicy";
    let server = start_on_sqlite(folder.path(), &["--emulated-version=1.36", flag]);
    let client = server.admin();
    block_on(async {
        label_config_maps(&client, "v1").await;
        validate(&client, "none", "configmaps", json!({"validations": [{"expression": "false"}]}), &json!({})).await;
        let created = client.create(CONFIG_MAPS_PATH, &config_map("one")).await;
        assert_eq!((created.status.as_u16(), &created.json()["metadata"]["labels"]), (201, &Value::Null));
    });
}

#[test]
fn status_reports_mistakes_in_expressions() {
    let folder = tempfile::tempdir().unwrap();
    let server = start_on_sqlite(folder.path(), &["--controllers=*"]);
    let client = server.admin();
    block_on(async {
        let mut crd = carts_crd();
        crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = json!({"type": "object", "properties": {
            "spec": {"type": "object", "properties": {"size": {"type": "integer"}}}}});
        create(&client, CRD_PATH, &crd).await;
        let rule = |group: &str, resource: &str| {
            json!({"operations": ["*"], "apiGroups": [group], "apiVersions": ["v1"],
            "resources": [resource]})
        };
        let spec = json!({
            "matchConstraints": {"resourceRules": [rule("apps", "deployments"), rule("shop.example.com", "carts")]},
            "variables": [{"name": "limit", "expression": "'3'"}],
            "validations": [
                {"expression": "object.spec.replicas > variables.limit", "messageExpression": "string(object.spec.maxRetries)"},
                {"expression": "has(object.metadata.name)"},
            ],
        });
        let path = format!("{GROUP}/v1/validatingadmissionpolicies");
        create(&client, &path, &policy("ValidatingAdmissionPolicy", "v1", "checked", &spec)).await;
        let path = format!("{path}/checked");
        let status = wait_for_status(&client, &path, 1).await;
        let warnings = status["typeChecking"]["expressionWarnings"].as_array().unwrap().clone();
        let fields: Vec<&Value> = warnings.iter().map(|warning| &warning["fieldRef"]).collect();
        assert_eq!(fields, ["spec.validations[0].expression", "spec.validations[0].messageExpression"]);
        let of = |index: usize| warnings[index]["warning"].as_str().unwrap();
        assert!(
            of(0).contains("apps/v1, Kind=Deployment: ERROR: <input>:1:22: found no matching overload"),
            "{}",
            of(0)
        );
        assert!(of(0).contains("'_>_' applied to '(int, string)'"), "{}", of(0));
        assert!(
            of(0).contains("shop.example.com/v1, Kind=Cart: ERROR: <input>:1:12: undefined field 'replicas'"),
            "{}",
            of(0)
        );
        assert!(of(1).contains("undefined field 'maxRetries'"), "{}", of(1));
        let managers = client.get(&path).await.json()["metadata"]["managedFields"].to_string();
        assert!(managers.contains("\"validatingadmissionpolicy-status\""), "{managers}");
        let right = json!({"spec": {"validations": [{"expression": "object.spec.replicas > 3"}],
            "matchConstraints": {"resourceRules": [rule("apps", "deployments")]}}});
        let merge = "application/merge-patch+json";
        assert_eq!(client.send_body(Method::PATCH, &path, merge, right.to_string().into()).await.status, 200);
        let status = wait_for_status(&client, &path, 2).await;
        assert_eq!(status["typeChecking"]["expressionWarnings"], Value::Null, "{status}");
    });
}

async fn wait_for_status(client: &Client, path: &str, generation: i64) -> Value {
    let status = async || client.get(path).await.json()["status"].clone();
    eventually("the status is of the generation", async || {
        let status = status().await;
        if status["observedGeneration"] == generation { Ok(()) } else { Err(status.to_string()) }
    })
    .await;
    status().await
}

#[test]
fn audit_log_and_metrics_have_what_policies_found() {
    let folder = tempfile::tempdir().unwrap();
    let (rules_file, log) = (folder.path().join("audit.yaml"), folder.path().join("audit.json"));
    std::fs::write(&rules_file, "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n").unwrap();
    let flags =
        [format!("--audit-policy-file={}", rules_file.display()), format!("--audit-log-path={}", log.display())];
    // Controllers would create config maps too.
    let server = start_on_sqlite(folder.path(), &[&flags[0], &flags[1], "--controllers="]);
    let client = server.admin();
    block_on(async {
        let here = json!([{"name": "here", "expression": "request.namespace == 'default'"}]);
        let spec = json!({
            "matchConditions": here,
            "validations": [{"expression": "object.data.a == '2'", "message": "not 2"}],
            "auditAnnotations": [{"key": "a", "valueExpression": "'a is ' + object.data.a"}],
        });
        validate(&client, "audited", "configmaps", spec, &json!({"validationActions": ["Warn", "Audit"]})).await;
        let failing = json!({"failurePolicy": "Ignore", "matchConditions": here,
            "validations": [{"expression": "object.data.x == '2'"}]});
        validate(&client, "ignored", "configmaps", failing, &json!({})).await;
        let created = client.create(CONFIG_MAPS_PATH, &config_map("one")).await;
        assert_eq!(
            created.headers["warning"],
            "299 - \"Validation failed for ValidatingAdmissionPolicy 'audited' with binding 'audited': not 2\""
        );
        label_config_maps(&client, "v1").await;
        create(&client, CONFIG_MAPS_PATH, &config_map("two")).await;
        let denied = json!({"validations": [{"expression": "object.metadata.name != 'denied'", "message": "denied"}]});
        validate(&client, "denied", "configmaps", denied, &json!({"validationActions": ["Deny", "Audit"]})).await;
        let refused = client.create(CONFIG_MAPS_PATH, &config_map("denied")).await;
        assert_eq!((refused.status.as_u16(), refused.headers.get_all("warning").iter().count()), (422, 1));
        let metrics = String::from_utf8_lossy(&client.get("/metrics").await.body).into_owned();
        for (policy, action) in [("audited", "warn"), ("audited", "audit"), ("ignored", "allow")] {
            let labels = format!(
                "{{enforcement_action=\"{action}\",error_type=\"invalid_error\",policy=\"{policy}\",policy_binding=\"{policy}\"}} 3"
            );
            for name in ["check_total", "check_duration_seconds_count"] {
                let line = format!("apiserver_validating_admission_policy_{name}{labels}");
                assert!(metrics.contains(&line), "{line}");
            }
        }
        let line = "apiserver_mutating_admission_policy_check_total{error_type=\"no_error\",policy=\"label\",policy_binding=\"label\"} 2";
        assert!(metrics.contains(line), "{line}");
    });
    let text = std::fs::read_to_string(&log).unwrap();
    let events: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let annotations_of = |name: &str| {
        let is_create = |event: &&Value| {
            let object = &event["objectRef"];
            event["verb"] == "create"
                && (&object["resource"], &object["name"]) == (&json!("configmaps"), &json!(name))
                && event["stage"] == "ResponseComplete"
        };
        &events.iter().find(is_create).unwrap()["annotations"]
    };
    let failure = &annotations_of("denied")["validation.policy.admission.k8s.io/validation_failure"];
    assert!(
        failure.as_str().is_some_and(|failure| failure.contains("\"policy\":\"audited\"")),
        "the first counts: {failure}"
    );
    let annotations = annotations_of("one");
    assert_eq!(annotations["audited/a"], "a is 1");
    assert_eq!(
        annotations["validation.policy.admission.k8s.io/validation_failure"],
        r#"[{"message":"not 2","policy":"audited","binding":"audited","expressionIndex":0,"validationActions":["Warn","Audit"]}]"#
    );
}

#[test]
fn writer_of_policies_must_be_able_to_read_params() {
    let folder = tempfile::tempdir().unwrap();
    let server = start_on_sqlite(folder.path(), &[]);
    let admin = server.admin();
    block_on(async {
        let rule = json!({"apiGroups": ["admissionregistration.k8s.io"], "resources": ["*"], "verbs": ["*"]});
        let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "policies"},
            "rules": [rule]});
        create(&admin, "/apis/rbac.authorization.k8s.io/v1/clusterroles", &role).await;
        let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": {"name": "policies"}, "subjects": [{"kind": "User", "name": "bob", "apiGroup": "rbac.authorization.k8s.io"}],
            "roleRef": {"kind": "ClusterRole", "name": "policies", "apiGroup": "rbac.authorization.k8s.io"}});
        create(&admin, "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &binding).await;
        let as_bob = async |path: String, object: &Value| {
            let request = admin.request_builder(Method::POST, &path).header("Impersonate-User", "bob");
            admin.send(request.header("content-type", "application/json"), object.to_string().into()).await
        };
        let spec = json!({"paramKind": {"apiVersion": "v1", "kind": "Secret"}, "matchConstraints": rules("configmaps"),
            "validations": [{"expression": "true"}]});
        let object = policy("ValidatingAdmissionPolicy", "v1", "p", &spec);
        let path = format!("{GROUP}/v1/validatingadmissionpolicies");
        let refused = as_bob(path.clone(), &object).await;
        assert_eq!(
            refused.summary(),
            "422 ValidatingAdmissionPolicy.admissionregistration.k8s.io \"p\" is invalid: spec.paramKind: Forbidden: user \
             &{bob  [system:authenticated] map[]} must have \"get\" permission on all objects of the referenced paramKind \
             (kind=Secret, apiVersion=v1)"
        );
        create(&admin, &path, &object).await;
        let spec = json!({"policyName": "p", "validationActions": ["Deny"],
            "paramRef": {"name": "s", "namespace": "kube-system", "parameterNotFoundAction": "Deny"}});
        let object = policy("ValidatingAdmissionPolicyBinding", "v1", "p", &spec);
        let refused = as_bob(format!("{GROUP}/v1/validatingadmissionpolicybindings"), &object).await;
        assert!(
            refused.summary().ends_with("does not have \"get\" permission on the object referenced by paramRef"),
            "{}",
            refused.summary()
        );
    });
}

#[test]
fn kubectl_applies_policies_and_shows_denials_and_warnings() {
    if is_skipped("kubectl") {
        return;
    }
    for_each_store(|server| {
        let kubeconfig = server.kubeconfig();
        let file = kubeconfig.with_file_name("policies.json");
        let spec = json!({"matchConstraints": rules("deployments"), "validations": [
            {"expression": "!has(object.spec.replicas) || object.spec.replicas <= 5", "message": "at most 5"}]});
        let bound = json!({"policyName": "replicas", "validationActions": ["Deny"]});
        let objects = json!({"kind": "List", "apiVersion": "v1", "items": [
            policy("ValidatingAdmissionPolicy", "v1", "replicas", &spec),
            policy("ValidatingAdmissionPolicyBinding", "v1", "replicas", &bound),
        ]});
        std::fs::write(&file, objects.to_string()).unwrap();
        kubectl(&kubeconfig, &["apply", "-f", &file.display().to_string()]).expect_success();
        let refused =
            kubectl(&kubeconfig, &["create", "deployment", "d", "--image=i", "--replicas=6"]).expect_failure();
        assert!(
            refused.contains("ValidatingAdmissionPolicy 'replicas' with binding 'replicas' denied request: at most 5"),
            "{refused}"
        );
        kubectl(&kubeconfig, &["create", "deployment", "d", "--image=i", "--replicas=5"]).expect_success();
        let warn = r#"{"spec":{"validationActions":["Warn"]}}"#;
        let patch = ["patch", "validatingadmissionpolicybinding", "replicas", "--type=merge", "-p", warn];
        kubectl(&kubeconfig, &patch).expect_success();
        let listed = kubectl(&kubeconfig, &["get", "validatingadmissionpolicies"]).expect_success();
        assert!(listed.contains("replicas   1             <unset>"), "{listed}");
    });
}
