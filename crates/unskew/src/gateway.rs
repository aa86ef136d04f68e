//! `unskew gateway`: the mixed-version proxy in front of stock kube-apiservers.

mod config;
mod kubeadm;
mod run;
mod table;

use std::process::ExitCode;

use crate::flags::{self, FlagError, Values};
use crate::{EXIT_UNAVAILABLE, EXIT_USAGE, complain, say};

use config::Config;

/// Reads the flags and runs the gateway until it is told to stop.
pub(crate) fn main(args: impl IntoIterator<Item = String>) -> ExitCode {
    let config = match read(args) {
        Ok(Asked::Run(config)) => config,
        Ok(Asked::Print(page)) => {
            say(&mut std::io::stdout(), page.trim_end());
            return ExitCode::SUCCESS;
        }
        Err(FlagError::Help) => {
            say(&mut std::io::stdout(), &format!("{HELP}\n\nFlags:\n{}", flags::help(table::TABLE)));
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            say(&mut std::io::stderr(), &format!("unskew gateway: {error}\nunskew gateway --help lists the flags."));
            return ExitCode::from(EXIT_USAGE);
        }
    };
    match run::run(*config) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain("unskew gateway", &error);
            ExitCode::from(if error.is::<FlagError>() { EXIT_USAGE } else { EXIT_UNAVAILABLE })
        }
    }
}

const HELP: &str = "Run the mixed-version proxy in front of stock kube-apiservers.

Several kube-apiservers of different versions answer as one through it; nothing is changed on them. On a node that kubeadm
made, certificates, keys and the local kube-apiserver are found below /etc/kubernetes; --print-config says what was found.
Elsewhere:

  unskew gateway --upstream=https://10.0.0.1:6443 --upstream=https://10.0.0.2:6443 \\
    --upstream-ca-file=ca.crt --client-ca-file=ca.crt \\
    --proxy-client-cert-file=front-proxy-client.crt --proxy-client-key-file=front-proxy-client.key \\
    --tls-cert-file=gateway.crt --tls-private-key-file=gateway.key";

/// What the user asked for.
enum Asked {
    Run(Box<Config>),
    /// To be told what would run.
    Print(String),
}

fn read(args: impl IntoIterator<Item = String>) -> Result<Asked, FlagError> {
    let mut values = Values::parse(table::TABLE, args)?;
    if let Some(file) = values.given("config").map(str::to_owned) {
        let content =
            std::fs::read_to_string(&file).map_err(|error| FlagError::File(format!("cannot read {file}: {error}")))?;
        values = values.with_file(&content)?;
    }
    let found = kubeadm::find(&values)?;
    if values.is("print-config") {
        return Ok(Asked::Print(found.describe(&values)));
    }
    Config::from_flags(&values, &found).map(|config| Asked::Run(Box::new(config)))
}
