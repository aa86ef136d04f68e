//! Configurations as administrators write them, and the errors of wrong ones.

use serde_json::{Value, json};

use super::*;

fn object(value: Value) -> JsonObject {
    let Value::Object(object) = value else { panic!("{value} is no object") };
    object
}

fn read(plugin: &str, configuration: Value) -> Result<PluginConfiguration, String> {
    let mut read = PluginConfiguration::default();
    read.set(plugin, &object(configuration)).map(|()| read).map_err(|error| error.to_string())
}

#[test]
fn plugins_are_found_inline_and_by_path() {
    let document = |plugins: Value| {
        object(
            json!({"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration", "plugins": plugins}),
        )
    };
    let inline = json!({"kind": "X"});
    let sources = plugin_sources(&document(json!([
        {"name": "PodSecurity", "configuration": inline},
        {"name": "ResourceQuota", "path": "quota.yaml"},
        {"name": "Priority"},
    ])));
    let expected = vec![
        ("PodSecurity".to_owned(), PluginSource::Inline(object(inline))),
        ("ResourceQuota".to_owned(), PluginSource::File("quota.yaml".to_owned())),
    ];
    assert_eq!(sources, Ok(expected));
    for (plugins, expected) in [
        (
            json!([{"name": "PodTolerationRestriction"}]),
            "plugin \"PodTolerationRestriction\" is not built into this server",
        ),
        (json!([{"name": "PodSecurity", "file": "x"}]), "strict decoding error: unknown field \"plugins.file\""),
    ] {
        assert_eq!(plugin_sources(&document(plugins)).unwrap_err().to_string(), expected);
    }
    let other = plugin_sources(&object(json!({"apiVersion": "v1", "kind": "Pod"}))).unwrap_err();
    assert_eq!(other.to_string(), "no kind \"Pod\" is registered for version \"v1\"");
}

#[test]
fn wrong_configurations_are_refused_with_kubernetes_texts() {
    let pod_security = |defaults: Value, exemptions: Value| {
        json!({"apiVersion": "pod-security.admission.config.k8s.io/v1", "kind": "PodSecurityConfiguration",
            "defaults": defaults, "exemptions": exemptions})
    };
    let webhooks = |path: &str| json!({"apiVersion": "apiserver.config.k8s.io/v1", "kind": "WebhookAdmissionConfiguration", "kubeConfigFile": path});
    let quota = |limited: Value| json!({"apiVersion": "apiserver.config.k8s.io/v1", "kind": "ResourceQuotaConfiguration", "limitedResources": limited});
    for (plugin, configuration, expected) in [
        (
            "PodSecurity",
            pod_security(json!({"enforce": "strict", "warn-version": "1.2"}), json!({})),
            "defaults.enforce: Invalid value: \"strict\": must be one of privileged, baseline, restricted, defaults.warn-version: Invalid value: \"1.2\": must be \"latest\" or \"v1.x\"",
        ),
        (
            "PodSecurity",
            pod_security(json!({}), json!({"namespaces": ["a", "a"]})),
            "exemptions.namespaces[1]: Duplicate value: \"a\"",
        ),
        (
            "PodSecurity",
            pod_security(json!({"level": "x"}), json!({})),
            "strict decoding error: unknown field \"defaults.level\"",
        ),
        (
            "MutatingAdmissionWebhook",
            webhooks("a/b"),
            "kubeConfigFile: Invalid value: \"a/b\": must be an absolute file path",
        ),
        ("ResourceQuota", quota(json!([{"matchContains": ["x"]}])), "limitedResources[0].resource: Required value"),
    ] {
        assert_eq!(read(plugin, configuration), Err(expected.to_owned()));
    }
    let read_quota = read("ResourceQuota", quota(json!([{"resource": "pods", "matchContains": ["cpu"]}]))).unwrap();
    assert_eq!((&*read_quota.limited_resources[0].resource, read_quota.limited_resources.len()), ("pods", 1));
    let read_webhooks = read("ValidatingAdmissionWebhook", webhooks("/k")).unwrap();
    assert_eq!((read_webhooks.validating_kubeconfig, read_webhooks.mutating_kubeconfig), (Some("/k".to_owned()), None));
}
