//! Controllers that every cluster needs: namespaces that go when they are empty, objects that go when nobody owns them, and
//! what each namespace has from the start.
//!
//! They are written as any client would write them: discovery, requests and watches over TLS to this server's own front, each
//! under the service account that kube-controller-manager gives it, with the rights that roles grant it. What they may conclude
//! from an answer stands in pure functions: `collector`'s `judge` and `graph`, `namespaces`' `findings`.
//!
//! One server of a cluster runs each controller: they stand for election over Leases. A controller is one future with all its
//! watches and requests in it, so that losing the lead drops everything at once. Idle, it asks for nothing.

pub mod client;
pub mod controller_selection;
mod discovered;
mod garbage_collector;
mod informer;
mod leases;
pub mod metrics;
mod namespace_defaults;
mod namespaces;
mod resources;
mod work_queue;

use std::sync::Arc;
use std::time::Duration;

use election::{ElectionTimings, Elector};
use tasks::Tasks;

pub use client::{ApiClient, ApiServerAddress, ClientConnections};
pub use controller_selection::{Controller, ControllerSelection};
pub use metrics::Metrics;

use crate::leases::ApiLeaseClient;
use crate::metrics::LeaderStatus;

/// Where the leases of the controllers are.
const LEASE_NAMESPACE: &str = "kube-system";
/// Slower than kube-controller-manager's two seconds: each renewal is a write to storage, and a leader that dies is missed for
/// the fifteen seconds of its lease either way.
const RENEW_INTERVAL: Duration = Duration::from_secs(4);

/// Those on whose behalf controllers work: a bearer token for each.
#[derive(Clone, Debug)]
pub struct ControllerTokens {
    /// Of `system:serviceaccount:kube-system:namespace-controller`.
    pub namespace_controller: String,
    /// Of `system:serviceaccount:kube-system:generic-garbage-collector`.
    pub garbage_collector: String,
    /// Of `system:serviceaccount:kube-system:service-account-controller`.
    pub service_account_controller: String,
    /// Of `system:serviceaccount:kube-system:root-ca-cert-publisher`.
    pub root_ca_publisher: String,
    /// Of `system:kube-controller-manager`, who reads what several of them need.
    pub controller_manager: String,
    /// Of `system:apiserver`, the server itself, who stands for election.
    pub server: String,
}

/// What the controllers are told.
#[derive(Clone, Debug)]
pub struct Config {
    /// Which of them run.
    pub selection: ControllerSelection,
    /// This server's own front.
    pub address: ApiServerAddress,
    /// Who they are.
    pub tokens: ControllerTokens,
    /// The authority of serving certificates, PEM, for every namespace to know; `None` if there is none to publish.
    pub root_ca: Option<Arc<str>>,
    /// This process among all that stand for election.
    pub holder: String,
    /// The wall clock.
    pub clock: fn() -> jiff::Timestamp,
}

/// Starts the controllers. They lead no longer when `tasks` are stopped, which should be before the server stops to answer;
/// their connections are moved along by `carriers`, which must outlive them, so that a lead can be given back.
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

/// One that stands for election.
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

/// Shows that this server leads, for as long as it is there.
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
