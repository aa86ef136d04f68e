//! Built-in plugins, one file each.

mod certificates;
mod default_ingress_class;
mod default_toleration_seconds;
mod limit_ranger;
mod namespace_lifecycle;
mod node_restriction;
mod nodes;
mod pod_resize;
mod pod_security;
mod priority;
mod runtime_class;
mod service_account;
mod storage;

pub use pod_security::PodSecuritySettings;

use crate::attributes::Operation;
use crate::chain::{Environment, Write};
use crate::refusal::Refusal;

/// Settings of plugins, from flags.
#[derive(Clone, Debug)]
pub struct Settings {
    /// `--default-not-ready-toleration-seconds`.
    pub not_ready_toleration_seconds: i64,
    /// `--default-unreachable-toleration-seconds`.
    pub unreachable_toleration_seconds: i64,
    /// The configuration of PodSecurity.
    pub pod_security: PodSecuritySettings,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            not_ready_toleration_seconds: 300,
            unreachable_toleration_seconds: 300,
            pod_security: PodSecuritySettings::default(),
        }
    }
}

/// A step of a plugin.
type Step = fn(&mut Write<'_>, &Environment<'_>) -> Result<(), Refusal>;

/// A built-in plugin.
#[derive(Debug)]
pub(crate) struct Plugin {
    pub(crate) name: &'static str,
    pub(crate) operations: &'static [Operation],
    /// `None` if the plugin mutates nothing.
    pub(crate) admit: Option<Step>,
    /// `None` if the plugin checks nothing.
    pub(crate) validate: Option<Step>,
}

const PLUGINS: &[&Plugin] = &[
    &namespace_lifecycle::PLUGIN,
    &limit_ranger::PLUGIN,
    &service_account::PLUGIN,
    &node_restriction::PLUGIN,
    &nodes::TAINT_NODES,
    &pod_security::PLUGIN,
    &priority::PLUGIN,
    &default_toleration_seconds::PLUGIN,
    &storage::DEFAULT_STORAGE_CLASS,
    &storage::IN_USE_PROTECTION,
    &storage::CLAIM_RESIZE,
    &runtime_class::PLUGIN,
    &certificates::APPROVAL,
    &certificates::SIGNING,
    &certificates::ATTEST,
    &certificates::SUBJECT_RESTRICTION,
    &default_ingress_class::PLUGIN,
    &nodes::TOPOLOGY,
    &pod_resize::DECLARED_FEATURES,
    &pod_resize::RESIZE,
];

/// The plugin of a name; `None` if this crate does not have it.
pub(crate) fn find(name: &str) -> Option<&'static Plugin> {
    PLUGINS.iter().copied().find(|plugin| plugin.name == name)
}
