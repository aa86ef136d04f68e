//! `--admission-control-config-file`: PodSecurity, ResourceQuota and credentials for webhooks.

use serde_json::{Value, json};

use super::webhooks::{VALIDATING, WebhookServers};
use crate::{CONFIG_MAPS_PATH, block_on, config_map, start_on_sqlite};

const CONFIGURATION: &str = r#"
apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: PodSecurity
  configuration:
    apiVersion: pod-security.admission.config.k8s.io/v1
    kind: PodSecurityConfiguration
    defaults:
      enforce: baseline
    exemptions:
      namespaces: [kube-system]
- name: ResourceQuota
  path: quota.yaml
- name: ValidatingAdmissionWebhook
  configuration:
    apiVersion: apiserver.config.k8s.io/v1
    kind: WebhookAdmissionConfiguration
    kubeConfigFile: FOLDER/webhooks.kubeconfig
"#;
const QUOTA: &str = "
apiVersion: apiserver.config.k8s.io/v1
kind: ResourceQuotaConfiguration
limitedResources:
- resource: secrets
  matchContains: [secrets]
";
const KUBECONFIG: &str = "
apiVersion: v1
kind: Config
users:
- name: '*'
  user: {token: sesame}
";

fn host_network_pod() -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
        "spec": {"hostNetwork": true, "containers": [{"name": "c", "image": "i"}]}})
}

#[test]
fn configuration_file_sets_plugins_and_credentials() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, content: &str| std::fs::write(folder.path().join(name), content).unwrap();
    write("admission.yaml", &CONFIGURATION.replace("FOLDER", folder.path().to_str().unwrap()));
    write("quota.yaml", QUOTA);
    write("webhooks.kubeconfig", KUBECONFIG);
    let flag = format!("--admission-control-config-file={}", folder.path().join("admission.yaml").display());
    let data = tempfile::tempdir().unwrap();
    let server = start_on_sqlite(data.path(), &[&flag, "--disable-admission-plugins=ServiceAccount"]);
    let client = server.admin();
    block_on(async {
        let refused = client.create("/api/v1/namespaces/default/pods", &host_network_pod()).await.summary();
        assert_eq!(
            refused,
            "403 pods \"p\" is forbidden: violates PodSecurity \"baseline:latest\": host namespaces (hostNetwork=true)"
        );
        let exempt = client.create("/api/v1/namespaces/kube-system/pods", &host_network_pod()).await;
        assert_eq!(exempt.status, 201, "{}", exempt.summary());
        let secrets = "/api/v1/namespaces/default/secrets";
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}});
        let refused = client.create(secrets, &secret).await.summary();
        assert_eq!(refused, "403 secrets \"s\" is forbidden: insufficient quota to consume: count/secrets,secrets");
        let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"},
            "spec": {"hard": {"secrets": "5", "count/secrets": "5"}}});
        let created = client.create("/api/v1/namespaces/default/resourcequotas", &quota).await;
        assert_eq!(created.status, 201, "{}", created.summary());
        let created = client.create(secrets, &secret).await;
        assert_eq!(created.status, 201, "{}", created.summary());
        let servers = WebhookServers::new();
        let webhook = servers.start(|_| json!({"allowed": true})).await;
        servers.register(&client, VALIDATING, "validate", &webhook, &json!({})).await;
        let created = client.create(CONFIG_MAPS_PATH, &config_map("one")).await;
        assert_eq!(created.status, 201, "{}", created.summary());
        let [received] = &*webhook.take_requests().await else { panic!("the webhook was not called once") };
        let is_shown = received.headers.iter().any(|(name, value)| name == "authorization" && value == "Bearer sesame");
        assert!(is_shown, "{:?}", received.headers);
    });
}
