//! Which plugins run: Kubernetes' order, the defaults of a release, and the two flags.

use kinds::{FeatureGates, Release};

/// All plugins of kube-apiserver in their order of execution, and whether each is on by default.
const PLUGINS: &[PluginRow] = &[
    PluginRow::off("AlwaysAdmit"),
    PluginRow::off("NamespaceAutoProvision"),
    PluginRow::on("NamespaceLifecycle"),
    PluginRow::off("NamespaceExists"),
    PluginRow::off("LimitPodHardAntiAffinityTopology"),
    PluginRow::on("LimitRanger"),
    PluginRow::on("ServiceAccount"),
    PluginRow::off("NodeRestriction"),
    PluginRow::on("TaintNodesByCondition"),
    PluginRow::off("AlwaysPullImages"),
    PluginRow::off("ImagePolicyWebhook"),
    PluginRow::on("PodSecurity"),
    PluginRow::off("PodNodeSelector"),
    PluginRow::on("Priority"),
    PluginRow::on("DefaultTolerationSeconds"),
    PluginRow::off("PodTolerationRestriction"),
    PluginRow::off("EventRateLimit"),
    PluginRow::off("ExtendedResourceToleration"),
    PluginRow::on("DefaultStorageClass"),
    PluginRow::on("StorageObjectInUseProtection"),
    PluginRow::on("PodGroupProtection").since(Release::R36),
    PluginRow::off("OwnerReferencesPermissionEnforcement"),
    PluginRow::on("PersistentVolumeClaimResize"),
    PluginRow::on("RuntimeClass"),
    PluginRow::on("CertificateApproval"),
    PluginRow::on("CertificateSigning"),
    PluginRow::on("ClusterTrustBundleAttest"),
    PluginRow::on("CertificateSubjectRestriction"),
    PluginRow::on("DefaultIngressClass"),
    PluginRow::off("DenyServiceExternalIPs"),
    PluginRow::on("PodTopologyLabels").since(Release::R33),
    PluginRow::on("PodGroupWorkloadExists").since(Release::R36).removed(Release::R37),
    PluginRow::on("NodeDeclaredFeatureValidator").since(Release::R35),
    PluginRow::on("JobValidation").since(Release::R36).removed(Release::R37),
    PluginRow::on("PodResizeValidator").since(Release::R36),
    PluginRow::on("MutatingAdmissionPolicy").since(Release::R32),
    PluginRow::on("MutatingAdmissionWebhook"),
    PluginRow::on("ValidatingAdmissionPolicy"),
    PluginRow::on("ValidatingAdmissionWebhook"),
    PluginRow::on("ResourceQuota"),
    PluginRow::off("AlwaysDeny"),
];

#[derive(Clone, Copy)]
struct PluginRow {
    name: &'static str,
    is_default: bool,
    since: Release,
    /// The first release without it.
    removed: Option<Release>,
}

impl PluginRow {
    const fn on(name: &'static str) -> Self {
        Self { name, is_default: true, since: Release::OLDEST, removed: None }
    }

    const fn off(name: &'static str) -> Self {
        Self { name, is_default: false, since: Release::OLDEST, removed: None }
    }

    const fn since(self, since: Release) -> Self {
        Self { since, ..self }
    }

    const fn removed(self, release: Release) -> Self {
        Self { removed: Some(release), ..self }
    }

    fn is_in(&self, release: Release) -> bool {
        self.since <= release && self.removed.is_none_or(|removed| release < removed)
    }
}

/// The plugins that a server runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginSet {
    /// In order of execution.
    enabled: Vec<&'static str>,
    /// Plugins that would run and that this server does not have.
    not_built: Vec<&'static str>,
}

/// Why the flags for admission plugins are refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PluginSetError {
    /// A name that this release does not have.
    #[error("{flag} plugin {name:?} is unknown")]
    Unknown {
        /// Without dashes.
        flag: &'static str,
        /// As given.
        name: String,
    },
    /// A plugin of Kubernetes that this server does not have.
    #[error("enable-admission-plugins plugin {name:?} is not built into this server; remove it from the flag")]
    NotBuilt {
        /// As given.
        name: String,
    },
    /// Names in both flags.
    #[error("[{}] in enable-admission-plugins and disable-admission-plugins overlapped", names.join(" "))]
    Overlap {
        /// Sorted.
        names: Vec<String>,
    },
}

impl PluginSet {
    /// The default set of a release with the plugins of `--enable-admission-plugins` added and those of
    /// `--disable-admission-plugins` removed. `is_built` tells whether this server has a plugin: one that is enabled by
    /// name must be built, one of the default set may be missing.
    pub fn from_flags(
        release: Release,
        enable: &[&str],
        disable: &[&str],
        is_built: impl Fn(&str) -> bool,
    ) -> Result<Self, PluginSetError> {
        let rows = || PLUGINS.iter().filter(|row| row.is_in(release));
        for (flag, names) in [("enable-admission-plugins", enable), ("disable-admission-plugins", disable)] {
            if let Some(name) = names.iter().find(|name| !rows().any(|row| row.name == **name)) {
                return Err(PluginSetError::Unknown { flag, name: (*name).to_owned() });
            }
        }
        let mut overlap: Vec<String> =
            enable.iter().filter(|name| disable.contains(name)).map(|name| (*name).to_owned()).collect();
        if !overlap.is_empty() {
            overlap.sort_unstable();
            overlap.dedup();
            return Err(PluginSetError::Overlap { names: overlap });
        }
        let is_default = |name: &str| rows().any(|row| row.name == name && row.is_default);
        if let Some(name) = enable.iter().find(|name| !is_built(name) && !is_default(name)) {
            return Err(PluginSetError::NotBuilt { name: (*name).to_owned() });
        }
        let wanted = rows()
            .filter(|row| (row.is_default || enable.contains(&row.name)) && !disable.contains(&row.name))
            .map(|row| row.name);
        let (enabled, not_built) = wanted.partition(|name| is_built(name));
        Ok(Self { enabled, not_built })
    }

    /// The names in order of execution.
    pub fn enabled(&self) -> &[&'static str] {
        &self.enabled
    }

    /// Plugins that would run and that this server does not have, in order.
    pub fn not_built(&self) -> &[&'static str] {
        &self.not_built
    }

    /// True if a plugin runs.
    pub fn contains(&self, name: &str) -> bool {
        self.enabled.contains(&name)
    }
}

/// True if the gates that a plugin of the default set depends on are on.
pub(crate) fn is_active(name: &str, gates: &FeatureGates) -> bool {
    match name {
        "PodTopologyLabels" => gates.enabled("PodTopologyLabelsAdmission"),
        "MutatingAdmissionPolicy" => gates.enabled("MutatingAdmissionPolicy"),
        "NodeDeclaredFeatureValidator" => gates.enabled("NodeDeclaredFeatures"),
        "PodResizeValidator" => gates.enabled("InPlacePodVerticalScaling"),
        "ClusterTrustBundleAttest" => gates.enabled("ClusterTrustBundle"),
        _ => true,
    }
}
