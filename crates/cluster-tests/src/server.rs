//! One `unskew serve` as a real process.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::client::{Client, ClientCredentials};
use crate::process::Process;
use crate::{Etcd, tools};

/// How long a server may take to be ready, or to stop, on a loaded machine.
const READY_TIMEOUT: Duration = Duration::from_secs(60);

/// What a server keeps its objects in.
#[derive(Clone, Copy, Debug)]
pub enum TestStore<'a> {
    /// A file in the server's folder.
    Sqlite,
    /// A real etcd.
    Etcd(&'a Etcd),
}

/// A running server. Killed when dropped.
#[derive(Debug)]
pub struct Server {
    process: Process,
    folder: PathBuf,
    log: PathBuf,
    address: String,
}

impl Server {
    /// Starts a server with its data in `folder` and waits until it is ready.
    #[track_caller]
    pub fn start(folder: &Path, store: TestStore<'_>, flags: &[&str]) -> Self {
        let server = Self::launch(folder, store, flags);
        server.wait_ready();
        server
    }

    /// Starts a server and waits until it listens.
    #[track_caller]
    pub fn launch(folder: &Path, store: TestStore<'_>, flags: &[&str]) -> Self {
        Self::launch_as("server", folder, store, flags)
    }

    /// The same for one of several servers of a folder: its log has this name.
    #[track_caller]
    pub fn launch_as(name: &str, folder: &Path, store: TestStore<'_>, flags: &[&str]) -> Self {
        let mut command = Command::new(tools::unskew_binary());
        command.current_dir(folder).arg("serve").args(["--secure-port=0"]).args(flags);
        if !flags.iter().any(|flag| flag.starts_with("--controllers=")) {
            // Most tests count objects and requests, and controllers make some of their own.
            command.arg("--controllers=");
        }
        if let TestStore::Etcd(etcd) = store {
            command.arg(format!("--etcd-servers={}", etcd.url()));
        }
        let log = folder.join(format!("{name}.log"));
        let (process, lines) = Process::start(command, &log);
        let address = read_listen_address(&lines).unwrap_or_else(|| {
            panic!(
                "the server did not say where it listens; its log: {}",
                std::fs::read_to_string(&log).unwrap_or_default()
            )
        });
        Self { process, folder: folder.to_owned(), log, address }
    }

    /// Where it listens: host and port.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The file that lets kubectl in as administrator.
    pub fn kubeconfig(&self) -> PathBuf {
        self.folder.join("unskew-data/admin.kubeconfig")
    }

    /// The folder of the server's own keys and certificates.
    pub fn pki(&self) -> PathBuf {
        self.folder.join("unskew-data/pki")
    }

    /// What it has logged so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// How much of its memory is resident, in bytes.
    pub fn resident_bytes(&self) -> u64 {
        self.process.resident_bytes()
    }

    /// How many files and sockets the server has open.
    pub fn open_files(&self) -> usize {
        self.process.open_files()
    }

    /// A client that is let in as administrator.
    pub fn admin(&self) -> Client {
        self.client_with(ClientCredentials::Certificate {
            certificate: self.pki().join("admin.crt"),
            key: self.pki().join("admin.key"),
        })
    }

    /// A client with an identity of its own.
    pub fn client_with(&self, identity: ClientCredentials) -> Client {
        Client::new(&self.address, &self.pki().join("ca.crt"), identity)
    }

    /// Waits until `/readyz` is green.
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

    /// Asks it to stop and waits; its exit code.
    #[track_caller]
    pub fn stop(mut self) -> Option<i32> {
        self.process.signal(Signal::TERM);
        self.process.wait(READY_TIMEOUT)
    }

    /// Stops it where it stands, until it is told to go on.
    pub fn pause(&self) {
        self.process.signal(Signal::STOP);
    }

    /// Lets it go on.
    pub fn resume(&self) {
        self.process.signal(Signal::CONT);
    }

    /// Kills it without a warning.
    pub fn kill(mut self) {
        self.process.signal(Signal::KILL);
        self.process.wait(READY_TIMEOUT);
    }
}

/// The address that a process says it listens on.
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
