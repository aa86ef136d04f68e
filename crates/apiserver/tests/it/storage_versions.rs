//! Publication of storage versions over a SQLite file, by up to a hundred concurrent servers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use apiserver::definitions::LiveDefinitions;
use apiserver::storage_ports::{PeeringStorage, StorageVersionObjects};
use apiserver::storage_version_barrier::registrations_for;
use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, join_all};
use kinds::{FeatureGates, Release, RuntimeConfig, ServedResources};
use registry::{AlwaysOpenBarrier, Registry, WatchCache};
use storageversion::ports::{MemberSource, MembersUnknown, StorageVersionClient as _, StorageVersionSnapshot};
use storageversion::{MemberSet, Metrics, PublicationBarrier, StorageVersionManager};
use store::Store;
use store::sqlite::{Config, SqliteStore};
use tasks::Tasks;
use tokio::sync::watch;

const PREFIX: &str = "/registry";
/// The maximum number of simulated processes on the file. Each has its own store and cache and hosts several servers.
const PROCESSES_MAX: usize = 4;
/// Longer than a debug build takes on a loaded machine. The test prints the actual duration.
const PUBLISH_TIMEOUT: Duration = Duration::from_secs(240);

fn default_served_resources(release: Release) -> ServedResources {
    let feature_gates = FeatureGates::parse(release, "").expect("the defaults are valid");
    ServedResources::new(&feature_gates, &RuntimeConfig::parse(release, "").expect("the defaults are valid"))
}

#[test]
fn every_release_has_valid_storage_version_registrations() {
    for release in Release::ALL {
        let registrations =
            registrations_for(&default_served_resources(release)).expect("served and stored versions are decodable");
        assert!(registrations.len() > 40, "{release}: {}", registrations.len());
        assert!(registrations.contains_key("core.pods") && registrations.contains_key("apps.deployments"));
    }
}

/// A constant set of members.
struct FixedMembers(watch::Receiver<Option<Arc<MemberSet>>>);

impl MemberSource for FixedMembers {
    fn subscribe(&self) -> watch::Receiver<Option<Arc<MemberSet>>> {
        self.0.clone()
    }

    fn fetch_current(&self) -> BoxFuture<'_, Result<Arc<MemberSet>, MembersUnknown>> {
        async move { self.0.borrow().clone().ok_or(MembersUnknown) }.boxed()
    }
}

/// The store, cache and metrics that the servers of one process share.
struct TestProcess {
    store: Arc<SqliteStore>,
    objects: StorageVersionObjects,
    ports: PeeringStorage,
    metrics: Metrics,
    prometheus_registry: prometheus::Registry,
}

impl TestProcess {
    async fn start(file: &std::path::Path, served_resources: &ServedResources, tasks: &Tasks) -> Self {
        let store =
            Arc::new(SqliteStore::open(Config::new(file.to_owned()), tasks).await.expect("the directory exists"));
        let mut resource_prefixes = apiserver::resource_prefixes(served_resources, PREFIX);
        resource_prefixes.extend(apiserver::storage_ports::internal_resource_prefixes(PREFIX, &resource_prefixes));
        let cache = WatchCache::start(store.clone(), format!("{PREFIX}/").into(), resource_prefixes, tasks);
        cache.wait_for_sync().await.expect("the cache is not stopped");
        let registry = Registry::new(store.clone(), cache, Arc::new(AlwaysOpenBarrier));
        let as_store: Arc<dyn Store> = store.clone();
        let figures = prometheus::Registry::new();
        Self {
            objects: StorageVersionObjects::start(&registry, PREFIX, tasks),
            ports: PeeringStorage::new(
                &registry,
                &as_store,
                PREFIX,
                &LiveDefinitions::new(&registry, PREFIX, served_resources, Arc::default()).0,
                None,
            ),
            metrics: Metrics::new(&figures),
            store,
            prometheus_registry: figures,
        }
    }

    fn start_server(
        &self,
        name: &str,
        served_resources: &ServedResources,
        members_source: &Arc<FixedMembers>,
        tasks: &Tasks,
    ) -> StorageVersionManager {
        let registrations = registrations_for(served_resources).expect("served and stored versions are decodable");
        let barrier =
            PublicationBarrier::new(name.into(), Duration::from_secs(3600), &registrations, self.metrics.clone());
        let config = storageversion::Config {
            holder: name.to_owned(),
            request_timeout: Duration::from_secs(30),
            election_timings: election::ElectionTimings::default(),
            clock: jiff::Timestamp::now,
            seed: name.bytes().fold(7_u64, |seed, byte| seed.wrapping_mul(31) + u64::from(byte)),
        };
        let ports = storageversion::StorageVersionPorts {
            client: Arc::new(self.objects.clone()),
            member_source: members_source.clone(),
            lease_client: Some(Arc::new(self.ports.leases.clone())),
        };
        let (renewed, receiver) = watch::channel(Some(tokio::time::Instant::now()));
        let manager = StorageVersionManager::start(&config, barrier, &ports, receiver, &self.metrics, tasks);
        drop(renewed);
        manager
    }

    /// The number of writes with this `result` label.
    fn write_count(&self, result: &str) -> f64 {
        let families = self.prometheus_registry.gather();
        let writes = families.iter().filter(|family| family.name() == "unskew_storageversion_writes_total");
        let metrics = writes.flat_map(|family| family.get_metric());
        let wanted = metrics.filter(|metric| metric.get_label().iter().any(|label| label.value() == result));
        wanted.map(|metric| metric.get_counter().get_value()).sum()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_concurrent_servers_publish_storage_versions() {
    publish_concurrently(3).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hundred_concurrent_servers_publish_storage_versions() {
    publish_concurrently(100).await;
}

#[expect(clippy::print_stdout, reason = "the duration is shown with --nocapture")]
async fn publish_concurrently(count: usize) {
    let (data_dir, tasks) = (tempfile::tempdir().expect("a temporary directory can be created"), Tasks::new());
    let file = data_dir.path().join("store.db");
    let served_resources = default_served_resources(Release::R36);
    let mut processes = Vec::new();
    for _ in 0..count.min(PROCESSES_MAX) {
        processes.push(TestProcess::start(&file, &served_resources, &tasks).await);
    }
    let names: Vec<String> = (0..count).map(|number| format!("apiserver-{number:03}")).collect();
    let members: Arc<MemberSet> = Arc::new(names.iter().map(String::as_str).collect());
    let members_source = Arc::new(FixedMembers(watch::Sender::new(Some(members)).subscribe()));
    let before = processes[0].store.revision().await.expect("the store is open");
    let begun = Instant::now();
    let servers = names.iter().enumerate().map(|(number, name)| {
        processes[number % processes.len()].start_server(name, &served_resources, &members_source, &tasks)
    });
    let servers: Vec<StorageVersionManager> = servers.collect();
    let published = join_all(servers.iter().map(StorageVersionManager::wait_until_published));
    tokio::time::timeout(PUBLISH_TIMEOUT, published).await.expect("all servers publish in time");
    let took = begun.elapsed();
    let writes = processes[0].store.revision().await.expect("the store is open").0 - before.0;
    let [written, conflicts] =
        ["written", "conflict"].map(|result| processes.iter().map(|process| process.write_count(result)).sum::<f64>());
    println!(
        "{count} servers, {} resources: {took:?}, {writes} revisions, {written} written, {conflicts} conflicts",
        registrations_for(&served_resources).map_or(0, |kept| kept.len())
    );
    let mut snapshots = processes[0].objects.subscribe();
    let is_whole = |snapshot: &Arc<StorageVersionSnapshot>| {
        snapshot.objects.values().all(|object| object.status.storage_versions.len() == count)
    };
    let whole = tokio::time::timeout(PUBLISH_TIMEOUT, snapshots.wait_for(is_whole)).await;
    assert!(whole.is_ok(), "every server has an entry in every object");
    tasks.stop(Duration::from_secs(60)).await.expect("all tasks stop");
}
