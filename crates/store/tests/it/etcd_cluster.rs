//! Real etcd processes for tests, an old release and a new one.
//!
//! The binaries come from `UNSKEW_ETCD_OLD` (3.4.23, which answers no progress requests in order) and `UNSKEW_ETCD_NEW` (3.5.13
//! or later), which `cargo xtask test` sets.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process};
use store::Store;
use store::etcd::{Config, EtcdStore, Timeouts};
use tasks::Tasks;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::conformance::Harness;

/// Which etcd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EtcdRelease {
    Old,
    New,
}

impl EtcdRelease {
    #[expect(clippy::disallowed_methods, reason = "the one place where tests learn where the binaries are")]
    fn binary(self) -> PathBuf {
        let variable = match self {
            Self::Old => "UNSKEW_ETCD_OLD",
            Self::New => "UNSKEW_ETCD_NEW",
        };
        let path = std::env::var(variable);
        path.unwrap_or_else(|_| panic!("{variable} names no etcd binary: run through cargo xtask test")).into()
    }
}

/// A cluster of etcd processes on this machine, which end with it, or with us.
#[derive(Debug)]
pub(crate) struct EtcdCluster {
    release: EtcdRelease,
    pub(crate) members: Vec<EtcdProcess>,
    extra: Vec<String>,
    tls: Option<EtcdTls>,
    dir: TempDir,
    tasks: Tasks,
}

/// One process and where it listens.
#[derive(Debug)]
pub(crate) struct EtcdProcess {
    pub(crate) port: u16,
    peer_port: u16,
    process: Mutex<Option<GuardedProcess>>,
}

/// Certificates of a cluster that wants them.
#[derive(Clone, Debug)]
pub(crate) struct EtcdTls {
    pub(crate) ca: PathBuf,
    pub(crate) cert: PathBuf,
    pub(crate) key: PathBuf,
}

impl EtcdCluster {
    /// One etcd.
    pub(crate) async fn single(release: EtcdRelease) -> Self {
        Self::start(release, 1, &[], None).await
    }

    /// Several etcds, all of them up.
    pub(crate) async fn start(release: EtcdRelease, size: usize, extra: &[&str], tls: Option<EtcdTls>) -> Self {
        let members = (0..size)
            .map(|_| EtcdProcess { port: free_port(), peer_port: free_port(), process: Mutex::default() })
            .collect();
        let cluster = Self {
            release,
            members,
            extra: extra.iter().map(ToString::to_string).collect(),
            tls,
            dir: tempfile::tempdir().unwrap(),
            tasks: Tasks::new(),
        };
        for index in 0..size {
            cluster.restart(index);
        }
        for index in 0..size {
            cluster.wait_until_up(index).await;
        }
        cluster
    }

    /// The address of a member.
    pub(crate) fn url(&self, index: usize) -> String {
        format!("{}://127.0.0.1:{}", self.scheme(), self.members[index].port)
    }

    /// All addresses.
    pub(crate) fn urls(&self) -> Vec<String> {
        (0..self.members.len()).map(|index| self.url(index)).collect()
    }

    /// A client of these addresses, which may be those of a proxy.
    pub(crate) async fn client_at(&self, servers: Vec<String>, timeouts: Timeouts) -> Arc<dyn Store> {
        self.open_client(Config { timeouts, ..Config::new(servers) }, self.tasks.clone()).await
    }

    /// A client that ends with these tasks.
    pub(crate) async fn client_with(&self, tasks: Tasks) -> Arc<dyn Store> {
        self.open_client(Config::new(self.urls()), tasks).await
    }

    async fn open_client(&self, mut config: Config, tasks: Tasks) -> Arc<dyn Store> {
        if let Some(tls) = self.tls.clone() {
            (config.ca_file, config.cert_file, config.key_file) = (Some(tls.ca), Some(tls.cert), Some(tls.key));
        }
        Arc::new(EtcdStore::open(&config, tasks).await.unwrap())
    }

    /// A client of all members with the usual timeouts.
    pub(crate) async fn client(&self) -> Arc<dyn Store> {
        self.client_at(self.urls(), Timeouts::default()).await
    }

    /// Kills a member as a power failure would.
    pub(crate) fn kill(&self, index: usize) {
        *self.members[index].process.lock() = None;
    }

    /// Starts a member that is not running, on what it left behind.
    pub(crate) fn restart(&self, index: usize) {
        let arguments = self.arguments(index);
        let log = self.dir.path().join(format!("{index}.log"));
        let process = GuardedProcess::start(self.release.binary(), &arguments, log);
        *self.members[index].process.lock() = Some(process);
    }

    /// Stops a member without ending its connections: it accepts, and never answers.
    pub(crate) fn pause(&self, index: usize) {
        self.signal(index, Signal::STOP);
    }

    /// Lets a frozen member go on.
    pub(crate) fn resume(&self, index: usize) {
        self.signal(index, Signal::CONT);
    }

    fn signal(&self, index: usize, signal: Signal) {
        let process = self.members[index].process.lock();
        kill_process(process.as_ref().expect("it runs").etcd, signal).unwrap();
    }

    /// Waits until a member answers a linearizable read.
    pub(crate) async fn wait_until_up(&self, index: usize) {
        let timeouts = Timeouts { request: Duration::from_secs(60), ..Timeouts::default() };
        let client = self.client_at(vec![self.url(index)], timeouts).await;
        if let Err(error) = client.revision().await {
            let log = std::fs::read_to_string(self.dir.path().join(format!("{index}.log")));
            panic!("etcd did not come up: {error}\n{}", log.unwrap_or_default());
        }
    }

    /// The leader, as a member tells it that is not it.
    pub(crate) async fn leader(&self) -> usize {
        loop {
            for index in 0..self.members.len() {
                // A member that is down tells nothing.
                let status = self.post_json(index, "/v3/maintenance/status", "{}").await.unwrap_or_default();
                let (own, leader) = (json_number(&status, "member_id"), json_number(&status, "leader"));
                if own.is_some() && own == leader {
                    return index;
                }
            }
        }
    }

    /// Asks a member through its JSON gateway, as nothing of ours does.
    pub(crate) async fn post_json(&self, index: usize, path: &str, body: &str) -> std::io::Result<String> {
        self.send_http(index, &format!("POST {path}"), body).await
    }

    /// Reads one of a member's pages.
    pub(crate) async fn get_page(&self, index: usize, path: &str) -> std::io::Result<String> {
        self.send_http(index, &format!("GET {path}"), "").await
    }

    async fn send_http(&self, index: usize, method: &str, body: &str) -> std::io::Result<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.members[index].port)).await?;
        let length = body.len();
        let head = format!("{method} HTTP/1.1\r\nHost: etcd\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n");
        stream.write_all(format!("{head}{body}").as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok(answer)
    }

    fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }

    fn arguments(&self, index: usize) -> Vec<String> {
        let EtcdProcess { peer_port, .. } = self.members[index];
        let peer = |(index, member): (usize, &EtcdProcess)| format!("m{index}=http://127.0.0.1:{}", member.peer_port);
        let peers: Vec<_> = self.members.iter().enumerate().map(peer).collect();
        let folder = self.dir.path().join(format!("m{index}"));
        let mut arguments = vec![
            format!("--name=m{index}"),
            format!("--data-dir={}", folder.display()),
            format!("--listen-client-urls={}", self.url(index)),
            format!("--advertise-client-urls={}", self.url(index)),
            format!("--listen-peer-urls=http://127.0.0.1:{peer_port}"),
            format!("--initial-advertise-peer-urls=http://127.0.0.1:{peer_port}"),
            format!("--initial-cluster={}", peers.join(",")),
            "--logger=zap".to_owned(),
            "--log-outputs=stderr".to_owned(),
        ];
        arguments.extend(self.extra.clone());
        arguments
    }
}

impl Harness for EtcdCluster {
    fn open(&self) -> BoxFuture<'_, Arc<dyn Store>> {
        self.client().boxed()
    }

    fn oversized_value_bytes(&self) -> usize {
        // etcd takes requests of up to 1.5 MiB.
        (3 << 20) / 2
    }
}

/// The number that follows a name in JSON, as a number or a string.
pub(crate) fn json_number(json: &str, name: &str) -> Option<u64> {
    let (_, rest) = json.split_once(&format!("\"{name}\":"))?;
    let digits: String = rest.trim_start_matches('"').chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

/// A running etcd. Dropping it kills it.
#[derive(Debug)]
struct GuardedProcess {
    /// A shell that kills etcd when the pipe to it closes, which also happens when we are killed.
    guard: Child,
    etcd: Pid,
}

impl GuardedProcess {
    fn start(binary: PathBuf, arguments: &[String], log: PathBuf) -> Self {
        const GUARD: &str = r#""$0" "$@" </dev/null & echo $!; cat >/dev/null; kill -9 $!; wait"#;
        let log = File::options().create(true).append(true).open(log).unwrap();
        let mut guard = Command::new("sh")
            .args(["-c", GUARD])
            .arg(binary)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(guard.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let etcd = line.trim().parse().ok().and_then(Pid::from_raw).expect("the guard tells the process id");
        Self { guard, etcd }
    }
}

impl Drop for GuardedProcess {
    fn drop(&mut self) {
        // It may have ended by itself. The guard ends once it is gone, with its port and its locks.
        let _ = kill_process(self.etcd, Signal::KILL);
        drop(self.guard.stdin.take());
        let _ = self.guard.wait();
    }
}

/// A port that nobody listens on, from a range that outgoing connections do not use.
pub(crate) fn free_port() -> u16 {
    const FIRST: u16 = 20_000;
    const COUNT: u16 = 10_000;
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let spread = (std::process::id() % u32::from(COUNT)) as u16;
    loop {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = FIRST + (spread.wrapping_mul(97).wrapping_add(step)) % COUNT;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}
