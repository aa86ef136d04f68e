//! The file of `--admission-control-config-file`: an `AdmissionConfiguration` with the configuration of single plugins.

use api::json::JsonObject;
use object::unstructured::{objects, text, texts};
use serde_json::Value;

use crate::chain::Chain;
use crate::plugins::PodSecuritySettings;
use crate::quota::LimitedResource;

const GROUP_VERSIONS: [&str; 2] = ["apiserver.config.k8s.io/v1", "apiserver.k8s.io/v1alpha1"];

/// The configuration of plugins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PluginConfiguration {
    /// Of PodSecurity.
    pub pod_security: PodSecuritySettings,
    /// Of ResourceQuota: resources that may be used only if a quota covers them.
    pub limited_resources: Vec<LimitedResource>,
    /// Of MutatingAdmissionWebhook: the path of a kubeconfig with credentials for webhooks.
    pub mutating_kubeconfig: Option<String>,
    /// Like `mutating_kubeconfig`, of ValidatingAdmissionWebhook.
    pub validating_kubeconfig: Option<String>,
}

/// Where the configuration of a plugin is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PluginSource {
    /// In the `AdmissionConfiguration` itself.
    Inline(JsonObject),
    /// In another file; a relative path begins at the folder of the `AdmissionConfiguration`.
    File(String),
}

/// Why a configuration cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConfigurationError(String);

/// The plugins of an `AdmissionConfiguration` with the sources of their configuration. Every plugin must be one that
/// this server has.
pub fn plugin_sources(document: &JsonObject) -> Result<Vec<(String, PluginSource)>, ConfigurationError> {
    check_kind(document, &GROUP_VERSIONS.map(|version| (version, "AdmissionConfiguration")))?;
    check_fields(document, "", &["apiVersion", "kind", "plugins"])?;
    let mut sources = Vec::new();
    for plugin in objects(document, &["plugins"]) {
        check_fields(plugin, "plugins.", &["name", "path", "configuration"])?;
        let name = text(plugin, &["name"]);
        if !Chain::is_built(name) {
            return Err(ConfigurationError(format!("plugin {name:?} is not built into this server")));
        }
        let source = match (plugin.get("configuration"), text(plugin, &["path"])) {
            (Some(Value::Object(inline)), _) => PluginSource::Inline(inline.clone()),
            (_, "") => continue,
            (_, path) => PluginSource::File(path.to_owned()),
        };
        sources.push((name.to_owned(), source));
    }
    Ok(sources)
}

impl PluginConfiguration {
    /// Reads the configuration of one plugin. Plugins that have none ignore it, as in Kubernetes.
    pub fn set(&mut self, plugin: &str, configuration: &JsonObject) -> Result<(), ConfigurationError> {
        match plugin {
            "PodSecurity" => self.pod_security = read_pod_security(configuration)?,
            "ResourceQuota" => self.limited_resources = read_limited_resources(configuration)?,
            "MutatingAdmissionWebhook" => self.mutating_kubeconfig = read_kubeconfig(configuration)?,
            "ValidatingAdmissionWebhook" => self.validating_kubeconfig = read_kubeconfig(configuration)?,
            _ => {}
        }
        Ok(())
    }
}

fn read_pod_security(configuration: &JsonObject) -> Result<PodSecuritySettings, ConfigurationError> {
    let kinds = ["v1", "v1beta1", "v1alpha1"].map(|version| format!("pod-security.admission.config.k8s.io/{version}"));
    check_kind(configuration, &kinds.each_ref().map(|version| (version.as_str(), "PodSecurityConfiguration")))?;
    check_fields(configuration, "", &["apiVersion", "kind", "defaults", "exemptions"])?;
    let modes = ["enforce", "enforce-version", "audit", "audit-version", "warn", "warn-version"];
    let parts: [(&str, &[&str]); 2] =
        [("defaults", &modes), ("exemptions", &["usernames", "namespaces", "runtimeClasses"])];
    for (part, fields) in parts {
        if let Some(Value::Object(part_object)) = configuration.get(part) {
            check_fields(part_object, &format!("{part}."), fields)?;
        }
    }
    PodSecuritySettings::read(configuration)
        .map_err(|errors| ConfigurationError(errors.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")))
}

fn read_limited_resources(configuration: &JsonObject) -> Result<Vec<LimitedResource>, ConfigurationError> {
    let kinds = [
        ("apiserver.config.k8s.io/v1", "ResourceQuotaConfiguration"),
        ("resourcequota.admission.k8s.io/v1beta1", "Configuration"),
        ("resourcequota.admission.k8s.io/v1alpha1", "Configuration"),
    ];
    check_kind(configuration, &kinds)?;
    check_fields(configuration, "", &["apiVersion", "kind", "limitedResources"])?;
    let mut limited = Vec::new();
    for (index, resource) in objects(configuration, &["limitedResources"]).enumerate() {
        let path = format!("limitedResources[{index}].");
        check_fields(resource, &path, &["apiGroup", "resource", "matchContains", "matchScopes"])?;
        if text(resource, &["resource"]).is_empty() {
            return Err(ConfigurationError(format!("{path}resource: Required value")));
        }
        limited.push(LimitedResource {
            api_group: text(resource, &["apiGroup"]).to_owned(),
            resource: text(resource, &["resource"]).to_owned(),
            match_contains: texts(resource, &["matchContains"]).map(str::to_owned).collect(),
            match_scopes: objects(resource, &["matchScopes"]).cloned().collect(),
        });
    }
    Ok(limited)
}

fn read_kubeconfig(configuration: &JsonObject) -> Result<Option<String>, ConfigurationError> {
    let kinds = [
        ("apiserver.config.k8s.io/v1", "WebhookAdmissionConfiguration"),
        ("apiserver.config.k8s.io/v1alpha1", "WebhookAdmission"),
    ];
    check_kind(configuration, &kinds)?;
    check_fields(configuration, "", &["apiVersion", "kind", "kubeConfigFile"])?;
    match text(configuration, &["kubeConfigFile"]) {
        "" => Ok(None),
        path if path.starts_with('/') => Ok(Some(path.to_owned())),
        path => {
            let text = format!("kubeConfigFile: Invalid value: {path:?}: must be an absolute file path");
            Err(ConfigurationError(text))
        }
    }
}

fn check_kind(object: &JsonObject, allowed: &[(&str, &str)]) -> Result<(), ConfigurationError> {
    let (version, kind) = (text(object, &["apiVersion"]), text(object, &["kind"]));
    if allowed.contains(&(version, kind)) {
        return Ok(());
    }
    Err(ConfigurationError(format!("no kind {kind:?} is registered for version {version:?}")))
}

fn check_fields(object: &JsonObject, path: &str, known: &[&str]) -> Result<(), ConfigurationError> {
    match object.keys().find(|field| !known.contains(&field.as_str())) {
        Some(unknown) => Err(ConfigurationError(format!("strict decoding error: unknown field \"{path}{unknown}\""))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
