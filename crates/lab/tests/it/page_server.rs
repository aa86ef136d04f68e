//! A page server for tests, which publish the snapshots.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use lab::status::{
    ForwardedRequests, LabInfo, LabSnapshot, MigrationSummary, Phase, ProbeCounts, RolloutStatus, ServedGroupVersion,
    ServerSnapshot, StorageVersionSummary, StoredVersionsSummary,
};
use tasks::Tasks;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::watch;

/// Serves the page until drop.
pub(crate) struct PageServer {
    snapshots: watch::Sender<Arc<LabSnapshot>>,
    tasks: Tasks,
    runtime: Runtime,
    port: u16,
}

impl PageServer {
    pub(crate) fn start(snapshot: LabSnapshot) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let (snapshots, _) = watch::channel(Arc::new(snapshot));
        let mut stage = Self { snapshots, tasks: Tasks::new(), runtime, port: 0 };
        stage.start_listening();
        stage
    }

    /// Listens again on the same port, or on a free one at first.
    pub(crate) fn start_listening(&mut self) {
        let listener = self.runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, self.port))).unwrap();
        self.port = listener.local_addr().unwrap().port();
        self.tasks = Tasks::new();
        let (tasks, stop) = (self.tasks.clone(), self.tasks.stop_token());
        let running = lab::page::run(listener, self.snapshots.subscribe(), tasks, stop);
        self.runtime.block_on(async { self.tasks.spawn_once("page", running) });
    }

    /// Closes every connection and the listener.
    pub(crate) fn stop_listening(&self) {
        self.runtime.block_on(self.tasks.stop(Duration::from_secs(10))).unwrap();
    }

    pub(crate) fn address(&self) -> String {
        format!("http://127.0.0.1:{}/", self.port)
    }

    pub(crate) fn publish(&self, snapshot: LabSnapshot) {
        self.snapshots.send_replace(Arc::new(snapshot));
    }
}

/// Path of a screenshot, kept for manual inspection.
pub(crate) fn screenshot_path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).with_file_name("screenshots").join(name)
}

/// Three servers in the middle of an upgrade.
pub(crate) fn skewed_snapshot() -> LabSnapshot {
    LabSnapshot {
        lab: LabInfo {
            data_dir: "/home/ada/lab".to_owned(),
            address: "https://127.0.0.1:6443".to_owned(),
            page: String::new(),
            kubeconfig: "/home/ada/lab/kubeconfig".to_owned(),
            store: "sqlite".to_owned(),
            pid: 7,
        },
        servers: vec![
            ready_server("a", "1.33", &[]),
            ready_server("b", "1.34", &[]),
            ready_server("c", "1.36", &["batch/v2/jobs"]),
        ],
        groups: vec![
            served_group_version("v1", "pods pods/status services", &["0 1 2", "0 1 2", "0 1 2"]),
            served_group_version("batch/v2", "jobs", &["", "", "0"]),
            served_group_version("storage.k8s.io/v1", "storageclasses volumeattributesclasses", &["0", "0 1", "0 1"]),
        ],
        forwards: vec![forwarded_requests("a", "c", 5)],
        storage_versions: vec![
            storage_version("apps.deployments", "apps/v1", "apps/v1 apps/v1 apps/v1"),
            storage_version(
                "storage.k8s.io.volumeattributesclasses",
                "",
                "storage.k8s.io/v1beta1 storage.k8s.io/v1beta1 storage.k8s.io/v1",
            ),
        ],
        stored_versions: vec![StoredVersionsSummary {
            name: "apps.deployments".to_owned(),
            versions: vec![("apps/v1".to_owned(), 4), ("apps/v1beta2".to_owned(), 2)],
        }],
        migrations: vec![MigrationSummary {
            name: "deployments".to_owned(),
            resource: "deployments.apps".to_owned(),
            message: "The migration is running".to_owned(),
        }],
        rollout: None,
    }
}

fn ready_server(name: &str, release: &str, only: &[&str]) -> ServerSnapshot {
    ServerSnapshot {
        name: name.to_owned(),
        release: release.to_owned(),
        address: format!("https://127.0.0.1:700{}", name.len()),
        phase: Phase::Ready,
        phase_seconds: 75,
        pid: Some(11),
        identity: format!("apiserver-{name}"),
        member_state: "live".to_owned(),
        member_seconds: 70,
        resources: 4,
        exclusive_resources: only.iter().map(|name| (*name).to_owned()).collect(),
        problem: String::new(),
    }
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

fn served_group_version(name: &str, resources: &str, served: &[&str]) -> ServedGroupVersion {
    let positions = |text: &&str| text.split_whitespace().map(|position| position.parse().unwrap()).collect();
    ServedGroupVersion {
        name: name.to_owned(),
        resources: words(resources),
        served_by_server: served.iter().map(positions).collect(),
    }
}

pub(crate) fn forwarded_requests(from: &str, to: &str, requests: u64) -> ForwardedRequests {
    ForwardedRequests { from: from.to_owned(), to: to.to_owned(), requests }
}

fn storage_version(name: &str, agreed: &str, writes: &str) -> StorageVersionSummary {
    let writes = words("a b c").into_iter().zip(words(writes)).collect();
    StorageVersionSummary {
        name: name.to_owned(),
        common_encoding_version: agreed.to_owned(),
        encoding_versions: writes,
    }
}

/// [`skewed_snapshot`] after server c was killed.
pub(crate) fn killed_snapshot() -> LabSnapshot {
    let mut snapshot = skewed_snapshot();
    let server = &mut snapshot.servers[2];
    server.phase = Phase::Failed;
    server.phase_seconds = 0;
    server.problem = "killed by signal 9; last lines of c.log: one\ntwo".to_owned();
    server.member_state = "suspect".to_owned();
    snapshot
}

/// [`skewed_snapshot`] during a rollout with one of three steps done.
pub(crate) fn rollout_snapshot() -> LabSnapshot {
    let mut snapshot = skewed_snapshot();
    snapshot.servers[0].release = "1.37".to_owned();
    snapshot.servers[1].phase = Phase::Stopping;
    snapshot.rollout = Some(RolloutStatus {
        from: words("1.33 1.34 1.36"),
        to: words("1.37 1.37 1.37"),
        steps: 3,
        steps_done: 1,
        current_action: "stopping b".to_owned(),
        outcome: String::new(),
        probe: ProbeCounts { requests: 1234, lost_events: 1, ..ProbeCounts::default() },
    });
    snapshot
}
