//! The log, on standard error.

use tracing_subscriber::EnvFilter;

/// Installs the log of the process, as text or JSON, with the level that `--v` selects.
pub(crate) fn init(json: bool, verbosity: u8) {
    let level = match verbosity {
        0 | 1 => "info",
        2..=4 => "info,unskew=debug,server=debug,edge=debug,apiserver=debug,registry=debug,store=debug,transport=debug",
        5..=7 => "debug,h2=info,hyper=info,rustls=info",
        _ => "trace",
    };
    let builder = tracing_subscriber::fmt().with_env_filter(EnvFilter::new(level)).with_writer(std::io::stderr);
    let outcome = if json { builder.json().try_init() } else { builder.try_init() };
    // Only tests start a second log; they keep the first.
    let _ = outcome;
}
