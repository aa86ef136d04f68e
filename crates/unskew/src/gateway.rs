//! `unskew gateway`: the mixed-version proxy in front of stock kube-apiservers.

mod config;
mod flag_table;
mod kubeadm;

use std::process::ExitCode;

use server::gateway::Gateway;

use crate::flags::{FlagError, FlagValues};
use crate::print_line;
use crate::process::{ServerCommand, run_until_stopped, wait_for_stop_signal};
use config::GatewaySettings;

/// Parses the flags and runs the gateway until SIGTERM or SIGINT.
pub(crate) fn main(args: impl IntoIterator<Item = String>) -> ExitCode {
    let command = ServerCommand { name: "unskew gateway", help: HELP, flags: flag_table::FLAGS };
    command.run(args, run)
}

const HELP: &str = "Run the mixed-version proxy in front of stock kube-apiservers.

Several kube-apiservers of different versions answer as one through it; nothing is changed on them. On a node that kubeadm
made, certificates, keys and the local kube-apiserver are found below /etc/kubernetes; --print-config says what was found.
Elsewhere:

  unskew gateway --upstream=https://10.0.0.1:6443 --upstream=https://10.0.0.2:6443 \\
    --upstream-ca-file=ca.crt --client-ca-file=ca.crt \\
    --proxy-client-cert-file=front-proxy-client.crt --proxy-client-key-file=front-proxy-client.key \\
    --tls-cert-file=gateway.crt --tls-private-key-file=gateway.key";

fn run(values: &FlagValues) -> Result<anyhow::Result<()>, FlagError> {
    let found = kubeadm::detect(values)?;
    if values.is_true("print-config") {
        print_line(&mut std::io::stdout(), found.render_config(values).trim_end());
        return Ok(Ok(()));
    }
    let GatewaySettings { config, logging } = GatewaySettings::from_flags(values, &found)?;
    Ok(run_until_stopped(logging, async {
        let gateway = Gateway::start(config).await?;
        print_line(&mut std::io::stdout(), &format!("unskew gateway: https://{}", gateway.address()));
        gateway.run_until(wait_for_stop_signal()).await
    }))
}
