//! The admission plugins of this server and the webhooks that the store configures.

use std::sync::Arc;

use ::admission::{Chain, PluginSet, Settings, WebhookSet};
use api::GroupVersionResource;
use arc_swap::ArcSwapOption;
use kinds::{FeatureGates, Release};
use registry::{CachedValue, ResourceCache, ResourceSnapshot};
use webhook::WebhookClient;

use super::metrics::AdmissionMetrics;

const GROUP: &str = "admissionregistration.k8s.io";

/// Which plugins run, and their settings.
#[derive(Clone, Debug)]
pub struct AdmissionConfig {
    /// `--enable-admission-plugins` and `--disable-admission-plugins`.
    pub plugins: PluginSet,
    /// Flags of single plugins.
    pub settings: Settings,
}

impl AdmissionConfig {
    /// The plugins that a release runs by default, as far as this server has them.
    pub fn for_release(release: Release) -> Self {
        let plugins = PluginSet::from_flags(release, &[], &[], Chain::is_built).expect("no flag can be wrong");
        Self { plugins, settings: Settings::default() }
    }
}

/// The plugins of this server. Shared by all requests.
pub(crate) struct AdmissionControl {
    pub(super) chain: Chain,
    pub(super) client: Arc<WebhookClient>,
    pub(super) metrics: AdmissionMetrics,
    configurations: [Option<Arc<ResourceCache>>; 2],
    release: k8s_cel::Release,
    /// The webhooks of the last two snapshots that a request found.
    compiled: ArcSwapOption<CompiledWebhooks>,
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
        Self {
            chain: Chain::new(&config.plugins, config.settings.clone(), gates.clone()),
            client,
            metrics: AdmissionMetrics::new(metrics),
            configurations,
            release: k8s_cel::Release(gates.release().minor()),
            compiled: ArcSwapOption::empty(),
        }
    }

    /// True if the cache has any configuration of webhooks.
    pub(crate) fn has_webhooks(&self) -> bool {
        self.configurations.iter().flatten().any(|cache| !cache.snapshot().entries.is_empty())
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

fn is_same(left: &[Option<Arc<ResourceSnapshot>>; 2], right: &[Option<Arc<ResourceSnapshot>>; 2]) -> bool {
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
                tracing::error!(key = %cached.key.escape_ascii(), "webhook configuration cannot be read");
                None
            }
        })
        .collect()
}
