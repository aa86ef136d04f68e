//! The etcd process of a lab started with `--etcd`.

use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;
use tasks::Tasks;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::data_dir::DataDir;
use crate::supervisor::process::{self, Process};
use crate::{parent_death, ports, process_args};

/// Limits for freeing its ports and listening, and for stopping before SIGKILL.
const START_TIMEOUT: Duration = Duration::from_secs(20);
const STOP_GRACE: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A running etcd process.
#[derive(Debug)]
pub(crate) struct LabEtcd {
    process: Process,
    ended: watch::Receiver<bool>,
}

/// Starts etcd and waits until it listens. If etcd exits later, the lab stops.
pub(crate) async fn start(
    layout: &DataDir,
    program: Option<&Path>,
    (client_port, peer_port): (u16, u16),
    stop: &CancellationToken,
    tasks: &Tasks,
) -> Result<LabEtcd, String> {
    let Some(program) = program else {
        return Err(
            "the etcd binary is not on PATH: install it (Debian package etcd-server), or pass a running one with \
                    --etcd-servers"
                .to_owned(),
        );
    };
    let deadline = Instant::now() + START_TIMEOUT;
    for port in [client_port, peer_port] {
        while !ports::is_free(port) {
            if Instant::now() > deadline {
                return Err(format!("port {port} is in use by another program: stop it"));
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
    let log = layout.log_file("etcd");
    let args = process_args::etcd_args(layout, client_port, peer_port);
    let command = std::iter::once(program.display().to_string()).chain(args);
    let (process, child) = parent_death::command_tied_to_parent(command, &log)
        .and_then(Process::start)
        .map_err(|error| format!("cannot start the process: {error}"))?;
    let (report, ended) = watch::channel(false);
    let stopping = stop.clone();
    let end_log = log.clone();
    tasks.spawn_once("etcd", async move {
        let how = process::wait_for_exit(child).await;
        if !stopping.is_cancelled() {
            tracing::error!(%how, log = %end_log.display(), "etcd exited, stopping the lab");
            stopping.cancel();
        }
        report.send_replace(true);
    });
    let etcd = LabEtcd { process, ended };
    while TcpStream::connect((Ipv4Addr::LOCALHOST, client_port)).is_err() {
        if *etcd.ended.borrow() || Instant::now() > deadline {
            etcd.process.signal(Signal::KILL);
            return Err(format!(
                "it does not listen on its client port; last lines of {}:\n{}",
                log.display(),
                process::log_tail(&log)
            ));
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    Ok(etcd)
}

impl LabEtcd {
    /// Sends SIGTERM, then SIGKILL after `STOP_GRACE`.
    pub(crate) async fn stop(mut self) {
        self.process.signal(Signal::TERM);
        if tokio::time::timeout(STOP_GRACE, self.ended.wait_for(|ended| *ended)).await.is_err() {
            self.process.signal(Signal::KILL);
        }
    }
}
