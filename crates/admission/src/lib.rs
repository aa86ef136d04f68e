//! The sequence on a write: which plugins look at it, in which order, and what they make of it.
//!
//! The crate is pure: no I/O, clock or async. Other objects come in through a [`View`], authorization and the kinds that
//! are served through traits, and the answers of webhooks as values ([`Answers`]). Plugins return a [`Refusal`] with
//! Kubernetes' text, or change the object.
//!
//! Reading order: [`attributes`], [`chain`], one of the plugins, then [`webhook`].

pub mod allocation;
pub mod attributes;
mod candidates;
pub mod chain;
mod compiled;
pub mod configuration;
mod notes;
pub mod plugin_set;
pub mod plugins;
pub mod policy;
pub mod ports;
mod quantity;
pub mod quota;
mod refusal;
pub mod webhook;

pub use attributes::{Attributes, Operation};
pub use chain::{Chain, Clock, Context, Interruption, RunLookups, Write};
pub use compiled::StateId;
pub use configuration::PluginConfiguration;
pub use notes::{CheckOutcome, Notes, PolicyCheck};
pub use plugin_set::{PluginSet, PluginSetError};
pub use plugins::Settings;
pub use policy::PolicySet;
pub use ports::{Authorization, EquivalentResource, ParamResource, ServedKinds, View};
pub use refusal::Refusal;
pub use webhook::{Answer, Answers, CallFailure, PendingCall, Webhook, WebhookSet};

#[cfg(test)]
mod tests;
