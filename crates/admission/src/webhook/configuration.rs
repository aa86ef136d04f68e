//! Webhook configurations as one compiled snapshot.

use std::collections::HashMap;
use std::sync::Arc;

use api::json::JsonObject;
use api::selector::LabelSelector;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use object::unstructured::{integer, metadata_string, nested_object, objects, text, texts};

use super::conditions::{MatchCondition, compile_conditions};
use super::selector::parse_label_selector;
use crate::candidates::CandidateIndex;
use crate::chain::{Context, Write};
use crate::compiled::{StateId, reuse};

/// The timeout of a webhook whose configuration has none, as Kubernetes' defaulting sets it.
const DEFAULT_TIMEOUT_SECONDS: u32 = 10;
/// The longest timeout that a configuration may have.
const TIMEOUT_SECONDS_MAX: u32 = 30;
/// The port of a service that a configuration does not name.
const DEFAULT_PORT: u16 = 443;

/// The two kinds of configurations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConfigurationKind {
    /// `MutatingWebhookConfiguration`.
    Mutating,
    /// `ValidatingWebhookConfiguration`.
    Validating,
}

/// What happens if a webhook cannot be called or answers nonsense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailurePolicy {
    /// The write goes on.
    Ignore,
    /// The write is refused.
    Fail,
}

/// What a webhook does besides answering.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SideEffects {
    /// Nothing, or nothing for dry runs.
    NoneOnDryRun,
    /// Something, or unknown.
    Some,
}

/// How a webhook is reached.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ClientConfig {
    /// A URL or a service.
    pub endpoint: Endpoint,
    /// PEM; empty for the system's roots.
    pub ca_bundle: Vec<u8>,
}

/// Where a webhook is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Endpoint {
    /// `https://host[:port]/path`.
    Url(String),
    /// A service of the cluster.
    Service(ServiceReference),
}

/// A service of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ServiceReference {
    /// The namespace of the service.
    pub namespace: String,
    /// The name of the service.
    pub name: String,
    /// Starts with a slash, or is empty.
    pub path: String,
    /// The port of the service.
    pub port: u16,
}

/// One webhook of a configuration.
#[derive(Debug)]
pub struct Webhook {
    /// Of the configuration that it stands in.
    pub kind: ConfigurationKind,
    /// The name of the configuration.
    pub configuration: String,
    /// The name of the webhook.
    pub name: String,
    /// Where to call it.
    pub client: ClientConfig,
    /// What its failure means.
    pub failure_policy: FailurePolicy,
    /// `None` if the configuration does not say.
    pub side_effects: Option<SideEffects>,
    /// Between 1 and 30.
    pub timeout_seconds: u32,
    pub(crate) criteria: MatchCriteria,
    pub(crate) conditions: Vec<MatchCondition>,
    pub(crate) review_versions: Vec<String>,
    pub(crate) is_reinvoked: bool,
    /// Unique among the webhooks of all configurations of its kind.
    pub(crate) id: String,
}

/// Which writes a webhook, a policy or a binding is for.
#[derive(Clone, Debug)]
pub(crate) struct MatchCriteria {
    pub(crate) rules: Vec<Rule>,
    /// Rules whose writes do not match, whatever `rules` say.
    pub(crate) excluded: Vec<Rule>,
    /// True if every resource matches, so that `rules` does not count.
    pub(crate) is_of_all_resources: bool,
    pub(crate) matches_equivalent: bool,
    /// `Err` for a selector that cannot be read.
    pub(crate) namespace_selector: Result<LabelSelector, String>,
    pub(crate) object_selector: Result<LabelSelector, String>,
}

impl MatchCriteria {
    /// Reads the rules under a name, and what stands beside them.
    pub(crate) fn read(object: &JsonObject, rules: &str) -> Self {
        let selector = |name| nested_object(object, &[name]).map_or(Ok(LabelSelector::default()), parse_label_selector);
        Self {
            rules: objects(object, &[rules]).map(Rule::read).collect(),
            excluded: objects(object, &["excludeResourceRules"]).map(Rule::read).collect(),
            is_of_all_resources: false,
            matches_equivalent: text(object, &["matchPolicy"]) != "Exact",
            namespace_selector: selector("namespaceSelector"),
            object_selector: selector("objectSelector"),
        }
    }
}

/// What a webhook or a policy wants to see.
#[derive(Clone, Debug)]
pub(crate) struct Rule {
    pub(crate) operations: Vec<String>,
    pub(crate) groups: Vec<String>,
    pub(crate) versions: Vec<String>,
    pub(crate) resources: Vec<String>,
    /// `*`, `Cluster` or `Namespaced`.
    pub(crate) scope: String,
    /// Names of objects; empty for all.
    pub(crate) names: Vec<String>,
}

/// All webhooks, in the order in which they are called.
#[derive(Debug, Default)]
pub struct WebhookSet {
    mutating: WebhookList,
    validating: WebhookList,
}

#[derive(Debug, Default)]
struct WebhookList {
    webhooks: Vec<Arc<Webhook>>,
    /// Positions of the webhooks.
    index: CandidateIndex,
    /// All configurations, so that only what changed is compiled again.
    compiled: HashMap<StateId, Arc<Configuration>>,
}

/// The webhooks of one configuration object.
#[derive(Debug)]
struct Configuration {
    name: String,
    webhooks: Vec<Arc<Webhook>>,
}

impl WebhookSet {
    /// The configurations of a later revision, in any order. What did not change is taken from this set; the rest is read
    /// and compiled. An object that cannot be read is left out; what it lacks gets Kubernetes' default.
    pub fn update<R>(
        &self,
        mutating: Vec<(StateId, R)>,
        validating: Vec<(StateId, R)>,
        release: k8s_cel::Release,
    ) -> Self
    where
        R: FnOnce() -> Option<JsonObject>,
    {
        Self {
            mutating: self.mutating.update(ConfigurationKind::Mutating, mutating, release),
            validating: self.validating.update(ConfigurationKind::Validating, validating, release),
        }
    }

    /// True if there is no webhook at all.
    pub fn is_empty(&self) -> bool {
        self.mutating.webhooks.is_empty() && self.validating.webhooks.is_empty()
    }

    /// The webhooks of a kind that can match a write, each with its position among all of the kind. `object` is the
    /// object as mutated so far.
    pub(crate) fn candidates(
        &self,
        kind: ConfigurationKind,
        write: &Write<'_>,
        object: Option<&JsonObject>,
        context: &Context<'_>,
    ) -> Vec<(usize, &Arc<Webhook>)> {
        let list = match kind {
            ConfigurationKind::Mutating => &self.mutating,
            ConfigurationKind::Validating => &self.validating,
        };
        let positions = list.index.find(write, object, context);
        positions.into_iter().map(|position| (position, &list.webhooks[position])).collect()
    }
}

impl WebhookList {
    fn update<R>(&self, kind: ConfigurationKind, objects: Vec<(StateId, R)>, release: k8s_cel::Release) -> Self
    where
        R: FnOnce() -> Option<JsonObject>,
    {
        let compiled = reuse(&self.compiled, objects, |object| Configuration::compile(kind, object, release));
        let mut configurations: Vec<&Arc<Configuration>> = compiled.values().collect();
        configurations.sort_by(|one, other| one.name.cmp(&other.name));
        let webhooks = configurations.into_iter().flat_map(|configuration| &configuration.webhooks).cloned().collect();
        let mut list = Self { webhooks, compiled, ..Self::default() };
        for (position, webhook) in list.webhooks.iter().enumerate() {
            list.index.add(position, &webhook.criteria);
        }
        list
    }
}

/// Splits `pods/status`; the subresource is empty if there is none.
pub(crate) fn split_resource(resource: &str) -> (&str, &str) {
    resource.split_once('/').unwrap_or((resource, ""))
}

impl Configuration {
    fn compile(kind: ConfigurationKind, configuration: &JsonObject, release: k8s_cel::Release) -> Self {
        let configuration_name = metadata_string(configuration, "name");
        let mut count_by_name = HashMap::<&str, usize>::new();
        let webhooks = objects(configuration, &["webhooks"]).map(|webhook| {
            let name = text(webhook, &["name"]);
            let count = count_by_name.entry(name).or_default();
            let id = format!("{configuration_name}/{name}/{count}");
            *count += 1;
            Arc::new(Webhook::compile(kind, configuration_name, id, webhook, release))
        });
        Self { webhooks: webhooks.collect(), name: configuration_name.to_owned() }
    }
}

impl Webhook {
    fn compile(
        kind: ConfigurationKind,
        configuration: &str,
        id: String,
        webhook: &JsonObject,
        release: k8s_cel::Release,
    ) -> Self {
        let timeout = integer(webhook, &["timeoutSeconds"]).and_then(|seconds| u32::try_from(seconds).ok());
        Self {
            kind,
            configuration: configuration.to_owned(),
            name: text(webhook, &["name"]).to_owned(),
            client: ClientConfig::read(webhook),
            failure_policy: match text(webhook, &["failurePolicy"]) {
                "Ignore" => FailurePolicy::Ignore,
                _ => FailurePolicy::Fail,
            },
            side_effects: match text(webhook, &["sideEffects"]) {
                "" => None,
                "None" | "NoneOnDryRun" => Some(SideEffects::NoneOnDryRun),
                _ => Some(SideEffects::Some),
            },
            timeout_seconds: timeout.unwrap_or(DEFAULT_TIMEOUT_SECONDS).clamp(1, TIMEOUT_SECONDS_MAX),
            criteria: MatchCriteria::read(webhook, "rules"),
            conditions: compile_conditions(webhook, release),
            review_versions: texts(webhook, &["admissionReviewVersions"]).map(str::to_owned).collect(),
            is_reinvoked: text(webhook, &["reinvocationPolicy"]) == "IfNeeded",
            id,
        }
    }
}

impl Rule {
    fn read(rule: &JsonObject) -> Self {
        let list = |name| texts(rule, &[name]).map(str::to_owned).collect();
        let scope = match text(rule, &["scope"]) {
            "" => "*",
            scope => scope,
        };
        Self {
            operations: list("operations"),
            groups: list("apiGroups"),
            versions: list("apiVersions"),
            resources: list("resources"),
            scope: scope.to_owned(),
            names: list("resourceNames"),
        }
    }
}

impl ClientConfig {
    fn read(webhook: &JsonObject) -> Self {
        let field = |name| text(webhook, &["clientConfig", name]);
        let endpoint = match nested_object(webhook, &["clientConfig", "service"]) {
            None => Endpoint::Url(field("url").to_owned()),
            Some(service) => Endpoint::Service(ServiceReference {
                namespace: text(service, &["namespace"]).to_owned(),
                name: text(service, &["name"]).to_owned(),
                path: text(service, &["path"]).to_owned(),
                port: integer(service, &["port"]).and_then(|port| u16::try_from(port).ok()).unwrap_or(DEFAULT_PORT),
            }),
        };
        Self { endpoint, ca_bundle: BASE64_STANDARD.decode(field("caBundle")).unwrap_or_default() }
    }
}
