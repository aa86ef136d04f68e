//! The flags of the controllers, who they are, and their start.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use access::User;
use anyhow::Context as _;
use apiserver::bootstrap;
use controllers::{ApiServerAddress, ControllerSelection, ControllerTokens};
use tasks::Tasks;

use super::certificates::ServerCertificates;
use crate::flags::{FlagError, FlagValues};

/// How often it is looked whether the roles are there that controllers work by.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// How many random bytes a token has.
const TOKEN_BYTES: usize = 32;
/// Where the controllers' service accounts are.
const SERVICE_ACCOUNT_NAMESPACE: &str = "kube-system";

/// What the flags say about controllers.
#[derive(Clone, Debug)]
pub(crate) struct ControllerFlags {
    pub(crate) selection: ControllerSelection,
    root_ca_file: Option<PathBuf>,
    /// Known to this process alone, and new at every start.
    tokens: ControllerTokens,
}

impl ControllerFlags {
    pub(super) fn from_flags(flags: &FlagValues) -> Result<Self, FlagError> {
        let list = flags.list_values("controllers");
        Ok(Self {
            selection: flags
                .parse_value("controllers", |_| ControllerSelection::parse(list.iter().map(String::as_str)))?,
            root_ca_file: flags.given_value("root-ca-file").map(PathBuf::from),
            tokens: ControllerTokens {
                namespace_controller: random_token(),
                garbage_collector: random_token(),
                service_account_controller: random_token(),
                root_ca_publisher: random_token(),
                controller_manager: random_token(),
                server: random_token(),
            },
        })
    }

    /// The tokens of the controllers, and whose they are. None if no controller runs.
    pub(super) fn token_users(&self) -> Vec<(String, User)> {
        if self.selection.is_empty() {
            return Vec::new();
        }
        let ControllerTokens { namespace_controller, garbage_collector, .. } = &self.tokens;
        let ControllerTokens { service_account_controller, root_ca_publisher, controller_manager, server, .. } =
            &self.tokens;
        let account =
            |token: &String, name: &str| (token.clone(), User::service_account(SERVICE_ACCOUNT_NAMESPACE, name, ""));
        let masters =
            User { groups: vec![access::user::MASTERS_GROUP.to_owned()], ..User::named(access::user::API_SERVER_USER) };
        vec![
            account(namespace_controller, "namespace-controller"),
            account(garbage_collector, "generic-garbage-collector"),
            account(service_account_controller, "service-account-controller"),
            account(root_ca_publisher, "root-ca-cert-publisher"),
            (controller_manager.clone(), User::named(access::user::KUBE_CONTROLLER_MANAGER)),
            (server.clone(), masters),
        ]
    }

    /// What the controllers are told, for a server that listens there.
    fn controllers_config(
        &self,
        listen_address: SocketAddr,
        certificates: &ServerCertificates,
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
                certificate: certificates.serving_certificate_file.clone(),
            },
            tokens: self.tokens.clone(),
            root_ca,
            holder: format!("{listen_address}_{:016x}", fastrand::u64(..)),
            clock: jiff::Timestamp::now,
        })
    }
}

/// Starts the controllers once the roles are there that they work by. They are to be stopped before the server stops to answer;
/// their connections last as long as `tasks`, so that they can give back what they lead.
pub(super) fn start(
    flags: &ControllerFlags,
    listen_address: SocketAddr,
    certificates: &ServerCertificates,
    bootstrap_progress: &bootstrap::BootstrapProgress,
    metrics: &prometheus::Registry,
    tasks: &Tasks,
) -> anyhow::Result<Tasks> {
    let controller_tasks = Tasks::new();
    if flags.selection.is_empty() {
        return Ok(controller_tasks);
    }
    let config = flags.controllers_config(listen_address, certificates)?;
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

/// Where a server that listens everywhere is reached from its own machine.
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
