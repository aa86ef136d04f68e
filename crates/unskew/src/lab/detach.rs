//! `unskew up --detach`: the lab in a process that stays.

use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use ::lab::control::client::Line;
use ::lab::folder::{Folder, Layout};
use ::lab::status::{Phase, Snapshot, table};
use anyhow::Context as _;
use tokio::time::Instant;

use super::{LOOK_INTERVAL, args, place};
use crate::{EXIT_UNAVAILABLE, say};

/// Longer than the lab itself waits for its servers.
const PATIENCE: Duration = Duration::from_secs(90);

pub(super) async fn up(up: args::Up) -> anyhow::Result<ExitCode> {
    let layout = if up.ephemeral { place::throw_away() } else { place::layout(&up.place)? };
    // Taken and let go: whoever runs there is named now, and the log has a folder.
    drop(Folder::take(layout.clone())?);
    let log = layout.log("lab");
    let output = std::fs::File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
    let mut command = Command::new("/proc/self/exe");
    command.args(arguments(&up, &layout)).stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
    let mut child = command.spawn().context("the lab cannot be started")?;
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(status) = child.try_wait()? {
            let said = std::fs::read_to_string(&log).unwrap_or_default();
            say(&mut std::io::stderr(), said.trim_end());
            return Ok(ExitCode::from(
                status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(EXIT_UNAVAILABLE),
            ));
        }
        if let Some(snapshot) = ready(&layout).await {
            let summary = table::summary(&snapshot, &place::program(), &place::flags(&layout));
            say(&mut std::io::stdout(), &summary);
            return Ok(ExitCode::SUCCESS);
        }
        anyhow::ensure!(Instant::now() < deadline, "the lab is not ready; {} says why", log.display());
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
}

async fn ready(layout: &Layout) -> Option<Snapshot> {
    let snapshot = Line::open(layout).await.ok()?.status().await.ok()?;
    let is_ready = |server: &::lab::status::Server| server.phase == Phase::Ready && server.resources > 0;
    (!snapshot.servers.is_empty() && snapshot.servers.iter().all(is_ready)).then_some(snapshot)
}

/// The same command for the process that stays.
fn arguments(up: &args::Up, layout: &Layout) -> Vec<String> {
    let command = if up.ephemeral { args::STAY_AND_PURGE } else { args::STAY };
    let mut arguments = vec![command.to_owned()];
    let mut flag = |name: &str, value: String| arguments.push(format!("--{name}={value}"));
    flag("data-dir", layout.folder().display().to_string());
    if !up.servers.is_empty() {
        flag("servers", up.servers.iter().map(ToString::to_string).collect::<Vec<_>>().join(","));
    }
    if let Some(port) = up.port {
        flag("port", port.to_string());
    }
    if let Some(file) = &up.kubeconfig {
        flag("kubeconfig", std::path::absolute(file).unwrap_or_else(|_| file.clone()).display().to_string());
    }
    if !up.etcd_servers.is_empty() {
        flag("etcd-servers", up.etcd_servers.join(","));
    }
    if !up.feature_gates.is_empty() {
        flag("feature-gates", up.feature_gates.join(","));
    }
    arguments.extend(up.etcd.then(|| "--etcd".to_owned()));
    arguments
}
