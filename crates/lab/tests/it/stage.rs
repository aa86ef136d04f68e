//! A page whose snapshots a test makes up.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use lab::status::{Counts, Facts, Forward, GroupVersion, Phase, Rollout, Server, Snapshot, StorageVersion};
use tasks::Tasks;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::watch;

/// A page that is served for as long as this lives.
pub(crate) struct Stage {
    snapshots: watch::Sender<Arc<Snapshot>>,
    tasks: Tasks,
    runtime: Runtime,
    port: u16,
}

impl Stage {
    pub(crate) fn start(snapshot: Snapshot) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let (snapshots, _) = watch::channel(Arc::new(snapshot));
        let mut stage = Self { snapshots, tasks: Tasks::new(), runtime, port: 0 };
        stage.open();
        stage
    }

    /// Listens, at the same port as before if there was one.
    pub(crate) fn open(&mut self) {
        let listener = self.runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, self.port))).unwrap();
        self.port = listener.local_addr().unwrap().port();
        self.tasks = Tasks::new();
        let (tasks, stop) = (self.tasks.clone(), self.tasks.stopping());
        let running = lab::page::run(listener, self.snapshots.subscribe(), tasks, stop);
        self.runtime.block_on(async { self.tasks.spawn_once("page", running) });
    }

    /// Ends every connection and listens no more.
    pub(crate) fn close(&self) {
        self.runtime.block_on(self.tasks.stop(Duration::from_secs(10))).unwrap();
    }

    pub(crate) fn address(&self) -> String {
        format!("http://127.0.0.1:{}/", self.port)
    }

    pub(crate) fn show(&self, snapshot: Snapshot) {
        self.snapshots.send_replace(Arc::new(snapshot));
    }
}

/// Where pictures are kept for people to look at.
pub(crate) fn picture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).with_file_name("screenshots").join(name)
}

/// Three servers in the middle of an upgrade.
pub(crate) fn skewed() -> Snapshot {
    Snapshot {
        lab: Facts {
            folder: "/home/ada/lab".to_owned(),
            address: "https://127.0.0.1:6443".to_owned(),
            page: String::new(),
            kubeconfig: "/home/ada/lab/kubeconfig".to_owned(),
            store: "sqlite".to_owned(),
            pid: 7,
        },
        servers: vec![server("a", "1.33", &[]), server("b", "1.34", &[]), server("c", "1.36", &["batch/v2/jobs"])],
        groups: vec![
            group("v1", "pods pods/status services", &["0 1 2", "0 1 2", "0 1 2"]),
            group("batch/v2", "jobs", &["", "", "0"]),
            group("storage.k8s.io/v1", "storageclasses volumeattributesclasses", &["0", "0 1", "0 1"]),
        ],
        forwards: vec![forward("a", "c", 5)],
        storage_versions: vec![
            agreement("apps.deployments", "apps/v1", "apps/v1 apps/v1 apps/v1"),
            agreement(
                "storage.k8s.io.volumeattributesclasses",
                "",
                "storage.k8s.io/v1beta1 storage.k8s.io/v1beta1 storage.k8s.io/v1",
            ),
        ],
        rollout: None,
    }
}

fn server(name: &str, release: &str, only: &[&str]) -> Server {
    Server {
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
        only: only.iter().map(|name| (*name).to_owned()).collect(),
        trouble: String::new(),
    }
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

fn group(name: &str, resources: &str, served: &[&str]) -> GroupVersion {
    let positions = |text: &&str| text.split_whitespace().map(|position| position.parse().unwrap()).collect();
    GroupVersion { name: name.to_owned(), resources: words(resources), served: served.iter().map(positions).collect() }
}

pub(crate) fn forward(from: &str, to: &str, requests: u64) -> Forward {
    Forward { from: from.to_owned(), to: to.to_owned(), requests }
}

fn agreement(name: &str, agreed: &str, writes: &str) -> StorageVersion {
    let writes = words("a b c").into_iter().zip(words(writes)).collect();
    StorageVersion { name: name.to_owned(), agreed: agreed.to_owned(), writes }
}

/// The same after the newest server was killed.
pub(crate) fn killed() -> Snapshot {
    let mut snapshot = skewed();
    let server = &mut snapshot.servers[2];
    server.phase = Phase::Failed;
    server.phase_seconds = 0;
    server.trouble = "killed by signal 9; the end of c.log: one\ntwo".to_owned();
    server.member_state = "suspect".to_owned();
    snapshot
}

/// The same with the first of two steps done.
pub(crate) fn rolling() -> Snapshot {
    let mut snapshot = skewed();
    snapshot.servers[0].release = "1.37".to_owned();
    snapshot.servers[1].phase = Phase::Stopping;
    snapshot.rollout = Some(Rollout {
        from: words("1.33 1.34 1.36"),
        to: words("1.37 1.37 1.37"),
        steps: 3,
        done: 1,
        doing: "stopping b".to_owned(),
        outcome: String::new(),
        probe: Counts { requests: 1234, lost_events: 1, ..Counts::default() },
    });
    snapshot
}
