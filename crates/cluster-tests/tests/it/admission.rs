//! Admission: webhooks over real TLS, and built-in plugins.

mod configuration;
mod plugins;
mod quotas;
mod webhooks;
