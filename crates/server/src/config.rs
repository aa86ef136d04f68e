//! What an API server needs to know before it binds a port.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use access::Authorizer;
use apiserver::{ForwardedRedirects, ServiceRanges, ServiceRouting};
use edge::pipeline::RequestLimits;
use kinds::{FeatureGates, ServedResources};
use transport::TlsPolicy;

use crate::audit::AuditConfig;
use crate::authentication::AuthenticationConfig;
use crate::controllers::ControllerConfig;
use crate::peers::PeerConfig;

/// The configuration of one API server.
#[derive(Debug)]
pub struct Config {
    /// The IP address to listen on.
    pub bind_ip: IpAddr,
    /// The port to listen on; 0 picks a free one.
    pub port: u16,
    /// The IP address at which clients and peers reach this server; `None`: derived from `bind_ip`.
    pub advertise_ip: Option<IpAddr>,
    /// Certificate and key to serve with; `None`: generated below `cert_dir`.
    pub serving_certificate: Option<(PathBuf, PathBuf)>,
    /// TLS versions and cipher suites to offer.
    pub tls_policy: TlsPolicy,
    /// Where generated keys and certificates are kept.
    pub cert_dir: PathBuf,
    /// The authorities of client certificates; `None`: generated, with a kubeconfig for an administrator.
    pub client_ca: Option<PathBuf>,
    /// Where objects are stored.
    pub storage: StorageConfig,
    /// The prefix of all keys in storage, without a slash at its end.
    pub prefix: String,
    /// The interval of compactions; zero turns them off.
    pub compaction_interval: Duration,
    /// How requests are authenticated.
    pub authentication: AuthenticationConfig,
    /// `--authorization-mode`.
    pub authorizer: Authorizer,
    /// This server's part in a cluster of several.
    pub peers: PeerConfig,
    /// The audit log; `None`: nothing is recorded.
    pub audit: Option<AuditConfig>,
    /// The controllers that run in this server.
    pub controllers: ControllerConfig,
    /// The resources of the emulated release.
    pub served_resources: Arc<ServedResources>,
    /// `--service-cluster-ip-range` and `--service-node-port-range`.
    pub service_ranges: ServiceRanges,
    /// `--feature-gates`.
    pub gates: FeatureGates,
    /// The admission plugins.
    pub admission: apiserver::AdmissionConfig,
    /// Limits of requests in flight and of their duration.
    pub limits: RequestLimits,
    /// `--min-request-timeout`: the shortest duration of a watch that names none, in seconds.
    pub watch_seconds_min: u64,
    /// `--enable-aggregator-routing`: how webhooks and extension API servers of the cluster's services are reached.
    pub service_routing: ServiceRouting,
    /// `--aggregator-reject-forwarding-redirect`.
    pub forwarded_redirects: ForwardedRedirects,
    /// `--shutdown-delay-duration`: how long the server still serves, not ready, after a stop.
    pub shutdown_delay: Duration,
}

/// Where objects are stored.
#[derive(Debug)]
pub enum StorageConfig {
    /// In this SQLite file.
    Sqlite(PathBuf),
    /// In etcd.
    Etcd(store::etcd::Config),
}

impl Config {
    /// The part of the configuration that the REST handlers use.
    pub(crate) fn apiserver_config(
        &self,
        address: SocketAddr,
        webhooks: apiserver::WebhookConfig,
        extensions: Option<apiserver::ExtensionConfig>,
        metrics: &prometheus::Registry,
    ) -> apiserver::Config {
        apiserver::Config {
            git_version: format!("v{}.0+unskew.{}", self.served_resources.release(), env!("CARGO_PKG_VERSION")),
            address: address.to_string(),
            watch_seconds_min: self.watch_seconds_min,
            feature_gates: self.gates.clone(),
            admission: self.admission.clone(),
            service_ranges: self.service_ranges.clone(),
            webhooks,
            extensions,
            metrics: metrics.clone(),
        }
    }
}
