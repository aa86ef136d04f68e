//! `unskew demo`: the story of the KEPs, on a lab that leaves nothing behind.

use std::process::ExitCode;

use ::lab::demo::{GATE_OFF, GATE_ON, RELEASES, Teller};
use ::lab::folder::Layout;
use ::lab::folder::state::Wish;
use ::lab::{Config, Keep, Lab};
use anyhow::Context as _;

use super::place;
use crate::{EXIT_NOT_CLEAN, complain, say};

pub(super) async fn run() -> anyhow::Result<ExitCode> {
    let layout = place::throw_away();
    let told = match half(&layout, GATE_OFF, Keep::Folder).await {
        Ok(()) => half(&layout, GATE_ON, Keep::Nothing).await,
        Err(error) => {
            let _ = std::fs::remove_dir_all(layout.folder());
            Err(error)
        }
    };
    match told {
        Ok(()) => {
            say(&mut std::io::stdout(), "\nEvery line above was a real request, and every claim was checked.");
            Ok(ExitCode::SUCCESS)
        }
        Err(error) => {
            complain("unskew demo", &error);
            Ok(ExitCode::from(EXIT_NOT_CLEAN))
        }
    }
}

/// One half of the story, on a lab of its own in the same folder.
async fn half(layout: &Layout, gate: &str, keep: Keep) -> anyhow::Result<()> {
    let wish = Wish {
        releases: Some(RELEASES.map(str::to_owned).to_vec()),
        feature_gates: Some(vec![gate.to_owned()]),
        ..Wish::default()
    };
    let lab = Lab::open(Config { layout: layout.clone(), wish, etcd: None, kubeconfig: None, keep }).await?;
    let inside = lab.inside();
    let telling = async {
        let told = async {
            inside.ready().await?;
            let mut line = |line: &str| say(&mut std::io::stdout(), line);
            let mut teller = Teller::new(&inside, &mut line);
            match gate {
                GATE_OFF => teller.without_proxy().await?,
                _ => teller.with_proxy().await?,
            }
            anyhow::Ok(())
        };
        let told = tokio::select! {
            told = told => told,
            () = inside.stop.cancelled() => Err(anyhow::anyhow!("the lab stopped")),
            () = super::up::told_to_stop() => Err(anyhow::anyhow!("interrupted")),
        };
        inside.stop.cancel();
        told
    };
    let (ran, told) = tokio::join!(lab.run(), telling);
    ran.context("the lab")?;
    told
}
