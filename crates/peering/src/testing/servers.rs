//! Whole servers for tests: clusters of them over one storage and one network, and stock servers beside them.

use std::sync::Arc;
use std::time::Duration;

use api::Target;
use discovery::Groups;
use jiff::Timestamp;
use prometheus::Registry;
use tasks::Tasks;
use tokio::sync::watch;

use super::definitions::Defined;
use super::memory::{Memory, Mood};
use super::peers::Network;
use super::{document, server, shared_names};
use crate::askers::AskConfig;
use crate::cluster::{Cluster, Config, Ports};
use crate::endpoints::Address;
use crate::exclusion::SharedNames;
use crate::hop::Hop;
use crate::identity::{HolderIdentity, LeaseForm};
use crate::members::Patience;
use crate::membership::MembershipConfig;
use crate::metrics::Metrics;
use crate::ports::Records;
use crate::presence::{Extent, Pace, Presence, PresenceConfig};
use crate::route::Route;
use crate::view::Peering;

/// What the servers of a test share.
pub(crate) struct World {
    pub(crate) memory: Memory,
    pub(crate) network: Network,
    pub(crate) definitions: Arc<Defined>,
}

/// One of our servers.
pub(crate) struct Server {
    pub(crate) cluster: Cluster,
    pub(crate) tasks: Tasks,
    pub(crate) local: watch::Sender<Arc<Groups>>,
    pub(crate) shared: watch::Sender<Arc<SharedNames>>,
    pub(crate) registry: Registry,
    /// Storage as this server sees it.
    pub(crate) memory: Memory,
}

impl World {
    pub(crate) fn new() -> Self {
        Self { memory: Memory::new(&Tasks::new()), network: Network::default(), definitions: Arc::default() }
    }

    /// A server that follows the cluster and has not joined.
    pub(crate) fn server(&self, name: &str, serves: &str) -> Server {
        self.server_with(name, serves, |_| {})
    }

    pub(crate) fn server_with(&self, name: &str, serves: &str, change: impl FnOnce(&mut Config)) -> Server {
        let mut config = config(name);
        change(&mut config);
        let view = self.memory.seen_by_another();
        let memory = Arc::new(view.clone());
        let ports = Ports {
            leases: memory.clone(),
            records: memory.clone(),
            documents: memory.clone(),
            progress: memory,
            definitions: Some(self.definitions.clone()),
            fetch: (config.membership.peering == Peering::Enabled).then(|| Arc::new(self.network.clone()) as _),
        };
        let (tasks, registry) = (Tasks::new(), Registry::new());
        let (local, shared) = (watch::Sender::new(document(serves)), watch::Sender::new(Arc::default()));
        let metrics = Metrics::new(&registry);
        let cluster = Cluster::start(config, &ports, local.subscribe(), shared.subscribe(), &metrics, &tasks);
        Server { cluster, tasks, local, shared, registry, memory: view }
    }

    /// The lease of a stock server, held by its process of this number and renewed for the so-manieth time.
    pub(crate) fn stock_lease(&self, name: &str, process: u128, renewal: i64) {
        let server = server(name);
        let form = LeaseForm {
            holder: HolderIdentity::new(&server, process),
            server,
            hostname: name.to_owned(),
            address: None,
            duration: Duration::from_secs(3600),
        };
        self.memory.put_lease(form.new_lease(Timestamp::from_second(renewal).unwrap().into()));
    }

    /// The record of a stock server, which stays.
    pub(crate) async fn stock_record(&self, name: &str) {
        let record = Address::new(&format!("{name}.example"), 6443).unwrap().to_record(&server(name), 1);
        let year = Duration::from_secs(365 * 86_400);
        Records::put(&self.memory, &server(name), record, year).await.unwrap();
    }
}

impl Server {
    pub(crate) async fn join(&self) -> Presence {
        self.cluster.claim().await.unwrap();
        let presence = self.cluster.join(&self.tasks);
        self.cluster.milestones().identity_lease.reached().await;
        self.cluster.milestones().first_sync.reached().await;
        presence
    }

    /// From now on nothing that it does comes through to storage, as if it had been killed.
    pub(crate) fn kill(&self) {
        self.memory.set_mood(Mood::Hanging);
    }

    /// `name state` of each member, with `?` if it may serve more than we know.
    pub(crate) fn members(&self) -> String {
        let view = self.cluster.view();
        let members = view.members().iter().map(|member| {
            let mark = if member.is_unheard() { "?" } else { "" };
            format!("{} {}{mark}", member.server.as_str().trim_start_matches("apiserver-"), member.state)
        });
        members.collect::<Vec<_>>().join(", ")
    }

    /// Where a GET goes.
    pub(crate) async fn get(&self, path: &str) -> String {
        let target = Target::parse("GET", path).unwrap();
        let (route, view) = self.cluster.route(&target, Hop::FromClient).await;
        match route {
            Route::Peers(peers) => {
                let names = peers.iter().map(|peer| view.member(*peer).server.as_str());
                names.map(|name| name.trim_start_matches("apiserver-")).collect::<Vec<_>>().join(" ")
            }
            other @ (Route::Here(_) | Route::Misfit(_) | Route::ProveAbsence | Route::Unavailable(_)) => {
                format!("{other:?}")
            }
        }
    }

    pub(crate) fn define(&self, shared: &str) {
        self.shared.send_replace(Arc::new(shared_names(shared)));
    }

    /// The figures whose names begin so.
    pub(crate) fn figures(&self, prefix: &str) -> String {
        let text = prometheus::TextEncoder::new().encode_to_string(&self.registry.gather()).unwrap();
        text.lines().filter(|line| line.starts_with(prefix)).collect::<Vec<_>>().join("\n")
    }
}

fn config(name: &str) -> Config {
    let server = server(name);
    Config {
        membership: MembershipConfig {
            server: server.clone(),
            peering: Peering::Enabled,
            unbuilt: Vec::new(),
            patience: Patience::default(),
            first_sync_timeout: MembershipConfig::FIRST_SYNC_TIMEOUT,
            may_be_built_in: |name| !name.group.contains('.') || name.group.ends_with(".k8s.io"),
        },
        presence: PresenceConfig {
            holder: HolderIdentity::new(&server, 1),
            server,
            hostname: name.to_owned(),
            address: Address::new(&format!("{name}.example"), 6443).unwrap(),
            extent: Extent::Full,
            unbuilt: Vec::new(),
            publishes: true,
            linger: Patience::LINGER,
            pace: Pace::default(),
            clock,
            seed: 7,
        },
        ask: AskConfig::default(),
    }
}

/// A wall clock that goes with the paused time of a test.
fn clock() -> Timestamp {
    use std::cell::Cell;
    use tokio::time::Instant;
    thread_local!(static START: Cell<Option<Instant>> = const { Cell::new(None) });
    let start = START.get().unwrap_or_else(Instant::now);
    START.set(Some(start));
    let elapsed = Instant::now().saturating_duration_since(start);
    Timestamp::from_microsecond(1_000_000_000_000_000 + i64::try_from(elapsed.as_micros()).unwrap()).unwrap()
}

/// Lets time go by.
pub(crate) async fn wait(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

/// Lets every task that can go on do so; no time goes by that anybody would notice.
pub(crate) async fn settle() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}
