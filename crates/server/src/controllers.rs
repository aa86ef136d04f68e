//! The controllers: their users, and their start.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use access::User;
use anyhow::Context as _;
use apiserver::bootstrap;
use controllers::migrations::MigrationConfig;
use controllers::{ApiServerAddress, ControllerSelection, ControllerTokens, ServerTrust};
use kinds::ServedResources;
use store::Store;
use tasks::Tasks;

use crate::Config;
use crate::certificates::ServerCertificates;
use crate::stored_objects::StoreSurveys;

/// The interval of checks whether the bootstrap roles, which the controllers need, exist.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Random bytes per token.
const TOKEN_BYTES: usize = 32;
/// The namespace of the controllers' service accounts.
const SERVICE_ACCOUNT_NAMESPACE: &str = "kube-system";
/// The API group of storage migrations.
const MIGRATION_GROUP: &str = "storagemigration.k8s.io";

/// The controllers that run in this server.
#[derive(Clone, Debug)]
pub struct ControllerConfig {
    /// `--controllers`.
    pub selection: ControllerSelection,
    /// `--migrate-automatically`.
    pub migrates_automatically: bool,
    /// `--storage-migration-linger`: how long a server may still write after its identity lease is gone.
    pub migration_linger: Duration,
    /// `--root-ca-file`; `None`: the authority that signed a generated serving certificate.
    pub root_ca_file: Option<PathBuf>,
}

/// What the controllers get of the server that they run in.
pub(crate) struct ControllerPorts {
    /// Known to this server alone.
    pub(crate) tokens: ControllerTokens,
    /// Read for the proof of storage migrations.
    pub(crate) store: Arc<dyn Store>,
}

/// New tokens, known to this server alone.
pub(crate) fn random_tokens() -> ControllerTokens {
    ControllerTokens {
        namespace_controller: random_token(),
        garbage_collector: random_token(),
        service_account_controller: random_token(),
        root_ca_publisher: random_token(),
        resource_quota_controller: random_token(),
        policy_status_controller: random_token(),
        storage_version_migrator: random_token(),
        claim_protection_controller: random_token(),
        volume_protection_controller: random_token(),
        class_protection_controller: random_token(),
        controller_manager: random_token(),
        server: random_token(),
    }
}

impl ControllerConfig {
    /// Returns the token of each controller with its user; empty if no controller runs.
    pub(crate) fn token_users(&self, tokens: &ControllerTokens) -> Vec<(String, User)> {
        if self.selection.is_empty() {
            return Vec::new();
        }
        let ControllerTokens { namespace_controller, garbage_collector, .. } = tokens;
        let ControllerTokens { service_account_controller, root_ca_publisher, controller_manager, server, .. } = tokens;
        let account =
            |token: &String, name: &str| (token.clone(), User::service_account(SERVICE_ACCOUNT_NAMESPACE, name, ""));
        let masters =
            User { groups: vec![access::user::MASTERS_GROUP.to_owned()], ..User::named(access::user::API_SERVER_USER) };
        vec![
            account(namespace_controller, "namespace-controller"),
            account(garbage_collector, "generic-garbage-collector"),
            account(service_account_controller, "service-account-controller"),
            account(root_ca_publisher, "root-ca-cert-publisher"),
            account(&tokens.resource_quota_controller, "resourcequota-controller"),
            account(&tokens.policy_status_controller, "validatingadmissionpolicy-status-controller"),
            account(&tokens.storage_version_migrator, "storage-version-migrator-controller"),
            account(&tokens.claim_protection_controller, "pvc-protection-controller"),
            account(&tokens.volume_protection_controller, "pv-protection-controller"),
            account(&tokens.class_protection_controller, "volumeattributesclass-protection-controller"),
            (controller_manager.clone(), User::named(access::user::KUBE_CONTROLLER_MANAGER)),
            (server.clone(), masters),
        ]
    }

    /// Settings of storage migrations; `None` if the server does not serve the API of migrations.
    fn migrations(
        &self,
        served_resources: &ServedResources,
        store: Arc<dyn Store>,
        prefix: &str,
    ) -> Option<MigrationConfig> {
        let is_served =
            |version: &&str| served_resources.get(MIGRATION_GROUP, version, "storageversionmigrations").is_some();
        let version = ["v1", "v1beta1", "v1alpha1"].into_iter().find(is_served)?;
        Some(MigrationConfig {
            version,
            stored_objects: Arc::new(StoreSurveys::new(store, prefix)),
            linger: self.migration_linger,
            is_automatic: self.migrates_automatically,
        })
    }

    /// The configuration of the controllers of a server that listens on `listen_address`.
    fn controllers_config(
        &self,
        listen_address: SocketAddr,
        certificates: &ServerCertificates,
        tokens: ControllerTokens,
        gates: kinds::FeatureGates,
        migrations: Option<MigrationConfig>,
    ) -> anyhow::Result<controllers::Config> {
        let root_ca = match self.root_ca_file.as_ref().or(certificates.generated_ca_file.as_ref()) {
            Some(file) => {
                let pem = std::fs::read_to_string(file);
                Some(Arc::from(pem.with_context(|| format!("--root-ca-file: cannot read {}", file.display()))?))
            }
            None => {
                if self.selection.is_enabled(controllers::Controller::RootCaPublisher) {
                    tracing::warn!("without --root-ca-file namespaces get no ConfigMap kube-root-ca.crt");
                }
                None
            }
        };
        Ok(controllers::Config {
            selection: self.selection.clone(),
            address: ApiServerAddress {
                socket: SocketAddr::new(loopback_if_unspecified(listen_address.ip()), listen_address.port()),
                trust: ServerTrust::Certificate(certificates.serving_certificate_file.clone()),
            },
            tokens,
            root_ca,
            holder: format!("{listen_address}_{:016x}", fastrand::u64(..)),
            gates,
            migrations,
            clock: jiff::Timestamp::now,
        })
    }
}

/// Starts the controllers once the bootstrap roles exist. Stop the returned tasks before the server stops serving; connections
/// last as long as `tasks`, so that the controllers can release their leases.
pub(crate) fn start(
    config: &Config,
    ControllerPorts { tokens, store }: ControllerPorts,
    listen_address: SocketAddr,
    certificates: &ServerCertificates,
    bootstrap_progress: &bootstrap::BootstrapProgress,
    metrics: &prometheus::Registry,
    tasks: &Tasks,
) -> anyhow::Result<Tasks> {
    let controller_tasks = Tasks::new();
    if config.controllers.selection.is_empty() {
        return Ok(controller_tasks);
    }
    let migrations = config.controllers.migrations(&config.served_resources, store, &config.prefix);
    let gates = config.gates.clone();
    let config = config.controllers.controllers_config(listen_address, certificates, tokens, gates, migrations)?;
    let metrics = controllers::Metrics::new(metrics);
    let (started, controllers, connections) = (bootstrap_progress.clone(), controller_tasks.clone(), tasks.clone());
    controller_tasks.spawn_once("controllers", async move {
        let stopping = controllers.stop_token();
        while !started.is_done() {
            if stopping.run_until_cancelled(tokio::time::sleep(POLL_INTERVAL)).await.is_none() {
                return;
            }
        }
        controllers::start(&config, &metrics, &controllers, connections);
    });
    Ok(controller_tasks)
}

/// Replaces an unspecified listen address by the loopback address of its family.
fn loopback_if_unspecified(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        IpAddr::V4(_) | IpAddr::V6(_) => ip,
    }
}

fn random_token() -> String {
    let mut bytes = [0; TOKEN_BYTES];
    let random = rustls::crypto::aws_lc_rs::default_provider().secure_random;
    random.fill(&mut bytes).expect("the system has random numbers");
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
