//! The `--controllers` flag, by kube-controller-manager's rules.

use std::fmt;

/// A controller that this server can run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Controller {
    /// Deletes the contents of terminating namespaces and finalizes them.
    Namespace,
    /// Deletes objects whose owners are gone.
    GarbageCollector,
    /// Creates the service account `default` in every namespace.
    ServiceAccount,
    /// Publishes the ConfigMap `kube-root-ca.crt` in every namespace.
    RootCaPublisher,
    /// Keeps the status of resource quotas.
    ResourceQuota,
    /// Type-checks validating admission policies.
    PolicyStatus,
    /// Lets unused persistent volume claims go that are being deleted.
    ClaimProtection,
    /// Lets persistent volumes go that are being deleted and not bound.
    VolumeProtection,
    /// Lets unused volume attributes classes go that are being deleted.
    ClassProtection,
    /// Executes StorageVersionMigrations.
    StorageVersionMigrator,
}

impl Controller {
    const ALL: [Self; 10] = [
        Self::Namespace,
        Self::GarbageCollector,
        Self::ServiceAccount,
        Self::RootCaPublisher,
        Self::ResourceQuota,
        Self::PolicyStatus,
        Self::ClaimProtection,
        Self::VolumeProtection,
        Self::ClassProtection,
        Self::StorageVersionMigrator,
    ];

    /// kube-controller-manager's name of the controller, and its older alias.
    pub fn names(self) -> [&'static str; 2] {
        match self {
            Self::Namespace => ["namespace-controller", "namespace"],
            Self::GarbageCollector => ["garbage-collector-controller", "garbagecollector"],
            Self::ServiceAccount => ["serviceaccount-controller", "serviceaccount"],
            Self::RootCaPublisher => ["root-ca-certificate-publisher-controller", "root-ca-cert-publisher"],
            Self::ResourceQuota => ["resourcequota-controller", "resourcequota"],
            Self::PolicyStatus => ["validatingadmissionpolicy-status-controller", "validatingadmissionpolicy-status"],
            Self::ClaimProtection => ["persistentvolumeclaim-protection-controller", "pvc-protection"],
            Self::VolumeProtection => ["persistentvolume-protection-controller", "pv-protection"],
            Self::ClassProtection => ["volumeattributesclass-protection-controller", "vac-protection"],
            Self::StorageVersionMigrator => ["storage-version-migrator-controller", "svm"],
        }
    }

    fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|controller| controller.names().contains(&name))
    }
}

/// The set of enabled controllers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllerSelection(Vec<Controller>);

/// A name in `--controllers` that is no controller.
#[derive(Debug, PartialEq, Eq)]
pub struct UnknownController(String);

impl fmt::Display for UnknownController {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = Controller::ALL.iter().map(|controller| controller.names()[0]).collect();
        write!(f, "{:?} is not a controller of this server; there are {}", self.0, names.join(", "))
    }
}

impl std::error::Error for UnknownController {}

impl ControllerSelection {
    /// Parses a list such as `*,-garbagecollector`: `*` enables all that are not named, `x` enables and `-x` disables
    /// one. The first mention counts.
    pub fn parse<'a>(list: impl IntoIterator<Item = &'a str>) -> Result<Self, UnknownController> {
        let mut named: Vec<(Controller, bool)> = Vec::new();
        let mut has_star = false;
        for entry in list.into_iter().filter(|entry| !entry.is_empty()) {
            if entry == "*" {
                has_star = true;
                continue;
            }
            let (name, is_wanted) = entry.strip_prefix('-').map_or((entry, true), |name| (name, false));
            let controller = Controller::parse(name).ok_or_else(|| UnknownController(name.to_owned()))?;
            named.push((controller, is_wanted));
        }
        let is_selected = |controller: &Controller| {
            let mention = named.iter().find(|(named, _)| named == controller);
            mention.map_or(has_star, |(_, is_wanted)| *is_wanted)
        };
        Ok(Self(Controller::ALL.into_iter().filter(is_selected).collect()))
    }

    /// True if the controller is enabled.
    pub fn is_enabled(&self, controller: Controller) -> bool {
        self.0.contains(&controller)
    }

    /// True if no controller is enabled.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(list: &str, expected: &[Controller]) {
        assert_eq!(ControllerSelection::parse(list.split(',')), Ok(ControllerSelection(expected.to_vec())), "{list}");
    }

    #[test]
    fn parse_selects_controllers_by_name_and_star() {
        use Controller::{GarbageCollector, Namespace, StorageVersionMigrator};
        let all_but = |left_out: &[Controller]| {
            Controller::ALL.into_iter().filter(|it| !left_out.contains(it)).collect::<Vec<_>>()
        };
        check("*", &Controller::ALL);
        check("", &[]);
        check("*,-namespace", &all_but(&[Namespace]));
        check("-garbage-collector-controller,*,-svm", &all_but(&[GarbageCollector, StorageVersionMigrator]));
        check("pvc-protection,pv-protection", &[Controller::ClaimProtection, Controller::VolumeProtection]);
        check("namespace-controller,garbagecollector", &[Namespace, GarbageCollector]);
        check("-namespace,namespace", &[]);
        check("-namespace,-garbagecollector", &[]);
    }

    #[test]
    fn parse_rejects_unknown_controller_and_lists_known_ones() {
        let error = ControllerSelection::parse(["*", "-job"]).unwrap_err().to_string();
        assert!(
            error.starts_with("\"job\" is not a controller of this server; there are namespace-controller, "),
            "{error}"
        );
    }
}
