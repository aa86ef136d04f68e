//! An etcd process for the length of a benchmark.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::Context;

/// A running etcd with one member. Dropping it ends it.
#[derive(Debug)]
pub(super) struct BenchEtcd {
    /// A shell that ends etcd when its standard input does, so that etcd also ends when we are killed.
    guard: Child,
    process: u32,
    port: u16,
}

/// Prints the process id of what it runs, and kills it when nobody holds the other end of the pipe any more.
const GUARD_SCRIPT: &str = r#""$@" </dev/null >/dev/null & echo $!; read -r _; kill -9 $!; wait"#;

/// More than the history of the benchmarks needs; etcd's own default is just too small for it.
const QUOTA_BYTES: u64 = 8 << 30;

impl BenchEtcd {
    pub(super) fn start(binary: &Path, folder: &Path) -> anyhow::Result<Self> {
        fs::create_dir_all(folder)?;
        let [port, peer_port] = free_ports()?;
        let (url, peer_url) = (format!("http://127.0.0.1:{port}"), format!("http://127.0.0.1:{peer_port}"));
        let mut guard = Command::new("sh")
            .args(["-c", GUARD_SCRIPT, "sh"])
            .arg(binary)
            .args(["--name=bench", "--log-level=error"])
            .arg(format!("--data-dir={}", folder.join("data").display()))
            .arg(format!("--listen-client-urls={url}"))
            .arg(format!("--advertise-client-urls={url}"))
            .arg(format!("--listen-peer-urls={peer_url}"))
            .arg(format!("--initial-advertise-peer-urls={peer_url}"))
            .arg(format!("--initial-cluster=bench={peer_url}"))
            .arg(format!("--quota-backend-bytes={QUOTA_BYTES}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(File::create(folder.join("log"))?)
            .spawn()
            .context("sh cannot be started")?;
        let mut line = String::new();
        BufReader::new(guard.stdout.take().context("the guard has no output")?).read_line(&mut line)?;
        let process = line.trim().parse().with_context(|| format!("{} was not started", binary.display()))?;
        Ok(Self { guard, process, port })
    }

    pub(super) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    pub(super) fn process(&self) -> u32 {
        self.process
    }
}

impl Drop for BenchEtcd {
    fn drop(&mut self) {
        drop(self.guard.stdin.take());
        // It waits for etcd, so that the disk is ours again when we go on.
        let _ = self.guard.wait();
    }
}

/// Two ports that nobody listens on now.
fn free_ports() -> std::io::Result<[u16; 2]> {
    let [first, second] = [TcpListener::bind(("127.0.0.1", 0))?, TcpListener::bind(("127.0.0.1", 0))?];
    Ok([first.local_addr()?.port(), second.local_addr()?.port()])
}
