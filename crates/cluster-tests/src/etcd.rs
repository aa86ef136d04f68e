//! A real etcd.

use std::net::TcpListener;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::process::Process;
use crate::tools;

/// One etcd server with its own folder. Killed when dropped.
#[derive(Debug)]
pub struct Etcd {
    _process: Process,
    _folder: tempfile::TempDir,
    url: String,
}

/// How long it may take to listen.
const START_TIMEOUT: Duration = Duration::from_secs(30);

impl Etcd {
    /// Starts the newer of the two etcds that tests run against.
    #[track_caller]
    pub fn start() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        // Free now; should somebody take one before etcd does, it ends and the next pair is tried.
        for _ in 0..5 {
            let (client, peer) = (free_port(), free_port());
            let url = format!("http://127.0.0.1:{client}");
            let mut command = Command::new(tools::required("UNSKEW_ETCD_NEW"));
            command.arg("--data-dir").arg(folder.path().join("data"));
            command.args(["--listen-client-urls", &url, "--advertise-client-urls", &url]);
            command.args(["--listen-peer-urls", &format!("http://127.0.0.1:{peer}"), "--unsafe-no-fsync"]);
            let (process, _lines) = Process::start(command, &folder.path().join("log"));
            if answers(client) {
                return Self { _process: process, _folder: folder, url };
            }
        }
        panic!(
            "etcd did not start; its log: {}",
            std::fs::read_to_string(folder.path().join("log")).unwrap_or_default()
        );
    }

    /// Where it listens.
    pub fn url(&self) -> &str {
        &self.url
    }
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
    listener.local_addr().expect("it is bound").port()
}

fn answers(port: u16) -> bool {
    let deadline = Instant::now() + START_TIMEOUT;
    while Instant::now() < deadline {
        if std::net::TcpStream::connect(("127.0.0.1", port)).is_ok() {
            return true;
        }
        std::thread::park_timeout(Duration::from_millis(10));
    }
    false
}
