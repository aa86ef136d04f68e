//! Real etcd processes for tests, of an old release and a new one.
//!
//! The binaries come from `UNSKEW_ETCD_OLD` (3.4.23, without ordered progress responses) and `UNSKEW_ETCD_NEW` (3.5.13
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EtcdRelease {
    Old,
    New,
}

impl EtcdRelease {
    #[expect(clippy::disallowed_methods, reason = "the only place where tests find the binaries")]
    fn binary(self) -> PathBuf {
        let variable = match self {
            Self::Old => "UNSKEW_ETCD_OLD",
            Self::New => "UNSKEW_ETCD_NEW",
        };
        let path = std::env::var(variable);
        path.unwrap_or_else(|_| panic!("{variable} names no etcd binary: run the tests with cargo xtask test")).into()
    }
}

/// A cluster of local etcd processes, which end when it is dropped or the test process dies.
#[derive(Debug)]
pub(crate) struct EtcdCluster {
    release: EtcdRelease,
    pub(crate) members: Vec<EtcdProcess>,
    extra: Vec<String>,
    tls: Option<EtcdTls>,
    dir: TempDir,
    tasks: Tasks,
}

#[derive(Debug)]
pub(crate) struct EtcdProcess {
    pub(crate) port: u16,
    peer_port: u16,
    process: Mutex<Option<GuardedProcess>>,
}

/// The TLS files of a cluster that requires client certificates.
#[derive(Clone, Debug)]
pub(crate) struct EtcdTls {
    pub(crate) ca: PathBuf,
    pub(crate) cert: PathBuf,
    pub(crate) key: PathBuf,
}

impl EtcdCluster {
    pub(crate) async fn single(release: EtcdRelease) -> Self {
        Self::start(release, 1, &[], None).await
    }

    /// Starts several members and waits until all are up.
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

    pub(crate) fn url(&self, index: usize) -> String {
        format!("{}://127.0.0.1:{}", self.scheme(), self.members[index].port)
    }

    pub(crate) fn urls(&self) -> Vec<String> {
        (0..self.members.len()).map(|index| self.url(index)).collect()
    }

    /// A client of these URLs, which may be those of a proxy.
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

    /// A client of all members with the default timeouts.
    pub(crate) async fn client(&self) -> Arc<dyn Store> {
        self.client_at(self.urls(), Timeouts::default()).await
    }

    /// Kills a member like a power failure.
    pub(crate) fn kill(&self, index: usize) {
        *self.members[index].process.lock() = None;
    }

    /// Starts a member that is not running, on its old data.
    pub(crate) fn restart(&self, index: usize) {
        let arguments = self.arguments(index);
        let log = self.dir.path().join(format!("{index}.log"));
        let process = GuardedProcess::start(self.release.binary(), &arguments, log);
        *self.members[index].process.lock() = Some(process);
    }

    /// Stops a member without closing its connections: it accepts and never responds.
    pub(crate) fn pause(&self, index: usize) {
        self.signal(index, Signal::STOP);
    }

    pub(crate) fn resume(&self, index: usize) {
        self.signal(index, Signal::CONT);
    }

    fn signal(&self, index: usize, signal: Signal) {
        let process = self.members[index].process.lock();
        kill_process(process.as_ref().expect("the member runs").etcd, signal).unwrap();
    }

    /// Waits until a member serves a linearizable read.
    pub(crate) async fn wait_until_up(&self, index: usize) {
        let timeouts = Timeouts { request: Duration::from_secs(60), ..Timeouts::default() };
        let client = self.client_at(vec![self.url(index)], timeouts).await;
        if let Err(error) = client.revision().await {
            let log = std::fs::read_to_string(self.dir.path().join(format!("{index}.log")));
            panic!("etcd did not start: {error}\n{}", log.unwrap_or_default());
        }
    }

    /// The index of the leader, as a follower reports it.
    pub(crate) async fn leader(&self) -> usize {
        loop {
            for index in 0..self.members.len() {
                // A stopped member does not respond.
                let status = self.post_json(index, "/v3/maintenance/status", "{}").await.unwrap_or_default();
                let (own, leader) = (json_number(&status, "member_id"), json_number(&status, "leader"));
                if own.is_some() && own == leader {
                    return index;
                }
            }
        }
    }

    /// Sends a request to a member's JSON gateway.
    pub(crate) async fn post_json(&self, index: usize, path: &str, body: &str) -> std::io::Result<String> {
        self.send_http(index, &format!("POST {path}"), body).await
    }

    /// Reads one of a member's HTTP pages.
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
        // etcd accepts requests of up to 1.5 MiB.
        (3 << 20) / 2
    }
}

/// The number that follows a name in JSON, as a number or a string.
pub(crate) fn json_number(json: &str, name: &str) -> Option<u64> {
    let (_, rest) = json.split_once(&format!("\"{name}\":"))?;
    let digits: String = rest.trim_start_matches('"').chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

/// A running etcd, killed on drop.
#[derive(Debug)]
struct GuardedProcess {
    /// A shell that kills etcd when its input pipe closes, which also happens if the test process is killed.
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
        let etcd = line.trim().parse().ok().and_then(Pid::from_raw).expect("the shell prints the process id");
        Self { guard, etcd }
    }
}

impl Drop for GuardedProcess {
    fn drop(&mut self) {
        // etcd may have ended by itself. The shell ends after it, when its port and its locks are free.
        let _ = kill_process(self.etcd, Signal::KILL);
        drop(self.guard.stdin.take());
        let _ = self.guard.wait();
    }
}

/// A free port outside of the range of outgoing connections.
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
