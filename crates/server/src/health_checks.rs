//! The health checks of an API server: those of kube-apiserver, by its names, as far as they say something about this
//! server.

use apiserver::bootstrap::BootstrapProgress;
use edge::health::{HealthCheck, HealthPages};
use tokio::sync::watch;

use crate::run::ServerCore;
use crate::storage::StorageProbe;

/// Start hooks of kube-apiserver that have run once the watch cache is filled: from then on admission decides, and the
/// controllers of APIServices and the OpenAPI documents follow what is stored.
const CACHE_HOOKS: [&str; 8] = [
    "start-apiserver-admission-initializer",
    "generic-apiserver-start-informers",
    "start-kube-aggregator-informers",
    "apiservice-registration-controller",
    "apiservice-status-local-available-controller",
    "apiservice-status-remote-available-controller",
    "apiservice-openapi-controller",
    "storage-readiness",
];
/// Start hooks of kube-apiserver that have run once the stored definitions are served.
const DEFINITION_HOOKS: [&str; 3] =
    ["start-apiextensions-informers", "start-apiextensions-controllers", "crd-informer-synced"];
/// Start hooks of kube-apiserver that have run once the bootstrap objects exist and addresses of services are repaired.
const BOOTSTRAP_HOOKS: [&str; 6] = [
    "rbac/bootstrap-roles",
    "start-system-namespaces-controller",
    "scheduling/bootstrap-system-priority-classes",
    "start-cluster-authentication-info-controller",
    "bootstrap-controller",
    "start-service-ip-repair-controllers",
];
/// What has run once the automatic APIServices are stored.
const REGISTRATION_CHECKS: [&str; 2] = ["poststarthook/kube-apiserver-autoregistration", "autoregister-completion"];

/// The checks of storage, of what is read from it and of what is written to it at start.
pub(crate) fn health_checks(
    probe: StorageProbe,
    core: &ServerCore,
    started: BootstrapProgress,
    has_registered: &watch::Receiver<bool>,
) -> Vec<HealthCheck> {
    let (cache, policies) = (core.cache.clone(), core.policy_progress.clone());
    let readiness_probe = probe.clone();
    let mut checks = vec![
        HealthCheck::new("log", HealthPages::All, || Ok(())),
        HealthCheck::new("etcd", HealthPages::All, move || probe.check()),
        HealthCheck::new("etcd-readiness", HealthPages::ReadyOnly, move || readiness_probe.check()),
        HealthCheck::new("informer-sync", HealthPages::ReadyOnly, move || {
            match (cache.has_synced(), policies.has_synced()) {
                (false, _) => Err("the watch cache has not synced".to_owned()),
                (true, false) => Err("the RBAC index has not synced".to_owned()),
                (true, true) => Ok(()),
            }
        }),
    ];
    let cache = core.cache.clone();
    checks.extend(hooks(CACHE_HOOKS, "the watch cache has not synced", move || cache.has_synced()));
    let definitions = core.server.definitions();
    let unread = "the custom resource definitions have not been read yet";
    checks.extend(hooks(DEFINITION_HOOKS, unread, move || definitions.has_synced()));
    checks.extend(hooks(BOOTSTRAP_HOOKS, "not finished", move || started.is_done()));
    checks.extend(REGISTRATION_CHECKS.map(|name| {
        let has_registered = has_registered.clone();
        let check = move || passed_if(*has_registered.borrow(), "the automatic APIServices are not written yet");
        HealthCheck::new(name, HealthPages::All, check)
    }));
    let extension_apis = core.server.extension_apis();
    checks.push(HealthCheck::new("poststarthook/apiservice-discovery-controller", HealthPages::ReadyOnly, move || {
        passed_if(extension_apis.has_synced(), "not every extension API server was asked yet")
    }));
    checks
}

/// The checks of start hooks that have run once `has_run` is true.
fn hooks<const N: usize>(
    names: [&'static str; N],
    failure: &'static str,
    has_run: impl Fn() -> bool + Clone + Send + Sync + 'static,
) -> [HealthCheck; N] {
    names.map(|name| {
        let has_run = has_run.clone();
        HealthCheck::new(format!("poststarthook/{name}"), HealthPages::All, move || passed_if(has_run(), failure))
    })
}

fn passed_if(is_passed: bool, failure: &str) -> Result<(), String> {
    if is_passed { Ok(()) } else { Err(failure.to_owned()) }
}
