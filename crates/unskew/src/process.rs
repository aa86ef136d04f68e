//! Process-wide settings and signals of a server process.

use std::process::ExitCode;

use server::RejectedConfig;
use tokio::signal::unix::{SignalKind, signal};

use crate::flags::{self, Flag, FlagError, FlagValues};
use crate::shared_flags::LoggingConfig;
use crate::{EXIT_UNAVAILABLE, EXIT_USAGE, logging, print_error, print_line};

/// A command that runs a server with flags of its own.
pub(crate) struct ServerCommand {
    pub(crate) name: &'static str,
    pub(crate) help: &'static str,
    pub(crate) flags: &'static [Flag],
}

impl ServerCommand {
    /// Parses the flags, with those of `--config`, and runs the server. Returns the exit code of the process.
    pub(crate) fn run(
        &self,
        args: impl IntoIterator<Item = String>,
        run: impl FnOnce(&FlagValues) -> Result<anyhow::Result<()>, FlagError>,
    ) -> ExitCode {
        let Self { name, help, flags } = self;
        match FlagValues::parse(flags, args).and_then(with_config_file).and_then(|values| run(&values)) {
            Ok(Ok(())) => ExitCode::SUCCESS,
            Ok(Err(error)) => {
                print_error(name, &error);
                ExitCode::from(if error.is::<RejectedConfig>() { EXIT_USAGE } else { EXIT_UNAVAILABLE })
            }
            Err(FlagError::Help) => {
                print_line(&mut std::io::stdout(), &format!("{help}\n\nFlags:\n{}", flags::render_help(flags)));
                ExitCode::SUCCESS
            }
            Err(error) => {
                print_line(&mut std::io::stderr(), &format!("{name}: {error}\n{name} --help lists the flags."));
                ExitCode::from(EXIT_USAGE)
            }
        }
    }
}

fn with_config_file(values: FlagValues) -> Result<FlagValues, FlagError> {
    let Some(file) = values.given_value("config").map(str::to_owned) else { return Ok(values) };
    let content = std::fs::read_to_string(&file)
        .map_err(|error| FlagError::ConfigFile(format!("cannot read {file}: {error}")))?;
    values.with_config_file(&content)
}

/// Starts the log, raises limits, and runs a server on a runtime of all cores.
pub(crate) fn run_until_stopped(
    logging: LoggingConfig,
    running: impl Future<Output = anyhow::Result<()>>,
) -> anyhow::Result<()> {
    logging::init(logging.json, logging.verbosity);
    raise_file_limit();
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(running)
}

/// Raises the soft limit of open files to the hard one, because every watch may be a connection.
fn raise_file_limit() {
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
