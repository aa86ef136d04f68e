//! Admission: webhooks over real TLS, and built-in plugins.

mod configuration;
mod forwarded;
mod plugins;
mod quotas;
mod webhooks;
