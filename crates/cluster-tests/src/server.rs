//! One `unskew serve` as a real process.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::client::{Client, ClientCredentials};
use crate::process::SpawnedProcess;
use crate::{Etcd, tools};

/// Limit for a server to become ready or to stop on a loaded machine.
const READY_TIMEOUT: Duration = Duration::from_secs(60);

/// The store of a server.
#[derive(Clone, Copy, Debug)]
pub enum TestStore<'a> {
    /// A SQLite file in the server's folder.
    Sqlite,
    /// A real etcd.
    Etcd(&'a Etcd),
}

/// A running server. Killed on drop.
#[derive(Debug)]
pub struct RunningServer {
    process: SpawnedProcess,
    folder: PathBuf,
    log: PathBuf,
    address: String,
}

impl RunningServer {
    /// Starts a server with its data in `folder` and waits until it is ready.
    #[track_caller]
    pub fn start(folder: &Path, store: TestStore<'_>, flags: &[&str]) -> Self {
        let server = Self::launch(folder, store, flags);
        server.wait_ready();
        server
    }

    /// Starts a server and waits until it listens; it may not be ready yet.
    #[track_caller]
    pub fn launch(folder: &Path, store: TestStore<'_>, flags: &[&str]) -> Self {
        Self::launch_as("server", folder, store, flags)
    }

    /// Like `launch`, for one of several servers in a folder; `name` is the name of its log.
    #[track_caller]
    pub fn launch_as(name: &str, folder: &Path, store: TestStore<'_>, flags: &[&str]) -> Self {
        let mut command = Command::new(tools::unskew_binary());
        command.current_dir(folder).arg("serve").args(["--secure-port=0"]).args(flags);
        if !flags.iter().any(|flag| flag.starts_with("--controllers=")) {
            // Most tests count objects and requests; controllers would add their own.
            command.arg("--controllers=");
            // No controller creates the service accounts that pods need, and none removes finalizers.
            if !flags.iter().any(|flag| flag.contains("-admission-plugins=")) {
                command.arg("--disable-admission-plugins=ServiceAccount,StorageObjectInUseProtection");
            }
        }
        if let TestStore::Etcd(etcd) = store {
            command.arg(format!("--etcd-servers={}", etcd.url()));
        }
        let log = folder.join(format!("{name}.log"));
        let (process, lines) = SpawnedProcess::start(command, &log);
        let address = read_listen_address(&lines).unwrap_or_else(|| {
            panic!(
                "the server printed no listen address; its log: {}",
                std::fs::read_to_string(&log).unwrap_or_default()
            )
        });
        Self { process, folder: folder.to_owned(), log, address }
    }

    /// The address it listens on, `host:port`.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Path of the administrator's kubeconfig.
    pub fn kubeconfig(&self) -> PathBuf {
        self.folder.join("unskew-data/admin.kubeconfig")
    }

    /// Folder with the server's certificates and keys.
    pub fn pki(&self) -> PathBuf {
        self.folder.join("unskew-data/pki")
    }

    /// Log output so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Resident memory in bytes.
    pub fn resident_bytes(&self) -> u64 {
        self.process.resident_bytes()
    }

    /// Number of open files, including sockets.
    pub fn open_files(&self) -> usize {
        self.process.open_files()
    }

    /// Client with the administrator's certificate.
    pub fn admin(&self) -> Client {
        self.client_with(ClientCredentials::Certificate {
            certificate: self.pki().join("admin.crt"),
            key: self.pki().join("admin.key"),
        })
    }

    /// Client with the given credentials.
    pub fn client_with(&self, identity: ClientCredentials) -> Client {
        Client::new(&self.address, &self.pki().join("ca.crt"), identity)
    }

    /// Waits until `/readyz` succeeds.
    #[track_caller]
    pub fn wait_ready(&self) {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime can be made");
        let admin = self.admin();
        let deadline = Instant::now() + READY_TIMEOUT;
        while !runtime.block_on(admin.is_ready()) {
            assert!(Instant::now() < deadline, "the server is not ready; its log: {}", self.log());
            std::thread::park_timeout(Duration::from_millis(5));
        }
    }

    /// Stops the server with SIGTERM and returns its exit code.
    #[track_caller]
    pub fn stop(mut self) -> Option<i32> {
        self.process.signal(Signal::TERM);
        self.process.wait(READY_TIMEOUT)
    }

    /// Suspends the server with SIGSTOP until `resume`.
    pub fn pause(&self) {
        self.process.signal(Signal::STOP);
    }

    /// Continues a suspended server.
    pub fn resume(&self) {
        self.process.signal(Signal::CONT);
    }

    /// Kills the server with SIGKILL.
    pub fn kill(mut self) {
        self.process.signal(Signal::KILL);
        self.process.wait(READY_TIMEOUT);
    }
}

/// Reads lines until one contains `https://` and returns the address after it.
pub(crate) fn read_listen_address(lines: &mpsc::Receiver<String>) -> Option<String> {
    let deadline = Instant::now() + READY_TIMEOUT;
    loop {
        let left = deadline.checked_duration_since(Instant::now())?;
        let line = lines.recv_timeout(left).ok()?;
        if let Some((_, address)) = line.split_once("https://") {
            return Some(address.trim().to_owned());
        }
    }
}
