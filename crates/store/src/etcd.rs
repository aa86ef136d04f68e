//! The etcd backend: an etcd v3 cluster over gRPC.
//!
//! Invariants: a write that may have been executed is never sent again; a watch delivers every revision whole and once,
//! across connections and members; every request has a deadline.
//!
//! Reading order: `proto` (messages), `connection` (one connection), `members` (failover), `failure` (classification of
//! errors), then `reads`, `probe_batcher` (with `probe_connection`, which reads through `bdp_ping_filter`), `writes`,
//! `computed_writes` (with `possible_states`), `leases` and `watch`.

mod bdp_ping_filter;
mod computed_writes;
mod config;
mod connection;
mod failure;
mod leases;
mod members;
mod possible_states;
mod probe_batcher;
mod probe_connection;
mod proto;
mod reads;
mod scan;
mod version;
mod watch;
mod writes;

use std::sync::{Arc, Once};

use futures_util::FutureExt;
use tasks::Tasks;
use transport::serving::is_connection_thread;

use self::computed_writes::ComputedGroups;
pub use self::config::{Config, ConfigError, Timeouts};
use self::connection::EtcdDialer;
use self::leases::LeasePool;
use self::members::EtcdMembers;
use self::probe_batcher::ProbeBatcher;
use self::probe_connection::ProbeConnection;
pub use self::scan::EtcdScan;
use crate::contract::{
    ComputedValues, Key, KeyRange, RangePage, Revision, Store, StoreEntry, StoreFuture, Transaction,
    TransactionOutcome, Watch,
};

/// A client of one etcd cluster. Its connections and watches end with the `Tasks` that it was opened with.
#[derive(Debug)]
pub struct EtcdStore {
    client: Arc<EtcdClient>,
    /// For callers on threads of connections.
    connection_probes: ProbeQueue,
    /// For all other callers.
    process_probes: ProbeQueue,
}

/// The queue of callers that need the current revision. One probe in flight serves all callers of a queue.
#[derive(Debug)]
struct ProbeQueue {
    batcher: Arc<ProbeBatcher>,
    /// The probe task runs on the runtime of the queue's first caller.
    started: Once,
}

impl EtcdStore {
    /// Reads the files that `config` names and connects to every reachable member. An unreachable etcd is no error:
    /// requests fail as unavailable, and watches wait, until a member responds.
    pub async fn open(config: &Config, tasks: Tasks) -> Result<Self, ConfigError> {
        let addresses = config.addresses()?;
        let dialer = EtcdDialer { tls: config.tls()?, timeouts: config.timeouts, tasks: tasks.clone() };
        let members = EtcdMembers::new(addresses, dialer);
        members.connect_all().await;
        let client = Arc::new(EtcdClient {
            members,
            lease_pool: LeasePool::default(),
            computed_groups: ComputedGroups::default(),
            timeouts: config.timeouts,
            tasks: tasks.clone(),
        });
        let queue = || ProbeQueue { batcher: Arc::new(ProbeBatcher::new()), started: Once::new() };
        Ok(Self { client, connection_probes: queue(), process_probes: queue() })
    }

    /// The queue for the calling thread.
    fn probe_queue(&self) -> &ProbeQueue {
        let queue = if is_connection_thread() { &self.connection_probes } else { &self.process_probes };
        queue.started.call_once(|| {
            let (probes, client, stop) = (queue.batcher.clone(), self.client.clone(), self.client.tasks.stop_token());
            self.client.tasks.spawn_once("etcd revision", async move {
                let connection = tokio::sync::Mutex::new(ProbeConnection::default());
                stop.run_until_cancelled(probes.run(|| client.probe_on(&connection))).await;
                probes.close();
            });
        });
        queue
    }
}

#[derive(Debug)]
struct EtcdClient {
    members: EtcdMembers,
    lease_pool: LeasePool,
    computed_groups: ComputedGroups,
    timeouts: Timeouts,
    tasks: Tasks,
}

impl Store for EtcdStore {
    fn get(&self, key: Key) -> StoreFuture<'_, (Option<StoreEntry>, Revision)> {
        self.client.get(key).boxed()
    }

    fn range(&self, range: KeyRange) -> StoreFuture<'_, RangePage> {
        self.client.range(range).boxed()
    }

    fn commit(&self, transaction: Transaction) -> StoreFuture<'_, TransactionOutcome> {
        self.client.commit(transaction).boxed()
    }

    fn commit_computed(
        &self,
        transaction: Transaction,
        computed: Arc<dyn ComputedValues>,
    ) -> StoreFuture<'_, TransactionOutcome> {
        async move { self.client.commit_computed(transaction, &*computed).await }.boxed()
    }

    fn watch(&self, prefix: Key, from: Revision) -> StoreFuture<'_, Watch> {
        std::future::ready(Ok(self.client.watch(prefix, from))).boxed()
    }

    fn revision(&self) -> StoreFuture<'_, Revision> {
        self.probe_queue().batcher.current_revision().boxed()
    }

    fn supports_progress_requests(&self) -> bool {
        self.client.members.support_progress_requests()
    }

    fn compact(&self, revision: Revision) -> StoreFuture<'_, ()> {
        self.client.compact(revision).boxed()
    }
}
