//! Admission: webhooks over real TLS, and built-in plugins.

mod plugins;
mod policies;
pub(crate) mod policy_cases;
mod quotas;
mod webhooks;
