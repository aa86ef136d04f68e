//! An etcd of the lab's own.

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

/// How long it may take to listen, and to stop.
const START_TIMEOUT: Duration = Duration::from_secs(20);
const STOP_GRACE: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// An etcd that runs.
#[derive(Debug)]
pub(crate) struct LabEtcd {
    process: Process,
    ended: watch::Receiver<bool>,
}

/// Starts it and waits until it listens. If it ends by itself, so does the lab.
pub(crate) async fn start(
    layout: &DataDir,
    program: Option<&Path>,
    (client_port, peer_port): (u16, u16),
    stop: &CancellationToken,
    tasks: &Tasks,
) -> Result<LabEtcd, String> {
    let Some(program) = program else {
        return Err("it is not on PATH: install it (Debian's package is etcd-server), or name one that runs with \
                    --etcd-servers"
            .to_owned());
    };
    let deadline = Instant::now() + START_TIMEOUT;
    for port in [client_port, peer_port] {
        while !ports::is_free(port) {
            if Instant::now() > deadline {
                return Err(format!("its port {port} is taken by another program: stop that one"));
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
    let log = layout.log_file("etcd");
    let args = process_args::etcd_args(layout, client_port, peer_port);
    let command = std::iter::once(program.display().to_string()).chain(args);
    let (process, child) = parent_death::command_tied_to_parent(command, &log)
        .and_then(Process::start)
        .map_err(|error| format!("it cannot be started: {error}"))?;
    let (report, ended) = watch::channel(false);
    let stopping = stop.clone();
    let end_log = log.clone();
    tasks.spawn_once("etcd", async move {
        let how = process::wait_for_exit(child).await;
        if !stopping.is_cancelled() {
            tracing::error!(%how, log = %end_log.display(), "etcd ended, and the lab with it");
            stopping.cancel();
        }
        report.send_replace(true);
    });
    let etcd = LabEtcd { process, ended };
    while TcpStream::connect((Ipv4Addr::LOCALHOST, client_port)).is_err() {
        if *etcd.ended.borrow() || Instant::now() > deadline {
            etcd.process.signal(Signal::KILL);
            return Err(format!("it does not listen; the end of {}:\n{}", log.display(), process::log_tail(&log)));
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    Ok(etcd)
}

impl LabEtcd {
    /// Tells it to stop, and waits.
    pub(crate) async fn stop(mut self) {
        self.process.signal(Signal::TERM);
        if tokio::time::timeout(STOP_GRACE, self.ended.wait_for(|ended| *ended)).await.is_err() {
            self.process.signal(Signal::KILL);
        }
    }
}
