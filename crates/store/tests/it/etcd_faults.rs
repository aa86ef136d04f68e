//! Random work while etcd members, including the leader, are killed and connections are cut: one history must still
//! explain every response and every watch event.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use store::etcd::Timeouts;
use store::{Key, Store, Watch};

use crate::conformance::Harness;
use crate::conformance::check_fixture::{next_batch, revision, watch};
use crate::conformance::history::FaultMode;
use crate::conformance::workload::{self, WorkloadPlan, is_soak};
use crate::etcd_cluster::{EtcdCluster, EtcdRelease};
use crate::proxy::{FaultProxy, ProxyMode};

/// Short, so that the tests take seconds.
const TIMEOUTS: Timeouts = Timeouts {
    connect: Duration::from_secs(1),
    request: Duration::from_secs(3),
    keep_alive_interval: Duration::from_secs(1),
    keep_alive_timeout: Duration::from_secs(1),
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn history_is_consistent_across_old_etcd_restarts() {
    kill_and_restart(EtcdRelease::Old).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn history_is_consistent_across_new_etcd_restarts() {
    kill_and_restart(EtcdRelease::New).await;
}

async fn kill_and_restart(release: EtcdRelease) {
    let cluster = EtcdCluster::single(release).await;
    let sea = FaultFixture { cluster: &cluster, servers: cluster.urls() };
    sea.run_with_faults(async |mut signs| {
        for _ in 0..rounds(4) {
            signs.wait_for(25).await;
            cluster.kill(0);
            cluster.restart(0);
            cluster.wait_until_up(0).await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn history_is_consistent_across_old_leader_kills() {
    kill_leaders(EtcdRelease::Old).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn history_is_consistent_across_new_leader_kills() {
    kill_leaders(EtcdRelease::New).await;
}

async fn kill_leaders(release: EtcdRelease) {
    let cluster = EtcdCluster::start(release, 3, &[], None).await;
    let sea = FaultFixture { cluster: &cluster, servers: cluster.urls() };
    sea.run_with_faults(async |mut signs| {
        for _ in 0..rounds(3) {
            let leader = cluster.leader().await;
            cluster.kill(leader);
            // The other members go on without it.
            signs.wait_for(25).await;
            cluster.restart(leader);
            cluster.wait_until_up(leader).await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn history_is_consistent_when_old_etcd_connections_are_cut() {
    cut_connections(EtcdRelease::Old).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn history_is_consistent_when_new_etcd_connections_are_cut() {
    cut_connections(EtcdRelease::New).await;
}

async fn cut_connections(release: EtcdRelease) {
    let cluster = EtcdCluster::single(release).await;
    let proxy = FaultProxy::start(cluster.members[0].port, ProxyMode::Pass).await;
    let sea = FaultFixture { cluster: &cluster, servers: vec![proxy.url.clone()] };
    sea.run_with_faults(async |mut signs| {
        for _ in 0..rounds(4) {
            signs.wait_for(20).await;
            proxy.set_mode(ProxyMode::CutAfter(6_000));
            proxy.cut_connections();
            signs.wait_for(20).await;
            proxy.set_mode(ProxyMode::Pass);
        }
    })
    .await;
}

fn rounds(usual: usize) -> usize {
    if is_soak() { usual * 10 } else { usual }
}

/// The cluster, and the addresses that the clients use.
struct FaultFixture<'a> {
    cluster: &'a EtcdCluster,
    servers: Vec<String>,
}

impl FaultFixture<'_> {
    /// Runs clients until all faults are injected, and checks their history.
    async fn run_with_faults(&self, inject_faults: impl AsyncFnOnce(WriteProgress)) {
        let plan = WorkloadPlan {
            seed: fastrand::u64(..),
            prefix: "/storm/".to_owned(),
            clients: 4,
            calls_per_client: usize::MAX,
            fault_mode: FaultMode::WithFaults,
            compacts: false,
        };
        // Connected directly, without faults.
        let observer = self.cluster.client().await;
        let from = revision(&observer).await.unwrap().next();
        let signs = WriteProgress { watch: watch(&observer, Key::from_static(b"/storm/"), from).await.unwrap() };
        let history = workload::record_until(self, &plan, inject_faults(signs)).await;
        let history = history.unwrap_or_else(|error| panic!("seed {}: {error:#}", plan.seed));
        let failed = history.calls.iter().filter(|call| call.is_failed()).count();
        let verdict = crate::conformance::history::check_history(&history);
        verdict.unwrap_or_else(|violation| panic!("seed {}: {violation:#}", plan.seed));
        assert!(failed > 0, "no fault affected any of {} calls", history.calls.len());
    }
}

impl Harness for FaultFixture<'_> {
    fn open(&self) -> BoxFuture<'_, Arc<dyn Store>> {
        self.cluster.client_at(self.servers.clone(), TIMEOUTS).boxed()
    }

    fn oversized_value_bytes(&self) -> usize {
        self.cluster.oversized_value_bytes()
    }
}

/// Counts writes, to pace the injected faults.
struct WriteProgress {
    watch: Watch,
}

impl WriteProgress {
    async fn wait_for(&mut self, count: usize) {
        let mut seen = 0;
        while seen < count {
            seen += next_batch(&mut self.watch).await.unwrap().events.len();
        }
    }
}
