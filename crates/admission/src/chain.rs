//! The sequence on a write: mutating plugins in order, at most once more if a webhook asked, then validating plugins.

use std::cell::{OnceCell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use api::json::JsonObject;
use api::{GroupResource, GroupVersionKind, Status};
use kinds::FeatureGates;
use serde_json::Value;

use crate::attributes::{Attributes, Operation};
use crate::notes::Notes;
use crate::plugin_set::{self, PluginSet};
use crate::plugins::{self, Plugin, Settings};
use crate::policy::{self, PolicySet};
use crate::ports::{Authorization, EquivalentResource, ServedKinds, View};
use crate::refusal::Refusal;
use crate::webhook::{Answers, PendingCall, Reinvocation, WebhookSet, mutating, review, validating};

const MUTATING_POLICIES: &str = "MutatingAdmissionPolicy";
const VALIDATING_POLICIES: &str = "ValidatingAdmissionPolicy";
/// The plugin that calls mutating webhooks.
pub const MUTATING_WEBHOOKS: &str = "MutatingAdmissionWebhook";
/// The plugin that calls validating webhooks.
pub const VALIDATING_WEBHOOKS: &str = "ValidatingAdmissionWebhook";

/// A write on its way through the sequence.
#[derive(Clone, Debug)]
pub struct Write<'a> {
    /// All but the object.
    pub attributes: Attributes<'a>,
    /// The new object in the version of the request; `None` for a delete.
    pub object: Option<JsonObject>,
    /// The stored object in the version of the request; `None` for a create.
    pub old_object: Option<&'a JsonObject>,
    /// Warnings and audit annotations so far.
    pub notes: Notes,
}

/// Reads a monotonic clock. Only metrics depend on it.
pub type Clock = fn() -> Duration;

/// What a run of the sequence reads.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// Other objects.
    pub view: &'a dyn View,
    /// What the server serves.
    pub kinds: &'a dyn ServedKinds,
    /// Who may do what.
    pub authorization: &'a dyn Authorization,
    /// Webhooks as of the same revision as the view or later.
    pub webhooks: &'a WebhookSet,
    /// Policies as of the same revision as the view or later.
    pub policies: &'a PolicySet,
    /// Answers of webhooks to this request so far.
    pub answers: &'a Answers,
    /// The same number in every run for one request, so that a run that is repeated decides the same.
    pub random: u64,
    /// For the durations of [`Notes::checks`] and [`Notes::plugin_runs`].
    pub clock: Clock,
    /// Empty at the start of a run.
    pub lookups: &'a RunLookups,
}

/// What many webhooks and policies of one run look up, each looked up once.
#[derive(Debug, Default)]
pub struct RunLookups {
    namespace: OnceCell<Result<Option<JsonObject>, Refusal>>,
    equivalents: OnceCell<Vec<EquivalentResource>>,
    /// The `request` variable of expressions, by the kind in which an object is seen.
    requests: RefCell<Vec<(GroupVersionKind, Rc<Value>)>>,
}

impl Context<'_> {
    /// The namespace of the request.
    pub(crate) fn namespace(&self, attributes: &Attributes<'_>) -> Result<Option<&JsonObject>, Refusal> {
        let namespaces = GroupResource { group: "", resource: "namespaces" };
        let find = || self.view.get(namespaces, "", attributes.namespace);
        self.lookups.namespace.get_or_init(find).as_ref().map(Option::as_ref).map_err(Refusal::clone)
    }

    /// Other versions of the resource of the request.
    pub(crate) fn equivalents(&self, attributes: &Attributes<'_>) -> &[EquivalentResource] {
        let find = || self.kinds.equivalents(attributes.resource, attributes.subresource);
        self.lookups.equivalents.get_or_init(find)
    }

    /// The `request` variable of match conditions, for an object that is seen in a kind.
    pub(crate) fn request_value(&self, attributes: &Attributes<'_>, kind: &GroupVersionKind) -> Rc<Value> {
        let mut requests = self.lookups.requests.borrow_mut();
        if let Some((_, request)) = requests.iter().find(|(known, _)| known == kind) {
            return request.clone();
        }
        let request = Rc::new(review::request_value(attributes, kind));
        requests.push((kind.clone(), request.clone()));
        request
    }
}

/// Why a run of the sequence ended early.
#[derive(Debug)]
pub enum Interruption {
    /// The write is not admitted.
    Refused(Box<Status>),
    /// Webhooks must be called, in parallel if there are several; then the sequence runs again with their answers.
    CallsNeeded(Vec<PendingCall>),
}

/// The plugins of a server.
#[derive(Debug)]
pub struct Chain {
    plugins: Vec<ChainLink>,
    settings: Settings,
    gates: FeatureGates,
}

#[derive(Debug)]
enum ChainLink {
    BuiltIn(&'static Plugin),
    MutatingPolicies,
    MutatingWebhooks,
    ValidatingPolicies,
    ValidatingWebhooks,
}

impl ChainLink {
    const fn name(&self) -> &'static str {
        match self {
            Self::BuiltIn(plugin) => plugin.name,
            Self::MutatingPolicies => MUTATING_POLICIES,
            Self::MutatingWebhooks => MUTATING_WEBHOOKS,
            Self::ValidatingPolicies => VALIDATING_POLICIES,
            Self::ValidatingWebhooks => VALIDATING_WEBHOOKS,
        }
    }
}

impl Chain {
    /// The plugins of a set whose gates are on.
    pub fn new(plugin_set: &PluginSet, settings: Settings, gates: FeatureGates) -> Self {
        let active = plugin_set.enabled().iter().filter(|name| plugin_set::is_active(name, &gates));
        let plugins = active
            .filter_map(|name| match *name {
                MUTATING_POLICIES => Some(ChainLink::MutatingPolicies),
                VALIDATING_POLICIES => Some(ChainLink::ValidatingPolicies),
                MUTATING_WEBHOOKS => Some(ChainLink::MutatingWebhooks),
                VALIDATING_WEBHOOKS => Some(ChainLink::ValidatingWebhooks),
                name => plugins::find(name).map(ChainLink::BuiltIn),
            })
            .collect();
        Self { plugins, settings, gates }
    }

    /// True if this crate has a plugin.
    pub fn is_built(name: &str) -> bool {
        // The caller runs ResourceQuota after the chain, see `quota`.
        const DYNAMIC: [&str; 5] =
            [MUTATING_POLICIES, MUTATING_WEBHOOKS, "ResourceQuota", VALIDATING_POLICIES, VALIDATING_WEBHOOKS];
        DYNAMIC.contains(&name) || plugins::find(name).is_some()
    }

    /// Runs the mutating plugins.
    pub fn mutate(&self, write: &mut Write<'_>, context: &Context<'_>) -> Result<(), Interruption> {
        let mut reinvocation = [Reinvocation::default(), Reinvocation::default()];
        self.mutate_once(write, context, &mut reinvocation)?;
        if reinvocation.iter().any(Reinvocation::is_requested) {
            reinvocation.iter_mut().for_each(Reinvocation::begin_second_round);
            self.mutate_once(write, context, &mut reinvocation)?;
        }
        Ok(())
    }

    fn mutate_once(
        &self,
        write: &mut Write<'_>,
        context: &Context<'_>,
        [of_policies, of_webhooks]: &mut [Reinvocation; 2],
    ) -> Result<(), Interruption> {
        for link in &self.plugins {
            let started = (context.clock)();
            let result = match link {
                ChainLink::MutatingPolicies => policy::mutate(write, context, of_policies),
                ChainLink::MutatingWebhooks => mutating::dispatch(write, context, of_webhooks),
                ChainLink::ValidatingPolicies | ChainLink::ValidatingWebhooks => continue,
                ChainLink::BuiltIn(plugin) => match plugin.admit {
                    Some(admit) if plugin.handles(write.attributes.operation) => {
                        admit(write, &self.environment(context)).map_err(|refusal| refused(write, refusal))
                    }
                    Some(_) | None => continue,
                },
            };
            write.notes.add_plugin_run(link.name(), (context.clock)().saturating_sub(started));
            result?;
        }
        Ok(())
    }

    /// Runs the validating plugins on what is going to be stored.
    pub fn validate(&self, write: &mut Write<'_>, context: &Context<'_>) -> Result<(), Interruption> {
        for link in &self.plugins {
            let started = (context.clock)();
            let result = match link {
                ChainLink::MutatingPolicies | ChainLink::MutatingWebhooks => continue,
                ChainLink::ValidatingPolicies => policy::validate(write, context),
                ChainLink::ValidatingWebhooks => validating::dispatch(write, context),
                ChainLink::BuiltIn(plugin) => match plugin.validate {
                    Some(validate) if plugin.handles(write.attributes.operation) => {
                        validate(write, &self.environment(context)).map_err(|refusal| refused(write, refusal))
                    }
                    Some(_) | None => continue,
                },
            };
            write.notes.add_plugin_run(link.name(), (context.clock)().saturating_sub(started));
            result?;
        }
        Ok(())
    }

    fn environment<'e>(&'e self, context: &'e Context<'_>) -> Environment<'e> {
        Environment {
            view: context.view,
            authorization: context.authorization,
            settings: &self.settings,
            gates: &self.gates,
            random: context.random,
        }
    }
}

/// What built-in plugins read besides the write.
#[derive(Clone, Copy)]
pub(crate) struct Environment<'a> {
    pub(crate) view: &'a dyn View,
    pub(crate) authorization: &'a dyn Authorization,
    pub(crate) settings: &'a Settings,
    pub(crate) gates: &'a FeatureGates,
    pub(crate) random: u64,
}

impl Plugin {
    fn handles(&self, operation: Operation) -> bool {
        self.operations.contains(&operation)
    }
}

impl Write<'_> {
    /// The interruption for a refusal of this write.
    pub(crate) fn refused(&self, refusal: impl Into<Refusal>) -> Interruption {
        refused(self, refusal.into())
    }
}

fn refused(write: &Write<'_>, refusal: Refusal) -> Interruption {
    Interruption::Refused(Box::new(refusal.into_status(&write.attributes, write.object.as_ref())))
}
