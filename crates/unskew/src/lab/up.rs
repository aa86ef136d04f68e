//! `unskew up`: the lab in the foreground.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use ::lab::data_dir::state::{LabOptions, RequestedStorage};
use ::lab::status::{LabSnapshot, table};
use ::lab::{Config, DataDirRetention, Lab, LabError, LabHandle};
use tokio::signal::unix::{SignalKind, signal};

use super::{args, environment, stored_versions};
use crate::{EXIT_UNAVAILABLE, logging, print_line};

/// How long the summary waits for the discovery documents of servers that are ready.
const SUMMARY_TIMEOUT: Duration = Duration::from_secs(3);
/// The exit code of an interrupted process in shells.
const EXIT_INTERRUPTED: i32 = 130;

pub(super) async fn run(up: args::UpArgs) -> anyhow::Result<ExitCode> {
    logging::init(false, 0);
    if up.detached != args::DetachedMode::Foreground {
        // A session of its own survives the terminal that started it.
        let _ = rustix::process::setsid();
    }
    let keep = if up.ephemeral || up.detached == args::DetachedMode::PurgeDataDir {
        DataDirRetention::Delete
    } else {
        DataDirRetention::Keep
    };
    let layout = match (up.ephemeral, &up.lab.data_dir) {
        (true, None) => environment::temporary_data_dir(),
        _ => environment::data_dir(&up.lab)?,
    };
    let config = Config {
        data_dir: layout,
        options: lab_options(&up),
        etcd_binary: environment::find_etcd(),
        kubeconfig_copy: up.kubeconfig,
        retention: keep,
    };
    let lab = Lab::open(config).await?;
    let inside = lab.handle();
    inside.tasks.spawn_once("stored versions", stored_versions::publish(inside.clone()));
    let (ran, conducted) = tokio::join!(lab.run(), run_until_stopped(&inside));
    ran?;
    conducted?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn lab_options(args: &args::UpArgs) -> LabOptions {
    let store = match (&args.etcd_servers[..], args.etcd) {
        ([], true) => Some(RequestedStorage::OwnEtcd),
        ([], false) => None,
        (servers, _) => Some(RequestedStorage::Etcd(servers.to_vec())),
    };
    LabOptions {
        releases: (!args.servers.is_empty()).then(|| args.servers.iter().map(ToString::to_string).collect()),
        port: args.port,
        store,
        feature_gates: (!args.feature_gates.is_empty()).then(|| args.feature_gates.clone()),
    }
}

/// Prints when the lab is ready, and stops it on a signal.
async fn run_until_stopped(lab: &LabHandle) -> Result<(), LabError> {
    let ready = async {
        lab.wait_until_ready().await?;
        let (snapshot, flags) = (complete_snapshot(lab).await, environment::data_dir_flag(&lab.data_dir));
        print_line(&mut std::io::stdout(), &table::render_summary(&snapshot, &environment::program_name(), &flags));
        Ok(())
    };
    let outcome = tokio::select! {
        outcome = ready => outcome,
        () = lab.stop.cancelled() => Ok(()),
        () = wait_for_signal() => {
            lab.stop.cancel();
            Ok(())
        }
    };
    if outcome.is_err() {
        lab.stop.cancel();
    }
    tokio::select! {
        () = lab.stop.cancelled() => {}
        () = wait_for_signal() => lab.stop.cancel(),
    }
    // A second signal stops without waiting; the servers end with this process.
    lab.tasks.spawn("impatience", |stop| async move {
        if stop.run_until_cancelled(wait_for_signal()).await.is_some() {
            std::process::exit(EXIT_INTERRUPTED);
        }
    });
    outcome
}

/// A snapshot with the discovery documents of all servers, or the last one before the timeout.
async fn complete_snapshot(lab: &LabHandle) -> Arc<LabSnapshot> {
    let mut snapshots = lab.snapshots.clone();
    let complete = |snapshot: &Arc<LabSnapshot>| {
        !snapshot.servers.is_empty() && snapshot.servers.iter().all(|server| server.resources > 0)
    };
    let waited = tokio::time::timeout(SUMMARY_TIMEOUT, snapshots.wait_for(complete)).await;
    drop(waited);
    snapshots.borrow_and_update().clone()
}

pub(super) async fn wait_for_signal() {
    let (Ok(mut terminate), Ok(mut interrupt), Ok(mut hangup)) =
        (signal(SignalKind::terminate()), signal(SignalKind::interrupt()), signal(SignalKind::hangup()))
    else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        _ = hangup.recv() => {}
    }
}

/// Replaces this process by a command, or runs a server, that ends with the parent. Returns only on failure.
pub(crate) fn run_tied_to_parent(parent: u32, command: &[std::ffi::OsString]) -> ExitCode {
    use std::os::unix::process::CommandExt as _;
    let failed = |error: std::io::Error| {
        print_line(&mut std::io::stderr(), &format!("unskew: {error}"));
        ExitCode::from(EXIT_UNAVAILABLE)
    };
    if let Err(error) = ::lab::parent_death::exit_with_parent(parent) {
        return failed(error);
    }
    match command.split_first() {
        Some((program, args)) if program == "serve" => {
            crate::serve::main(args.iter().map(|arg| arg.to_string_lossy().into_owned()))
        }
        Some((program, args)) => failed(std::process::Command::new(program).args(args).exec()),
        None => failed(std::io::Error::other("nothing to run")),
    }
}
