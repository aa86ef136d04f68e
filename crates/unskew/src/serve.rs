//! `unskew serve`: one API server.

mod audit;
mod authentication;
mod certificates;
mod config;
mod controllers;
mod flag_table;
mod peers;
mod run;
mod storage;
mod storageversion;

use std::process::ExitCode;

use crate::flags::{self, FlagError, FlagValues};
use crate::{EXIT_UNAVAILABLE, EXIT_USAGE, print_error, print_line};

pub(crate) use config::Config;

/// Reads the flags and runs the server until it is told to stop.
pub(crate) fn main(args: impl IntoIterator<Item = String>) -> ExitCode {
    let config = match read_config(args) {
        Ok(config) => config,
        Err(FlagError::Help) => {
            print_line(&mut std::io::stdout(), &format!("{HELP}\n\nFlags:\n{}", flags::render_help(flag_table::FLAGS)));
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            print_line(&mut std::io::stderr(), &format!("unskew serve: {error}\nunskew serve --help lists the flags."));
            return ExitCode::from(EXIT_USAGE);
        }
    };
    match run::run(config) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            print_error("unskew serve", &error);
            ExitCode::from(if error.is::<FlagError>() { EXIT_USAGE } else { EXIT_UNAVAILABLE })
        }
    }
}

const HELP: &str = "Run a Kubernetes API server on one SQLite file, or on etcd.

Without any flag it listens on 127.0.0.1:6443, keeps its data, keys and an admin kubeconfig below ./unskew-data, and lets
nobody in without credentials but for health and version:

  unskew serve
  kubectl --kubeconfig unskew-data/admin.kubeconfig get namespaces";

fn read_config(args: impl IntoIterator<Item = String>) -> Result<Config, FlagError> {
    let mut values = FlagValues::parse(flag_table::FLAGS, args)?;
    if let Some(file) = values.given_value("config").map(str::to_owned) {
        let content = std::fs::read_to_string(&file)
            .map_err(|error| FlagError::ConfigFile(format!("cannot read {file}: {error}")))?;
        values = values.with_config_file(&content)?;
    }
    Config::from_flags(&values)
}
