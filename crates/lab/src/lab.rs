//! A whole lab: opened, run, ended in order.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tasks::Tasks;
use tokio::net::TcpListener;
use tokio::sync::{Mutex, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use transport::Watched;
use transport::peer::{Connector, Dialer};

use crate::client::Client;
use crate::etcd::{self, Etcd};
use crate::folder::state::{self, State, Store, Wish, WishError};
use crate::folder::{Folder, FolderError, Layout};
use crate::keys::Keys;
use crate::ports::{self, FreePorts};
use crate::status::collect::Collector;
use crate::status::{Facts, Phase, Rollout, Snapshot};
use crate::supervisor::{Handle, OrderError, Supervisor};
use crate::{control, door};

/// How long ports of a lab that was killed may take to be free: its servers end with it, but not in the same instant.
const PORTS_PATIENCE: Duration = Duration::from_secs(3);
/// How long servers may take to be ready, on a machine that is busy with building.
const READY_PATIENCE: Duration = Duration::from_secs(60);
/// How long tasks may take to end; they only carry bytes.
const STOP_GRACE: Duration = Duration::from_secs(5);

/// What a lab is started with.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where it lives.
    pub layout: Layout,
    /// What was asked for.
    pub wish: Wish,
    /// The etcd to run, if one shall be.
    pub etcd: Option<PathBuf>,
    /// Where else the kubeconfig shall be written.
    pub kubeconfig: Option<PathBuf>,
    /// Whether the folder is deleted at the end.
    pub keep: Keep,
}

/// What becomes of the folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// It is kept for the next start.
    Folder,
    /// It is deleted.
    Nothing,
}

/// Why there is no lab.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// Not in this folder.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// Not such a lab.
    #[error(transparent)]
    Wish(#[from] WishError),
    /// Somebody else listens there.
    #[error("port {port} of {what} is taken by another program: {cure}")]
    PortTaken {
        /// Which.
        port: u16,
        /// Whose.
        what: String,
        /// What to do.
        cure: &'static str,
    },
    /// Keys and certificates.
    #[error("keys and certificates of the lab: {0}")]
    Keys(String),
    /// etcd.
    #[error("etcd: {0}")]
    Etcd(String),
    /// A file or socket.
    #[error("{what}: {source}")]
    Io {
        /// Which.
        what: String,
        /// Why not.
        source: std::io::Error,
    },
    /// A server did not start.
    #[error("{0}")]
    Server(#[from] OrderError),
    /// A server ended, or did not get ready.
    #[error("server {name} did not get ready: {reason}")]
    NotReady {
        /// Which.
        name: String,
        /// Why.
        reason: String,
    },
}

/// What those inside a lab share: the commands, the page, a rollout.
#[derive(Clone, Debug)]
pub struct Inside {
    /// What is where.
    pub layout: Layout,
    /// Orders to servers, and how they stand.
    pub handle: Handle,
    /// A client of each server, in order.
    pub clients: Arc<[Client]>,
    /// A client of the front door, with a new connection for every request.
    pub door: Client,
    /// What the lab looks like, live.
    pub snapshots: watch::Receiver<Arc<Snapshot>>,
    /// The rollout, written by whoever holds `busy`.
    pub(crate) rollout: Arc<watch::Sender<Option<Rollout>>>,
    /// Held while a rollout goes on.
    pub(crate) busy: Arc<Mutex<()>>,
    /// Background tasks of the lab.
    pub tasks: Tasks,
    /// Ends the lab.
    pub stop: CancellationToken,
}

/// A lab that is about to run.
#[derive(Debug)]
pub struct Lab {
    folder: Arc<Folder>,
    supervisor: Supervisor,
    etcd: Option<Etcd>,
    inside: Inside,
    keep: Keep,
}

impl Lab {
    /// Takes the folder, binds the ports, and starts etcd if it shall. No server runs yet. Must be called on the main thread.
    pub async fn open(config: Config) -> Result<Self, LabError> {
        let folder = Arc::new(Folder::take(config.layout.clone())?);
        let layout = folder.layout().clone();
        let mut free = FreePorts::new();
        let state = state::settle(layout.read_state()?, &config.wish, &mut || free.pick())?;
        let (listener, page) = bind(&state).await?;
        folder.write_state(&state)?;
        let keys = Keys::open(&layout.pki()).map_err(|error| LabError::Keys(error.to_string()))?;
        keys.check().map_err(LabError::Keys)?;
        let address = format!("https://127.0.0.1:{}", state.door_port);
        write_kubeconfigs(&layout, &keys, &state, config.kubeconfig.as_deref())?;
        let tasks = Tasks::new();
        let stop = CancellationToken::new();
        let etcd = match &state.store {
            Store::OwnEtcd { client_port, peer_port } => {
                let started = etcd::start(&layout, config.etcd.as_deref(), (*client_port, *peer_port), &stop, &tasks);
                Some(started.await.map_err(LabError::Etcd)?)
            }
            Store::Sqlite | Store::Etcd { .. } => None,
        };
        let facts = facts(&layout, &state, &address);
        let (supervisor, inside) = assemble(folder.clone(), state, keys, facts, (tasks, stop))?;
        let Inside { handle, tasks, stop, .. } = &inside;
        let carrying = door::run(listener, handle.board(), tasks.clone(), stop.clone());
        tasks.spawn_once("front door", carrying);
        crate::page::start(page, &inside);
        let socket = control::bind(&layout.socket());
        let socket = socket.map_err(|source| LabError::Io { what: layout.socket().display().to_string(), source })?;
        tasks.spawn_once("control socket", control::run(socket, inside.clone(), stop.clone()));
        Ok(Self { folder, supervisor, etcd, inside, keep: config.keep })
    }

    /// What those inside share.
    pub fn inside(&self) -> Inside {
        self.inside.clone()
    }

    /// Starts the servers, and runs until the lab is told to stop; then ends everything in order. Must be awaited on the main
    /// thread.
    pub async fn run(self) -> Result<(), LabError> {
        let Self { folder, supervisor, etcd, inside, keep } = self;
        let outcome = supervisor.run(inside.stop.clone()).await;
        inside.stop.cancel();
        if let Some(etcd) = etcd {
            etcd.stop().await;
        }
        let _ = std::fs::remove_file(inside.layout.socket());
        if let Err(error) = inside.tasks.stop(STOP_GRACE).await {
            tracing::warn!(%error, "not everything ended in time");
        }
        drop(inside);
        if keep == Keep::Nothing
            && let Some(folder) = Arc::into_inner(folder)
        {
            folder.purge()?;
        }
        Ok(outcome?)
    }
}

impl Inside {
    /// Waits until every server is ready and known to the others, or one failed.
    pub async fn ready(&self) -> Result<(), LabError> {
        let mut board = self.handle.board();
        let deadline = Instant::now() + READY_PATIENCE;
        let settled = |board: &Arc<crate::supervisor::Board>| {
            board.is_ready() || board.servers.iter().any(|standing| standing.phase == Phase::Failed)
        };
        let waited = tokio::time::timeout_at(deadline, board.wait_for(settled)).await;
        drop(waited);
        let board = board.borrow().clone();
        match board.servers.iter().find(|standing| standing.phase != Phase::Ready && standing.generation > 0) {
            None => Ok(()),
            Some(standing) => {
                let reason = match &*standing.trouble {
                    "" => format!("it is still {} after {} s", standing.phase.as_str(), READY_PATIENCE.as_secs()),
                    trouble => trouble.to_owned(),
                };
                Err(LabError::NotReady { name: standing.server.name.clone(), reason })
            }
        }
    }
}

async fn bind(state: &State) -> Result<(TcpListener, TcpListener), LabError> {
    let deadline = Instant::now() + PORTS_PATIENCE;
    let taken = |what: String, port: u16, cure| LabError::PortTaken { port, what, cure };
    for server in &state.servers {
        while !ports::is_free(server.port) {
            if Instant::now() > deadline {
                let cure = "stop that one, or choose another folder with --data-dir";
                return Err(taken(format!("server {}", server.name), server.port, cure));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    let mut listeners = Vec::new();
    for (what, port, cure) in [
        ("the front door", state.door_port, "--port chooses another one"),
        ("the page", state.page_port, "stop that one, or choose another folder with --data-dir"),
    ] {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await;
        listeners.push(listener.map_err(|_| taken(what.to_owned(), port, cure))?);
    }
    let page = listeners.pop().expect("two were bound");
    Ok((listeners.pop().expect("two were bound"), page))
}

/// One for the front door, in the folder and where else it was asked for, and one for each server.
fn write_kubeconfigs(layout: &Layout, keys: &Keys, state: &State, copy: Option<&Path>) -> Result<(), LabError> {
    let mut files = vec![(layout.kubeconfig(), state.door_port)];
    files.extend(copy.map(|copy| (copy.to_owned(), state.door_port)));
    files.extend(state.servers.iter().map(|server| (layout.server_kubeconfig(&server.name), server.port)));
    for (file, port) in files {
        let written = keys.write_kubeconfig(&file, &format!("https://127.0.0.1:{port}"));
        written.map_err(|source| LabError::Io { what: format!("cannot write {}", file.display()), source })?;
    }
    Ok(())
}

fn facts(layout: &Layout, state: &State, address: &str) -> Facts {
    Facts {
        folder: layout.folder().display().to_string(),
        address: address.to_owned(),
        page: format!("http://127.0.0.1:{}", state.page_port),
        kubeconfig: layout.kubeconfig().display().to_string(),
        store: match &state.store {
            Store::Sqlite => "sqlite".to_owned(),
            Store::Etcd { servers } => servers.join(","),
            Store::OwnEtcd { client_port, .. } => crate::launch::own_etcd_url(*client_port),
        },
        pid: std::process::id(),
    }
}

/// Puts the parts together that look at servers.
fn assemble(
    folder: Arc<Folder>,
    state: State,
    keys: Keys,
    facts: Facts,
    (tasks, stop): (Tasks, CancellationToken),
) -> Result<(Supervisor, Inside), LabError> {
    let tls = keys.client_files().read().map_err(|error| LabError::Keys(error.to_string()))?;
    let connector = Arc::new(Connector::new(Watched::fixed(tls), Dialer::direct()));
    let clients: Arc<[Client]> =
        state.servers.iter().map(|server| Client::new(&connector, "127.0.0.1", server.port)).collect();
    let door = Client::fresh(&connector, "127.0.0.1", state.door_port);
    let layout = folder.layout().clone();
    let (supervisor, handle) = Supervisor::new(folder, state, keys, clients.to_vec(), tasks.clone());
    let (rollout, rollouts) = watch::channel(None);
    let (sender, snapshots) = watch::channel(Arc::new(Snapshot { lab: facts.clone(), ..Snapshot::default() }));
    let collector =
        Collector { facts, board: handle.board(), clients: clients.to_vec(), rollout: rollouts, snapshots: sender };
    tasks.spawn_once("status", collector.run(stop.clone()));
    let (rollout, busy) = (Arc::new(rollout), Arc::new(Mutex::new(())));
    Ok((supervisor, Inside { layout, handle, clients, door, snapshots, rollout, busy, tasks, stop }))
}
