//! The admission plugins of this server and the webhooks that the store configures.

use std::sync::Arc;
use std::time::Duration;

use ::admission::quota::LimitedResource;
use ::admission::webhook::ConfigurationKind;
use ::admission::{Chain, Operation, PluginSet, PolicySet, Settings, StateId, Webhook, WebhookSet};
use api::GroupVersionResource;
use api::json::JsonObject;
use arc_swap::ArcSwapOption;
use kinds::{FeatureGates, Release};
use parking_lot::Mutex;
use registry::{CachedEntry, CachedValue, ResourceCache, ResourceSnapshot};
use webhook::{WebhookClient, WebhookCredentials};

use super::guard::AdmissionGuard;
use super::metrics::AdmissionMetrics;
use super::session::AdmissionPhase;

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
    compiled: ArcSwapOption<CompiledWebhooks>,
    /// Policies and bindings, validating then mutating.
    policy_caches: [Option<Arc<ResourceCache>>; 4],
    compiled_policies: ArcSwapOption<CompiledPolicies>,
    /// Held while webhooks or policies are compiled, so that concurrent requests do not repeat it.
    compiling: Mutex<()>,
    guard: Option<AdmissionGuard>,
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
        guard: Option<AdmissionGuard>,
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
            metrics: AdmissionMetrics::new(metrics, config.plugins.enabled()),
            configurations,
            release: k8s_cel::Release(gates.release().minor()),
            compiled: ArcSwapOption::empty(),
            compiling: Mutex::new(()),
            guard,
        }
    }

    /// The agreement of servers on configurations.
    pub(crate) fn guard(&self) -> Option<&AdmissionGuard> {
        self.guard.as_ref()
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

    /// Records the run of a validating plugin that is not part of the chain.
    pub(crate) fn observe_plugin(
        &self,
        plugin: &'static str,
        operation: Operation,
        is_rejected: bool,
        duration: Duration,
    ) {
        self.metrics.observe_plugin(plugin, AdmissionPhase::Validating, operation, is_rejected, duration);
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

    /// The policies as the cache has them now. After a change, what changed is compiled.
    pub(super) fn policies(&self) -> Arc<PolicySet> {
        if let Some(policies) = self.current_policies(&self.policy_snapshots()) {
            return policies;
        }
        let _compiling = self.compiling.lock();
        let inputs = self.policy_snapshots();
        if let Some(policies) = self.current_policies(&inputs) {
            return policies;
        }
        let before = self.compiled_policies.load();
        let before = before.as_ref().map(|compiled| compiled.policies.clone()).unwrap_or_default();
        // Versions have the same fields.
        let [policies, bindings, mutating, mutating_bindings] = inputs.each_ref().map(|it| states_of(it.as_deref()));
        let policies = before.update([policies, bindings], [mutating, mutating_bindings], self.release);
        let policies = Arc::new(policies);
        self.compiled_policies.store(Some(Arc::new(CompiledPolicies { inputs, policies: policies.clone() })));
        policies
    }

    fn policy_snapshots(&self) -> [Option<Arc<ResourceSnapshot>>; 4] {
        self.policy_caches.each_ref().map(|cache| cache.as_ref().map(|cache| cache.snapshot()))
    }

    fn current_policies(&self, inputs: &[Option<Arc<ResourceSnapshot>>; 4]) -> Option<Arc<PolicySet>> {
        let compiled = self.compiled_policies.load();
        let compiled = compiled.as_ref().filter(|compiled| is_same(&compiled.inputs, inputs))?;
        Some(compiled.policies.clone())
    }

    /// The webhooks as the cache has their configurations now. After a change, what changed is compiled.
    pub(super) fn webhooks(&self) -> Arc<WebhookSet> {
        if let Some(webhooks) = self.current_webhooks(&self.webhook_snapshots()) {
            return webhooks;
        }
        let _compiling = self.compiling.lock();
        let inputs = self.webhook_snapshots();
        if let Some(webhooks) = self.current_webhooks(&inputs) {
            return webhooks;
        }
        let before = self.compiled.load();
        let before = before.as_ref().map(|compiled| compiled.webhooks.clone()).unwrap_or_default();
        // Configurations are stored in version v1 by every release, so that they are read as stored.
        let [mutating, validating] = inputs.each_ref().map(|input| states_of(input.as_deref()));
        let webhooks = Arc::new(before.update(mutating, validating, self.release));
        self.compiled.store(Some(Arc::new(CompiledWebhooks { inputs, webhooks: webhooks.clone() })));
        webhooks
    }

    fn webhook_snapshots(&self) -> [Option<Arc<ResourceSnapshot>>; 2] {
        self.configurations.each_ref().map(|cache| cache.as_ref().map(|cache| cache.snapshot()))
    }

    fn current_webhooks(&self, inputs: &[Option<Arc<ResourceSnapshot>>; 2]) -> Option<Arc<WebhookSet>> {
        let compiled = self.compiled.load();
        let compiled = compiled.as_ref().filter(|compiled| is_same(&compiled.inputs, inputs))?;
        Some(compiled.webhooks.clone())
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

/// Each object with what identifies its state.
fn states_of(snapshot: Option<&ResourceSnapshot>) -> Vec<(StateId, impl FnOnce() -> Option<JsonObject>)> {
    let entries = snapshot.into_iter().flat_map(|snapshot| snapshot.entries.values());
    entries.map(|cached| ((cached.key.to_vec(), cached.revision.0), || read(cached))).collect()
}

fn read(cached: &CachedEntry) -> Option<JsonObject> {
    match &cached.value {
        CachedValue::Object(stored) => Some(stored.to_object()),
        CachedValue::Raw(_) => None,
        CachedValue::Undecodable(_) => {
            tracing::error!(key = %cached.key.escape_ascii(), "configuration of admission cannot be read");
            None
        }
    }
}
