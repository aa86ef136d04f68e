//! `unskew status`: what a lab, or any cluster, looks like.

use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::time::Duration;

use ::lab::control::client::Line;
use ::lab::status::{Snapshot, compose, table};
use anyhow::Context as _;
use object::decode::{self, Encoding};

use super::{args, place};
use crate::say;

const WATCH_INTERVAL: Duration = Duration::from_secs(1);
/// Home, and everything below cleared.
const CLEAR: &str = "\x1b[H\x1b[2J";

pub(super) async fn run(status: args::Status) -> anyhow::Result<ExitCode> {
    loop {
        let snapshot = snapshot(&status).await?;
        let text = text(&status, &snapshot)?;
        if !status.watch {
            say(&mut std::io::stdout(), text.trim_end());
            return Ok(ExitCode::SUCCESS);
        }
        let clear = if std::io::stdout().is_terminal() { CLEAR } else { "" };
        say(&mut std::io::stdout(), &format!("{clear}{}", text.trim_end()));
        tokio::select! {
            () = tokio::time::sleep(WATCH_INTERVAL) => {}
            () = super::up::told_to_stop() => return Ok(ExitCode::SUCCESS),
        }
    }
}

async fn snapshot(status: &args::Status) -> anyhow::Result<Snapshot> {
    match &status.kubeconfig {
        None => Ok(Line::open(&place::layout(&status.place)?).await?.status().await?),
        Some(file) => {
            let flag = || format!("--kubeconfig: {}", file.display());
            let bytes = std::fs::read(file).with_context(flag)?;
            // JSON is YAML too.
            let config = decode::value(&bytes, Encoding::Yaml).map_err(anyhow::Error::msg).with_context(flag)?.value;
            let folder = file.parent().unwrap_or(std::path::Path::new("."));
            let access = ::lab::cluster::Access::from_kubeconfig(&config, folder).with_context(flag)?;
            Ok(::lab::cluster::look(&access).await?)
        }
    }
}

fn text(status: &args::Status, snapshot: &Snapshot) -> anyhow::Result<String> {
    if let Some(server) = &status.if_stopped {
        let lost = compose::if_stopped(snapshot, server).with_context(|| {
            let known: Vec<_> = snapshot.servers.iter().map(|server| &*server.name).collect();
            format!("--if-stopped: there is no server {server}: there are {}", known.join(", "))
        })?;
        return Ok(match &*status.output {
            "json" => serde_json::to_string_pretty(&lost)?,
            _ => table::if_stopped(server, &lost),
        });
    }
    Ok(match &*status.output {
        "json" => serde_json::to_string_pretty(snapshot)?,
        _ => table::table(snapshot),
    })
}
