//! Admission: webhooks over real TLS, and built-in plugins.

mod configuration;
mod forwarded;
mod plugins;
mod policies;
pub(crate) mod policy_cases;
mod quotas;
mod reviews;
mod webhook_behaviours;
mod webhooks;
