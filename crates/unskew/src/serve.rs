//! `unskew serve`: one API server.

mod admission_file;
mod authentication;
mod config;
mod flag_table;
mod peers;

use std::process::ExitCode;

use server::Server;

use crate::print_line;
use crate::process::{ServerCommand, run_until_stopped, wait_for_stop_signal};
use config::ServeInvocation;

/// Parses the flags and runs the server until SIGTERM or SIGINT.
pub(crate) fn main(args: impl IntoIterator<Item = String>) -> ExitCode {
    let command = ServerCommand { name: "unskew serve", help: HELP, flags: flag_table::FLAGS };
    command.run(args, |values| Ok(run(ServeInvocation::from_flags(values)?)))
}

const HELP: &str = "Run a Kubernetes API server on one SQLite file, or on etcd.

Without flags it listens on 127.0.0.1:6443, keeps data, keys and an admin kubeconfig below ./unskew-data, and requires
credentials for everything but health and version:

  unskew serve
  kubectl --kubeconfig unskew-data/admin.kubeconfig get namespaces";

fn run(invocation: ServeInvocation) -> anyhow::Result<()> {
    let ServeInvocation { config, logging, startup_warnings, ignored_flags } = invocation;
    run_until_stopped(logging, async {
        if !ignored_flags.is_empty() {
            tracing::warn!(flags = ignored_flags.join(", "), "flags without effect are ignored");
        }
        for notice in &startup_warnings {
            tracing::warn!("{notice}");
        }
        let server = Server::start(config).await?;
        print_line(&mut std::io::stdout(), &format!("unskew serve: https://{}", server.address()));
        if let Some(file) = server.admin_kubeconfig() {
            let command = format!("unskew serve: kubectl --kubeconfig {} get namespaces", file.display());
            print_line(&mut std::io::stdout(), &command);
        }
        server.run_until(wait_for_stop_signal()).await
    })
}
