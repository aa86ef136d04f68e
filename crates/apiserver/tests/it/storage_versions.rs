//! Storage versions over a real SQLite file: what a server says, and a hundred that say it at once.

use std::sync::Arc;
use std::time::{Duration, Instant};

use apiserver::barrier::registrations;
use apiserver::ports::{Ports, StorageVersionObjects};
use catalogue::{Gates, Release, RuntimeConfig, Surface};
use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, join_all};
use registry::{Cache, Open, Registry};
use storageversion::ports::{Membership, NotKnown, Snapshot, StorageVersions as _};
use storageversion::{Barrier, Members, Metrics, StorageVersioning};
use store::Store;
use store::sqlite::{Config, SqliteStore};
use tasks::Tasks;
use tokio::sync::watch;

const PREFIX: &str = "/registry";
/// Processes that share the file at most; each has a writer and a cache of its own, and several servers if need be.
const PROCESSES_MAX: usize = 4;
/// Longer than it takes without optimisation on a loaded machine; the figure itself is printed.
const PATIENCE: Duration = Duration::from_secs(240);

fn surface(release: Release) -> Surface {
    let gates = Gates::parse(release, "").expect("the defaults are valid");
    Surface::new(&gates, &RuntimeConfig::parse(release, "").expect("the defaults are valid"))
}

#[test]
fn what_every_release_keeps_can_be_registered() {
    for release in Release::ALL {
        let registrations = registrations(&surface(release)).expect("what is kept and served can be read");
        assert!(registrations.len() > 40, "{release}: {}", registrations.len());
        assert!(registrations.contains_key("core.pods") && registrations.contains_key("apps.deployments"));
    }
}

/// Who takes part does not change.
struct Everybody(watch::Receiver<Option<Arc<Members>>>);

impl Membership for Everybody {
    fn follow(&self) -> watch::Receiver<Option<Arc<Members>>> {
        self.0.clone()
    }

    fn now(&self) -> BoxFuture<'_, Result<Arc<Members>, NotKnown>> {
        async move { self.0.borrow().clone().ok_or(NotKnown) }.boxed()
    }
}

/// What servers of one process share.
struct Process {
    store: Arc<SqliteStore>,
    objects: StorageVersionObjects,
    ports: Ports,
    metrics: Metrics,
    figures: prometheus::Registry,
}

impl Process {
    async fn start(file: &std::path::Path, surface: &Surface, tasks: &Tasks) -> Self {
        let store =
            Arc::new(SqliteStore::open(Config::new(file.to_owned()), tasks).await.expect("the folder is there"));
        let mut shelves = apiserver::shelves(surface, PREFIX);
        shelves.extend(apiserver::ports::shelves(PREFIX, &shelves));
        let cache = Cache::start(store.clone(), format!("{PREFIX}/").into(), shelves, tasks);
        cache.filled().await.expect("nobody stops it");
        let registry = Registry::new(store.clone(), cache, Arc::new(Open));
        let as_store: Arc<dyn Store> = store.clone();
        let figures = prometheus::Registry::new();
        Self {
            objects: StorageVersionObjects::start(&registry, PREFIX, tasks),
            ports: Ports::new(&registry, &as_store, PREFIX),
            metrics: Metrics::new(&figures),
            store,
            figures,
        }
    }

    fn serve(&self, name: &str, surface: &Surface, everybody: &Arc<Everybody>, tasks: &Tasks) -> StorageVersioning {
        let kept = registrations(surface).expect("what is kept and served can be read");
        let barrier = Barrier::new(name.into(), Duration::from_secs(3600), &kept, self.metrics.clone());
        let config = storageversion::Config {
            holder: name.to_owned(),
            call_timeout: Duration::from_secs(30),
            election: election::Pace::default(),
            clock: jiff::Timestamp::now,
            seed: name.bytes().fold(7_u64, |seed, byte| seed.wrapping_mul(31) + u64::from(byte)),
        };
        let ports = storageversion::Ports {
            objects: Arc::new(self.objects.clone()),
            membership: everybody.clone(),
            leases: Arc::new(self.ports.leases.clone()),
        };
        let (renewed, receiver) = watch::channel(Some(tokio::time::Instant::now()));
        let versioning = StorageVersioning::start(&config, barrier, &ports, receiver, &self.metrics, tasks);
        drop(renewed);
        versioning
    }

    /// How many attempts to write ended so.
    fn attempts(&self, result: &str) -> f64 {
        let families = self.figures.gather();
        let writes = families.iter().filter(|family| family.name() == "unskew_storageversion_writes_total");
        let metrics = writes.flat_map(|family| family.get_metric());
        let wanted = metrics.filter(|metric| metric.get_label().iter().any(|label| label.value() == result));
        wanted.map(|metric| metric.get_counter().get_value()).sum()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_servers_that_start_at_once_all_publish() {
    publish_at_once(3).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_servers_that_start_at_once_all_publish() {
    publish_at_once(100).await;
}

#[expect(clippy::print_stdout, reason = "the figures are for whoever runs it with --nocapture")]
async fn publish_at_once(count: usize) {
    let (folder, tasks) = (tempfile::tempdir().expect("a folder can be made"), Tasks::new());
    let file = folder.path().join("store.db");
    let surface = surface(Release::R36);
    let mut processes = Vec::new();
    for _ in 0..count.min(PROCESSES_MAX) {
        processes.push(Process::start(&file, &surface, &tasks).await);
    }
    let names: Vec<String> = (0..count).map(|number| format!("apiserver-{number:03}")).collect();
    let members: Arc<Members> = Arc::new(names.iter().map(String::as_str).collect());
    let everybody = Arc::new(Everybody(watch::Sender::new(Some(members)).subscribe()));
    let before = processes[0].store.revision().await.expect("it is open");
    let begun = Instant::now();
    let servers = names
        .iter()
        .enumerate()
        .map(|(number, name)| processes[number % processes.len()].serve(name, &surface, &everybody, &tasks));
    let servers: Vec<StorageVersioning> = servers.collect();
    let published = join_all(servers.iter().map(StorageVersioning::published));
    tokio::time::timeout(PATIENCE, published).await.expect("all are published in time");
    let took = begun.elapsed();
    let writes = processes[0].store.revision().await.expect("it is open").0 - before.0;
    let [written, conflicts] =
        ["written", "conflict"].map(|result| processes.iter().map(|process| process.attempts(result)).sum::<f64>());
    println!(
        "{count} servers, {} resources: {took:?}, {writes} revisions, {written} written, {conflicts} conflicts",
        registrations(&surface).map_or(0, |kept| kept.len())
    );
    let mut snapshots = processes[0].objects.follow();
    let is_whole = |snapshot: &Arc<Snapshot>| {
        snapshot.objects.values().all(|object| object.status.storage_versions.len() == count)
    };
    let whole = tokio::time::timeout(PATIENCE, snapshots.wait_for(is_whole)).await;
    assert!(whole.is_ok(), "every server has an entry in every object");
    tasks.stop(Duration::from_secs(60)).await.expect("all end");
}
