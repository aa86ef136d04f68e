//! From a configuration to a running API server or gateway, and back down in order.
//!
//! [`Server`] and [`gateway::Gateway`] assemble the other crates: `start` opens files and storage, starts every task and returns
//! when the server listens; `run_until` serves until it is told to stop. Neither reads the environment, handles signals or keeps
//! process-wide state, so that several servers run in one process.

mod audit;
mod authentication;
mod certificates;
mod config;
mod controllers;
pub mod gateway;
mod health_checks;
mod kubeconfig;
mod peers;
mod run;
mod storage;
mod storageversion;
mod stored_objects;

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::Context as _;
use edge::health::{HealthCheck, HealthPages};
use tasks::Tasks;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

pub use apiserver::{AdmissionConfig, ForwardedRedirects, ServiceRanges, ServiceRouting, WebhookCredentials};
pub use audit::AuditConfig;
pub use authentication::{AuthenticationConfig, FrontProxyConfig, ServiceAccountConfig};
pub use config::{Config, StorageConfig};
pub use controllers::ControllerConfig;
pub use peers::{FRONT_PROXY_CA, FRONT_PROXY_CLIENT, PeerCertificates, PeerConfig};
pub use run::Server;

/// The time for connections to finish their requests, and for tasks to end, during shutdown.
const STOP_GRACE: Duration = Duration::from_secs(10);

/// A configuration whose settings contradict each other or the files that they name.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct RejectedConfig(String);

async fn bind_listener(ip: IpAddr, port: u16) -> anyhow::Result<TcpListener> {
    let address = SocketAddr::new(ip, port);
    TcpListener::bind(address).await.with_context(|| {
        format!("cannot listen on {address}; is another server there? --secure-port and --bind-address choose another")
    })
}

async fn stop_tasks(what: &str, tasks: &Tasks) {
    if let Err(error) = tasks.stop(STOP_GRACE).await {
        tracing::warn!(%error, what, "not everything ended in time");
    }
}

/// Fails from the moment the server begins to stop.
fn check_draining(draining: CancellationToken) -> HealthCheck {
    HealthCheck::new("shutdown", HealthPages::ReadyOnly, move || {
        if draining.is_cancelled() { Err("process is shutting down".to_owned()) } else { Ok(()) }
    })
}

/// True if some release has the resource, or a release newer than the catalogue may have it.
fn may_be_built_in(name: api::GroupVersionResource<&str>) -> bool {
    kinds::may_be_built_in(name.group, name.version, name.resource) || kinds::has_built_in_group_name(name.group)
}
