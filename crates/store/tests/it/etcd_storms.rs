//! Random work while etcd is killed, its leader is killed, and connections are cut: one history must still explain
//! everything that was acknowledged and everything that was watched.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use store::etcd::Timeouts;
use store::{Key, Store, Watch};

use crate::conformance::Harness;
use crate::conformance::history::Weather;
use crate::conformance::stage::{next_batch, revision, watch};
use crate::conformance::workload::{self, Plan, is_soak};
use crate::etcd::{Cluster, Release};
use crate::proxy::{Mode, Proxy};

/// Short, so that a storm costs seconds.
const TIMEOUTS: Timeouts = Timeouts {
    connect: Duration::from_secs(1),
    request: Duration::from_secs(3),
    keep_alive_interval: Duration::from_secs(1),
    keep_alive_timeout: Duration::from_secs(1),
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_old_etcd_is_killed_and_restarted() {
    kill_and_restart(Release::Old).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_etcd_is_killed_and_restarted() {
    kill_and_restart(Release::New).await;
}

async fn kill_and_restart(release: Release) {
    let cluster = Cluster::single(release).await;
    let sea = Sea { cluster: &cluster, servers: cluster.urls() };
    sea.weather(async |mut signs| {
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
async fn leaders_of_an_old_cluster_are_killed() {
    kill_leaders(Release::Old).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leaders_of_a_new_cluster_are_killed() {
    kill_leaders(Release::New).await;
}

async fn kill_leaders(release: Release) {
    let cluster = Cluster::start(release, 3, &[], None).await;
    let sea = Sea { cluster: &cluster, servers: cluster.urls() };
    sea.weather(async |mut signs| {
        for _ in 0..rounds(3) {
            let leader = cluster.leader().await;
            cluster.kill(leader);
            // The others go on without it.
            signs.wait_for(25).await;
            cluster.restart(leader);
            cluster.wait_until_up(leader).await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_to_an_old_etcd_are_cut_in_the_middle() {
    cut_connections(Release::Old).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_to_a_new_etcd_are_cut_in_the_middle() {
    cut_connections(Release::New).await;
}

async fn cut_connections(release: Release) {
    let cluster = Cluster::single(release).await;
    let proxy = Proxy::start(cluster.members[0].port, Mode::Pass).await;
    let sea = Sea { cluster: &cluster, servers: vec![proxy.url.clone()] };
    sea.weather(async |mut signs| {
        for _ in 0..rounds(4) {
            signs.wait_for(20).await;
            proxy.set(Mode::CutAfter(6_000));
            proxy.cut();
            signs.wait_for(20).await;
            proxy.set(Mode::Pass);
        }
    })
    .await;
}

/// How often bad weather comes.
fn rounds(usual: usize) -> usize {
    if is_soak() { usual * 10 } else { usual }
}

/// Where the work is done.
struct Sea<'a> {
    cluster: &'a Cluster,
    servers: Vec<String>,
}

impl Sea<'_> {
    /// Lets clients work until the storm is over, and judges what they saw.
    async fn weather(&self, storm: impl AsyncFnOnce(Signs)) {
        let plan = Plan {
            seed: fastrand::u64(..),
            prefix: "/storm/".to_owned(),
            clients: 4,
            calls_per_client: usize::MAX,
            weather: Weather::Stormy,
            compacts: false,
        };
        // Seen from outside of the storm.
        let observer = self.cluster.client().await;
        let from = revision(&observer).await.unwrap().next();
        let signs = Signs { watch: watch(&observer, Key::from_static(b"/storm/"), from).await.unwrap() };
        let history = workload::record_until(self, &plan, storm(signs)).await;
        let history = history.unwrap_or_else(|error| panic!("seed {}: {error:#}", plan.seed));
        let failed = history.calls.iter().filter(|call| call.is_failed()).count();
        let verdict = crate::conformance::history::judge(&history);
        verdict.unwrap_or_else(|violation| panic!("seed {}: {violation:#}", plan.seed));
        assert!(failed > 0, "the storm was not felt in {} calls", history.calls.len());
    }
}

impl Harness for Sea<'_> {
    fn open(&self) -> BoxFuture<'_, Arc<dyn Store>> {
        self.cluster.client_at(self.servers.clone(), TIMEOUTS).boxed()
    }

    fn oversized(&self) -> usize {
        self.cluster.oversized()
    }
}

/// What a storm goes by: that work is being done.
struct Signs {
    watch: Watch,
}

impl Signs {
    /// Waits for so many changes from now on.
    async fn wait_for(&mut self, changes: usize) {
        let mut seen = 0;
        while seen < changes {
            seen += next_batch(&mut self.watch).await.unwrap().events.len();
        }
    }
}
