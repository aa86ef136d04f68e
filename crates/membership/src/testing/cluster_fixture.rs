//! Clusters of servers over one storage and one network in memory, with stock servers beside them.

use std::sync::Arc;
use std::time::Duration;

use api::{Address, Target};
use discovery::GroupDiscoveryList;
use jiff::Timestamp;
use prometheus::Registry;
use tasks::Tasks;
use tokio::sync::watch;

use super::definitions::MemoryDefinitions;
use super::memory_network::MemoryNetwork;
use super::memory_storage::{MemoryStorage, StorageMode};
use super::{defined_resources_from_notation, groups_from_notation, server_id, transport_failures};
use crate::cluster::Cluster;
use crate::discovery_fetch::DiscoveryFetchConfig;
use crate::endpoint_record::new_record;
use crate::exclusion::SharedResources;
use crate::hop::Hop;
use crate::identity::{HolderIdentity, IdentityLeaseTemplate};
use crate::members::MemberTimeouts;
use crate::membership_task::MembershipConfig;
use crate::metrics::Metrics;
use crate::participant::{Participant, ParticipantConfig, ParticipantPorts};
use crate::ports::RecordStorage;
use crate::presence::{Presence, PresenceConfig, PresenceScope, PresenceTimings};
use crate::route::Route;
use crate::view::Peering;

/// What the servers of a test share.
pub(crate) struct ClusterFixture {
    pub(crate) storage: MemoryStorage,
    pub(crate) network: MemoryNetwork,
    pub(crate) definitions: Arc<MemoryDefinitions>,
}

/// One of our servers.
pub(crate) struct MemberServer {
    pub(crate) cluster: Arc<Cluster>,
    participant: Participant,
    pub(crate) tasks: Tasks,
    pub(crate) local_groups: watch::Sender<Arc<GroupDiscoveryList>>,
    pub(crate) shared: watch::Sender<SharedResources>,
    pub(crate) registry: Registry,
    /// Storage as this server sees it.
    pub(crate) storage: MemoryStorage,
}

impl ClusterFixture {
    pub(crate) fn new() -> Self {
        Self {
            storage: MemoryStorage::new(&Tasks::new()),
            network: MemoryNetwork::default(),
            definitions: Arc::default(),
        }
    }

    /// A server that follows the cluster and has not joined.
    pub(crate) fn server(&self, name: &str, serves: &str) -> MemberServer {
        self.server_with(name, serves, |_| {})
    }

    pub(crate) fn server_with(
        &self,
        name: &str,
        serves: &str,
        change: impl FnOnce(&mut ParticipantConfig),
    ) -> MemberServer {
        let mut config = cluster_config(name);
        change(&mut config);
        let view = self.storage.with_own_mode();
        let memory = Arc::new(view.clone());
        let ports = ParticipantPorts {
            leases: memory.clone(),
            records: memory.clone(),
            documents: memory.clone(),
            progress: memory,
            definitions: self.definitions.clone(),
            fetch: (config.membership.peering == Peering::Enabled).then(|| Arc::new(self.network.clone()) as _),
        };
        let (tasks, registry) = (Tasks::new(), Registry::new());
        let (local, shared) = (watch::Sender::new(groups_from_notation(serves)), watch::Sender::default());
        let metrics = Metrics::new(&registry, transport_failures(&registry));
        let participant = Participant::start(config, &ports, local.subscribe(), shared.subscribe(), &metrics, &tasks);
        MemberServer {
            cluster: participant.cluster().clone(),
            participant,
            tasks,
            local_groups: local,
            shared,
            registry,
            storage: view,
        }
    }

    /// Writes the lease of a stock server; `process` becomes its holder, `renewal` its renewTime.
    pub(crate) fn put_stock_lease(&self, name: &str, process: u128, renewal: i64) {
        let server = server_id(name);
        let form = IdentityLeaseTemplate {
            holder: HolderIdentity::new(&server, process),
            server,
            component: crate::identity::IDENTITY_LABEL_VALUE.to_owned(),
            hostname: name.to_owned(),
            address: None,
            duration: Duration::from_secs(3600),
        };
        self.storage.put_lease(form.new_lease(Timestamp::from_second(renewal).unwrap().into()));
    }

    /// Writes the endpoint record of a stock server, which does not expire.
    pub(crate) async fn put_stock_record(&self, name: &str) {
        let record = new_record(&Address::new(&format!("{name}.example"), 6443).unwrap(), &server_id(name), 1);
        let year = Duration::from_secs(365 * 86_400);
        RecordStorage::put(&self.storage, &server_id(name), record, year).await.unwrap();
    }
}

impl MemberServer {
    pub(crate) async fn join(&self) -> Presence {
        self.participant.claim_identity().await.unwrap();
        let presence = self.participant.join(&self.tasks);
        self.cluster.milestones().identity_lease.wait_until_reached().await;
        self.cluster.milestones().first_sync.wait_until_reached().await;
        presence
    }

    /// From now on its calls to storage hang, as if it had been killed.
    pub(crate) fn hang_storage(&self) {
        self.storage.set_mode(StorageMode::Hanging);
    }

    /// `name state` of each member, with `?` if it may serve more than we know.
    pub(crate) fn members(&self) -> String {
        let view = self.cluster.view();
        let members = view.members().iter().map(|member| {
            let mark = if member.may_serve_more() { "?" } else { "" };
            format!("{} {}{mark}", member.server.as_str().trim_start_matches("apiserver-"), member.state)
        });
        members.collect::<Vec<_>>().join(", ")
    }

    /// The route of a GET.
    pub(crate) async fn route_get(&self, path: &str) -> String {
        let target = Target::parse("GET", path).unwrap();
        let (route, view) = self.cluster.route(&target, Hop::FromClient).await;
        match route {
            Route::Peers(peers) => {
                let names = peers.iter().map(|peer| view.member(*peer).server.as_str());
                names.map(|name| name.trim_start_matches("apiserver-")).collect::<Vec<_>>().join(" ")
            }
            other @ (Route::Local(_) | Route::RouteMismatch(_) | Route::ProveAbsence | Route::Unavailable(_)) => {
                format!("{other:?}")
            }
        }
    }

    pub(crate) fn set_defined(&self, shared: &str) {
        let defined = Arc::new(defined_resources_from_notation(shared));
        self.shared.send_replace(SharedResources { defined, ..SharedResources::default() });
    }

    /// The metrics with this prefix.
    pub(crate) fn metrics_text(&self, prefix: &str) -> String {
        let text = prometheus::TextEncoder::new().encode_to_string(&self.registry.gather()).unwrap();
        text.lines().filter(|line| line.starts_with(prefix)).collect::<Vec<_>>().join("\n")
    }
}

fn cluster_config(name: &str) -> ParticipantConfig {
    let server = server_id(name);
    ParticipantConfig {
        membership: MembershipConfig {
            server: server.clone(),
            peering: Peering::Enabled,
            unimplemented: Vec::new(),
            timeouts: MemberTimeouts::default(),
            first_sync_timeout: MembershipConfig::FIRST_SYNC_TIMEOUT,
            may_be_built_in: |name| !name.group.contains('.') || name.group.ends_with(".k8s.io"),
        },
        presence: PresenceConfig {
            holder: HolderIdentity::new(&server, 1),
            server,
            hostname: name.to_owned(),
            address: Address::new(&format!("{name}.example"), 6443).unwrap(),
            scope: PresenceScope::Full,
            unimplemented: Vec::new(),
            publishes_document: true,
            linger: MemberTimeouts::LINGER,
            timings: PresenceTimings::default(),
            clock,
            seed: 7,
        },
        discovery_fetch: DiscoveryFetchConfig::default(),
    }
}

/// A wall clock that follows the paused time of a test.
fn clock() -> Timestamp {
    use std::cell::Cell;
    use tokio::time::Instant;
    thread_local!(static START: Cell<Option<Instant>> = const { Cell::new(None) });
    let start = START.get().unwrap_or_else(Instant::now);
    START.set(Some(start));
    let elapsed = Instant::now().saturating_duration_since(start);
    Timestamp::from_microsecond(1_000_000_000_000_000 + i64::try_from(elapsed.as_micros()).unwrap()).unwrap()
}

/// Advances the paused time.
pub(crate) async fn sleep_seconds(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

/// Lets every runnable task run; advances time by a millisecond.
pub(crate) async fn let_tasks_run() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}
