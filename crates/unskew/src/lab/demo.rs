//! `unskew demo`: shows and checks the behaviour of the KEPs on a temporary lab.

use std::process::ExitCode;

use ::lab::data_dir::DataDir;
use ::lab::data_dir::state::LabOptions;
use ::lab::demo::{Demo, GATE_OFF, GATE_ON, RELEASES};
use ::lab::{Config, DataDirRetention, Lab};
use anyhow::Context as _;

use super::environment;
use crate::{EXIT_CHECK_FAILED, print_error, print_line};

pub(super) async fn run() -> anyhow::Result<ExitCode> {
    let layout = environment::temporary_data_dir();
    let told = match run_half(&layout, GATE_OFF, DataDirRetention::Keep).await {
        Ok(()) => run_half(&layout, GATE_ON, DataDirRetention::Delete).await,
        Err(error) => {
            let _ = std::fs::remove_dir_all(layout.path());
            Err(error)
        }
    };
    match told {
        Ok(()) => {
            print_line(&mut std::io::stdout(), "\nEvery line above was a real request, and every claim was checked.");
            Ok(ExitCode::SUCCESS)
        }
        Err(error) => {
            print_error("unskew demo", &error);
            Ok(ExitCode::from(EXIT_CHECK_FAILED))
        }
    }
}

/// Runs one half of the demo, on a lab of its own in the same folder.
async fn run_half(data_dir: &DataDir, gate: &str, retention: DataDirRetention) -> anyhow::Result<()> {
    let options = LabOptions {
        releases: Some(RELEASES.map(str::to_owned).to_vec()),
        feature_gates: Some(vec![gate.to_owned()]),
        ..LabOptions::default()
    };
    let lab =
        Lab::open(Config { data_dir: data_dir.clone(), options, etcd_binary: None, kubeconfig_copy: None, retention })
            .await?;
    let handle = lab.handle();
    let running = async {
        let outcome = async {
            handle.wait_until_ready().await?;
            let mut line = |line: &str| print_line(&mut std::io::stdout(), line);
            let mut demo = Demo::new(&handle, &mut line);
            match gate {
                GATE_OFF => demo.run_without_proxy().await?,
                _ => demo.run_with_proxy().await?,
            }
            anyhow::Ok(())
        };
        let outcome = tokio::select! {
            outcome = outcome => outcome,
            () = handle.stop.cancelled() => Err(anyhow::anyhow!("the lab stopped")),
            () = super::up::wait_for_signal() => Err(anyhow::anyhow!("interrupted")),
        };
        handle.stop.cancel();
        outcome
    };
    let (ran, outcome) = tokio::join!(lab.run(), running);
    ran.context("the lab")?;
    outcome
}
