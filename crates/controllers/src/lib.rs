//! The controllers that every cluster needs: namespace deletion, garbage collection, the default objects of each
//! namespace, the status of quotas and policies, the protection of volumes in use, and storage migrations.
//!
//! They are ordinary API clients: discovery, requests and watches over TLS to this server's own address, each under the
//! service account and the RBAC roles that kube-controller-manager uses for it. The rules for what a response proves
//! are pure functions: `garbage_collector`'s `decide` and `graph`, and `namespaces`' `findings`.
//!
//! Each controller runs on one server of the cluster, elected by a Lease. A controller is a single future that contains
//! all its watches and requests, so losing the lease drops them at once. An idle controller sends no requests.

pub mod client;
pub mod controller_selection;
mod discovered;
mod garbage_collector;
mod informer;
mod leases;
pub mod metrics;
pub mod migrations;
mod namespace_defaults;
mod namespaces;
mod object_lists;
mod policy_status;
mod quotas;
mod resources;
mod storage_protection;
mod work_queue;

use std::sync::Arc;
use std::time::Duration;

use election::{ElectionTimings, Elector};
use tasks::Tasks;

pub use client::{ApiClient, ApiServerAddress, ClientConnections, ServerTrust};
pub use controller_selection::{Controller, ControllerSelection};
pub use leases::ApiLeaseClient;
pub use metrics::Metrics;

use crate::metrics::LeaderStatus;
use crate::storage_protection::Protected;

/// The namespace of the election leases.
const LEASE_NAMESPACE: &str = "kube-system";
/// Longer than kube-controller-manager's two seconds: each renewal is a write to storage, and a dead leader is replaced
/// only after the fifteen seconds of its lease either way.
const RENEW_INTERVAL: Duration = Duration::from_secs(4);

/// Bearer tokens for the identities that the controllers use.
#[derive(Clone, Debug)]
pub struct ControllerTokens {
    /// Token of `system:serviceaccount:kube-system:namespace-controller`.
    pub namespace_controller: String,
    /// Token of `system:serviceaccount:kube-system:generic-garbage-collector`.
    pub garbage_collector: String,
    /// Token of `system:serviceaccount:kube-system:service-account-controller`.
    pub service_account_controller: String,
    /// Token of `system:serviceaccount:kube-system:root-ca-cert-publisher`.
    pub root_ca_publisher: String,
    /// Token of `system:serviceaccount:kube-system:resourcequota-controller`.
    pub resource_quota_controller: String,
    /// Token of `system:serviceaccount:kube-system:validatingadmissionpolicy-status-controller`.
    pub policy_status_controller: String,
    /// Token of `system:serviceaccount:kube-system:storage-version-migrator-controller`.
    pub storage_version_migrator: String,
    /// Token of `system:serviceaccount:kube-system:pvc-protection-controller`.
    pub claim_protection_controller: String,
    /// Token of `system:serviceaccount:kube-system:pv-protection-controller`.
    pub volume_protection_controller: String,
    /// Token of `system:serviceaccount:kube-system:volumeattributesclass-protection-controller`.
    pub class_protection_controller: String,
    /// Token of `system:kube-controller-manager`, which reads what several controllers need.
    pub controller_manager: String,
    /// Token of `system:apiserver`, the server itself, for leader election.
    pub server: String,
}

/// The configuration of all controllers.
#[derive(Clone, Debug)]
pub struct Config {
    /// The enabled controllers, from `--controllers`.
    pub selection: ControllerSelection,
    /// The address of this server.
    pub address: ApiServerAddress,
    /// The bearer tokens of the controllers.
    pub tokens: ControllerTokens,
    /// The CA bundle of the serving certificates in PEM, published to every namespace; `None`: nothing is published.
    pub root_ca: Option<Arc<str>>,
    /// The holder identity of this process in the elections.
    pub holder: String,
    /// The gates of this server.
    pub gates: kinds::FeatureGates,
    /// Settings of storage migrations; `None` if this server does not serve StorageVersionMigrations.
    pub migrations: Option<migrations::MigrationConfig>,
    /// The wall clock.
    pub clock: fn() -> jiff::Timestamp,
}

/// Starts the enabled controllers. They give up leadership when `tasks` stop, which should happen before the server
/// stops serving; their connections run on `connection_tasks`, which must outlive them, so that the leases can be
/// released.
pub fn start(config: &Config, metrics: &Metrics, tasks: &Tasks, connection_tasks: Tasks) {
    let connections = ClientConnections::new(config.address.clone(), connection_tasks);
    let client = |token: &str, agent: &str| ApiClient::new(connections.clone(), token, agent);
    let tokens = &config.tokens;
    let stand = |name: &'static str| ControllerCandidate {
        name,
        elector: Elector::new(
            election_config(config, name),
            Arc::new(ApiLeaseClient(client(&tokens.server, "leader-election"))),
        ),
        metrics: metrics.clone(),
    };
    let clock = config.clock;
    if config.selection.is_enabled(Controller::Namespace) {
        let candidate = stand("namespace-controller");
        let client = client(&tokens.namespace_controller, "system:serviceaccount:kube-system:namespace-controller");
        let work = namespaces::Config { client, gauges: metrics.queue_gauges("namespace"), clock };
        candidate.run(tasks, move || namespaces::run(work.clone()));
    }
    if config.selection.is_enabled(Controller::GarbageCollector) {
        let candidate = stand("garbage-collector-controller");
        let client = client(&tokens.garbage_collector, "system:serviceaccount:kube-system:generic-garbage-collector");
        let work = garbage_collector::Config { client, gauges: metrics.queue_gauges("garbage_collector"), clock };
        candidate.run(tasks, move || garbage_collector::run(work.clone()));
    }
    if config.selection.is_enabled(Controller::ResourceQuota) {
        let candidate = stand("resourcequota-controller");
        let account = "system:serviceaccount:kube-system:resourcequota-controller";
        let client = client(&tokens.resource_quota_controller, account);
        let (gauges, gates) = (metrics.queue_gauges("resourcequota"), config.gates.clone());
        let work = quotas::Config { client, gauges, gates, clock };
        candidate.run(tasks, move || quotas::run(work.clone()));
    }
    if config.selection.is_enabled(Controller::PolicyStatus) {
        let candidate = stand("validatingadmissionpolicy-status-controller");
        let account = "system:serviceaccount:kube-system:validatingadmissionpolicy-status-controller";
        let client = client(&tokens.policy_status_controller, account);
        let gauges = metrics.queue_gauges("validatingadmissionpolicy_status");
        let work = policy_status::Config { client, gauges, gates: config.gates.clone() };
        candidate.run(tasks, move || policy_status::run(work.clone()));
    }
    start_storage_protection(config, metrics, tasks, || stand("storage-protection"), &client);
    if let Some(settings) = config.migrations.clone()
        && config.selection.is_enabled(Controller::StorageVersionMigrator)
    {
        let candidate = stand("storage-version-migrator-controller");
        let account = "system:serviceaccount:kube-system:storage-version-migrator-controller";
        let work = migrations::Config {
            client: client(&tokens.storage_version_migrator, account),
            reader: client(&tokens.controller_manager, "shared-informers"),
            creator: client(&tokens.server, "migrate-automatically"),
            settings,
            metrics: metrics.migrations(),
            clock,
        };
        candidate.run(tasks, move || migrations::run(work.clone()));
    }
    let accounts = config.selection.is_enabled(Controller::ServiceAccount).then(|| {
        client(&tokens.service_account_controller, "system:serviceaccount:kube-system:service-account-controller")
    });
    let authority =
        config.root_ca.clone().filter(|_| config.selection.is_enabled(Controller::RootCaPublisher)).map(|pem| {
            (client(&tokens.root_ca_publisher, "system:serviceaccount:kube-system:root-ca-cert-publisher"), pem)
        });
    if accounts.is_some() || authority.is_some() {
        let candidate = stand("namespace-furnishing");
        let reader = client(&tokens.controller_manager, "shared-informers");
        let work = namespace_defaults::Config { reader, service_account_client: accounts, root_ca: authority };
        candidate.run(tasks, move || namespace_defaults::run(work.clone()));
    }
}

/// Starts the controllers of storage objects in use, which share a leader.
fn start_storage_protection(
    config: &Config,
    metrics: &Metrics,
    tasks: &Tasks,
    stand: impl FnOnce() -> ControllerCandidate,
    client: &dyn Fn(&str, &str) -> ApiClient,
) {
    let tokens = &config.tokens;
    let clients: Arc<[_]> = [
        (Controller::ClaimProtection, Protected::Claim, &tokens.claim_protection_controller),
        (Controller::VolumeProtection, Protected::Volume, &tokens.volume_protection_controller),
        (Controller::ClassProtection, Protected::Class, &tokens.class_protection_controller),
    ]
    .into_iter()
    .filter(|(controller, ..)| config.selection.is_enabled(*controller))
    // Served in v1 from 1.34 on.
    .filter(|(_, protected, _)| *protected != Protected::Class || config.gates.release().minor() >= 34)
    .map(|(_, protected, token)| (protected, client(token, protected.user_agent())))
    .collect();
    if !clients.is_empty() {
        let reader = client(&tokens.controller_manager, "shared-informers");
        let work = storage_protection::Config { reader, clients, gauges: metrics.queue_gauges("storage_protection") };
        stand().run(tasks, move || storage_protection::run(work.clone()));
    }
}

/// A controller in its leader election.
struct ControllerCandidate {
    name: &'static str,
    elector: Elector,
    metrics: Metrics,
}

impl ControllerCandidate {
    fn run<Work>(self, tasks: &Tasks, mut work: impl FnMut() -> Work + Send + 'static)
    where
        Work: Future<Output = ()> + Send + 'static,
    {
        let Self { name, elector, metrics } = self;
        metrics.set_leader_status(name, LeaderStatus::Standby);
        tasks.spawn(name, |stop| {
            elector.run(stop, move |_term| {
                let (leading, work) = (LeaderStatusGuard::new(name, metrics.clone()), work());
                async move {
                    let _leading = leading;
                    work.await;
                }
            })
        });
    }
}

/// Sets the leader metric to 1 until it is dropped.
struct LeaderStatusGuard {
    name: &'static str,
    metrics: Metrics,
}

impl LeaderStatusGuard {
    fn new(name: &'static str, metrics: Metrics) -> Self {
        metrics.set_leader_status(name, LeaderStatus::Leading);
        Self { name, metrics }
    }
}

impl Drop for LeaderStatusGuard {
    fn drop(&mut self) {
        self.metrics.set_leader_status(self.name, LeaderStatus::Standby);
    }
}

fn election_config(config: &Config, name: &str) -> election::Config {
    election::Config {
        namespace: LEASE_NAMESPACE.to_owned(),
        name: format!("unskew-{name}"),
        holder: config.holder.clone(),
        timings: ElectionTimings { retry_period: RENEW_INTERVAL, ..ElectionTimings::default() },
        clock: config.clock,
        seed: fastrand::u64(..),
    }
}
