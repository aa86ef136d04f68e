//! `unskew gateway`: the mixed-version proxy in front of stock kube-apiservers.

mod config;
mod flag_table;
mod kubeadm;
mod run;

use std::process::ExitCode;

use crate::flags::{self, FlagError, FlagValues};
use crate::{EXIT_UNAVAILABLE, EXIT_USAGE, print_error, print_line};

use config::Config;

/// Reads the flags and runs the gateway until it is told to stop.
pub(crate) fn main(args: impl IntoIterator<Item = String>) -> ExitCode {
    let config = match read_config(args) {
        Ok(GatewayInvocation::Run(config)) => config,
        Ok(GatewayInvocation::PrintConfig(page)) => {
            print_line(&mut std::io::stdout(), page.trim_end());
            return ExitCode::SUCCESS;
        }
        Err(FlagError::Help) => {
            print_line(&mut std::io::stdout(), &format!("{HELP}\n\nFlags:\n{}", flags::render_help(flag_table::FLAGS)));
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            print_line(
                &mut std::io::stderr(),
                &format!("unskew gateway: {error}\nunskew gateway --help lists the flags."),
            );
            return ExitCode::from(EXIT_USAGE);
        }
    };
    match run::run(*config) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            print_error("unskew gateway", &error);
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
enum GatewayInvocation {
    Run(Box<Config>),
    /// To be told what would run.
    PrintConfig(String),
}

fn read_config(args: impl IntoIterator<Item = String>) -> Result<GatewayInvocation, FlagError> {
    let mut values = FlagValues::parse(flag_table::FLAGS, args)?;
    if let Some(file) = values.given_value("config").map(str::to_owned) {
        let content = std::fs::read_to_string(&file)
            .map_err(|error| FlagError::ConfigFile(format!("cannot read {file}: {error}")))?;
        values = values.with_config_file(&content)?;
    }
    let found = kubeadm::detect(&values)?;
    if values.is_true("print-config") {
        return Ok(GatewayInvocation::PrintConfig(found.render_config(&values)));
    }
    Config::from_flags(&values, &found).map(|config| GatewayInvocation::Run(Box::new(config)))
}
