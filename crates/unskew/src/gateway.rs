//! `unskew gateway`: the mixed-version proxy in front of stock kube-apiservers.

mod config;
mod flag_table;
mod kubeadm;

use std::process::ExitCode;

use server::RejectedConfig;
use server::gateway::Gateway;

use crate::flags::{self, FlagError, FlagValues};
use crate::process::{raise_file_limit, wait_for_stop_signal};
use crate::{EXIT_UNAVAILABLE, EXIT_USAGE, logging, print_error, print_line};
use config::GatewaySettings;

/// Parses the flags and runs the gateway until SIGTERM or SIGINT.
pub(crate) fn main(args: impl IntoIterator<Item = String>) -> ExitCode {
    let settings = match read_flags(args) {
        Ok(GatewayInvocation::Run(settings)) => settings,
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
    match run(*settings) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            print_error("unskew gateway", &error);
            ExitCode::from(if error.is::<RejectedConfig>() { EXIT_USAGE } else { EXIT_UNAVAILABLE })
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

/// The two things that the command does.
enum GatewayInvocation {
    Run(Box<GatewaySettings>),
    /// `--print-config`: the page to print.
    PrintConfig(String),
}

fn read_flags(args: impl IntoIterator<Item = String>) -> Result<GatewayInvocation, FlagError> {
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
    GatewaySettings::from_flags(&values, &found).map(|settings| GatewayInvocation::Run(Box::new(settings)))
}

/// Runs the gateway until SIGTERM or SIGINT.
fn run(settings: GatewaySettings) -> anyhow::Result<()> {
    logging::init(settings.log_json, settings.verbosity);
    raise_file_limit();
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(async {
        let gateway = Gateway::start(settings.config).await?;
        print_line(&mut std::io::stdout(), &format!("unskew gateway: https://{}", gateway.address()));
        gateway.run_until(wait_for_stop_signal()).await
    })
}
