//! `unskew up`: the lab in the foreground.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use ::lab::folder::state::{Wish, WishedStore};
use ::lab::status::{Snapshot, table};
use ::lab::{Config, Inside, Keep, Lab, LabError};
use tokio::signal::unix::{SignalKind, signal};

use super::{args, place};
use crate::{EXIT_UNAVAILABLE, logging, say};

/// How long the summary waits for what the servers serve; they are ready by then.
const SUMMARY_PATIENCE: Duration = Duration::from_secs(3);
/// What a shell says of a process that was interrupted.
const EXIT_INTERRUPTED: i32 = 130;

pub(super) async fn run(up: args::Up) -> anyhow::Result<ExitCode> {
    logging::start(false, 0);
    if up.stays != args::Stays::No {
        // A session of its own: the terminal that started it may close.
        let _ = rustix::process::setsid();
    }
    let keep = if up.ephemeral || up.stays == args::Stays::Purging { Keep::Nothing } else { Keep::Folder };
    let layout = match (up.ephemeral, &up.place.data_dir) {
        (true, None) => place::throw_away(),
        _ => place::layout(&up.place)?,
    };
    let config = Config { layout, wish: wish(&up), etcd: place::etcd(), kubeconfig: up.kubeconfig, keep };
    let lab = Lab::open(config).await?;
    let inside = lab.inside();
    let (ran, conducted) = tokio::join!(lab.run(), conduct(&inside));
    ran?;
    conducted?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn wish(up: &args::Up) -> Wish {
    let store = match (&up.etcd_servers[..], up.etcd) {
        ([], true) => Some(WishedStore::OwnEtcd),
        ([], false) => None,
        (servers, _) => Some(WishedStore::Etcd(servers.to_vec())),
    };
    Wish {
        releases: (!up.servers.is_empty()).then(|| up.servers.iter().map(ToString::to_string).collect()),
        port: up.port,
        store,
        feature_gates: (!up.feature_gates.is_empty()).then(|| up.feature_gates.clone()),
    }
}

/// Says when the lab is ready, and ends it when that is asked for.
async fn conduct(inside: &Inside) -> Result<(), LabError> {
    let ready = async {
        inside.ready().await?;
        let (snapshot, flags) = (known(inside).await, place::flags(&inside.layout));
        say(&mut std::io::stdout(), &table::summary(&snapshot, &place::program(), &flags));
        Ok(())
    };
    let outcome = tokio::select! {
        outcome = ready => outcome,
        () = inside.stop.cancelled() => Ok(()),
        () = told_to_stop() => {
            inside.stop.cancel();
            Ok(())
        }
    };
    if outcome.is_err() {
        inside.stop.cancel();
    }
    tokio::select! {
        () = inside.stop.cancelled() => {}
        () = told_to_stop() => inside.stop.cancel(),
    }
    // Whoever asks twice does not want to wait; the servers end with this process.
    inside.tasks.spawn("impatience", |stop| async move {
        if stop.run_until_cancelled(told_to_stop()).await.is_some() {
            std::process::exit(EXIT_INTERRUPTED);
        }
    });
    outcome
}

/// A snapshot in which every server has said what it serves, if they do so in time.
async fn known(inside: &Inside) -> Arc<Snapshot> {
    let mut snapshots = inside.snapshots.clone();
    let complete = |snapshot: &Arc<Snapshot>| {
        !snapshot.servers.is_empty() && snapshot.servers.iter().all(|server| server.resources > 0)
    };
    let waited = tokio::time::timeout(SUMMARY_PATIENCE, snapshots.wait_for(complete)).await;
    drop(waited);
    snapshots.borrow_and_update().clone()
}

pub(super) async fn told_to_stop() {
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

/// Becomes another process, or a server, that ends with its parent. Only an error comes back.
pub(crate) fn leashed(parent: u32, command: &[std::ffi::OsString]) -> ExitCode {
    use std::os::unix::process::CommandExt as _;
    let failed = |error: std::io::Error| {
        say(&mut std::io::stderr(), &format!("unskew: {error}"));
        ExitCode::from(EXIT_UNAVAILABLE)
    };
    if let Err(error) = ::lab::leash::hold(parent) {
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
