//! The flags of the controllers, who they are, and their start.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use access::User;
use anyhow::Context as _;
use apiserver::bootstrap;
use controllers::{Address, Selection, Tokens};
use tasks::Tasks;

use super::trust::Trust;
use crate::flags::{FlagError, Values};

/// How often it is looked whether the roles are there that controllers work by.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// How many random bytes a token has.
const TOKEN_BYTES: usize = 32;
/// Where the controllers' service accounts are.
const NAMESPACE: &str = "kube-system";

/// What the flags say about controllers.
#[derive(Clone, Debug)]
pub(crate) struct ControllerFlags {
    pub(crate) selection: Selection,
    root_ca_file: Option<PathBuf>,
    /// Known to this process alone, and new at every start.
    tokens: Tokens,
}

impl ControllerFlags {
    pub(super) fn from_flags(flags: &Values) -> Result<Self, FlagError> {
        let list = flags.list("controllers");
        Ok(Self {
            selection: flags.parsed("controllers", |_| Selection::parse(list.iter().map(String::as_str)))?,
            root_ca_file: flags.given("root-ca-file").map(PathBuf::from),
            tokens: Tokens {
                namespace_controller: token(),
                garbage_collector: token(),
                service_account_controller: token(),
                root_ca_publisher: token(),
                controller_manager: token(),
                server: token(),
            },
        })
    }

    /// The tokens of the controllers, and whose they are. None if no controller runs.
    pub(super) fn identities(&self) -> Vec<(String, User)> {
        if self.selection.is_empty() {
            return Vec::new();
        }
        let Tokens { namespace_controller, garbage_collector, .. } = &self.tokens;
        let Tokens { service_account_controller, root_ca_publisher, controller_manager, server, .. } = &self.tokens;
        let account = |token: &String, name: &str| (token.clone(), User::service_account(NAMESPACE, name, ""));
        let masters = User { groups: vec![access::user::MASTERS.to_owned()], ..User::named(access::user::API_SERVER) };
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
    fn config(&self, listens: SocketAddr, trust: &Trust) -> anyhow::Result<controllers::Config> {
        let root_ca = match self.root_ca_file.as_ref().or(trust.own_authority.as_ref()) {
            Some(file) => {
                let pem = std::fs::read_to_string(file);
                Some(Arc::from(pem.with_context(|| format!("--root-ca-file: cannot read {}", file.display()))?))
            }
            None => {
                if self.selection.has(controllers::Controller::RootCaPublisher) {
                    tracing::warn!("without --root-ca-file namespaces get no ConfigMap kube-root-ca.crt");
                }
                None
            }
        };
        Ok(controllers::Config {
            selection: self.selection.clone(),
            address: Address {
                socket: SocketAddr::new(here(listens.ip()), listens.port()),
                certificate: trust.serving_certificate.clone(),
            },
            tokens: self.tokens.clone(),
            root_ca,
            holder: format!("{listens}_{:016x}", fastrand::u64(..)),
            clock: jiff::Timestamp::now,
        })
    }
}

/// Starts the controllers once the roles are there that they work by. They are to be stopped before the server stops to answer;
/// their connections last as long as `tasks`, so that they can give back what they lead.
pub(super) fn start(
    flags: &ControllerFlags,
    listens: SocketAddr,
    trust: &Trust,
    started: &bootstrap::Progress,
    metrics: &prometheus::Registry,
    tasks: &Tasks,
) -> anyhow::Result<Tasks> {
    let family = Tasks::new();
    if flags.selection.is_empty() {
        return Ok(family);
    }
    let config = flags.config(listens, trust)?;
    let metrics = controllers::Metrics::new(metrics);
    let (started, controllers, connections) = (started.clone(), family.clone(), tasks.clone());
    family.spawn_once("controllers", async move {
        let stopping = controllers.stopping();
        while !started.is_done() {
            if stopping.run_until_cancelled(tokio::time::sleep(LOOK_INTERVAL)).await.is_none() {
                return;
            }
        }
        controllers::start(&config, &metrics, &controllers, connections);
    });
    Ok(family)
}

/// Where a server that listens everywhere is reached from its own machine.
fn here(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        IpAddr::V4(_) | IpAddr::V6(_) => ip,
    }
}

fn token() -> String {
    let mut bytes = [0; TOKEN_BYTES];
    let random = rustls::crypto::aws_lc_rs::default_provider().secure_random;
    random.fill(&mut bytes).expect("the system has random numbers");
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
