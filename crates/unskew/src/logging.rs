//! What happens, on standard error.

use tracing_subscriber::EnvFilter;

/// Starts the log: text for people or JSON for programs; `--v` opens up what is usually quiet.
pub(crate) fn init(json: bool, verbosity: u8) {
    let level = match verbosity {
        0 | 1 => "info",
        2..=4 => "info,unskew=debug,edge=debug,apiserver=debug,registry=debug,store=debug,transport=debug",
        5..=7 => "debug,h2=info,hyper=info,rustls=info",
        _ => "trace",
    };
    let builder = tracing_subscriber::fmt().with_env_filter(EnvFilter::new(level)).with_writer(std::io::stderr);
    let outcome = if json { builder.json().try_init() } else { builder.try_init() };
    // A second start can only happen in tests, where the first one's log is as good.
    let _ = outcome;
}
