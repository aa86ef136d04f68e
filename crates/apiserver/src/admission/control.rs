//! The admission plugins of this server and the webhooks that the store configures.

use std::sync::Arc;

use ::admission::quota::LimitedResource;
use ::admission::webhook::ConfigurationKind;
use ::admission::{Chain, PluginSet, PolicySet, Settings, Webhook, WebhookSet};
use api::GroupVersionResource;
use arc_swap::ArcSwapOption;
use kinds::{FeatureGates, Release};
use registry::{CachedValue, ResourceCache, ResourceSnapshot};
use webhook::{WebhookClient, WebhookCredentials};

use super::metrics::AdmissionMetrics;

const GROUP: &str = "admissionregistration.k8s.io";

/// Which plugins run, and their settings.
#[derive(Clone, Debug)]
pub struct AdmissionConfig {
    /// `--enable-admission-plugins` and `--disable-admission-plugins`.
    pub plugins: PluginSet,
    /// Flags and configuration of single plugins.
    pub settings: Settings,
    /// The configuration of ResourceQuota.
    pub limited_resources: Vec<LimitedResource>,
    /// Shown to mutating webhooks.
    pub mutating_credentials: WebhookCredentials,
    /// Shown to validating webhooks.
    pub validating_credentials: WebhookCredentials,
}

impl AdmissionConfig {
    /// The plugins that a release runs by default, as far as this server has them.
    pub fn for_release(release: Release) -> Self {
        let plugins = PluginSet::from_flags(release, &[], &[], Chain::is_built).expect("no flag can be wrong");
        Self {
            plugins,
            settings: Settings::default(),
            limited_resources: Vec::new(),
            mutating_credentials: WebhookCredentials::default(),
            validating_credentials: WebhookCredentials::default(),
        }
    }
}

/// The plugins of this server. Shared by all requests.
pub(crate) struct AdmissionControl {
    pub(super) chain: Chain,
    has_quota: bool,
    limited_resources: Vec<LimitedResource>,
    /// For mutating and validating webhooks.
    credentials: [WebhookCredentials; 2],
    pub(super) client: Arc<WebhookClient>,
    pub(super) metrics: AdmissionMetrics,
    configurations: [Option<Arc<ResourceCache>>; 2],
    release: k8s_cel::Release,
    /// The webhooks of the last two snapshots that a request found.
    compiled: ArcSwapOption<CompiledWebhooks>,
    /// Policies and bindings, validating then mutating.
    policy_caches: [Option<Arc<ResourceCache>>; 4],
    compiled_policies: ArcSwapOption<CompiledPolicies>,
}

/// Policies, and the snapshots that they come from.
struct CompiledPolicies {
    inputs: [Option<Arc<ResourceSnapshot>>; 4],
    policies: Arc<PolicySet>,
}

/// Webhooks, and the snapshots that they come from.
struct CompiledWebhooks {
    inputs: [Option<Arc<ResourceSnapshot>>; 2],
    webhooks: Arc<WebhookSet>,
}

impl AdmissionControl {
    pub(crate) fn new(
        config: &AdmissionConfig,
        gates: &FeatureGates,
        client: Arc<WebhookClient>,
        metrics: &prometheus::Registry,
        resource_cache: impl Fn(GroupVersionResource<&'static str>) -> Option<Arc<ResourceCache>>,
    ) -> Self {
        let configurations = ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"]
            .map(|resource| resource_cache(GroupVersionResource { group: GROUP, version: "v1", resource }));
        let policy_caches = [
            "validatingadmissionpolicies",
            "validatingadmissionpolicybindings",
            "mutatingadmissionpolicies",
            "mutatingadmissionpolicybindings",
        ]
        .map(|resource| {
            let version = |version| resource_cache(GroupVersionResource { group: GROUP, version, resource });
            ["v1", "v1beta1", "v1alpha1"].into_iter().find_map(version)
        });
        Self {
            has_quota: config.plugins.contains("ResourceQuota"),
            limited_resources: config.limited_resources.clone(),
            credentials: [config.mutating_credentials.clone(), config.validating_credentials.clone()],
            policy_caches,
            compiled_policies: ArcSwapOption::empty(),
            chain: Chain::new(&config.plugins, config.settings.clone(), gates.clone()),
            client,
            metrics: AdmissionMetrics::new(metrics),
            configurations,
            release: k8s_cel::Release(gates.release().minor()),
            compiled: ArcSwapOption::empty(),
        }
    }

    /// Resources that may be used only if a quota covers them.
    pub(crate) fn limited_resources(&self) -> &[LimitedResource] {
        &self.limited_resources
    }

    /// What a webhook is shown of this server.
    pub(super) fn credentials(
        &self,
        webhook: &Webhook,
        config: &webhook::ClientConfig,
    ) -> Option<Arc<webhook::UserCredentials>> {
        let [mutating, validating] = &self.credentials;
        let credentials = match webhook.kind {
            ConfigurationKind::Mutating => mutating,
            ConfigurationKind::Validating => validating,
        };
        let (host, port) = config.target()?;
        credentials.for_target(&host, port)
    }

    /// True if the plugin ResourceQuota runs.
    pub(crate) fn has_quota(&self) -> bool {
        self.has_quota
    }

    /// True if the cache has any configuration of webhooks, or any policy.
    pub(crate) fn is_configured(&self) -> bool {
        self.configurations
            .iter()
            .chain(&self.policy_caches)
            .flatten()
            .any(|cache| !cache.snapshot().entries.is_empty())
    }

    /// The policies as the cache has them now. Compiled again only after a change.
    pub(super) fn policies(&self) -> Arc<PolicySet> {
        let inputs = self.policy_caches.clone().map(|cache| cache.map(|cache| cache.snapshot()));
        if let Some(compiled) = &*self.compiled_policies.load()
            && is_same(&compiled.inputs, &inputs)
        {
            return compiled.policies.clone();
        }
        // Versions have the same fields.
        let [policies, bindings, mutating, mutating_bindings] = inputs.each_ref().map(|it| objects_of(it.as_deref()));
        let policies = Arc::new(PolicySet::new([policies, bindings], [mutating, mutating_bindings], self.release));
        self.compiled_policies.store(Some(Arc::new(CompiledPolicies { inputs, policies: policies.clone() })));
        policies
    }

    /// The webhooks as the cache has their configurations now. Compiled again only after a change.
    pub(super) fn webhooks(&self) -> Arc<WebhookSet> {
        let inputs = self.configurations.clone().map(|cache| cache.map(|cache| cache.snapshot()));
        if let Some(compiled) = &*self.compiled.load()
            && is_same(&compiled.inputs, &inputs)
        {
            return compiled.webhooks.clone();
        }
        let [mutating, validating] = inputs.each_ref().map(|input| objects_of(input.as_deref()));
        let webhooks = Arc::new(WebhookSet::new(mutating, validating, self.release));
        self.compiled.store(Some(Arc::new(CompiledWebhooks { inputs, webhooks: webhooks.clone() })));
        webhooks
    }
}

fn is_same<const N: usize>(
    left: &[Option<Arc<ResourceSnapshot>>; N],
    right: &[Option<Arc<ResourceSnapshot>>; N],
) -> bool {
    left.iter().zip(right).all(|(left, right)| match (left, right) {
        (Some(left), Some(right)) => Arc::ptr_eq(left, right),
        (None, None) => true,
        (Some(_), None) | (None, Some(_)) => false,
    })
}

/// Configurations are stored in version v1 by every release, so that they are read as stored.
fn objects_of(snapshot: Option<&ResourceSnapshot>) -> Vec<api::json::JsonObject> {
    let entries = snapshot.into_iter().flat_map(|snapshot| snapshot.entries.values());
    entries
        .filter_map(|cached| match &cached.value {
            CachedValue::Object(stored) => Some(stored.to_object()),
            CachedValue::Raw(_) => None,
            CachedValue::Undecodable(_) => {
                tracing::error!(key = %cached.key.escape_ascii(), "configuration of admission cannot be read");
                None
            }
        })
        .collect()
}
