//! Admission: webhooks over real TLS, and built-in plugins.

mod plugins;
mod quotas;
mod webhooks;
