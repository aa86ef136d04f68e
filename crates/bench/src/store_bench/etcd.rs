//! An etcd process for a benchmark.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::Context;

/// A running etcd with one member. Killed on drop.
#[derive(Debug)]
pub(super) struct BenchEtcd {
    /// Shell that kills etcd when its stdin ends, so that etcd dies with this process.
    guard: Child,
    process: u32,
    port: u16,
}

/// Prints the pid of the command it runs, and kills that when stdin ends.
const GUARD_SCRIPT: &str = r#""$@" </dev/null >/dev/null & echo $!; read -r _; kill -9 $!; wait"#;

/// Larger than the benchmark's history; etcd's default is slightly too small.
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
        // Wait for etcd to exit, so that it no longer uses the disk.
        let _ = self.guard.wait();
    }
}

/// Two ports that are free now.
fn free_ports() -> std::io::Result<[u16; 2]> {
    let [first, second] = [TcpListener::bind(("127.0.0.1", 0))?, TcpListener::bind(("127.0.0.1", 0))?];
    Ok([first.local_addr()?.port(), second.local_addr()?.port()])
}
