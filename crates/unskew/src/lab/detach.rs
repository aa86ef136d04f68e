//! `unskew up --detach`: the lab in a background process.

use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use ::lab::control::client::ControlClient;
use ::lab::data_dir::{DataDir, LockedDataDir};
use ::lab::status::{LabSnapshot, Phase, table};
use anyhow::Context as _;
use tokio::time::Instant;

use super::{POLL_INTERVAL, args, environment};
use crate::{EXIT_UNAVAILABLE, print_line};

/// Longer than the lab itself waits for its servers.
const DETACH_TIMEOUT: Duration = Duration::from_secs(90);

pub(super) async fn run(args: args::UpArgs) -> anyhow::Result<ExitCode> {
    let data_dir = if args.ephemeral { environment::temporary_data_dir() } else { environment::data_dir(&args.lab)? };
    // Lock and unlock the folder: a lab that runs there is reported now, and the folder for the log exists.
    drop(LockedDataDir::lock(data_dir.clone())?);
    let log = data_dir.log_file("lab");
    let output = std::fs::File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
    let mut command = Command::new("/proc/self/exe");
    command
        .args(detached_process_args(&args, &data_dir))
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output);
    let mut child = command.spawn().context("the lab cannot be started")?;
    let deadline = Instant::now() + DETACH_TIMEOUT;
    loop {
        if let Some(status) = child.try_wait()? {
            let said = std::fs::read_to_string(&log).unwrap_or_default();
            print_line(&mut std::io::stderr(), said.trim_end());
            return Ok(ExitCode::from(
                status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(EXIT_UNAVAILABLE),
            ));
        }
        if let Some(snapshot) = ready_snapshot(&data_dir).await {
            let summary =
                table::render_summary(&snapshot, &environment::program_name(), &environment::data_dir_flag(&data_dir));
            print_line(&mut std::io::stdout(), &summary);
            return Ok(ExitCode::SUCCESS);
        }
        anyhow::ensure!(Instant::now() < deadline, "the lab is not ready; {} says why", log.display());
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

async fn ready_snapshot(data_dir: &DataDir) -> Option<LabSnapshot> {
    let snapshot = ControlClient::connect(data_dir).await.ok()?.status().await.ok()?;
    let is_ready = |server: &::lab::status::ServerSnapshot| server.phase == Phase::Ready && server.resources > 0;
    (!snapshot.servers.is_empty() && snapshot.servers.iter().all(is_ready)).then_some(snapshot)
}

/// The command of the background process.
fn detached_process_args(args: &args::UpArgs, data_dir: &DataDir) -> Vec<String> {
    let command = if args.ephemeral { args::DETACHED_PURGE_COMMAND } else { args::DETACHED_COMMAND };
    let mut arguments = vec![command.to_owned()];
    let mut flag = |name: &str, value: String| arguments.push(format!("--{name}={value}"));
    flag("data-dir", data_dir.path().display().to_string());
    if !args.servers.is_empty() {
        flag("servers", args.servers.iter().map(ToString::to_string).collect::<Vec<_>>().join(","));
    }
    if let Some(port) = args.port {
        flag("port", port.to_string());
    }
    if let Some(file) = &args.kubeconfig {
        flag("kubeconfig", std::path::absolute(file).unwrap_or_else(|_| file.clone()).display().to_string());
    }
    if !args.etcd_servers.is_empty() {
        flag("etcd-servers", args.etcd_servers.join(","));
    }
    if !args.feature_gates.is_empty() {
        flag("feature-gates", args.feature_gates.join(","));
    }
    arguments.extend(args.etcd.then(|| "--etcd".to_owned()));
    arguments
}
