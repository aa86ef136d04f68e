//! Admission webhooks, the pure part: which are called, with what, and what their answers mean.
//!
//! A run of the sequence performs no call. Where it needs an answer that [`Answers`] does not have, it ends with
//! [`crate::Interruption::CallsNeeded`]; the caller performs the calls, adds the answers and runs the sequence again. An
//! answer is kept under what was sent, so that a webhook is called again only if it would be sent something else.

mod answers;
mod conditions;
mod configuration;
pub(crate) mod matching;
pub(crate) mod mutating;
mod reinvocation;
mod response;
pub(crate) mod review;
pub(crate) mod selector;
pub(crate) mod validating;

pub use answers::{Answers, PendingCall};
pub(crate) use conditions::{
    CONDITIONS_COST_MAX, CelAuthorizer, OUT_OF_BUDGET, OUT_OF_BUDGET_START, aggregate, resource_check,
};
pub use configuration::{
    ClientConfig, ConfigurationKind, Endpoint, FailurePolicy, ServiceReference, SideEffects, Webhook, WebhookSet,
};
pub(crate) use configuration::{MatchCriteria, split_resource};
pub use mutating::PATCH_ANNOTATION;
pub(crate) use reinvocation::Reinvocation;
pub use response::{Answer, CallFailure};
