//! `unskew serve`: one API server.

mod audit;
mod authentication;
mod config;
mod controllers;
mod peers;
mod run;
mod storage;
mod storageversion;
mod table;
mod trust;

use std::process::ExitCode;

use crate::flags::{self, FlagError, Values};
use crate::{EXIT_UNAVAILABLE, EXIT_USAGE, complain, say};

pub(crate) use config::Config;

/// Reads the flags and runs the server until it is told to stop.
pub(crate) fn main(args: impl IntoIterator<Item = String>) -> ExitCode {
    let config = match read(args) {
        Ok(config) => config,
        Err(FlagError::Help) => {
            say(&mut std::io::stdout(), &format!("{HELP}\n\nFlags:\n{}", flags::help(table::TABLE)));
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            say(&mut std::io::stderr(), &format!("unskew serve: {error}\nunskew serve --help lists the flags."));
            return ExitCode::from(EXIT_USAGE);
        }
    };
    match run::run(config) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain("unskew serve", &error);
            ExitCode::from(if error.is::<FlagError>() { EXIT_USAGE } else { EXIT_UNAVAILABLE })
        }
    }
}

const HELP: &str = "Run a Kubernetes API server on one SQLite file, or on etcd.

Without any flag it listens on 127.0.0.1:6443, keeps its data, keys and an admin kubeconfig below ./unskew-data, and lets
nobody in without credentials but for health and version:

  unskew serve
  kubectl --kubeconfig unskew-data/admin.kubeconfig get namespaces";

fn read(args: impl IntoIterator<Item = String>) -> Result<Config, FlagError> {
    let mut values = Values::parse(table::TABLE, args)?;
    if let Some(file) = values.given("config").map(str::to_owned) {
        let content =
            std::fs::read_to_string(&file).map_err(|error| FlagError::File(format!("cannot read {file}: {error}")))?;
        values = values.with_file(&content)?;
    }
    Config::from_flags(&values)
}
