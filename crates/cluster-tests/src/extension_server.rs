//! The example extension server as a real process beside a control plane.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;

use crate::client::{Client, ClientCredentials};
use crate::process::SpawnedProcess;
use crate::server::read_listen_address;
use crate::{ControlPlane, tools};

/// Limit for a replica to stop on a loaded machine.
const STOP_TIMEOUT: Duration = Duration::from_secs(60);

/// A running replica. Killed on drop.
#[derive(Debug)]
pub struct RunningExtensionServer {
    process: SpawnedProcess,
    pki: PathBuf,
    log: PathBuf,
    address: String,
}

impl RunningExtensionServer {
    /// Starts a replica of this hostname, and waits until it listens. All replicas of a control plane share one store; the file
    /// `token` in the control plane's folder has the token for its API server `main`.
    #[track_caller]
    pub fn launch(plane: &ControlPlane<'_>, main: &str, hostname: &str, storage_version: &str) -> Self {
        let pki = plane.server(main).pki();
        let file = |path: &Path| path.display().to_string();
        let mut command = Command::new(tools::unskew_binary().with_file_name("extension-server"));
        command.args([
            format!("--main-cluster={}", plane.address(main)),
            format!("--main-cluster-ca={}", file(&pki.join("ca.crt"))),
            format!("--token-file={}", file(&plane.folder().join("token"))),
            format!("--hostname={hostname}"),
            "--port=0".to_owned(),
            format!("--tls-cert-file={}", file(&pki.join("apiserver.crt"))),
            format!("--tls-private-key-file={}", file(&pki.join("apiserver.key"))),
            format!("--store={}", file(&plane.folder().join("gadgets.db"))),
            format!("--storage-version={storage_version}"),
            "--lease-duration-seconds=3".to_owned(),
        ]);
        let log = plane.folder().join(format!("extension-{hostname}.log"));
        let (process, lines) = SpawnedProcess::start(command, &log);
        let address = read_listen_address(&lines).unwrap_or_else(|| {
            panic!("no listen address; the log: {}", std::fs::read_to_string(&log).unwrap_or_default())
        });
        Self { process, pki, log, address }
    }

    /// Client with the given credentials.
    pub fn client_with(&self, credentials: ClientCredentials) -> Client {
        Client::new(&self.address, &self.pki.join("ca.crt"), credentials)
    }

    /// Client with the administrator's certificate of the main cluster.
    pub fn admin(&self) -> Client {
        self.client_with(ClientCredentials::Certificate {
            certificate: self.pki.join("admin.crt"),
            key: self.pki.join("admin.key"),
        })
    }

    /// Log output so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Stops it with SIGTERM and returns its exit code.
    #[track_caller]
    pub fn stop(mut self) -> Option<i32> {
        self.process.signal(Signal::TERM);
        self.process.wait(STOP_TIMEOUT)
    }

    /// Kills it with SIGKILL.
    #[track_caller]
    pub fn kill(mut self) {
        self.process.signal(Signal::KILL);
        self.process.wait(STOP_TIMEOUT);
    }
}
