//! `unskew status`: the state of a lab, or of any cluster.

use std::io::IsTerminal as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use ::lab::cluster::ClusterAccess;
use ::lab::control::client::ControlClient;
use ::lab::status::{LabSnapshot, compose, table};
use anyhow::Context as _;
use object::decode::{self, BodyEncoding};

use super::{args, environment};
use crate::print_line;

const WATCH_INTERVAL: Duration = Duration::from_secs(1);
/// Terminal codes: cursor home, clear to the end of the screen.
const CLEAR_SCREEN: &str = "\x1b[H\x1b[2J";

pub(super) async fn run(status: args::StatusArgs) -> anyhow::Result<ExitCode> {
    loop {
        let snapshot = fetch_snapshot(&status).await?;
        let text = render(&status, &snapshot)?;
        if !status.watch {
            print_line(&mut std::io::stdout(), text.trim_end());
            return Ok(ExitCode::SUCCESS);
        }
        let clear = if std::io::stdout().is_terminal() { CLEAR_SCREEN } else { "" };
        print_line(&mut std::io::stdout(), &format!("{clear}{}", text.trim_end()));
        tokio::select! {
            () = tokio::time::sleep(WATCH_INTERVAL) => {}
            () = super::up::wait_for_signal() => return Ok(ExitCode::SUCCESS),
        }
    }
}

async fn fetch_snapshot(status: &args::StatusArgs) -> anyhow::Result<LabSnapshot> {
    match &status.kubeconfig {
        None => Ok(ControlClient::connect(&environment::data_dir(&status.lab)?).await?.status().await?),
        Some(file) => Ok(::lab::cluster::fetch_snapshot(&cluster_access(file)?).await?),
    }
}

/// The cluster of a kubeconfig that `--kubeconfig` names.
pub(crate) fn cluster_access(file: &Path) -> anyhow::Result<ClusterAccess> {
    let flag = || format!("--kubeconfig: {}", file.display());
    let bytes = std::fs::read(file).with_context(flag)?;
    // JSON is YAML too.
    let config = decode::decode_value(&bytes, BodyEncoding::Yaml).map_err(anyhow::Error::msg).with_context(flag)?.value;
    ClusterAccess::from_kubeconfig(&config, file.parent().unwrap_or(Path::new("."))).with_context(flag)
}

fn render(status: &args::StatusArgs, snapshot: &LabSnapshot) -> anyhow::Result<String> {
    if let Some(server) = &status.if_stopped {
        let lost = compose::unavailable_if_stopped(snapshot, server).with_context(|| {
            let known: Vec<_> = snapshot.servers.iter().map(|server| &*server.name).collect();
            format!("--if-stopped: there is no server {server}: there are {}", known.join(", "))
        })?;
        return Ok(match &*status.output {
            "json" => serde_json::to_string_pretty(&lost)?,
            _ => table::render_if_stopped(server, &lost),
        });
    }
    Ok(match &*status.output {
        "json" => serde_json::to_string_pretty(snapshot)?,
        _ => table::render_snapshot(snapshot),
    })
}
