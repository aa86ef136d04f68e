//! What every server process does: raise its limits, and wait to be told to stop.

use tokio::signal::unix::{SignalKind, signal};

/// Every watch is a connection: the soft limit of open files is raised to the hard one.
pub(crate) fn raise_file_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum }) {
        tracing::warn!(%error, "the limit of open files cannot be raised");
    }
}

/// Waits for SIGTERM or SIGINT.
pub(crate) async fn wait_for_stop_signal() {
    let (Ok(mut terminate), Ok(mut interrupt)) = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
    else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}
