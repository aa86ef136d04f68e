//! Controllers that every cluster needs: namespaces that go when they are empty, objects that go when nobody owns them, and
//! what each namespace has from the start.
//!
//! They are written as any client would write them: discovery, requests and watches over TLS to this server's own front, each
//! under the service account that kube-controller-manager gives it, with the rights that roles grant it. What they may conclude
//! from an answer stands in pure functions: `collector`'s `judge` and `graph`, `namespaces`' `findings`.
//!
//! One server of a cluster runs each controller: they stand for election over Leases. A controller is one future with all its
//! watches and requests in it, so that losing the lead drops everything at once. Idle, it asks for nothing.

mod catalog;
pub mod client;
mod collector;
mod follow;
mod furnishing;
mod leases;
pub mod metrics;
mod namespaces;
mod queue;
mod resources;
pub mod selection;

use std::sync::Arc;
use std::time::Duration;

use election::{Elector, Pace};
use tasks::Tasks;

pub use client::{Address, Client, Connections};
pub use metrics::Metrics;
pub use selection::{Controller, Selection};

use crate::leases::ApiLeases;
use crate::metrics::Leads;

/// Where the leases of the controllers are.
const LEASE_NAMESPACE: &str = "kube-system";
/// Slower than kube-controller-manager's two seconds: each renewal is a write to storage, and a leader that dies is missed for
/// the fifteen seconds of its lease either way.
const RENEW_INTERVAL: Duration = Duration::from_secs(4);

/// Those on whose behalf controllers work: a bearer token for each.
#[derive(Clone, Debug)]
pub struct Tokens {
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
    pub selection: Selection,
    /// This server's own front.
    pub address: Address,
    /// Who they are.
    pub tokens: Tokens,
    /// The authority of serving certificates, PEM, for every namespace to know; `None` if there is none to publish.
    pub root_ca: Option<Arc<str>>,
    /// This process among all that stand for election.
    pub holder: String,
    /// The wall clock.
    pub clock: fn() -> jiff::Timestamp,
}

/// Starts the controllers. They lead no longer when `tasks` are stopped, which should be before the server stops to answer;
/// their connections are moved along by `carriers`, which must outlive them, so that a lead can be given back.
pub fn start(config: &Config, metrics: &Metrics, tasks: &Tasks, carriers: Tasks) {
    let connections = Connections::new(config.address.clone(), carriers);
    let client = |token: &str, agent: &str| Client::new(connections.clone(), token, agent);
    let tokens = &config.tokens;
    let stand = |name: &'static str| Candidate {
        name,
        elector: Elector::new(lease(config, name), Arc::new(ApiLeases(client(&tokens.server, "leader-election")))),
        metrics: metrics.clone(),
    };
    let clock = config.clock;
    if config.selection.has(Controller::Namespace) {
        let candidate = stand("namespace-controller");
        let client = client(&tokens.namespace_controller, "system:serviceaccount:kube-system:namespace-controller");
        let work = namespaces::Config { client, gauges: metrics.queue("namespace"), clock };
        candidate.run(tasks, move || namespaces::run(work.clone()));
    }
    if config.selection.has(Controller::GarbageCollector) {
        let candidate = stand("garbage-collector-controller");
        let client = client(&tokens.garbage_collector, "system:serviceaccount:kube-system:generic-garbage-collector");
        let work = collector::Config { client, gauges: metrics.queue("garbage_collector"), clock };
        candidate.run(tasks, move || collector::run(work.clone()));
    }
    let accounts = config.selection.has(Controller::ServiceAccount).then(|| {
        client(&tokens.service_account_controller, "system:serviceaccount:kube-system:service-account-controller")
    });
    let authority = config.root_ca.clone().filter(|_| config.selection.has(Controller::RootCaPublisher)).map(|pem| {
        (client(&tokens.root_ca_publisher, "system:serviceaccount:kube-system:root-ca-cert-publisher"), pem)
    });
    if accounts.is_some() || authority.is_some() {
        let candidate = stand("namespace-furnishing");
        let reader = client(&tokens.controller_manager, "shared-informers");
        let work = furnishing::Config { reader, accounts, authority };
        candidate.run(tasks, move || furnishing::run(work.clone()));
    }
}

/// One that stands for election.
struct Candidate {
    name: &'static str,
    elector: Elector,
    metrics: Metrics,
}

impl Candidate {
    fn run<Work>(self, tasks: &Tasks, mut work: impl FnMut() -> Work + Send + 'static)
    where
        Work: Future<Output = ()> + Send + 'static,
    {
        let Self { name, elector, metrics } = self;
        metrics.set_leads(name, Leads::No);
        tasks.spawn(name, |stop| {
            elector.run(stop, move |_term| {
                let (leading, work) = (Leading::new(name, metrics.clone()), work());
                async move {
                    let _leading = leading;
                    work.await;
                }
            })
        });
    }
}

/// Shows that this server leads, for as long as it is there.
struct Leading {
    name: &'static str,
    metrics: Metrics,
}

impl Leading {
    fn new(name: &'static str, metrics: Metrics) -> Self {
        metrics.set_leads(name, Leads::Yes);
        Self { name, metrics }
    }
}

impl Drop for Leading {
    fn drop(&mut self) {
        self.metrics.set_leads(self.name, Leads::No);
    }
}

fn lease(config: &Config, name: &str) -> election::Config {
    election::Config {
        namespace: LEASE_NAMESPACE.to_owned(),
        name: format!("unskew-{name}"),
        holder: config.holder.clone(),
        pace: Pace { retry_interval: RENEW_INTERVAL, ..Pace::default() },
        clock: config.clock,
        seed: fastrand::u64(..),
    }
}
