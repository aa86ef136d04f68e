//! The lifecycle of a lab: open, run, stop.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tasks::Tasks;
use tokio::net::TcpListener;
use tokio::sync::{Mutex, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use transport::Reloading;
use transport::peer::{Connector, Dialer};

use crate::client::AdminClient;
use crate::data_dir::state::{self, LabOptions, LabOptionsError, LabState, LabStorage};
use crate::data_dir::{DataDir, DataDirError, LockedDataDir};
use crate::etcd::{self, LabEtcd};
use crate::pki::LabPki;
use crate::ports::{self, FreePorts};
use crate::status::collect::StatusCollector;
use crate::status::{LabInfo, LabSnapshot, Phase, RolloutStatus, StoredVersionsSummary};
use crate::supervisor::{ActionError, Supervisor, SupervisorHandle};
use crate::{control, load_balancer};

/// Wait for the ports of a killed lab: its servers end with it, but slightly later.
const PORTS_TIMEOUT: Duration = Duration::from_secs(3);
/// Limit for all servers to become ready, generous for a machine that is busy compiling.
const READY_TIMEOUT: Duration = Duration::from_secs(60);
/// Limit for background tasks to end.
const STOP_GRACE: Duration = Duration::from_secs(5);

/// Settings of [`Lab::open`].
#[derive(Clone, Debug)]
pub struct Config {
    /// Data directory; locked while the lab runs.
    pub data_dir: DataDir,
    /// Settings given by flags, merged with those of the last run.
    pub options: LabOptions,
    /// The etcd binary for [`LabStorage::OwnEtcd`]; `None` if none is on PATH.
    pub etcd_binary: Option<PathBuf>,
    /// Second path to write the load balancer's kubeconfig to.
    pub kubeconfig_copy: Option<PathBuf>,
    /// Whether `run` deletes the data directory at the end.
    pub retention: DataDirRetention,
}

/// What happens to the data directory when the lab stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataDirRetention {
    /// Keep it for the next start.
    Keep,
    /// Delete it.
    Delete,
}

/// Why a lab did not start or run.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// The data directory cannot be used.
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    /// The flags do not fit each other or the existing lab.
    #[error(transparent)]
    Options(#[from] LabOptionsError),
    /// Another program listens on a port of the lab.
    #[error("port {port} of {what} is taken by another program: {cure}")]
    PortTaken {
        /// The port.
        port: u16,
        /// The part of the lab that needs it.
        what: String,
        /// Advice on what to do.
        cure: &'static str,
    },
    /// Certificates or keys cannot be created or read.
    #[error("keys and certificates of the lab: {0}")]
    Pki(String),
    /// etcd did not start.
    #[error("etcd: {0}")]
    Etcd(String),
    /// A file or socket cannot be used.
    #[error("{what}: {source}")]
    Io {
        /// What was attempted, with the path.
        what: String,
        /// The cause.
        source: std::io::Error,
    },
    /// A server could not be started.
    #[error("{0}")]
    Action(#[from] ActionError),
    /// A server exited, or is not ready in time.
    #[error("server {name} did not get ready: {reason}")]
    NotReady {
        /// Name of the server.
        name: String,
        /// Last error of the server, or how long the lab waited.
        reason: String,
    },
}

/// Shared access to a running lab for the control API, the page and a rollout.
#[derive(Clone, Debug)]
pub struct LabHandle {
    /// Layout of the data directory.
    pub data_dir: DataDir,
    /// Starts and stops servers and publishes their process state.
    pub supervisor: SupervisorHandle,
    /// One client per server, in order.
    pub clients: Arc<[AdminClient]>,
    /// Client of the load balancer that opens a connection per request.
    pub load_balancer: AdminClient,
    /// Newest snapshot of the lab's status.
    pub snapshots: watch::Receiver<Arc<LabSnapshot>>,
    /// Status of the rollout; written only by the holder of `rollout_lock`.
    pub(crate) rollout_status: Arc<watch::Sender<Option<RolloutStatus>>>,
    /// Versions of stored objects; written by the program that can read the storage.
    pub stored_versions: Arc<watch::Sender<Vec<StoredVersionsSummary>>>,
    /// Held while a rollout runs.
    pub(crate) rollout_lock: Arc<Mutex<()>>,
    /// Background tasks of the lab, joined at the end.
    pub tasks: Tasks,
    /// Cancelled to stop the lab.
    pub stop: CancellationToken,
}

/// A lab whose data directory is locked and whose ports are bound.
#[derive(Debug)]
pub struct Lab {
    data_dir: Arc<LockedDataDir>,
    supervisor: Supervisor,
    etcd: Option<LabEtcd>,
    handle: LabHandle,
    retention: DataDirRetention,
}

impl Lab {
    /// Locks the data directory, binds the ports and starts etcd if configured; [`Lab::run`] starts the servers. Call
    /// on the main thread.
    pub async fn open(config: Config) -> Result<Self, LabError> {
        let folder = Arc::new(LockedDataDir::lock(config.data_dir.clone())?);
        let layout = folder.data_dir().clone();
        let mut free = FreePorts::new();
        let state = state::apply_options(layout.read_state()?, &config.options, &mut || free.pick())?;
        let (listener, page) = bind_listeners(&state).await?;
        folder.write_state(&state)?;
        let keys = LabPki::open_or_create(&layout.pki_dir()).map_err(|error| LabError::Pki(error.to_string()))?;
        keys.check_admin_certificate().map_err(LabError::Pki)?;
        let address = format!("https://127.0.0.1:{}", state.load_balancer_port);
        write_kubeconfigs(&layout, &keys, &state, config.kubeconfig_copy.as_deref())?;
        let tasks = Tasks::new();
        let stop = CancellationToken::new();
        let etcd = match &state.store {
            LabStorage::OwnEtcd { client_port, peer_port } => {
                let started =
                    etcd::start(&layout, config.etcd_binary.as_deref(), (*client_port, *peer_port), &stop, &tasks);
                Some(started.await.map_err(LabError::Etcd)?)
            }
            LabStorage::Sqlite | LabStorage::Etcd { .. } => None,
        };
        let facts = lab_info(&layout, &state, &address);
        let (supervisor, inside) = assemble_lab(folder.clone(), state, keys, facts, (tasks, stop))?;
        let LabHandle { supervisor: handle, tasks, stop, .. } = &inside;
        let carrying = load_balancer::run(listener, handle.process_table(), tasks.clone(), stop.clone());
        tasks.spawn_once("load balancer", carrying);
        crate::page::spawn(page, &inside);
        let socket = control::bind(&layout.control_socket());
        let socket =
            socket.map_err(|source| LabError::Io { what: layout.control_socket().display().to_string(), source })?;
        tasks.spawn_once("control socket", control::run(socket, inside.clone(), stop.clone()));
        Ok(Self { data_dir: folder, supervisor, etcd, handle: inside, retention: config.retention })
    }

    /// Returns the shared handle.
    pub fn handle(&self) -> LabHandle {
        self.handle.clone()
    }

    /// Starts the servers, runs until `stop` is cancelled, then stops everything in order. Await on the main thread:
    /// servers are killed when the thread that started them ends.
    pub async fn run(self) -> Result<(), LabError> {
        let Self { data_dir, supervisor, etcd, handle: inside, retention } = self;
        let outcome = supervisor.run(inside.stop.clone()).await;
        inside.stop.cancel();
        if let Some(etcd) = etcd {
            etcd.stop().await;
        }
        let _ = std::fs::remove_file(inside.data_dir.control_socket());
        if let Err(error) = inside.tasks.stop(STOP_GRACE).await {
            tracing::warn!(%error, "background tasks did not end in time");
        }
        drop(inside);
        if retention == DataDirRetention::Delete
            && let Some(data_dir) = Arc::into_inner(data_dir)
        {
            data_dir.purge()?;
        }
        Ok(outcome?)
    }
}

impl LabHandle {
    /// Waits until every server is ready or one has failed; the error names the first server that is not ready.
    pub async fn wait_until_ready(&self) -> Result<(), LabError> {
        let mut process_table = self.supervisor.process_table();
        let deadline = Instant::now() + READY_TIMEOUT;
        let settled = |process_table: &Arc<crate::supervisor::ProcessTable>| {
            process_table.is_ready() || process_table.servers.iter().any(|process| process.phase == Phase::Failed)
        };
        let waited = tokio::time::timeout_at(deadline, process_table.wait_for(settled)).await;
        drop(waited);
        let process_table = process_table.borrow().clone();
        match process_table.servers.iter().find(|process| process.phase != Phase::Ready && process.generation > 0) {
            None => Ok(()),
            Some(process) => {
                let reason = match &*process.problem {
                    "" => format!("still {} after {} s", process.phase.as_str(), READY_TIMEOUT.as_secs()),
                    trouble => trouble.to_owned(),
                };
                Err(LabError::NotReady { name: process.server.name.clone(), reason })
            }
        }
    }
}

/// Waits until the ports of the servers are free, and binds those of the load balancer and the page, in this order.
async fn bind_listeners(state: &LabState) -> Result<(TcpListener, TcpListener), LabError> {
    let deadline = Instant::now() + PORTS_TIMEOUT;
    let port_taken = |what: String, port: u16, cure| LabError::PortTaken { port, what, cure };
    for server in &state.servers {
        while !ports::is_free(server.port) {
            if Instant::now() > deadline {
                let cure = "stop it, or choose another folder with --data-dir";
                return Err(port_taken(format!("server {}", server.name), server.port, cure));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    let mut listeners = Vec::new();
    for (what, port, cure) in [
        ("the load balancer", state.load_balancer_port, "choose another port with --port"),
        ("the page", state.page_port, "stop it, or choose another folder with --data-dir"),
    ] {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await;
        listeners.push(listener.map_err(|_| port_taken(what.to_owned(), port, cure))?);
    }
    let page = listeners.pop().expect("two listeners were bound");
    Ok((listeners.pop().expect("two listeners were bound"), page))
}

/// Writes the load balancer's kubeconfig, its optional copy, and one kubeconfig per server.
fn write_kubeconfigs(data_dir: &DataDir, pki: &LabPki, state: &LabState, copy: Option<&Path>) -> Result<(), LabError> {
    let mut files = vec![(data_dir.kubeconfig(), state.load_balancer_port)];
    files.extend(copy.map(|copy| (copy.to_owned(), state.load_balancer_port)));
    files.extend(state.servers.iter().map(|server| (data_dir.server_kubeconfig(&server.name), server.port)));
    for (file, port) in files {
        let written = pki.write_kubeconfig(&file, &format!("https://127.0.0.1:{port}"));
        written.map_err(|source| LabError::Io { what: format!("cannot write {}", file.display()), source })?;
    }
    Ok(())
}

fn lab_info(data_dir: &DataDir, state: &LabState, address: &str) -> LabInfo {
    LabInfo {
        data_dir: data_dir.path().display().to_string(),
        address: address.to_owned(),
        page: format!("http://127.0.0.1:{}", state.page_port),
        kubeconfig: data_dir.kubeconfig().display().to_string(),
        store: match &state.store {
            LabStorage::Sqlite => "sqlite".to_owned(),
            LabStorage::Etcd { servers } => servers.join(","),
            LabStorage::OwnEtcd { client_port, .. } => crate::process_args::etcd_url(*client_port),
        },
        pid: std::process::id(),
    }
}

/// Creates the clients, the supervisor and the status collector.
fn assemble_lab(
    data_dir: Arc<LockedDataDir>,
    state: LabState,
    pki: LabPki,
    info: LabInfo,
    (tasks, stop): (Tasks, CancellationToken),
) -> Result<(Supervisor, LabHandle), LabError> {
    let tls = pki.client_files().load().map_err(|error| LabError::Pki(error.to_string()))?;
    let connector = Arc::new(Connector::new(Reloading::fixed(tls), Dialer::direct()));
    let clients: Arc<[AdminClient]> =
        state.servers.iter().map(|server| AdminClient::new(&connector, "127.0.0.1", server.port)).collect();
    let load_balancer = AdminClient::without_keep_alive(&connector, "127.0.0.1", state.load_balancer_port);
    let layout = data_dir.data_dir().clone();
    let (supervisor, handle) = Supervisor::new(data_dir, state, pki, clients.to_vec(), tasks.clone());
    let (rollout, rollouts) = watch::channel(None);
    let (stored_versions, stored) = watch::channel(Vec::new());
    let (sender, snapshots) = watch::channel(Arc::new(LabSnapshot { lab: info.clone(), ..LabSnapshot::default() }));
    let collector = StatusCollector {
        info,
        process_table: handle.process_table(),
        clients: clients.to_vec(),
        rollout: rollouts,
        stored_versions: stored,
        snapshots: sender,
    };
    tasks.spawn_once("status", collector.run(stop.clone()));
    let (rollout, busy) = (Arc::new(rollout), Arc::new(Mutex::new(())));
    Ok((
        supervisor,
        LabHandle {
            data_dir: layout,
            supervisor: handle,
            clients,
            load_balancer,
            snapshots,
            rollout_status: rollout,
            stored_versions: Arc::new(stored_versions),
            rollout_lock: busy,
            tasks,
            stop,
        },
    ))
}
