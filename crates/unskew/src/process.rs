//! Process-wide settings and signals of a server process.

use tokio::signal::unix::{SignalKind, signal};

/// Raises the soft limit of open files to the hard one, because every watch may be a connection.
pub(crate) fn raise_file_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum }) {
        tracing::warn!(%error, "failed to raise the limit of open files");
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
