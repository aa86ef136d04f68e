//! `unskew serve`: one API server.

mod authentication;
mod config;
mod flag_table;
mod peers;

use std::process::ExitCode;

use server::{RejectedConfig, Server};

use crate::flags::{self, FlagError, FlagValues};
use crate::process::{raise_file_limit, wait_for_stop_signal};
use crate::{EXIT_UNAVAILABLE, EXIT_USAGE, logging, print_error, print_line};
use config::ServeInvocation;

/// Parses the flags and runs the server until SIGTERM or SIGINT.
pub(crate) fn main(args: impl IntoIterator<Item = String>) -> ExitCode {
    let invocation = match read_flags(args) {
        Ok(invocation) => invocation,
        Err(FlagError::Help) => {
            print_line(&mut std::io::stdout(), &format!("{HELP}\n\nFlags:\n{}", flags::render_help(flag_table::FLAGS)));
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            print_line(&mut std::io::stderr(), &format!("unskew serve: {error}\nunskew serve --help lists the flags."));
            return ExitCode::from(EXIT_USAGE);
        }
    };
    match run(invocation) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            print_error("unskew serve", &error);
            ExitCode::from(if error.is::<RejectedConfig>() { EXIT_USAGE } else { EXIT_UNAVAILABLE })
        }
    }
}

const HELP: &str = "Run a Kubernetes API server on one SQLite file, or on etcd.

Without flags it listens on 127.0.0.1:6443, keeps data, keys and an admin kubeconfig below ./unskew-data, and requires
credentials for everything but health and version:

  unskew serve
  kubectl --kubeconfig unskew-data/admin.kubeconfig get namespaces";

fn read_flags(args: impl IntoIterator<Item = String>) -> Result<ServeInvocation, FlagError> {
    let mut values = FlagValues::parse(flag_table::FLAGS, args)?;
    if let Some(file) = values.given_value("config").map(str::to_owned) {
        let content = std::fs::read_to_string(&file)
            .map_err(|error| FlagError::ConfigFile(format!("cannot read {file}: {error}")))?;
        values = values.with_config_file(&content)?;
    }
    ServeInvocation::from_flags(&values)
}

/// Runs the server until SIGTERM or SIGINT.
fn run(invocation: ServeInvocation) -> anyhow::Result<()> {
    let ServeInvocation { config, logging, startup_warnings, ignored_flags } = invocation;
    logging::init(logging.json, logging.verbosity);
    raise_file_limit();
    if !ignored_flags.is_empty() {
        tracing::warn!(flags = ignored_flags.join(", "), "flags without effect are ignored");
    }
    for notice in &startup_warnings {
        tracing::warn!("{notice}");
    }
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(async {
        let server = Server::start(config).await?;
        print_line(&mut std::io::stdout(), &format!("unskew serve: https://{}", server.address()));
        if let Some(file) = server.admin_kubeconfig() {
            let command = format!("unskew serve: kubectl --kubeconfig {} get namespaces", file.display());
            print_line(&mut std::io::stdout(), &command);
        }
        server.run_until(wait_for_stop_signal()).await
    })
}
