//! A real etcd process.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::process::SpawnedProcess;
use crate::tools;

/// One etcd member with a folder of its own. Killed on drop.
#[derive(Debug)]
pub struct Etcd {
    process: SpawnedProcess,
    folder: tempfile::TempDir,
    ports: Ports,
    url: String,
}

#[derive(Clone, Copy, Debug)]
struct Ports {
    client: u16,
    peer: u16,
}

const START_TIMEOUT: Duration = Duration::from_secs(30);

impl Etcd {
    /// Starts the newer of the two etcd versions that tests run against.
    #[track_caller]
    pub fn start() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        // Another process may take a free port before etcd does; etcd then exits, and the next pair is tried.
        for _ in 0..5 {
            let ports = Ports { client: free_port(), peer: free_port() };
            let process = launch_etcd(&folder, ports);
            if wait_until_listening(ports.client) {
                return Self { process, folder, ports, url: ports.url() };
            }
        }
        panic!(
            "etcd did not start; its log: {}",
            std::fs::read_to_string(folder.path().join("log")).unwrap_or_default()
        );
    }

    /// Client URL.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Kills etcd with SIGKILL; acknowledged writes are kept.
    pub fn kill(&mut self) {
        self.process.signal(Signal::KILL);
        self.process.wait(START_TIMEOUT);
    }

    /// Starts etcd again with the same ports and data.
    #[track_caller]
    pub fn restart(&mut self) {
        self.process = launch_etcd(&self.folder, self.ports);
        assert!(wait_until_listening(self.ports.client), "etcd does not listen again");
    }

    /// Suspends etcd with SIGSTOP until [`Etcd::resume`].
    pub fn pause(&self) {
        self.process.signal(Signal::STOP);
    }

    /// Continues a suspended etcd.
    pub fn resume(&self) {
        self.process.signal(Signal::CONT);
    }

    /// Writes a key directly, as another etcd client would.
    #[track_caller]
    pub fn put(&self, key: &str, value: &[u8]) {
        self.post_json("/v3/kv/put", &json!({"key": STANDARD.encode(key), "value": STANDARD.encode(value)}));
    }

    /// Number of keys in the whole store.
    #[track_caller]
    pub fn count_keys(&self) -> u64 {
        let everything = json!({"key": STANDARD.encode([0]), "range_end": STANDARD.encode([0]), "count_only": true});
        let answer = self.post_json("/v3/kv/range", &everything);
        answer["count"].as_str().and_then(|count| count.parse().ok()).unwrap_or(0)
    }

    /// Sends a request to etcd's JSON gateway, which needs no gRPC client.
    #[track_caller]
    fn post_json(&self, path: &str, body: &Value) -> Value {
        let body = body.to_string();
        let head = format!("POST {path} HTTP/1.0\r\nhost: etcd\r\ncontent-length: {}\r\n\r\n", body.len());
        let mut stream = TcpStream::connect(("127.0.0.1", self.ports.client)).expect("etcd listens");
        stream.set_read_timeout(Some(START_TIMEOUT)).expect("a timeout can be set");
        stream.write_all((head + &body).as_bytes()).expect("etcd reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("etcd responds");
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        assert!(head.contains(" 200 "), "{answer}");
        serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {answer}"))
    }
}

impl Ports {
    fn url(self) -> String {
        format!("http://127.0.0.1:{}", self.client)
    }
}

fn launch_etcd(folder: &tempfile::TempDir, ports: Ports) -> SpawnedProcess {
    let url = ports.url();
    let mut command = Command::new(tools::required_path("UNSKEW_ETCD_NEW"));
    command.arg("--data-dir").arg(folder.path().join("data"));
    command.args(["--listen-client-urls", &url, "--advertise-client-urls", &url]);
    command.args(["--listen-peer-urls", &format!("http://127.0.0.1:{}", ports.peer), "--unsafe-no-fsync"]);
    let (process, _lines) = SpawnedProcess::start(command, &folder.path().join("log"));
    process
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
    listener.local_addr().expect("the listener is bound").port()
}

fn wait_until_listening(port: u16) -> bool {
    let deadline = Instant::now() + START_TIMEOUT;
    while Instant::now() < deadline {
        if TcpStream::connect(("127.0.0.1", port)).is_ok() {
            return true;
        }
        std::thread::park_timeout(Duration::from_millis(10));
    }
    false
}
